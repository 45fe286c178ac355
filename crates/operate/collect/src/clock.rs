//! The wall clock's time of what was stamped by the monotonic one.

use base::MonoNs;

/// How far the wall clock may go away from what stamps are made with, before they follow it.
const STEP_NS: i64 = 1_000_000;

/// The same instant is stamped alike but for this: the clocks were compared anew since.
pub(crate) const SAME_NS: i64 = 2 * STEP_NS;

/// The wall clock's time at an instant of the monotonic one; steady while the wall clock is.
pub(crate) struct Clock {
    offset: i64,
    read: Box<dyn FnMut() -> i64>,
}

impl Clock {
    /// The machine's.
    pub(crate) fn new() -> Self {
        Self::reading(Box::new(offset))
    }

    /// One whose wall clock is so far from the monotonic one.
    pub(crate) fn reading(mut read: Box<dyn FnMut() -> i64>) -> Self {
        Self { offset: read(), read }
    }

    /// Follows a wall clock that was set.
    pub(crate) fn follow(&mut self) {
        let now = (self.read)();
        if (now - self.offset).abs() > STEP_NS {
            self.offset = now;
        }
    }

    /// The wall clock's time at an instant: nanoseconds since 1970.
    pub(crate) fn wall(&self, at: MonoNs) -> i64 {
        i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(self.offset)
    }
}

/// Wall clock minus monotonic clock, by the reading that was disturbed least.
fn offset() -> i64 {
    let one = || {
        let before = crate::serve::mono();
        let wall = crate::serve::wall();
        let after = crate::serve::mono();
        (after - before, wall - before - (after - before) / 2)
    };
    (0..5).map(|_| one()).min_by_key(|(took, _)| *took).map_or(0, |(_, offset)| offset)
}
