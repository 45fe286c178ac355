//! Waiting for a change of a shared word, and waking the waiters: `futex(2)` on the low half of an `AtomicU64`.
//!
//! Works between processes that map the same memory. If one of them dies, nothing remains in the kernel.

use base::DurNs;
use rustix::thread::futex::{self, Flags, WakeOp, WakeOpCmp};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The low half of a word.
fn low(word: &AtomicU64) -> &AtomicU32 {
    let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
    let index = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: a word consists of two halves. Both are 4-byte aligned, accept any bit pattern, and live as long as the
    // word.
    unsafe { &*halves.wrapping_add(index) }
}

/// Sleeps until a wake-up of this word, at most for `limit`. Returns at once if its low half differs from that of
/// `seen`. May return early: check again. Returns whether it was woken, which means that the thread did sleep.
///
/// Real-time: one system call that blocks; does not allocate.
pub fn wait(word: &AtomicU64, seen: u64, limit: Option<DurNs>) -> bool {
    let timeout = limit.map(|limit| rustix::time::Timespec {
        tv_sec: limit.0.max(0) / 1_000_000_000,
        tv_nsec: limit.0.max(0) % 1_000_000_000,
    });
    // Whatever ended the wait (wake-up, earlier change, signal, timeout), the caller checks the word.
    futex::wait(low(word), Flags::empty(), seen as u32, timeout.as_ref()).is_ok()
}

/// Wakes all waiters of this word. Returns their number. The memory may be mapped read-only.
///
/// Real-time: one system call that does not block.
pub fn wake(word: &AtomicU64) -> usize {
    // Cannot fail for an existing word.
    futex::wake(low(word), Flags::empty(), i32::MAX as u32).unwrap_or(0)
}

/// Wakes all waiters of `first`, and one sleeper on `sleeper`. The low half of `sleeper` is 0 while a thread sleeps on
/// it, and is set to 1.
///
/// Real-time: one system call that does not block.
pub fn wake_both(first: &AtomicU64, sleeper: &AtomicU64) {
    let (first, sleeper, all) = (low(first), low(sleeper), i32::MAX as u32);
    // Cannot fail for existing words.
    let _ = futex::wake_op(first, Flags::empty(), all, 1, sleeper, WakeOp::Set, WakeOpCmp::Eq, 1, 0);
}

/// Increments a word and wakes its waiters.
pub fn count_up(word: &AtomicU64, by: u64) {
    word.fetch_add(by, Ordering::AcqRel);
    wake(word);
}

/// Wakes one waiter of this word: the one with the highest priority.
///
/// Real-time: one system call that does not block.
pub fn wake_one(word: &AtomicU64) {
    // Cannot fail for an existing word.
    let _ = futex::wake(low(word), Flags::empty(), 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_word_is_woken_by_its_change() {
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
    fn two_sleepers_are_woken_together_and_a_thread_that_does_not_sleep_is_not_woken() {
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
