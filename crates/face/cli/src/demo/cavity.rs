//! A simulated RF cavity and its controller: the computation of the LLRF demo loop.
//!
//! Pure arithmetic on fixed memory: no allocation, no system call.

use std::f64::consts::TAU;

/// A complex number: the in-phase and quadrature parts of a signal's envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    pub(super) fn polar(amplitude: f64, phase: f64) -> Self {
        let (sin, cos) = phase.sin_cos();
        Self { re: amplitude * cos, im: amplitude * sin }
    }

    pub(super) fn amplitude(self) -> f64 {
        self.re.hypot(self.im)
    }

    /// The phase in radians, -π to π.
    pub(super) fn phase(self) -> f64 {
        self.im.atan2(self.re)
    }

    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn times(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }

    fn over(self, other: Self) -> Self {
        let square = other.re * other.re + other.im * other.im;
        self.times(Self { re: other.re / square, im: -other.im / square })
    }
}

/// A reproducible source of noise with mean zero.
struct Noise(u64);

impl Noise {
    /// The next value: approximately normal with standard deviation 1, the sum of twelve uniform numbers.
    fn next(&mut self) -> f64 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            sum += (self.0 >> 11) as f64 / (1u64 << 53) as f64;
        }
        sum
    }
}

/// The cavity: `dV/dt = -(ω½ - iΔω) V + ω½ (drive + beam)` for the envelope V. It is normalised so that a drive of 1 on
/// resonance gives a voltage of 1. Each step is solved exactly, with constant drive and beam.
pub(super) struct Cavity {
    voltage: Complex,
    /// Half bandwidth ω½ in rad/s.
    half_bandwidth: f64,
    /// Slow random walk of the resonance frequency in rad/s.
    drift: f64,
    noise: Noise,
    seconds: f64,
}

/// Contribution of the beam to the drive while the beam is on.
const BEAM: Complex = Complex { re: -0.25, im: 0.05 };
/// Period of the beam in seconds. The beam is on during the second half.
const BEAM_PERIOD: f64 = 2.0;
/// Amplitude of the 12 Hz vibration of the resonance frequency in rad/s.
const MICROPHONICS: f64 = TAU * 4.0;
/// Standard deviation of the measurement noise, relative to a voltage of 1.
const MEASUREMENT: f64 = 3e-4;

impl Cavity {
    pub(super) fn new() -> Self {
        Self {
            voltage: Complex::default(),
            half_bandwidth: TAU * 20.0,
            drift: 0.0,
            noise: Noise(0x9e37_79b9_7f4a_7c15),
            seconds: 0.0,
        }
    }

    /// Advances the cavity by `step` seconds under `drive` and returns the measured voltage.
    pub(super) fn step(&mut self, drive: Complex, step: f64) -> Complex {
        self.seconds += step;
        // A random walk with a restoring term, which keeps it within a bandwidth.
        self.drift += self.noise.next() * TAU * 8.0 * step.sqrt() - self.drift * step * 2.0;
        let detuning = self.drift + MICROPHONICS * (TAU * 12.0 * self.seconds).sin();
        let beam = if self.beam_is_on() { BEAM } else { Complex::default() };
        let pole = Complex { re: -self.half_bandwidth, im: detuning };
        let decay = Complex::polar((pole.re * step).exp(), pole.im * step);
        let gained = Complex { re: decay.re - 1.0, im: decay.im }.over(pole);
        let source = drive.plus(beam).times(Complex { re: self.half_bandwidth, im: 0.0 });
        self.voltage = self.voltage.times(decay).plus(gained.times(source));
        let noise = Complex { re: self.noise.next() * MEASUREMENT, im: self.noise.next() * MEASUREMENT };
        self.voltage.plus(noise)
    }

    pub(super) fn beam_is_on(&self) -> bool {
        self.seconds % BEAM_PERIOD >= BEAM_PERIOD / 2.0
    }
}

