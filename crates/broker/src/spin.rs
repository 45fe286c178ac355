//! Looking again and again for a while before sleeping, as long as that pays.

use base::DurNs;
use sys::clock::mono_now;

/// Longest that anybody spins before it sleeps.
const LONGEST: DurNs = DurNs::from_us(20);
/// Shortest: a glance.
const SHORTEST: DurNs = DurNs(200);
/// Looks between two of the clock.
const LOOKS: u32 = 64;

/// How long a thread spins before it sleeps: where it has a single CPU, not at all; else the longer the more it has
/// paid lately.
pub(crate) struct Spin(DurNs);

impl Spin {
    /// For a thread that may run where the calling one may.
    pub(crate) fn new() -> Self {
        let alone = sys::sched::affinity(0).is_ok_and(|cpus| cpus.count() == 1);
        Self(if alone { DurNs::ZERO } else { LONGEST })
    }

    /// Spins until `ready`, or until it is better to sleep; whether it was ready.
    pub(crate) fn until(&mut self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.0 == DurNs::ZERO {
            return false;
        }
        let began = mono_now();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    self.0 = LONGEST;
                    return true;
                }
                std::hint::spin_loop();
            }
            if mono_now() - began > self.0 {
                // It did not pay: less next time.
                self.0 = DurNs((self.0.0 / 2).max(SHORTEST.0));
                return false;
            }
        }
    }

    /// The thread has slept for `slept` instead: where that is less than a spin, spinning would have paid.
    pub(crate) fn slept(&mut self, slept: DurNs) {
        if self.0 > DurNs::ZERO && slept < LONGEST {
            self.0 = LONGEST;
        }
    }
}
