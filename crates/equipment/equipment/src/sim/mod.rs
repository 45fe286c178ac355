//! Simulated devices, for tests and examples: pure models with `now` as an argument.
//!
//! Each model is solved in closed form from the previous call to `now`. Its behaviour does not depend on the number of calls.
//! Noise is reproducible by its seed.

mod bpm;
mod power_supply;
mod rf_station;

pub use bpm::{Bpm, BpmSpec};
pub use power_supply::{PowerSupply, PowerSupplySpec};
pub use rf_station::{RfStation, RfStationSpec};

use base::{DurNs, MonoNs};

/// Reproducible noise with mean 0.
#[derive(Clone, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        // The generator would never leave the state zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Approximately normal with standard deviation 1: the sum of twelve uniform numbers.
    pub(crate) fn next(&mut self) -> f64 {
        (0..12).fold(-6.0, |sum, _| {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            sum + (self.0 >> 11) as f64 / (1u64 << 53) as f64
        })
    }
}

/// The time since the previous call in seconds: zero at the first call, never negative.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock(Option<MonoNs>);

impl Clock {
    pub(crate) fn seconds_until(&mut self, now: MonoNs) -> f64 {
        let last = self.0.replace(now).unwrap_or(now);
        (now - last).0.max(0) as f64 / 1e9
    }
}

/// A value that follows a target with a time constant. Each step is solved exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    pub(crate) value: f64,
    pub(crate) time: DurNs,
}

impl Lag {
    /// Advances by `seconds` towards a constant target.
    pub(crate) fn follow(&mut self, target: f64, seconds: f64) {
        let time = self.time.0 as f64 / 1e9;
        let share = if time > 0.0 { 1.0 - (-seconds / time).exp() } else { 1.0 };
        self.value += (target - self.value) * share;
    }

    /// Advances by `seconds` while the target moves from `from` at `rate` per second.
    pub(crate) fn follow_ramp(&mut self, from: f64, rate: f64, seconds: f64) {
        let time = self.time.0 as f64 / 1e9;
        if time <= 0.0 {
            self.value = from + rate * seconds;
            return;
        }
        // y' = (from + rate t - y) / T has the solution y = from + rate (t - T) + C exp(-t/T).
        let constant = self.value - from + rate * time;
        self.value = from + rate * (seconds - time) + constant * (-seconds / time).exp();
    }
}
