//! Passes values through a signal's gate to the logger, for all sources.

use crate::gate::Gate;
use segment::Sample;
use segment::rows::Cause;
use store::{Folder, Logger, SignalId};

/// Handles a new value. If an alarm starts with it, also archives the values held from before.
pub(crate) fn update(gate: &mut Gate, signal: SignalId, sample: Sample, logger: &mut Logger<Folder>) {
    let is_fault = gate.alarms(sample.severity);
    if let Some(sample) = gate.update(sample) {
        logger.push(signal, &sample);
    }
    if is_fault {
        fault(gate, signal, logger);
    }
}

/// Handles a fault: archives the values held from before it.
pub(crate) fn fault(gate: &mut Gate, signal: SignalId, logger: &mut Logger<Folder>) {
    for sample in gate.fault() {
        logger.push(signal, &sample);
    }
}

/// Archives the waiting value if a scan is due.
pub(crate) fn scan(gate: &mut Gate, signal: SignalId, now: i64, logger: &mut Logger<Folder>) {
    if let Some(sample) = gate.scan(now) {
        logger.push(signal, &sample);
    }
}

/// Records that there are no values from `at` on, with the cause.
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
