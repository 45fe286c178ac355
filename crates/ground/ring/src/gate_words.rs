//! How one thread sleeps although many may wake it, none of whom may write.

use crate::Words;
use crate::sync::{AtomicU64, Ordering, fence};

/// The sleeper's line: the number of its nap, 0 while it is awake.
const NAP: usize = 0;
/// What it sleeps on; never changes.
const BELL: usize = 8;

/// The mark that tells whether somebody sleeps. The sleeper alone writes it, so no visitor can forge it; a visitor that
/// finds the mark before the sleeper has fallen asleep wakes again until somebody was woken or the nap is over.
pub struct GateWords<'a> {
    words: &'a Words,
}

impl<'a> GateWords<'a> {
    /// Words that it needs, zero at first.
    pub const WORDS: usize = 16;

    /// The view over the first [`WORDS`](Self::WORDS) of `words`; `None` if those are fewer.
    #[must_use]
    pub fn attach(words: &'a Words) -> Option<Self> {
        words.get(..Self::WORDS).map(|words| Self { words })
    }

    /// What the sleeper sleeps on, as long as it is 0.
    #[must_use]
    pub fn bell(&self) -> &'a AtomicU64 {
        &self.words[BELL]
    }

    /// The sleeper's: `sleep` unless there is work by now. `naps` is its own count of naps.
    pub fn nap(&self, naps: &mut u64, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        *naps += 1;
        self.words[NAP].store(*naps, Ordering::Relaxed);
        // Either a visitor sees the mark, or its work is seen here.
        fence(Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.words[NAP].store(0, Ordering::Relaxed);
    }

    /// A visitor's, after it left work: wakes the sleeper by `wake_one`, which says whether somebody slept, and calls
    /// `pause` with the number of wake-ups that nobody heard so far, if the sleeper is just falling asleep or getting up;
    /// that says whether to go on. `woken` is the nap that this visitor ended last: one is enough for each.
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
