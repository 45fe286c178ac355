//! A barrier for a team of threads, each on a CPU of its own: spins first, sleeps if that takes too long.

use base::DurNs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::futex;
use sys::shm::SharedWords;

// A cache line each: those who arrive must not disturb those who spin.
const ARRIVED: usize = 0;
const ROUND: usize = 8;
const SLEEPERS: usize = 16;
const SIZE: usize = 24;
const WORDS: usize = 32;

/// Lets nobody go on before all have come. Clones, and whoever maps its memory, share it.
///
/// Who dies before it arrives holds the others up: give [`wait`](Self::wait) a window to spin, and watch heartbeats.
#[derive(Clone, Debug)]
pub struct Barrier {
    words: Arc<SharedWords>,
}

impl Barrier {
    /// A barrier for this many threads.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for a team of nobody.
    pub fn new(threads: u32) -> sys::Result<Self> {
        let words = SharedWords::create("tahti-barrier", WORDS)?;
        words.words()[SIZE].store(threads.max(1).into(), Ordering::Release);
        Ok(Self { words: Arc::new(words) })
    }

    /// The barrier whose memory somebody handed over.
    ///
    /// # Errors
    /// The kernel's, for what is no shared memory of ours.
    pub fn attach(fd: OwnedFd) -> sys::Result<Self> {
        Ok(Self { words: Arc::new(SharedWords::attach(fd)?) })
    }

    /// Its memory, to be handed to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    /// Waits until all have come; `true` for the one that came last. Spins for `spin`, then sleeps.
    ///
    /// Real-time: one locked instruction and a spin; system calls only for those who sleep.
    pub fn wait(&self, spin: DurNs) -> bool {
        let [Some(arrived), Some(round), Some(sleepers), Some(size)] =
            [ARRIVED, ROUND, SLEEPERS, SIZE].map(|index| self.words.words().get(index))
        else {
            // Somebody handed over less memory than a barrier has: there is nobody to wait for.
            return true;
        };
        let now = round.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 >= size.load(Ordering::Relaxed) {
            arrived.store(0, Ordering::Relaxed);
            round.store(now.wrapping_add(1), Ordering::SeqCst);
            if sleepers.load(Ordering::SeqCst) > 0 {
                futex::wake(round);
            }
            return true;
        }
        // The clock is read now and then only: a reading costs more than a look.
        let until = mono_now() + spin;
        loop {
            for _ in 0..64 {
                if round.load(Ordering::Acquire) != now {
                    return false;
                }
                std::hint::spin_loop();
            }
            if mono_now() >= until {
                break;
            }
        }
        sleepers.fetch_add(1, Ordering::SeqCst);
        while round.load(Ordering::SeqCst) == now {
            futex::wait(round, now, None);
        }
        sleepers.fetch_sub(1, Ordering::SeqCst);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_goes_on_before_all_have_come_whether_they_spin_or_sleep() {
        for spin in [DurNs::ZERO, DurNs::from_us(50)] {
            let barrier = Barrier::new(3).unwrap();
            let (rounds, come) = (200, AtomicU64::new(0));
            let lasts = std::thread::scope(|scope| {
                let team = (0..3).map(|_| {
                    let (barrier, come) = (Barrier::attach(barrier.fd().try_clone_to_owned().unwrap()).unwrap(), &come);
                    scope.spawn(move || {
                        let mut last = 0;
                        for round in 1..=rounds {
                            come.fetch_add(1, Ordering::SeqCst);
                            last += u64::from(barrier.wait(spin));
                            assert!(come.load(Ordering::SeqCst) >= 3 * round);
                            // Nobody begins the next round before all have looked.
                            barrier.wait(spin);
                        }
                        last
                    })
                });
                team.collect::<Vec<_>>().into_iter().map(|member| member.join().unwrap()).sum::<u64>()
            });
            assert_eq!(lasts, rounds, "one comes last each time");
        }
    }
}
