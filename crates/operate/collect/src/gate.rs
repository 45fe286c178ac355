//! Which values of a variable are kept.

use host::plant::archive::Policy;
use segment::Sample;
use std::collections::VecDeque;

/// Most samples that wait for a fault.
const BEFORE_MAX: usize = 1 << 20;

/// Decides of each value of a variable.
#[derive(Clone, Debug)]
pub struct Gate {
    policy: Policy,
    /// The last one kept.
    kept: Option<Sample>,
    /// The newest one, where it waits for the next scan.
    waits: Option<Sample>,
    next: i64,
    /// What is kept if something goes wrong.
    before: VecDeque<Sample>,
    is_alarm: bool,
    /// How many were not kept, as the policy says.
    pub left_out: u64,
}

impl Gate {
    /// Begins at a time of the monotonic clock, in nanoseconds.
    #[must_use]
    pub const fn new(policy: Policy, now: i64) -> Self {
        let before = VecDeque::new();
        Self { policy, kept: None, waits: None, next: now, before, is_alarm: false, left_out: 0 }
    }

    /// A new value: itself where it is to be kept now.
    pub fn update(&mut self, sample: Sample) -> Option<Sample> {
        match self.policy {
            Policy::Scan { .. } => {
                if self.waits.replace(sample).is_some() {
                    self.left_out += 1;
                }
                None
            }
            Policy::OnFault { before } => {
                let since = sample.at.saturating_sub(before.0);
                self.before.push_back(sample);
                while self.before.front().is_some_and(|oldest| oldest.at < since) || self.before.len() > BEFORE_MAX {
                    self.before.pop_front();
                    self.left_out += 1;
                }
                None
            }
            Policy::Monitor { deadband } => {
                if self.kept.as_ref().is_some_and(|kept| !differs(kept, &sample, deadband)) {
                    self.left_out += 1;
                    return None;
                }
                if deadband > 0.0 {
                    self.kept = Some(sample.clone());
                }
                Some(sample)
            }
        }
    }

    /// When [`scan`](Self::scan) may have something; `None` where it never has.
    #[must_use]
    pub const fn due(&self) -> Option<i64> {
        match self.policy {
            Policy::Scan { .. } => Some(self.next),
            Policy::Monitor { .. } | Policy::OnFault { .. } => None,
        }
    }

    /// The value that is to be kept now, if it is time and there is a new one.
    pub fn scan(&mut self, now: i64) -> Option<Sample> {
        let Policy::Scan { period } = self.policy else { return None };
        if now < self.next {
            return None;
        }
        // Times that were slept through are left out.
        let late = (now - self.next) / period.0.max(1) + 1;
        self.next = self.next.saturating_add(late.saturating_mul(period.0.max(1)));
        self.waits.take()
    }

    /// Something went wrong: what is to be kept of the time before, oldest first.
    pub fn fault(&mut self) -> impl Iterator<Item = Sample> + use<> {
        std::mem::take(&mut self.before).into_iter()
    }

    /// Whether an alarm of MAJOR or INVALID begins with this severity.
    pub const fn alarms(&mut self, severity: u8) -> bool {
        let was = std::mem::replace(&mut self.is_alarm, severity >= 2);
        self.is_alarm && !was
    }

    /// The variable's server is gone: the next value is kept, whatever it is.
    pub fn disconnected(&mut self) {
        self.kept = None;
    }
}

/// Whether a sample is to be kept after another.
fn differs(kept: &Sample, new: &Sample, deadband: f64) -> bool {
    if (kept.severity, kept.status) != (new.severity, new.status) {
        return true;
    }
    match (kept.datum.to_f64(), new.datum.to_f64()) {
        // Not a number is near none.
        (Some(kept), Some(new)) => {
            if kept.is_nan() || new.is_nan() {
                kept.is_nan() != new.is_nan()
            } else {
                (kept - new).abs() > deadband
            }
        }
        _ => kept.datum != new.datum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DurNs;

    fn kept(gate: &mut Gate, values: &[f64]) -> Vec<f64> {
        let samples = (0..).zip(values).map(|(at, value)| Sample::new(at, *value));
        samples.filter_map(|sample| gate.update(sample)?.datum.to_f64()).collect()
    }

    #[test]
    fn a_deadband_counts_from_the_last_value_that_was_kept() {
        let mut gate = Gate::new(Policy::Monitor { deadband: 1.0 }, 0);
        assert_eq!(kept(&mut gate, &[0.0, 0.6, 1.0, 1.2, 0.5, 2.3]), [0.0, 1.2, 2.3]);
        assert_eq!(gate.left_out, 3);
        assert_eq!(kept(&mut gate, &[f64::NAN, f64::NAN, 2.0]).len(), 2, "no number, and a number again");
        gate.disconnected();
        assert_eq!(kept(&mut gate, &[2.0]), [2.0], "the first one after a gap");
    }

    #[test]
    fn a_change_of_alarm_is_kept_within_the_deadband() {
        let mut gate = Gate::new(Policy::Monitor { deadband: 10.0 }, 0);
        assert!(gate.update(Sample::new(0, 1.0)).is_some());
        assert!(gate.update(Sample { severity: 2, ..Sample::new(1, 1.0) }).is_some());
        assert!(gate.update(Sample { severity: 2, ..Sample::new(2, 1.0) }).is_none());
    }

    #[test]
    fn on_a_fault_the_time_before_is_kept_once() {
        let mut gate = Gate::new(Policy::OnFault { before: DurNs(3) }, 0);
        assert_eq!(kept(&mut gate, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), [0.0; 0]);
        assert!(!gate.alarms(1) && gate.alarms(2) && !gate.alarms(3) && !gate.alarms(0) && gate.alarms(3));
        assert_eq!(gate.fault().map(|sample| sample.at).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!((gate.fault().count(), gate.left_out), (0, 2));
    }

    #[test]
    fn a_scan_takes_the_newest_value_once_a_period() {
        let mut gate = Gate::new(Policy::Scan { period: DurNs(10) }, 100);
        assert_eq!(kept(&mut gate, &[1.0, 2.0]), [0.0; 0]);
        let value = |sample: Option<Sample>| sample.and_then(|sample| sample.datum.to_f64());
        assert_eq!((value(gate.scan(99)), value(gate.scan(100)), value(gate.scan(110))), (None, Some(2.0), None));
        kept(&mut gate, &[3.0]);
        assert_eq!((value(gate.scan(119)), value(gate.scan(155)), gate.due()), (None, Some(3.0), Some(160)));
    }
}
