//! Repeated readings for a record with SCAN `I/O Intr`.

use super::Interrupt;
use db::DeviceSample;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Allows one reading at a time, and reports changes to the record. Clones share the state.
#[derive(Clone)]
pub(super) struct Watch {
    interrupt: Interrupt,
    /// Whether a reading is in progress.
    busy: Arc<AtomicBool>,
    /// Value last reported to the record.
    last: Arc<Mutex<Option<DeviceSample>>>,
}

impl Watch {
    pub(super) fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, busy: Arc::default(), last: Arc::default() }
    }

    /// Starts a reading, if none is in progress. If it returns true, the reading must [`end`](Self::end).
    pub(super) fn begin(&self) -> bool {
        !self.busy.swap(true, Ordering::AcqRel)
    }

    /// Ends a reading. The record is processed if the value or the alarm changed.
    pub(super) fn end(&self, fed: DeviceSample) {
        // A panic while the lock is held cannot leave the value inconsistent.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.as_ref().is_some_and(|last| (&last.value, last.alarm) == (&fed.value, fed.alarm));
        if !same && self.interrupt.feed_or_refuse(fed.clone()) {
            *last = Some(fed);
        }
        self.busy.store(false, Ordering::Release);
    }
}
