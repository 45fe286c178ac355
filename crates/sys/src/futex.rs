//! Waiting for a shared word to change, and waking who waits: `futex(2)` on the low half of an `AtomicU64`.
//!
//! Works between processes that map the same memory. Nothing stays behind in the kernel when a party dies.

use base::DurNs;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The half of a word that counts up first.
fn low(word: &AtomicU64) -> &AtomicU32 {
    let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
    let index = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: a word is two halves; both have 4-byte alignment and any bit pattern, and live as long as the word.
    unsafe { &*halves.wrapping_add(index) }
}

/// Sleeps until somebody wakes this word, unless its low half differs from that of `seen` already; at most for
/// `limit`. May return for no reason: look again.
///
/// Real-time: one system call that blocks; does not allocate.
pub fn wait(word: &AtomicU64, seen: u64, limit: Option<DurNs>) {
    let timeout = limit.map(|limit| rustix::time::Timespec {
        tv_sec: limit.0.max(0) / 1_000_000_000,
        tv_nsec: limit.0.max(0) % 1_000_000_000,
    });
    // Whatever the answer (woken, changed before, interrupted, time over): the caller looks at the word.
    let _ = futex::wait(low(word), Flags::empty(), seen as u32, timeout.as_ref());
}

/// Wakes everybody who waits for this word.
///
/// Says how many that were. The memory may be mapped for reading only.
///
/// Real-time: one system call that does not block.
pub fn wake(word: &AtomicU64) -> usize {
    // Cannot fail for a word that exists.
    futex::wake(low(word), Flags::empty(), i32::MAX as u32).unwrap_or(0)
}

/// Counts a word up and wakes who waits for it.
pub fn count_up(word: &AtomicU64, by: u64) {
    word.fetch_add(by, Ordering::AcqRel);
    wake(word);
}

/// What taking a lock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It was free, or its owner gave it up.
    Fine,
    /// Its owner died with it: what it protects may be half done.
    OwnerDied,
}

/// A lock with priority inheritance between threads of any processes that map the word: who holds it runs with the
/// priority of the most urgent that waits. When its owner dies, the next one gets it and is [told](Locked::OwnerDied).
///
/// The low half of the word is the kernel's (`FUTEX_LOCK_PI`): 0, or the owner's thread id and whether anybody waits.
///
/// Real-time: no system call where nobody else wants it; else one, which blocks until the owner gives it up.
///
/// # Errors
/// `EDEADLK` if the caller holds it already.
pub fn lock_pi(word: &AtomicU64) -> Result<Locked, Errno> {
    const WAITERS_AND_DIED: u32 = 0xc000_0000;
    const DIED: u32 = 0x4000_0000;
    let half = low(word);
    let mine = crate::thread::id() as u32;
    if half.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return Ok(Locked::Fine);
    }
    loop {
        match futex::lock_pi(half, Flags::empty(), None) {
            Ok(()) => {
                let died = half.load(Ordering::Relaxed) & DIED != 0;
                if died {
                    half.fetch_and(!DIED, Ordering::Relaxed);
                }
                return Ok(if died { Locked::OwnerDied } else { Locked::Fine });
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::SRCH) => {
                // Its owner is gone without a trace (no thread has that id): it is taken over.
                let seen = half.load(Ordering::Relaxed);
                if seen & !WAITERS_AND_DIED != mine
                    && half
                        .compare_exchange(seen, mine | seen & 0x8000_0000, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    return Ok(Locked::OwnerDied);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Gives the lock up.
///
/// # Errors
/// `EPERM` if the caller does not hold it.
pub fn unlock_pi(word: &AtomicU64) -> Result<(), Errno> {
    let half = low(word);
    let mine = crate::thread::id() as u32;
    match half.compare_exchange(mine, 0, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(_) => futex::unlock_pi(half, Flags::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_word_is_woken_by_its_change() {
        let word = AtomicU64::new(7 << 32);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 7 << 32 {
                    wait(&word, 7 << 32, None);
                }
            });
            count_up(&word, 1);
        });
        wait(&word, 0, None);
        wait(&word, 1, Some(DurNs(1)));
    }

    #[test]
    fn a_lock_is_exclusive_and_passes_on_when_its_owner_dies() {
        let word = AtomicU64::new(0);
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        assert_eq!(lock_pi(&word), Ok(Locked::Fine));
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        unlock_pi(&word).unwrap();
                    }
                });
            }
        });
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(lock_pi(&word), Ok(Locked::Fine)));
        });
        assert_eq!(lock_pi(&word), Ok(Locked::OwnerDied));
        assert_eq!(lock_pi(&word), Err(Errno::DEADLK));
        unlock_pi(&word).unwrap();
        assert_eq!((unlock_pi(&word), word.load(Ordering::Relaxed)), (Err(Errno::PERM), 0));
    }
}
