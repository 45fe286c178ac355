//! Selection of the values to archive, per variable.

use base::FieldType;
use host::plant::archive::Policy;
use segment::{Datum, Sample};
use std::collections::VecDeque;

/// Maximum samples held for a fault.
const BEFORE_MAX: usize = 1 << 20;
/// Maximum bytes of arrays and texts held for a fault.
const BEFORE_BYTES_MAX: usize = 256 << 20;

/// Selects the first value in each group of N pulses, or every Nth value if there are no pulse numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nth {
    /// Group of the previous value.
    last: Option<u64>,
    count: u64,
}

impl Nth {
    /// Whether to keep the next value.
    pub(crate) fn takes(&mut self, pulses: u64, pulse: Option<u64>) -> bool {
        let pulses = pulses.max(1);
        let Some(pulse) = pulse else {
            self.count += 1;
            return (self.count - 1).is_multiple_of(pulses);
        };
        let these = pulse / pulses;
        self.last.replace(these) != Some(these)
    }

    /// Number of kept values that are missing between the previous value and one of this pulse, if `values` values were not seen.
    /// Without a previous value, the number expected among them.
    pub(crate) fn missing(&self, pulses: u64, pulse: u64, values: u64) -> u64 {
        let pulses = pulses.max(1);
        let between = |last: u64| (pulse / pulses).saturating_sub(last).saturating_sub(1).min(values);
        self.last.map_or(values / pulses, between)
    }
}

/// Decides for each value of a variable whether it is archived.
#[derive(Clone, Debug)]
pub struct Gate {
    policy: Policy,
    /// The last value kept.
    kept: Option<Sample>,
    /// The newest value, waiting for the next scan.
    waits: Option<Sample>,
    next: i64,
    /// Recent values, kept only in case of a fault.
    before: VecDeque<Sample>,
    /// Size of their values in bytes.
    before_bytes: usize,
    nth: Nth,
    is_alarm: bool,
    /// Number of values that the policy did not keep.
    pub left_out: u64,
}

impl Gate {
    /// `now` is the monotonic clock in nanoseconds.
    #[must_use]
    pub const fn new(policy: Policy, now: i64) -> Self {
        let before = VecDeque::new();
        let nth = Nth { last: None, count: 0 };
        Self { policy, kept: None, waits: None, next: now, before, before_bytes: 0, nth, is_alarm: false, left_out: 0 }
    }

    /// Takes a new value. Returns it if it is to be archived now.
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
                self.before_bytes += bytes(&sample);
                self.before.push_back(sample);
                while self.before.front().is_some_and(|oldest| oldest.at < since)
                    || self.before.len() > BEFORE_MAX
                    || self.before_bytes > BEFORE_BYTES_MAX
                {
                    self.before_bytes -= self.before.pop_front().as_ref().map_or(self.before_bytes, bytes);
                    self.left_out += 1;
                }
                None
            }
            Policy::Every { pulses } => {
                let is_kept = self.nth.takes(pulses, sample.pulse);
                self.left_out += u64::from(!is_kept);
                is_kept.then_some(sample)
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

    /// Time of the next [`scan`](Self::scan); `None` if the policy has none.
    #[must_use]
    pub const fn due(&self) -> Option<i64> {
        match self.policy {
            Policy::Scan { .. } => Some(self.next),
            Policy::Monitor { .. } | Policy::OnFault { .. } | Policy::Every { .. } => None,
        }
    }

    /// The value to archive now, if a scan is due and there is a new value.
    pub fn scan(&mut self, now: i64) -> Option<Sample> {
        let Policy::Scan { period } = self.policy else { return None };
        if now < self.next {
            return None;
        }
        // Scan times that have passed are skipped.
        let late = (now - self.next) / period.0.max(1) + 1;
        self.next = self.next.saturating_add(late.saturating_mul(period.0.max(1)));
        self.waits.take()
    }

    /// Called on a fault. Returns the values from before it that are to be archived, oldest first.
    pub fn fault(&mut self) -> impl Iterator<Item = Sample> + use<> {
        self.before_bytes = 0;
        std::mem::take(&mut self.before).into_iter()
    }

    /// Whether this severity starts a MAJOR or INVALID alarm.
    pub const fn alarms(&mut self, severity: u8) -> bool {
        let was = std::mem::replace(&mut self.is_alarm, severity >= 2);
        self.is_alarm && !was
    }

    /// Called when the variable's source disconnected. The next value is kept in any case.
    pub fn disconnected(&mut self) {
        self.kept = None;
    }
}

/// Variable-length size of a value, in bytes.
fn bytes(sample: &Sample) -> usize {
    match &sample.datum {
        Datum::Text(bytes) | Datum::Blob(bytes) => bytes.len(),
        Datum::Array(array) => array.len() * width(array.kind()),
        Datum::Bool(_) | Datum::Number(_) => 0,
    }
}

