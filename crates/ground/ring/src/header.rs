//! The header of every shared block, and layout errors.

use crate::Words;
use crate::sync::Ordering;
use core::fmt;

/// `TAHTISHM` in a hex dump.
const MAGIC: u64 = u64::from_le_bytes(*b"TAHTISHM");
/// Incremented whenever the meaning of a word changes.
const VERSION: u64 = 2;
/// Size of a header, in words. The data after it starts on a new cache line.
pub(crate) const HEADER: usize = 8;

const AT_MAGIC: usize = 0;
const AT_KIND: usize = 1;
const AT_WORDS: usize = 2;
const AT_SHAPE: usize = 3;

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Queue = 1,
    Trail = 2,
    Latest = 3,
    LoopPage = 4,
    Variables = 5,
    Frame = 6,
    Stream = 7,
    Barrier = 8,
    Condition = 9,
    Captures = 10,
}

/// Reason why shared memory is not the expected block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The memory has too few words.
    Short {
        /// Number of words found.
        found: usize,
        /// Number of words needed.
        expected: usize,
    },
    /// The memory holds no tahti block: it was not formatted yet, or holds something else.
    Magic {
        /// The first word.
        found: u64,
    },
    /// Another kind of block, or another version of it.
    Kind {
        /// Kind and version found.
        found: (u32, u32),
        /// Kind and version expected.
        expected: (u32, u32),
    },
    /// Number of slots or item size differ from those of the reader.
    Shape {
        /// Number of slots and words per item found.
        found: (u32, u32),
        /// Description of the expected shape.
        expected: &'static str,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { found, expected } => {
                write!(f, "shared memory of {} bytes, expected at least {}", found * 8, expected * 8)
            }
            Self::Magic { found } => write!(f, "shared memory starts with {found:#018x}: not created by tahti"),
            Self::Kind { found: (kind, version), expected: (wanted, now) } => {
                write!(f, "shared block of kind {kind} version {version}, expected kind {wanted} version {now}")
            }
            Self::Shape { found: (slots, words), expected } => {
                write!(f, "shared block of {slots} slots with {words} words each, expected {expected}")
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// Writes a header. The magic word is written last, so a reader that sees it also sees the rest.
pub(crate) fn write(words: &Words, kind: Kind, slots: u32, item_words: u32) {
    words[AT_MAGIC].store(0, Ordering::Relaxed);
    words[AT_KIND].store(VERSION << 32 | kind as u64, Ordering::Relaxed);
    words[AT_WORDS].store(words.len() as u64, Ordering::Relaxed);
    words[AT_SHAPE].store(u64::from(slots) << 32 | u64::from(item_words), Ordering::Relaxed);
    words[AT_MAGIC].store(MAGIC, Ordering::Release);
}

/// Checks a header and returns the number of slots and the words per item.
pub(crate) fn check(words: &Words, kind: Kind) -> Result<(u32, u32), LayoutError> {
    if words.len() < HEADER {
        return Err(LayoutError::Short { found: words.len(), expected: HEADER });
    }
    let magic = words[AT_MAGIC].load(Ordering::Acquire);
    if magic != MAGIC {
        return Err(LayoutError::Magic { found: magic });
    }
    let found = words[AT_KIND].load(Ordering::Relaxed);
    let (found, expected) = ((found as u32, (found >> 32) as u32), (kind as u32, VERSION as u32));
    if found != expected {
        return Err(LayoutError::Kind { found, expected });
    }
    let length = usize::try_from(words[AT_WORDS].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    if words.len() < length {
        return Err(LayoutError::Short { found: words.len(), expected: length });
    }
    let shape = words[AT_SHAPE].load(Ordering::Relaxed);
    Ok(((shape >> 32) as u32, shape as u32))
}

/// Checks the header of a block of slots and returns the number of slots. That number must be a power of two, items must
/// have `item_words` words, and all slots must be within `words`.
pub(crate) fn check_slots(
    words: &Words,
    kind: Kind,
    item_words: usize,
    first: usize,
    stride: usize,
) -> Result<usize, LayoutError> {
    let found = check(words, kind)?;
    let slots = found.0 as usize;
    if found.1 as usize != item_words || !slots.is_power_of_two() || slots > SLOTS_MAX {
        return Err(LayoutError::Shape { found, expected: "a power of two of slots and the reader's item size" });
    }
    let expected = first + slots * stride;
    if words.len() < expected {
        return Err(LayoutError::Short { found: words.len(), expected });
    }
    Ok(slots)
}

/// Maximum number of slots. No queue of tahti needs as many, and the limit keeps the arithmetic far from overflow.
pub(crate) const SLOTS_MAX: usize = 1 << 24;

/// The largest power of two of slots that fits into `room` words.
pub(crate) fn slots_in(room: usize, stride: usize) -> Option<usize> {
    let slots = (room / stride.max(1)).min(SLOTS_MAX);
    (slots > 0).then(|| 1 << slots.ilog2())
}
