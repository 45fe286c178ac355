//! The tasks that preempted a real-time thread, with counts.

use crate::Words;
use crate::sync::{Ordering, add_own};

/// Maximum number of culprits in a page. Preemptions by further tasks are counted in one common counter.
pub const CULPRITS_MAX: usize = 16;
/// Count of switches without a culprit's name: the table was full, or the trace lost the event.
const UNNAMED: usize = 0;
const TABLE: usize = 8;
const ENTRY: usize = 4;

/// A task that ran while the real-time thread was runnable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Culprit {
    /// Its name (`comm`), padded with zeros.
    pub name: [u8; 16],
    /// Its thread id.
    pub tid: u32,
    /// Number of preemptions.
    pub count: u64,
}

impl Culprit {
    /// Its name as text, up to the first zero or the first invalid UTF-8.
    #[must_use]
    pub fn name(&self) -> &str {
        crate::text::until_broken(&self.name)
    }
}

/// The table in shared words. It has a single writer, which may be a thread other than the real-time thread.
#[derive(Clone, Copy)]
pub(crate) struct Culprits<'a> {
    words: &'a Words,
}

impl<'a> Culprits<'a> {
    pub(crate) const WORDS: usize = TABLE + CULPRITS_MAX * ENTRY;

    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words }
    }

    pub(crate) fn clear(&self) {
        self.words[..Self::WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Counts one switch to a task. The switch counts as unnamed if `culprit` is `None` or the table is full.
    pub(crate) fn add(&self, culprit: Option<(&str, u32)>) {
        let Some((name, tid)) = culprit else { return add_own(&self.words[UNNAMED], 1) };
        for entry in self.words[TABLE..Self::WORDS].chunks_exact(ENTRY) {
            let used = entry[3].load(Ordering::Relaxed) > 0;
            if used && entry[2].load(Ordering::Relaxed) != u64::from(tid) {
                continue;
            }
            if !used {
                let mut bytes = [0; 16];
                bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
                let [low, high] = [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index])));
                entry[0].store(low, Ordering::Relaxed);
                entry[1].store(high, Ordering::Relaxed);
                entry[2].store(u64::from(tid), Ordering::Relaxed);
            }
            return entry[3].store(entry[3].load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
        add_own(&self.words[UNNAMED], 1);
    }

    pub(crate) fn unnamed(&self) -> u64 {
        self.words[UNNAMED].load(Ordering::Relaxed)
    }

    pub(crate) fn named(&self) -> impl Iterator<Item = Culprit> + use<'a> {
        self.words[TABLE..Self::WORDS].chunks_exact(ENTRY).map_while(|entry| {
            let count = entry[3].load(Ordering::Acquire);
            let [low, high] = [0, 1].map(|index: usize| entry[index].load(Ordering::Relaxed).to_le_bytes());
            let name = core::array::from_fn(|index| if index < 8 { low[index] } else { high[index - 8] });
            (count > 0).then(|| Culprit { name, tid: entry[2].load(Ordering::Relaxed) as u32, count })
        })
    }
}
