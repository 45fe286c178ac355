//! A beam position monitor: a drifting position, noise, and a corrector that moves the beam.

use super::{Clock, Noise};
use crate::datum::{Datum, DeviceFault};
use crate::device::Device;
use base::MonoNs;
use std::f64::consts::TAU;

/// The properties of a monitor. Positions are in millimetres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BpmSpec {
    /// Horizontal beam position without corrector and drift.
    pub x: f64,
    /// Vertical beam position without drift.
    pub y: f64,
    /// Amplitude of a slow drift with a period of 20 s.
    pub drift: f64,
    /// Horizontal shift of the beam by a kick of 1.
    pub response: f64,
    /// Standard deviation of a reading.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}

impl Default for BpmSpec {
    fn default() -> Self {
        Self { x: 0.0, y: 0.0, drift: 0.0, response: 1.0, noise: 0.0, seed: 1 }
    }
}

/// Period of the drift, in seconds.
const DRIFT_PERIOD: f64 = 20.0;

/// The monitor.
#[derive(Clone, Debug)]
pub struct Bpm {
    spec: BpmSpec,
    kick: f64,
    seconds: f64,
    noise: Noise,
    clock: Clock,
}

impl Bpm {
    /// The points.
    pub const POINTS: &'static [&'static str] = &["x", "y", "kick"];
    /// The writable points.
    pub const WRITABLE: &'static [&'static str] = &["kick"];

    /// A monitor with the beam position of `spec`.
    #[must_use]
    pub fn new(spec: BpmSpec) -> Self {
        Self { spec, kick: 0.0, seconds: 0.0, noise: Noise::new(spec.seed), clock: Clock::default() }
    }
}

impl Device for Bpm {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.seconds = (self.seconds + self.clock.seconds_until(now)) % DRIFT_PERIOD;
        let drift = self.spec.drift * (TAU * self.seconds / DRIFT_PERIOD).sin();
        Ok(Datum::Number(match point {
            0 => self.spec.x + drift + self.kick * self.spec.response + self.noise.next() * self.spec.noise,
            1 => self.spec.y + drift + self.noise.next() * self.spec.noise,
            _ => self.kick,
        }))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        match (point, value.number()) {
            (2, Some(value)) => {
                self.kick = value;
                Ok(())
            }
            (2, None) => Err(DeviceFault::Refused("a kick is a number".into())),
            _ => Err(DeviceFault::Refused("this point of a monitor is read only".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kick_moves_the_beam_and_noise_has_the_configured_width() {
        let spec = BpmSpec { x: 0.2, response: 0.1, noise: 0.01, ..BpmSpec::default() };
        let mut bpm = Bpm::new(spec);
        bpm.write(2, &Datum::Number(-2.0), MonoNs(0)).unwrap();
        let readings: Vec<f64> = (0..4000).map(|_| bpm.read(0, MonoNs(0)).unwrap().number().unwrap()).collect();
        let mean = readings.iter().sum::<f64>() / 4000.0;
        let deviation = (readings.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0).sqrt();
        assert!(mean.abs() < 0.001 && (deviation - 0.01).abs() < 0.001, "{mean} {deviation}");
        assert!(bpm.write(0, &Datum::Number(0.0), MonoNs(0)).is_err());
    }
}
