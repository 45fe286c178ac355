//! Looking again and again for a while before sleeping, as long as that pays.

use base::{DurNs, MonoNs, Policy};
use sys::clock::mono_now;

/// How long anybody looks before it sleeps: about what it takes to wake somebody on an idle CPU.
const LONGEST: DurNs = DurNs::from_us(20);
/// Looks between two of the clock.
const LOOKS: u32 = 64;
/// Waits in a row in which looking was in vain before it is given up, and of how many waits one looks from then on.
const VAIN: u32 = 4;
const PROBE: u32 = 64;

/// What a thread does between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// Nothing.
    Pauses,
    /// Lets others of its own priority run on its CPU: whom it waits for may be one of them. Where nobody sleeps, nobody
    /// need be woken, and a turn costs less than a sleep. In time sharing it would cost the thread its share.
    Yields,
    /// It does not look: others need its only CPU to give it work.
    Sleeps,
}

impl Between {
    /// What suits the calling thread, as it may run now.
    fn now() -> Self {
        let class = sys::sched::scheduling(0).map(|scheduling| scheduling.policy);
        let alone = sys::sched::affinity(0).is_ok_and(|cpus| cpus.count() == 1);
        match (class, alone) {
            // A reservation would lose what is left of its budget.
            (Ok(Policy::Fifo(_) | Policy::Rr(_)), _) => Self::Yields,
            (_, false) => Self::Pauses,
            (_, true) => Self::Sleeps,
        }
    }
}

/// How a thread looks for work before it sleeps. Whether that pays is found out by trying: where whom it waits for needs
/// this very CPU, or takes long, it is tried now and then only.
#[derive(Debug, Default)]
pub struct Spin {
    between: Option<Between>,
    /// Waits in a row in which it did not pay, or was not tried.
    in_vain: u32,
}

impl Spin {
    /// What is tried at first.
    #[must_use]
    pub const fn new() -> Self {
        Self { between: None, in_vain: 0 }
    }

    /// Looks from `now` on until `ready`; where it is better to sleep, says what the clock says then.
    ///
    /// Real-time: bounded; neither allocates nor sleeps, but may let others of the same priority run.
    pub fn until(&mut self, now: MonoNs, mut ready: impl FnMut() -> bool) -> Option<MonoNs> {
        if ready() {
            return None;
        }
        let tries = self.in_vain < VAIN || self.in_vain.is_multiple_of(PROBE);
        if self.in_vain >= VAIN && tries {
            // It may have another class or other CPUs by now.
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

    /// How often a thread looks in one wait, in which it is `ready` at a look or never.
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
    fn who_looks_in_vain_gives_it_up_and_tries_again_now_and_then() {
        for between in [Between::Pauses, Between::Yields] {
            let mut spin = Spin { between: Some(between), in_vain: 0 };
            assert!((0..VAIN).all(|_| looks(&mut spin, None) > 1), "{between:?}");
            assert!((VAIN..PROBE).all(|_| looks(&mut spin, None) == 1), "{between:?}");
            // Where this test has a single CPU there is nothing to try.
            let tries = Between::now() != Between::Sleeps;
            assert_eq!(looks(&mut spin, None) > 1, tries);
            assert!((1..PROBE).all(|_| looks(&mut spin, None) == 1));
            assert_eq!(looks(&mut spin, Some(0)), 1, "what is there at once is found by the first look");
            assert_eq!(spin.in_vain, 2 * PROBE, "and says nothing about the next ones");
        }
    }

    #[test]
    fn where_looking_pays_it_goes_on() {
        let mut spin = Spin { between: Some(Between::Pauses), in_vain: VAIN - 1 };
        assert_eq!(looks(&mut spin, Some(1)), 2);
        assert_eq!(spin.in_vain, 0);
        let mut asleep = Spin { between: Some(Between::Sleeps), in_vain: 0 };
        assert_eq!(looks(&mut asleep, None), 1);
    }
}