/// Proportional-integral (PI) controllers for amplitude and phase.
pub(super) struct Controller {
    /// Set-point of the voltage.
    pub(super) amplitude: f64,
    /// Set-point of the phase in radians.
    pub(super) phase: f64,
    /// Whether the loop is closed. If open, the drive stays at its feed-forward value.
    pub(super) closed: bool,
    integral: (f64, f64),
}

const GAIN: f64 = 3.0;
/// Integral gain per step. Its tuning depends on the loop's period.
const INTEGRAL: f64 = 0.4;
/// Maximum output amplitude of the amplifier.
const DRIVE_MAX: f64 = 4.0;
/// Maximum phase correction in radians.
const TURN_MAX: f64 = 1.2;

impl Controller {
    pub(super) fn new(closed: bool) -> Self {
        Self { amplitude: 1.0, phase: 0.0, closed, integral: (0.0, 0.0) }
    }

    /// Returns the drive for the next period from the measurement of this period.
    pub(super) fn drive(&mut self, measured: Complex) -> Complex {
        if !self.closed {
            return Complex::polar(self.amplitude, self.phase);
        }
        let error = self.amplitude - measured.amplitude();
        // Below this voltage the phase is undefined and is not controlled.
        let turn = if measured.amplitude() > 0.05 { wrap(self.phase - measured.phase()) } else { 0.0 };
        let amplitude = act(error, &mut self.integral.0, self.amplitude, (0.0, DRIVE_MAX));
        let phase = act(turn, &mut self.integral.1, self.phase, (self.phase - TURN_MAX, self.phase + TURN_MAX));
        Complex::polar(amplitude, phase)
    }
}

/// One PI step around a feed-forward value. The integral is frozen while the output is at a limit.
fn act(error: f64, integral: &mut f64, feed_forward: f64, (low, high): (f64, f64)) -> f64 {
    let output = feed_forward + GAIN * error + *integral + INTEGRAL * error;
    if (low..=high).contains(&output) {
        *integral += INTEGRAL * error;
    }
    output.clamp(low, high)
}

/// The equivalent angle between -π and π.
fn wrap(angle: f64) -> f64 {
    angle - (angle / TAU).round() * TAU
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = 1e-3;

    /// Maximum errors of amplitude and phase (degrees) over 6 seconds, measured after the first `from` seconds.
    fn errors(closed: bool, from: f64) -> (f64, f64) {
        let (mut cavity, mut controller) = (Cavity::new(), Controller::new(closed));
        let mut measured = Complex::default();
        let mut worst = (0.0f64, 0.0f64);
        for step in 0..6_000 {
            measured = cavity.step(controller.drive(measured), STEP);
            let since_beam_changed = (f64::from(step) * STEP) % (BEAM_PERIOD / 2.0);
            if f64::from(step) * STEP > from && since_beam_changed > 0.1 {
                worst.0 = worst.0.max((measured.amplitude() - 1.0).abs());
                worst.1 = worst.1.max(measured.phase().to_degrees().abs());
            }
        }
        worst
    }

    #[test]
    fn the_closed_loop_settles_and_the_open_one_does_not() {
        let (amplitude, phase) = errors(true, 0.5);
        assert!(amplitude < 0.05 && phase < 4.0, "closed: {amplitude} {phase}");
        let (amplitude, phase) = errors(false, 0.5);
        assert!(amplitude > 0.1 && phase > 5.0, "open: {amplitude} {phase}");
    }

    #[test]
    fn a_cavity_on_resonance_fills_with_its_time_constant() {
        let mut cavity = Cavity::new();
        let pole = cavity.half_bandwidth;
        let filled = (0..8).map(|_| cavity.step(Complex::polar(1.0, 0.0), STEP)).last().unwrap();
        let expected = 1.0 - (-pole * 8.0 * STEP).exp();
        assert!((filled.amplitude() - expected).abs() < 0.02, "{} {expected}", filled.amplitude());
    }

    #[test]
    fn angles_are_compared_the_short_way_round() {
        for (angle, expected) in [(0.5, 0.5), (TAU - 0.1, -0.1), (-TAU - 0.1, -0.1)] {
            assert!((wrap(angle) - expected).abs() < 1e-12, "{angle}");
        }
    }
}
