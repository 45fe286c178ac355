//! Data structures that threads and processes share without locks: queues, a trail with any number of readers, a
//! latest-value cell, the loop page of a real-time loop, its exported variables and their captures, the frame page of a
//! frame scheduler, a barrier and a condition. [`image`] has the layout of other software's images in shared memory.
//!
//! Every structure is a view over shared words, `&[AtomicU64]`: a mapped memfd (`sys::shm`) or plain memory. Words are
//! addressed by offset, never by pointer, and every bit pattern of a word is valid. So a torn, stale or hostile mapping can
//! yield wrong values, but no undefined behaviour, no panic and no endless loop. The crate needs no `unsafe`. Each block
//! starts with a header (magic, kind, version, shape), which is checked once, on attaching. Later accesses use only the
//! shape that was checked.
//!
//! Each queue has a bound, a counter of overflows, and its overflow rule in the method's name.
//!
//! ```
//! use ring::{AtomicU64, Latest, Stream, Words};
//!
//! let zeros = |words: usize| -> Vec<AtomicU64> { (0..words).map(|_| AtomicU64::new(0)).collect() };
//! let memory = zeros(Stream::<&Words>::words_for(64));
//! let (mut writer, mut reader) = (Stream::format(&*memory).unwrap().writer(), Stream::attach(&*memory).unwrap().reader());
//! assert!(writer.push_or_refuse(&[&[1, 2], &[3]]));
//! let mut out = [0; 8];
//! assert_eq!(reader.pop(&mut out), Ok(Some(3)));
//! assert_eq!(out[..3], [1, 2, 3]);
//!
//! let memory = zeros(Latest::<2>::WORDS);
//! Latest::<2>::format(&memory).unwrap().set_replace([7, 8]);
//! // Somebody else's shape is refused.
//! assert!(Latest::<3>::attach(&memory).is_err());
//! ```
//!
//! The crate does not use files, mappings, clocks or the allocator.
//!
//! Real-time: no operation blocks, allocates or makes a system call. The cost of each is bounded by the size of one item,
//! and readers retry a fixed number of times.
#![no_std]

#[cfg(test)]
extern crate std;

mod barrier;
mod captures;
mod condition;
mod culprits;
mod event;
mod frame;
mod gate_words;
mod header;
pub mod image;
mod latest;
mod page;
mod queue;
mod shared_hist;
mod stream;
mod sync;
mod text;
mod trail;
mod variables;

pub use barrier::{Barrier, Meeting};
pub use captures::{
    CAPTURES_MAX, CHANNELS_MAX, Captures, Division, ROW_WORDS, SETUP_WORDS, STATUS_WORDS, Segment, WritePosition, marks,
};
pub use condition::Condition;
pub use culprits::{CULPRITS_MAX, Culprit};
pub use event::Event;
pub use frame::{
    ActivityCounter, Baseline, FRAME_EVENTS, FRAME_NAME_BYTES, FrameBorder, FrameCounter, FrameEvent, FramePage,
    FrameShape, FrameState, Presence, Turn,
};
pub use gate_words::GateWords;
pub use header::LayoutError;
pub use latest::Latest;
pub use page::{
    Counter, Cycle, Heartbeat, Identity, LOOP_FD, LOOP_PAGE_WORDS, LoopPage, LoopWatcher, LoopWriter, PageState,
    TRAIL_CYCLES, Wait, flags,
};
pub use queue::{Consumer, Producer, Queue};
pub use shared_hist::SharedHistogram;
pub use stream::{Damaged, Stream, StreamReader, StreamWriter};
pub use sync::AtomicU64;
pub use text::Text;
pub use trail::{Cursor, Trail};
pub use variables::{
    NAME_BYTES, Number, Reading, SAMPLES_MAX, UNIT_BYTES, VARIABLES_MAX, VariableSample, VariableSpec, Variables,
};

/// Shared memory, as a slice of words.
pub type Words = [AtomicU64];
