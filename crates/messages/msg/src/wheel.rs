//! Timer wheel for the deadlines of outstanding requests. Insertion and removal take constant time and do not allocate.

use alloc::vec;
use alloc::vec::Vec;
use base::{DurNs, MonoNs};

/// Number of buckets. Deadlines beyond one revolution (1.024 s) stay in their bucket for several revolutions.
const BUCKETS: usize = 1024;
/// Time span of a bucket, and thus the maximum delay in detecting a deadline.
const TICK: DurNs = DurNs::from_ms(1);
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    due: MonoNs,
    bucket: u32,
}

/// Deadlines for slots `0..count`.
pub(crate) struct Wheel {
    first: Vec<u32>,
    /// One bit for each non-empty bucket.
    used: [u64; BUCKETS / 64],
    links: Vec<Link>,
    /// The next tick to check.
    next: u64,
    held: usize,
}

fn tick(at: MonoNs) -> u64 {
    at.0 / TICK.0 as u64
}

impl Wheel {
    pub(crate) fn new(count: usize) -> Self {
        let empty = Link { before: NONE, after: NONE, due: MonoNs(0), bucket: NONE };
        Self { first: vec![NONE; BUCKETS], used: [0; BUCKETS / 64], links: vec![empty; count], next: 0, held: 0 }
    }

    /// Inserts a slot that is not in the wheel.
    pub(crate) fn insert(&mut self, slot: u32, due: MonoNs) {
        // A deadline that has already passed is found by the next check.
        let bucket = (tick(due).max(self.next) % BUCKETS as u64) as u32;
        let after = self.first[bucket as usize];
        self.links[slot as usize] = Link { before: NONE, after, due, bucket };
        if after != NONE {
            self.links[after as usize].before = slot;
        }
        self.first[bucket as usize] = slot;
        self.used[bucket as usize / 64] |= 1 << (bucket % 64);
        self.held += 1;
    }

    /// Removes a slot that is in the wheel.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { before, after, bucket, .. } = self.links[slot as usize];
        match before {
            NONE => {
                self.first[bucket as usize] = after;
                if after == NONE {
                    self.used[bucket as usize / 64] &= !(1 << (bucket % 64));
                }
            }
            before => self.links[before as usize].after = after,
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
        self.held -= 1;
    }

    /// Removes and returns one slot whose deadline has passed.
    pub(crate) fn due(&mut self, now: MonoNs) -> Option<u32> {
        let last = tick(now);
        if self.held == 0 {
            self.next = self.next.max(last);
            return None;
        }
        // After a pause longer than one revolution, each bucket is checked once.
        self.next = self.next.max(last.saturating_sub(BUCKETS as u64 - 1));
        while self.next <= last {
            let mut slot = self.first[(self.next % BUCKETS as u64) as usize];
            while slot != NONE {
                let link = self.links[slot as usize];
                if link.due <= now {
                    self.remove(slot);
                    return Some(slot);
                }
                slot = link.after;
            }
            if self.next == last {
                return None;
            }
            self.next += 1;
        }
        None
    }

    /// Time of the next check: at most one tick after the earliest deadline.
    pub(crate) fn next_look(&self) -> Option<MonoNs> {
        if self.held == 0 {
            return None;
        }
        let from = (self.next % BUCKETS as u64) as usize;
        let used = (0..=self.used.len()).find_map(|word| {
            // The first word is checked from bit `from` on, and again at the end up to it.
            let at = (from / 64 + word) % self.used.len();
            let low = (1u64 << (from % 64)) - 1;
            let bits = match word {
                0 => self.used[at] & !low,
                last if last == self.used.len() => self.used[at] & low,
                _ => self.used[at],
            };
            let bucket = at * 64 + bits.trailing_zeros() as usize;
            (bits != 0).then(|| ((bucket + BUCKETS - from) % BUCKETS) as u64)
        });
        used.map(|ahead| MonoNs((self.next + ahead + 1) * TICK.0 as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn due_timers_are_found_once_and_within_a_tick(
            steps in proptest::collection::vec((0u32..16, 0u64..3_000_000_000, 0u64..40_000_000), 1..200)
        ) {
            let mut wheel = Wheel::new(16);
            let mut model: BTreeMap<u32, MonoNs> = BTreeMap::new();
            let mut now = MonoNs(5_000_000_000);
            for (slot, ahead, pause) in steps {
                if model.remove(&slot).is_some() {
                    wheel.remove(slot);
                } else {
                    let due = MonoNs(now.0 + ahead);
                    wheel.insert(slot, due);
                    model.insert(slot, due);
                }
                if let Some((_, first)) = model.iter().map(|(slot, due)| (slot, *due)).min_by_key(|(_, due)| *due) {
                    let look = wheel.next_look().unwrap();
                    prop_assert!(look.0 <= first.0.max(now.0) + 2 * TICK.0 as u64, "{look:?} {first:?}");
                }
                now = MonoNs(now.0 + pause * u64::from(slot % 3));
                while let Some(found) = wheel.due(now) {
                    prop_assert!(model.remove(&found).unwrap() <= now);
                }
                prop_assert!(model.values().all(|due| *due > now), "left behind: {model:?} at {now:?}");
            }
        }
    }
}
