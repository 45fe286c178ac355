//! Readings that are taken again and again for a record with SCAN `I/O Intr`.

use super::Interrupt;
use db::DeviceSample;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Lets one reading be under way at a time, and tells the record what has changed. Clones are the same.
#[derive(Clone)]
pub(super) struct Watch {
    interrupt: Interrupt,
    /// Whether a reading is under way.
    busy: Arc<AtomicBool>,
    /// What the record was told last.
    last: Arc<Mutex<Option<DeviceSample>>>,
}

impl Watch {
    pub(super) fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, busy: Arc::default(), last: Arc::default() }
    }

    /// Whether a reading may begin; it must [`end`](Self::end) then.
    pub(super) fn begin(&self) -> bool {
        !self.busy.swap(true, Ordering::AcqRel)
    }

    /// The reading is there: the record is processed if value or alarm have changed.
    pub(super) fn end(&self, fed: DeviceSample) {
        // Only whole values are ever in there.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.as_ref().is_some_and(|last| (&last.value, last.alarm) == (&fed.value, fed.alarm));
        if !same && self.interrupt.feed_or_refuse(fed.clone()) {
            *last = Some(fed);
        }
        self.busy.store(false, Ordering::Release);
    }
}