const fn width(kind: FieldType) -> usize {
    match kind {
        FieldType::I8 | FieldType::U8 => 1,
        FieldType::I16 | FieldType::U16 | FieldType::Enum | FieldType::Menu | FieldType::Device => 2,
        FieldType::I32 | FieldType::U32 | FieldType::F32 => 4,
        FieldType::I64 | FieldType::U64 | FieldType::F64 => 8,
        FieldType::String | FieldType::Link => 40,
    }
}

/// Whether a sample differs from the last one kept by more than the deadband, or in alarm.
fn differs(kept: &Sample, new: &Sample, deadband: f64) -> bool {
    if (kept.severity, kept.status) != (new.severity, new.status) {
        return true;
    }
    match (kept.datum.to_f64(), new.datum.to_f64()) {
        // A change to or from NaN is a difference; NaN to NaN is not.
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
    fn a_deadband_is_relative_to_the_last_stored_value() {
        let mut gate = Gate::new(Policy::Monitor { deadband: 1.0 }, 0);
        assert_eq!(kept(&mut gate, &[0.0, 0.6, 1.0, 1.2, 0.5, 2.3]), [0.0, 1.2, 2.3]);
        assert_eq!(gate.left_out, 3);
        assert_eq!(kept(&mut gate, &[f64::NAN, f64::NAN, 2.0]).len(), 2, "not a number, then a number");
        gate.disconnected();
        assert_eq!(kept(&mut gate, &[2.0]), [2.0], "the first sample after a gap");
    }

    #[test]
    fn a_change_of_alarm_is_kept_within_the_deadband() {
        let mut gate = Gate::new(Policy::Monitor { deadband: 10.0 }, 0);
        assert!(gate.update(Sample::new(0, 1.0)).is_some());
        assert!(gate.update(Sample { severity: 2, ..Sample::new(1, 1.0) }).is_some());
        assert!(gate.update(Sample { severity: 2, ..Sample::new(2, 1.0) }).is_none());
    }

    #[test]
    fn on_a_fault_the_samples_before_it_are_stored_once() {
        let mut gate = Gate::new(Policy::OnFault { before: DurNs(3) }, 0);
        assert_eq!(kept(&mut gate, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), [0.0; 0]);
        assert!(!gate.alarms(1) && gate.alarms(2) && !gate.alarms(3) && !gate.alarms(0) && gate.alarms(3));
        assert_eq!(gate.fault().map(|sample| sample.at).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!((gate.fault().count(), gate.left_out), (0, 2));
    }

    #[test]
    fn samples_kept_for_a_fault_are_bounded_in_bytes() {
        let mut gate = Gate::new(Policy::OnFault { before: DurNs::from_secs(60) }, 0);
        let image = |at| Sample::new(at, Datum::Blob(vec![0; 16 << 20]));
        (0..20).for_each(|at| assert!(gate.update(image(at)).is_none()));
        assert_eq!((gate.left_out, gate.fault().count()), (4, 16), "256 MiB");
        (0..3).for_each(|at| assert!(gate.update(image(at)).is_none()));
        assert_eq!(gate.fault().count(), 3, "counted from the last fault");
    }

    #[test]
    fn every_nth_pulse_is_kept_and_it_is_the_same_pulse_for_each_signal() {
        let mut kept = Vec::new();
        // Signals that start at different pulses and skip some.
        for pulses in [vec![7, 8, 9, 10, 11, 19, 20, 21, 30], vec![10, 12, 15, 20, 30, 31], vec![9, 11, 12, 20, 30]] {
            let mut gate = Gate::new(Policy::Every { pulses: 10 }, 0);
            let sample = |pulse: u64| Sample { pulse: Some(pulse), ..Sample::new(pulse as i64, 1.0) };
            kept.push(pulses.into_iter().filter_map(|pulse| gate.update(sample(pulse))?.pulse).collect::<Vec<_>>());
        }
        assert_eq!(kept, [vec![7, 10, 20, 30], vec![10, 20, 30], vec![9, 11, 20, 30]]);
        let mut gate = Gate::new(Policy::Every { pulses: 3 }, 0);
        assert_eq!(self::kept(&mut gate, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [0.0, 3.0, 6.0], "without a pulse");
        assert_eq!(gate.left_out, 4);
        let mut nth = Nth::default();
        assert_eq!((nth.missing(10, 25, 24), nth.takes(10, Some(25))), (2, true));
        assert_eq!([26, 35, 41, 99, 3].map(|pulse| nth.missing(10, pulse, 5)), [0, 0, 1, 5, 0]);
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
