//! What a signal's gate lets through, on its way to the logger: the same from wherever the values come.

use crate::gate::Gate;
use segment::Sample;
use segment::rows::Cause;
use store::{Folder, Logger, SignalId};

/// A new value, and what was before it where an alarm begins with it.
pub(crate) fn update(gate: &mut Gate, signal: SignalId, sample: Sample, logger: &mut Logger<Folder>) {
    let is_fault = gate.alarms(sample.severity);
    if let Some(sample) = gate.update(sample) {
        logger.push(signal, &sample);
    }
    if is_fault {
        fault(gate, signal, logger);
    }
}

/// Something went wrong: what is to be kept of the time before.
pub(crate) fn fault(gate: &mut Gate, signal: SignalId, logger: &mut Logger<Folder>) {
    for sample in gate.fault() {
        logger.push(signal, &sample);
    }
}

/// The value that waits for a scan, where that is due.
pub(crate) fn scan(gate: &mut Gate, signal: SignalId, now: i64, logger: &mut Logger<Folder>) {
    if let Some(sample) = gate.scan(now) {
        logger.push(signal, &sample);
    }
}

/// From `at` on there are no values, for a cause.
pub(crate) fn gap(
    gate: &mut Gate,
    signal: SignalId,
    (at, cause, lost): (i64, Cause, u64),
    logger: &mut Logger<Folder>,
) {
    fault(gate, signal, logger);
    gate.disconnected();
    logger.gap(Some(signal), at, cause, lost);
}
