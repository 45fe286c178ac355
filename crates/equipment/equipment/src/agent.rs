//! Autonomous loops (agents): a PI controller or a copy, each with its own period. Agents are devices: messages start, stop
//! and tune them through their points.

use crate::datum::{Datum, DeviceFault};
use crate::device::{Device, Driver};
use crate::tables::Settings;
use base::{DurNs, MonoNs, Schedule};

/// All points of an agent.
pub(crate) const POINTS: &[&str] =
    &["on", "setpoint", "kp", "ki", "input", "output", "error", "cycles", "faults", "skipped"];

/// The writable points.
pub(crate) const WRITABLE: &[&str] = &["on", "setpoint", "kp", "ki"];

/// Returns whether devices of this driver are agents.
#[must_use]
pub fn is_agent(driver: &Driver) -> bool {
    matches!(driver.word, "feedback" | "copy")
}

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Index in [`POINTS`] for each point of the table.
    points: Vec<usize>,
    on: bool,
    setpoint: f64,
    kp: f64,
    ki: f64,
    /// The factor from input to output; only for `copy`.
    gain: Option<f64>,
    limits: (f64, f64),
    integral: f64,
    input: f64,
    output: f64,
    error: f64,
    cycles: u64,
    faults: u64,
    skipped: u64,
    period: DurNs,
    schedule: Option<Schedule>,
}

impl Agent {
    /// Creates an agent from the settings of its table.
    #[must_use]
    pub fn new(driver: &Driver, settings: &Settings, points: &[String]) -> Self {
        let number = |key: &str, default: f64| settings.number(key).unwrap_or(default);
        let copies = driver.word == "copy";
        let place = |point: &String| POINTS.iter().position(|known| known == point);
        Self {
            // The check accepts no other points.
            points: points.iter().map(|point| place(point).unwrap_or(POINTS.len())).collect(),
            on: settings.flag("on").unwrap_or(copies),
            setpoint: number("setpoint", 0.0),
            kp: number("kp", 0.0),
            ki: number("ki", 0.0),
            gain: copies.then(|| number("gain", 1.0)),
            limits: (number("low", f64::NEG_INFINITY), number("high", f64::INFINITY)),
            integral: 0.0,
            input: 0.0,
            output: 0.0,
            error: 0.0,
            cycles: 0,
            faults: 0,
            skipped: 0,
            period: settings.time("period").unwrap_or(DurNs::from_ms(100)),
            schedule: None,
        }
    }

    /// The start of the next cycle; `None` before the first call of [`is_due`](Self::is_due).
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        self.schedule.as_ref().map(Schedule::due)
    }

    /// Returns whether a cycle must run now, and advances to the next cycle. Missed cycles are skipped and counted.
    pub fn is_due(&mut self, now: MonoNs) -> bool {
        let schedule = self.schedule.get_or_insert_with(|| Schedule::new(0, now, self.period));
        if now < schedule.due() {
            return false;
        }
        self.skipped += schedule.advance(now).count;
        self.on
    }

    /// Runs one cycle: returns the output for a measured input.
    ///
    /// The integral stops while the output is at a limit. This prevents windup: the output leaves the limit without delay.
    pub fn step(&mut self, measured: f64) -> f64 {
        self.cycles += 1;
        self.input = measured;
        let (low, high) = self.limits;
        let wanted = if let Some(gain) = self.gain {
            gain * measured
        } else {
            self.error = self.setpoint - measured;
            let step = self.ki * self.error * (self.period.0 as f64 / 1e9);
            let output = self.kp * self.error + self.integral + step;
            // Outside the limits, a step towards the range is still added.
            if (low..=high).contains(&output) || (output > high) != (step > 0.0) {
                self.integral += step;
            }
            output
        };
        self.output = wanted.max(low).min(high);
        self.output
    }

    /// Counts a cycle without a measurement, or with a refused output.
    pub fn failed(&mut self) {
        self.faults += 1;
    }
}

impl Device for Agent {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        Ok(Datum::Number(match self.points.get(point) {
            Some(0) => f64::from(u8::from(self.on)),
            Some(1) => self.setpoint,
            Some(2) => self.kp,
            Some(3) => self.ki,
            Some(4) => self.input,
            Some(5) => self.output,
            Some(6) => self.error,
            Some(7) => self.cycles as f64,
            Some(8) => self.faults as f64,
            Some(9) => self.skipped as f64,
            _ => return Err(DeviceFault::Refused("an agent has no such point".into())),
        }))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        let value = value.number().ok_or(DeviceFault::Refused("an agent takes numbers".into()))?;
        match self.points.get(point) {
            Some(0) => {
                let starts = value != 0.0 && !self.on;
                self.on = value != 0.0;
                // The sum from the previous run is obsolete. The integral starts at the present output.
                if starts && self.gain.is_none() {
                    self.integral = self.output;
                }
            }
            Some(1) => self.setpoint = value,
            Some(2) => self.kp = value,
            Some(3) => self.ki = value,
            _ => return Err(DeviceFault::Refused("this point of an agent is read only".into())),
        }
        Ok(())
    }
}
