//! A barrier for a team of threads, each on a separate CPU. A member spins first and sleeps if the wait takes too long.

use crate::share::ShareError;
use base::{DurNs, MonoNs};
use ring::Meeting;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use sys::clock::mono_now;
use sys::futex;
use sys::shm::SharedWords;

/// Checks between two readings of the clock, because reading the clock costs more than a check.
const LOOKS: u32 = 64;

/// A barrier: no member continues before all members have arrived. Clones share it, as do processes that map its memory.
///
/// ```
/// use base::DurNs;
/// use rt::{Barrier, Met};
///
/// let barrier = Barrier::new(2)?;
/// let other = barrier.clone();
/// let thread = std::thread::spawn(move || other.wait(DurNs::from_us(50), None));
/// let met = [barrier.wait(DurNs::from_us(50), None), thread.join().unwrap()];
/// assert!(met.contains(&Met::Last) && met.contains(&Met::Together));
/// # Ok::<(), sys::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    words: Arc<SharedWords>,
}

/// Outcome of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// All members have arrived, and the caller was the last.
    Last,
    /// All members have arrived.
    Together,
    /// A member did not arrive in time. The barrier is permanently broken for all members.
    Broken,
}

impl Barrier {
    /// Creates a barrier for this many threads.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(threads: u32) -> sys::Result<Self> {
        let words = SharedWords::create("tahti-barrier", ring::Barrier::WORDS)?;
        ring::Barrier::format(words.words(), threads).expect("made as long as it must be");
        Ok(Self { words: Arc::new(words) })
    }

    /// Attaches to a barrier whose memory another process has handed over.
    ///
    /// # Errors
    /// The memory does not hold a barrier.
    pub fn attach(fd: OwnedFd) -> Result<Self, ShareError> {
        let words = SharedWords::attach(fd)?;
        ring::Barrier::attach(words.words())?;
        Ok(Self { words: Arc::new(words) })
    }

    /// Its memory, to be handed to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    /// Waits until all members have arrived: spins for `spin`, then sleeps. If a member waits longer than `limit`, it breaks
    /// the barrier. That is how a team detects the death of a member.
    ///
    /// Real-time: one locked instruction and a spin. Only members that sleep make system calls. Does not allocate.
    pub fn wait(&self, spin: DurNs, limit: Option<DurNs>) -> Met {
        // The memory was checked before. Only a process that shares it can have damaged it since.
        let Ok(barrier) = ring::Barrier::attach(self.words.words()) else { return Met::Broken };
        let event = barrier.event();
        let seen = match barrier.arrive() {
            Meeting::Broken => return Met::Broken,
            Meeting::Last { wake } => {
                if wake {
                    futex::wake(event.word());
                }
                return Met::Last;
            }
            Meeting::Early(seen) => seen,
        };
        let outcome = |event: &ring::Event<'_>| match (event.moved(seen), event.is_closed()) {
            (true, _) => Some(Met::Together),
            (false, true) => Some(Met::Broken),
            (false, false) => None,
        };
        let came = mono_now();
        let until = limit.map_or(MonoNs(u64::MAX), |limit| came + limit);
        let spun = came + limit.map_or(spin, |limit| spin.min(limit));
        loop {
            for _ in 0..LOOKS {
                if let Some(met) = outcome(&event) {
                    return met;
                }
                std::hint::spin_loop();
            }
            if mono_now() >= spun {
                break;
            }
        }
        let met = loop {
            let count = event.announce();
            if let Some(met) = outcome(&event) {
                break met;
            }
            let now = mono_now();
            if now >= until {
                // The last member may have arrived just now. Then the meeting is complete, and the barrier remains usable.
                let Some(wake) = barrier.break_up(seen) else { break Met::Together };
                if wake {
                    futex::wake(event.word());
                }
                break Met::Broken;
            }
            futex::wait(event.word(), count, limit.map(|_| until - now));
            event.withdraw();
        };
        event.withdraw();
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn again(barrier: &Barrier) -> Barrier {
        Barrier::attach(barrier.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn no_member_passes_a_barrier_before_all_have_arrived_whether_they_spin_or_sleep() {
        for spin in [DurNs::ZERO, DurNs::from_us(50)] {
            let barrier = Barrier::new(3).unwrap();
            let (rounds, come) = (200, AtomicU64::new(0));
            let lasts = std::thread::scope(|scope| {
                let team = (0..3).map(|_| {
                    let (barrier, come) = (again(&barrier), &come);
                    scope.spawn(move || {
                        let mut last = 0;
                        for round in 1..=rounds {
                            come.fetch_add(1, Ordering::SeqCst);
                            last += u64::from(barrier.wait(spin, None) == Met::Last);
                            assert!(come.load(Ordering::SeqCst) >= 3 * round);
                            // No thread begins the next round before all have checked.
                            barrier.wait(spin, None);
                        }
                        last
                    })
                });
                team.collect::<Vec<_>>().into_iter().map(|member| member.join().unwrap()).sum::<u64>()
            });
            assert_eq!(lasts, rounds, "one member is last in each round");
        }
    }

    #[test]
    fn a_member_whose_wait_times_out_breaks_the_barrier_for_all() {
        let barrier = Barrier::new(3).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| again(&barrier).wait(DurNs::ZERO, None));
            assert_eq!(barrier.wait(DurNs::ZERO, Some(DurNs::from_ms(20))), Met::Broken);
            assert_eq!(sleeper.join().unwrap(), Met::Broken, "a sleeper without a limit is woken too");
        });
        assert_eq!(again(&barrier).wait(DurNs::ZERO, None), Met::Broken, "later members too");
    }

    #[test]
    fn a_barrier_is_found_by_its_name_and_other_memory_is_refused() {
        let name = format!("barrier-{}", std::process::id());
        let barrier = Barrier::new(1).unwrap();
        crate::offer(&name, barrier.fd()).unwrap();
        assert!(crate::offer(&name, barrier.fd()).unwrap_err().to_string().contains("Address already in use"));
        assert_eq!(Barrier::attach(crate::ask(&name).unwrap()).unwrap().wait(DurNs::ZERO, None), Met::Last);
        let other = SharedWords::create("other", 64).unwrap();
        assert!(
            Barrier::attach(other.fd().try_clone_to_owned().unwrap())
                .unwrap_err()
                .to_string()
                .contains("not created by tahti")
        );
        assert!(crate::ask("not-offered").unwrap_err().to_string().contains("expected a running process"));
    }
}
