//! An RF station: amplitude and phase that follow their set points, a frequency, and a switch that trips.

use super::{Clock, Lag, Noise};
use crate::datum::{Datum, DeviceFault};
use crate::device::Device;
use base::{DurNs, MonoNs};

/// The properties of a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RfStationSpec {
    /// Maximum amplitude, in megavolts. A higher set point trips the station.
    pub amplitude_max: f64,
    /// Fill time of the cavity.
    pub fill: DurNs,
    /// Standard deviation of an amplitude reading, in megavolts.
    pub noise: f64,
    /// Frequency at the start, in hertz.
    pub frequency: f64,
    /// Seed of the noise.
    pub seed: u64,
}

impl Default for RfStationSpec {
    fn default() -> Self {
        Self { amplitude_max: 5.0, fill: DurNs::from_ms(20), noise: 0.0, frequency: 508.58e6, seed: 1 }
    }
}

/// The station.
#[derive(Clone, Debug)]
pub struct RfStation {
    spec: RfStationSpec,
    on: bool,
    tripped: bool,
    wanted: (f64, f64),
    frequency: f64,
    amplitude: Lag,
    phase: Lag,
    noise: Noise,
    clock: Clock,
}

impl RfStation {
    /// The points: amplitudes in megavolts, phases in degrees, the frequency in hertz. Writing 1 to `reset` clears a trip.
    pub const POINTS: &'static [&'static str] =
        &["amplitude_set", "amplitude", "phase_set", "phase", "frequency", "on", "tripped", "reset"];
    /// The writable points.
    pub const WRITABLE: &'static [&'static str] = &["amplitude_set", "phase_set", "frequency", "on", "reset"];

    /// A station that is off.
    #[must_use]
    pub fn new(spec: RfStationSpec) -> Self {
        let lag = Lag { value: 0.0, time: spec.fill };
        let noise = Noise::new(spec.seed);
        let (on, tripped, wanted, frequency) = (false, false, (0.0, 0.0), spec.frequency);
        Self { spec, on, tripped, wanted, frequency, amplitude: lag, phase: lag, noise, clock: Clock::default() }
    }

    fn advance(&mut self, now: MonoNs) {
        let seconds = self.clock.seconds_until(now);
        self.amplitude.follow(if self.on { self.wanted.0 } else { 0.0 }, seconds);
        self.phase.follow(self.wanted.1, seconds);
    }
}

impl Device for RfStation {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.advance(now);
        let yes = |flag: bool| f64::from(u8::from(flag));
        Ok(Datum::Number(match point {
            0 => self.wanted.0,
            1 => self.amplitude.value + self.noise.next() * self.spec.noise,
            2 => self.wanted.1,
            3 => self.phase.value,
            4 => self.frequency,
            5 => yes(self.on),
            _ => yes(self.tripped),
        }))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, now: MonoNs) -> Result<(), DeviceFault> {
        self.advance(now);
        let value = value.number().ok_or(DeviceFault::Refused("an RF station takes numbers".into()))?;
        match point {
            0 if value > self.spec.amplitude_max => {
                (self.on, self.tripped) = (false, true);
                return Err(DeviceFault::Refused("the amplitude is too high: the station has tripped".into()));
            }
            0 => self.wanted.0 = value,
            2 => self.wanted.1 = value,
            4 => self.frequency = value,
            5 if value != 0.0 && self.tripped => {
                return Err(DeviceFault::Refused("the station has tripped; write 1 to `reset` first".into()));
            }
            5 => self.on = value != 0.0,
            7 => self.tripped = false,
            _ => return Err(DeviceFault::Refused("this point of an RF station is read only".into())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_fills_trips_and_is_reset() {
        let ms = |ms: u64| MonoNs(ms * 1_000_000);
        let mut station = RfStation::new(RfStationSpec::default());
        let mut write = |point, value, now| station.write(point, &Datum::Number(value), now);
        write(5, 1.0, ms(0)).unwrap();
        write(0, 2.0, ms(0)).unwrap();
        assert!(write(0, 9.0, ms(100)).is_err(), "too high");
        assert!(write(5, 1.0, ms(101)).is_err(), "tripped");
        write(7, 1.0, ms(102)).unwrap();
        write(5, 1.0, ms(1000)).unwrap();
        let amplitude = station.read(1, ms(1020)).unwrap().number().unwrap();
        assert!((amplitude - 2.0 * (1.0 - (-1.0f64).exp())).abs() < 1e-3, "one time constant: {amplitude}");
    }
}
