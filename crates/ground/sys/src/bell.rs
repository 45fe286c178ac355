//! A thread's bell: the thread sleeps until a given time or until another thread rings.

use base::MonoNs;
use rustix::thread::futex::{self, Flags};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// One thread waits, any number of threads ring.
///
/// Real-time: neither end allocates or locks. Ringing is a system call only when the thread sleeps.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// A bell that has not been rung.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn ring(&self) {
        if self.0.swap(RUNG, Ordering::Release) == ASLEEP {
            // Fails only for an address that is not mapped.
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }
    }

    /// Sleeps until `until` on `CLOCK_MONOTONIC` (`None`: for ever) or until the bell has rung since the last wait,
    /// whichever is first. May return early.
    pub fn wait(&self, until: Option<MonoNs>) {
        let rung = self.0.compare_exchange(AWAKE, ASLEEP, Ordering::Acquire, Ordering::Acquire).is_err();
        if !rung {
            let timeout = until.map(|at| futex::Timespec {
                tv_sec: (at.0 / 1_000_000_000) as i64,
                tv_nsec: (at.0 % 1_000_000_000) as i64,
            });
            // The caller checks the clock and its work after any wake-up.
            let _ = futex::wait_bitset(&self.0, Flags::PRIVATE, ASLEEP, timeout.as_ref(), NonZeroU32::MAX);
        }
        self.0.swap(AWAKE, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DurNs;
    use std::sync::Arc;

    #[test]
    fn a_bell_that_rang_before_the_wait_is_not_missed() {
        let bell = Bell::new();
        bell.ring();
        bell.ring();
        bell.wait(None);
        let until = crate::clock::mono_now() + DurNs::from_ms(2);
        bell.wait(Some(until));
        assert!(crate::clock::mono_now() >= until, "one wait consumed both rings");
    }

    #[test]
    fn ringing_wakes_a_sleeper() {
        let (bell, heard) = (Arc::new(Bell::new()), Arc::new(AtomicU32::new(0)));
        let (mine, count) = (bell.clone(), heard.clone());
        let sleeper = std::thread::spawn(move || {
            while count.load(Ordering::Acquire) < 100 {
                mine.wait(None);
            }
        });
        for _ in 0..100 {
            heard.fetch_add(1, Ordering::Release);
            bell.ring();
        }
        sleeper.join().unwrap();
    }
}
