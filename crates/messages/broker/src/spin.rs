//! Adaptive spinning: polls for a short time before sleeping, as long as that pays off.

use base::{DurNs, MonoNs, Policy};
use sys::clock::mono_now;

/// Maximum spin time: about the cost of waking a thread on an idle CPU.
const LONGEST: DurNs = DurNs::from_us(20);
/// Polls between two readings of the clock.
const LOOKS: u32 = 64;
/// Number of unsuccessful waits in a row after which spinning stops. From then on one wait in `PROBE` spins.
const VAIN: u32 = 4;
const PROBE: u32 = 64;

/// Action between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// Nothing.
    Pauses,
    /// Yields to other threads of the same priority on this CPU, since the awaited thread may be one of them. If no
    /// thread sleeps, none has to be woken, and a yield costs less than a sleep. In a time-sharing class the thread
    /// would lose its share.
    Yields,
    /// No spinning: the threads that produce its work need its only CPU.
    Sleeps,
}

impl Between {
    /// The choice for the calling thread with its current class and CPUs.
    fn now() -> Self {
        let class = sys::sched::scheduling(0).map(|scheduling| scheduling.policy);
        let alone = sys::sched::affinity(0).is_ok_and(|cpus| cpus.count() == 1);
        match (class, alone) {
            // A deadline reservation would lose the rest of its budget by yielding.
            (Ok(Policy::Fifo(_) | Policy::Rr(_)), _) => Self::Yields,
            (_, false) => Self::Pauses,
            (_, true) => Self::Sleeps,
        }
    }
}

/// Adaptive spinning before a sleep. The benefit is measured: if the awaited thread needs this CPU, or takes long, only
/// one wait in 64 spins.
#[derive(Debug, Default)]
pub struct Spin {
    between: Option<Between>,
    /// Number of waits in a row in which spinning did not pay off or was not tried.
    in_vain: u32,
}

impl Spin {
    /// Starts with spinning enabled.
    #[must_use]
    pub const fn new() -> Self {
        Self { between: None, in_vain: 0 }
    }

    /// Polls from `now` on until `ready` returns true, then returns `None`. Returns the current time if the caller
    /// should sleep.
    ///
    /// Real-time: bounded; neither allocates nor sleeps, but may yield to threads of the same priority.
    pub fn until(&mut self, now: MonoNs, mut ready: impl FnMut() -> bool) -> Option<MonoNs> {
        if ready() {
            return None;
        }
        let tries = self.in_vain < VAIN || self.in_vain.is_multiple_of(PROBE);
        if self.in_vain >= VAIN && tries {
            // The thread may have a different class or different CPUs now.
            self.between = None;
        }
        let mut later = now;
        while tries && later - now < LONGEST {
            let found = match *self.between.get_or_insert_with(Between::now) {
                Between::Sleeps => break,
                Between::Yields => {
                    std::thread::yield_now();
                    ready()
                }
                Between::Pauses => (0..LOOKS).any(|_| {
                    std::hint::spin_loop();
                    ready()
                }),
            };
            if found {
                self.in_vain = 0;
                return None;
            }
            later = mono_now();
        }
        self.in_vain = self.in_vain.wrapping_add(1).max(1);
        Some(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of polls in one wait, which ends at the poll `ready`, or finds nothing.
    fn looks(spin: &mut Spin, ready: Option<u32>) -> u32 {
        let mut looks = 0;
        let late = spin.until(mono_now(), || {
            looks += 1;
            ready.is_some_and(|at| looks > at)
        });
        assert_eq!(late.is_none(), ready.is_some());
        looks
    }

    #[test]
    fn spinning_stops_after_failures_and_is_retried_occasionally() {
        for between in [Between::Pauses, Between::Yields] {
            let mut spin = Spin { between: Some(between), in_vain: 0 };
            assert!((0..VAIN).all(|_| looks(&mut spin, None) > 1), "{between:?}");
            assert!((VAIN..PROBE).all(|_| looks(&mut spin, None) == 1), "{between:?}");
            // On a single CPU spinning is never tried.
            let tries = Between::now() != Between::Sleeps;
            assert_eq!(looks(&mut spin, None) > 1, tries);
            assert!((1..PROBE).all(|_| looks(&mut spin, None) == 1));
            assert_eq!(looks(&mut spin, Some(0)), 1, "a bit that is set at once is found by the first look");
            assert_eq!(spin.in_vain, 2 * PROBE, "and does not count for the next looks");
        }
    }

    #[test]
    fn spinning_continues_while_it_succeeds() {
        let mut spin = Spin { between: Some(Between::Pauses), in_vain: VAIN - 1 };
        assert_eq!(looks(&mut spin, Some(1)), 2);
        assert_eq!(spin.in_vain, 0);
        let mut asleep = Spin { between: Some(Between::Sleeps), in_vain: 0 };
        assert_eq!(looks(&mut asleep, None), 1);
    }
}
