//! What the kernel recorded of its own doings, read; and late wake-ups explained by it.
//!
//! Bytes in, events out ([`Decoder`]); events in, culprits out ([`Explainer`]). No file, clock or thread: the pages of the
//! ring buffers and the text of the format files are arguments, so that a trace explains itself anywhere. Bytes from outside
//! never panic here and never allocate without a bound.
//!
//! The way: format files → [`Decoder`]; pages of each CPU → [`Decoder::page`] → [`Merge`] (one order over all CPUs) →
//! [`Explainer`] (what each CPU did when, what became of the watched threads) → [`Late`] and [`Summary`]. A flight recorder keeps the
//! last pages ([`Window`]) and writes some of them down ([`stored`]), which others can draw ([`export`]).
#![forbid(unsafe_code)]

mod culprit;
mod decode;
mod event;
mod explain;
pub mod export;
mod format;
mod merge;
mod page;
pub mod stored;
mod summary;
mod symbols;
mod timeline;
mod window;

pub use culprit::{Culprit, Late, Occasion, Part};
pub use decode::{Decoder, EVENTS, Lost, Row, Scope};
pub use event::{Event, Name, Task, Vector, What};
pub use explain::{Clocks, Explainer, Facts};
pub use format::{Field, Format, FormatError};
pub use merge::{Item, Merge};
pub use page::{Layout, PageError, Record, Records};
pub use summary::{Summary, Tally};
pub use symbols::Symbols;
pub use window::Window;
