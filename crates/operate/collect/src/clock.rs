//! Conversion of monotonic time stamps to wall clock time.

use base::MonoNs;

/// Maximum deviation of the wall clock, in nanoseconds, before the conversion follows it.
const STEP_NS: i64 = 1_000_000;

/// Maximum difference in nanoseconds between two conversions of the same instant, unless the clock was set.
pub(crate) const SAME_NS: i64 = 2 * STEP_NS;

/// Converts monotonic time to wall clock time. The offset is constant unless the wall clock is set.
pub(crate) struct Clock {
    offset: i64,
    read: Box<dyn FnMut() -> i64>,
}

impl Clock {
    /// Uses the machine's clocks.
    pub(crate) fn new() -> Self {
        Self::reading(Box::new(offset))
    }

    /// Uses a given function for the offset of the wall clock from the monotonic clock.
    pub(crate) fn reading(mut read: Box<dyn FnMut() -> i64>) -> Self {
        Self { offset: read(), read }
    }

    /// Updates the offset if the wall clock was set.
    pub(crate) fn follow(&mut self) {
        let now = (self.read)();
        if (now - self.offset).abs() > STEP_NS {
            self.offset = now;
        }
    }

    /// Converts a monotonic time to nanoseconds since 1970.
    pub(crate) fn wall(&self, at: MonoNs) -> i64 {
        i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(self.offset)
    }
}

/// Wall clock minus monotonic clock: the best of five readings, the one that took the shortest time.
fn offset() -> i64 {
    let one = || {
        let before = crate::serve::mono();
        let wall = crate::serve::wall();
        let after = crate::serve::mono();
        (after - before, wall - before - (after - before) / 2)
    };
    (0..5).map(|_| one()).min_by_key(|(took, _)| *took).map_or(0, |(_, offset)| offset)
}
