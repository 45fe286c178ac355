//! A gate: one thread sleeps, and many visitors can wake it without write access to the words.

use crate::Words;
use crate::sync::{AtomicU64, Ordering, fence};

/// Written by the sleeper: the number of its nap, 0 while it is awake.
const NAP: usize = 0;
/// The futex word on which it sleeps. It never changes.
const BELL: usize = 8;

/// The mark that shows whether the sleeper is asleep. Only the sleeper writes it, so no visitor can forge it. A visitor may
/// find the mark before the sleeper has fallen asleep. It then repeats the wake-up until a thread was woken or the nap is
/// over.
pub struct GateWords<'a> {
    words: &'a Words,
}

impl<'a> GateWords<'a> {
    /// Size of a gate, in words. They must be zero at first.
    pub const WORDS: usize = 16;

    /// The gate in the first [`WORDS`](Self::WORDS) of `words`; `None` if there are fewer.
    #[must_use]
    pub fn attach(words: &'a Words) -> Option<Self> {
        words.get(..Self::WORDS).map(|words| Self { words })
    }

    /// The word on which the sleeper sleeps while it is 0.
    #[must_use]
    pub fn bell(&self) -> &'a AtomicU64 {
        &self.words[BELL]
    }

    /// Calls `sleep` unless `has_work` returns true. To be called by the sleeper. `naps` is its count of naps.
    pub fn nap(&self, naps: &mut u64, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        *naps += 1;
        self.words[NAP].store(*naps, Ordering::Relaxed);
        // Either a visitor sees the mark, or `has_work` sees its work.
        fence(Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.words[NAP].store(0, Ordering::Relaxed);
    }

    /// Wakes the sleeper. To be called by a visitor after it has left work. `wake_one` wakes the sleeper and returns whether
    /// it was asleep. If the sleeper is just falling asleep or getting up, `pause` is called with the number of wake-ups
    /// without effect so far; it returns whether to retry. `woken` is the last nap that this visitor ended, since one
    /// wake-up is enough for each nap.
    pub fn wake(&self, woken: &mut u64, mut wake_one: impl FnMut() -> bool, mut pause: impl FnMut(u32) -> bool) {
        fence(Ordering::SeqCst);
        let mut unheard = 0;
        loop {
            let nap = self.words[NAP].load(Ordering::Relaxed);
            if nap == 0 || nap == *woken {
                return;
            }
            if wake_one() {
                *woken = nap;
                return;
            }
            unheard += 1;
            if !pause(unheard) {
                return;
            }
        }
    }
}
