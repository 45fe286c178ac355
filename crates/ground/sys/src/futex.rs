//! Waiting for a shared word to change, and waking who waits: `futex(2)` on the low half of an `AtomicU64`.
//!
//! Works between processes that map the same memory. Nothing stays behind in the kernel when a party dies.

use base::DurNs;
use rustix::thread::futex::{self, Flags, WakeOp, WakeOpCmp};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The half of a word that counts up first.
fn low(word: &AtomicU64) -> &AtomicU32 {
    let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
    let index = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: a word is two halves; both have 4-byte alignment and any bit pattern, and live as long as the word.
    unsafe { &*halves.wrapping_add(index) }
}

/// Sleeps until somebody wakes this word, unless its low half differs from that of `seen` already; at most for
/// `limit`. May return for no reason: look again. Whether it was woken, so that the thread did sleep.
///
/// Real-time: one system call that blocks; does not allocate.
pub fn wait(word: &AtomicU64, seen: u64, limit: Option<DurNs>) -> bool {
    let timeout = limit.map(|limit| rustix::time::Timespec {
        tv_sec: limit.0.max(0) / 1_000_000_000,
        tv_nsec: limit.0.max(0) % 1_000_000_000,
    });
    // Whatever the answer (woken, changed before, interrupted, time over): the caller looks at the word.
    futex::wait(low(word), Flags::empty(), seen as u32, timeout.as_ref()).is_ok()
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

/// Wakes everybody who waits for `first`, and one who sleeps on `sleeper`, whose low half is 0 while somebody does: it is
/// set to 1.
///
/// Real-time: one system call that does not block.
pub fn wake_both(first: &AtomicU64, sleeper: &AtomicU64) {
    let (first, sleeper, all) = (low(first), low(sleeper), i32::MAX as u32);
    // Cannot fail for words that exist.
    let _ = futex::wake_op(first, Flags::empty(), all, 1, sleeper, WakeOp::Set, WakeOpCmp::Eq, 1, 0);
}

/// Counts a word up and wakes who waits for it.
pub fn count_up(word: &AtomicU64, by: u64) {
    word.fetch_add(by, Ordering::AcqRel);
    wake(word);
}

/// Wakes one of those who wait for this word: the most urgent one.
///
/// Real-time: one system call that does not block.
pub fn wake_one(word: &AtomicU64) {
    // Cannot fail for a word that exists.
    let _ = futex::wake(low(word), Flags::empty(), 1);
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
        assert!(!wait(&word, 0, None));
        assert!(!wait(&word, 1, Some(DurNs(1))));
    }

    #[test]
    fn a_sleeper_is_woken_beside_another_and_only_if_it_sleeps() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while words[0].load(Ordering::Acquire) == 0 {
                    wait(&words[0], 0, None);
                }
            });
            scope.spawn(|| {
                while words[1].load(Ordering::Acquire) == 0 {
                    wait(&words[1], 0, None);
                }
            });
            words[0].store(1, Ordering::Release);
            wake_both(&words[0], &words[1]);
        });
        assert_eq!(words[1].load(Ordering::Relaxed), 1);
        wake_both(&words[0], &words[1]);
        assert_eq!(words[1].load(Ordering::Relaxed), 1);
    }
}
