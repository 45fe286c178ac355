//! The dispatcher's accounts: its counters, and the page faults and allocations that it must not have.

use frame::Totals;
use ring::{FrameCounter, FramePage};

/// Borders between two readings of the dispatcher's accounts, since a reading is a system call.
const ACCOUNTS_EVERY: u32 = 256;

/// Page faults and allocations of the dispatcher. It must have neither.
pub(crate) struct Accounts {
    until: u32,
    faults: u64,
    allocations: Option<u64>,
}

impl Accounts {
    pub(crate) fn now() -> Self {
        let usage = sys::thread::usage();
        let counts = sys::alloc::thread_counts();
        Self {
            until: ACCOUNTS_EVERY,
            faults: usage.minor_faults + usage.major_faults,
            allocations: counts.map(|counts| counts.taken + counts.given),
        }
    }

    /// Counts a border, and publishes the accounts after [`ACCOUNTS_EVERY`] borders.
    pub(crate) fn look(&mut self, page: &FramePage<'_>) {
        match self.until.checked_sub(1) {
            Some(left) => self.until = left,
            None => self.settle(page),
        }
    }

    /// Publishes the page faults and allocations since the beginning.
    #[cold]
    pub(crate) fn settle(&mut self, page: &FramePage<'_>) {
        let Self { faults, allocations, .. } = Self::now();
        self.until = ACCOUNTS_EVERY;
        let show = |counter, value: u64| page.count(counter, value.wrapping_sub(page.counter(counter)));
        show(FrameCounter::PageFaults, faults.saturating_sub(self.faults));
        let taken = allocations.zip(self.allocations).map_or(u64::MAX, |(now, before)| now.saturating_sub(before));
        show(FrameCounter::Allocations, taken);
    }
}

/// Publishes the machine's counters.
pub(crate) fn show(totals: &Totals, page: &FramePage<'_>) {
    let rows = [
        (FrameCounter::Minors, totals.minors),
        (FrameCounter::Lost, totals.lost),
        (FrameCounter::Overruns, totals.overruns),
        (FrameCounter::Underruns, totals.underruns),
        (FrameCounter::Absences, totals.absences),
        (FrameCounter::Extensions, totals.extensions),
        (FrameCounter::Modes, totals.modes),
        (FrameCounter::Skipped, totals.skipped),
    ];
    for (counter, value) in rows {
        let more = value.wrapping_sub(page.counter(counter));
        if more > 0 {
            page.count(counter, more);
        }
    }
}
