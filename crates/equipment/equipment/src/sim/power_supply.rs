//! A magnet power supply: a set point that is approached on a ramp, and a load with a lag.

use super::{Clock, Lag, Noise};
use crate::datum::{Datum, DeviceFault};
use crate::device::Device;
use base::{DurNs, MonoNs};

/// The properties of a power supply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerSupplySpec {
    /// Maximum current in both directions, in amperes.
    pub current_max: f64,
    /// Ramp rate of the current, in amperes per second.
    pub ramp: f64,
    /// Time constant of the load.
    pub lag: DurNs,
    /// The supply is on at the start.
    pub on: bool,
    /// Standard deviation of a reading, in amperes.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}

impl Default for PowerSupplySpec {
    fn default() -> Self {
        Self { current_max: 600.0, ramp: 100.0, lag: DurNs::from_ms(50), on: false, noise: 0.0, seed: 1 }
    }
}

/// The supply.
#[derive(Clone, Debug)]
pub struct PowerSupply {
    spec: PowerSupplySpec,
    on: bool,
    setpoint: f64,
    /// The present value of the ramp.
    ramped: f64,
    load: Lag,
    noise: Noise,
    clock: Clock,
}

impl PowerSupply {
    /// The points. A point number of [`Device`] is an index in this list.
    pub const POINTS: &'static [&'static str] = &["setpoint", "current", "on", "ramping"];
    /// The writable points.
    pub const WRITABLE: &'static [&'static str] = &["setpoint", "on"];

    /// A supply with a current of 0.
    #[must_use]
    pub fn new(spec: PowerSupplySpec) -> Self {
        let load = Lag { value: 0.0, time: spec.lag };
        let (noise, clock) = (Noise::new(spec.seed), Clock::default());
        Self { spec, on: spec.on, setpoint: 0.0, ramped: 0.0, load, noise, clock }
    }

    fn advance(&mut self, now: MonoNs) {
        let mut seconds = self.clock.seconds_until(now);
        let target = if self.on { self.setpoint } else { 0.0 };
        let way = target - self.ramped;
        let ramping = if self.spec.ramp > 0.0 { (way.abs() / self.spec.ramp).min(seconds) } else { 0.0 };
        if ramping > 0.0 {
            let rate = self.spec.ramp.copysign(way);
            self.load.follow_ramp(self.ramped, rate, ramping);
            self.ramped += rate * ramping;
            seconds -= ramping;
        }
        if seconds > 0.0 {
            self.ramped = target;
            self.load.follow(target, seconds);
        }
    }

    /// The current without noise.
    #[must_use]
    pub fn current(&mut self, now: MonoNs) -> f64 {
        self.advance(now);
        self.load.value
    }
}

impl Device for PowerSupply {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.advance(now);
        Ok(Datum::Number(match point {
            0 => self.setpoint,
            1 => self.load.value + self.noise.next() * self.spec.noise,
            2 => f64::from(u8::from(self.on)),
            _ => f64::from(u8::from((self.ramped - if self.on { self.setpoint } else { 0.0 }).abs() > 1e-9)),
        }))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, now: MonoNs) -> Result<(), DeviceFault> {
        self.advance(now);
        let value = value.number().ok_or(DeviceFault::Refused("a power supply takes numbers".into()))?;
        match point {
            0 if value.abs() > self.spec.current_max => {
                Err(DeviceFault::Refused("the set point is beyond the supply's highest current".into()))
            }
            0 => {
                self.setpoint = value;
                Ok(())
            }
            2 => {
                self.on = value != 0.0;
                Ok(())
            }
            _ => Err(DeviceFault::Refused("this point of a power supply is read only".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> MonoNs {
        MonoNs(1_000_000_000 + ms * 1_000_000)
    }

    fn switched_on(spec: PowerSupplySpec) -> PowerSupply {
        let mut supply = PowerSupply::new(spec);
        supply.write(2, &Datum::Number(1.0), at(0)).unwrap();
        supply
    }

    #[test]
    fn the_current_ramps_with_a_lag_to_its_set_point() {
        let mut supply = switched_on(PowerSupplySpec::default());
        supply.write(0, &Datum::Number(100.0), at(0)).unwrap();
        let halfway = supply.current(at(500));
        assert!((halfway - 45.0).abs() < 0.1, "50 A ramped, 100 A/s × 50 ms behind: {halfway}");
        assert_eq!(supply.read(3, at(500)), Ok(Datum::Number(1.0)));
        assert!((supply.current(at(2000)) - 100.0).abs() < 1e-6);
        assert_eq!(supply.read(3, at(2000)), Ok(Datum::Number(0.0)));
        supply.write(2, &Datum::Number(0.0), at(2000)).unwrap();
        assert!(supply.current(at(5000)).abs() < 1e-6, "switched off");
        assert!(supply.write(0, &Datum::Number(601.0), at(5000)).is_err());
    }

    proptest! {
        #[test]
        fn the_current_does_not_depend_on_how_often_it_is_read(target in -500f64..500.0, asked in proptest::collection::vec(1u64..400, 1..20)) {
            let (mut often, mut once) = (switched_on(PowerSupplySpec::default()), switched_on(PowerSupplySpec::default()));
            often.write(0, &Datum::Number(target), at(0)).unwrap();
            once.write(0, &Datum::Number(target), at(0)).unwrap();
            let mut ms = 0;
            let mut seen = 0.0;
            for step in asked {
                ms += step;
                seen = often.current(at(ms));
            }
            prop_assert!((seen - once.current(at(ms))).abs() < 1e-9);
        }
    }
}
