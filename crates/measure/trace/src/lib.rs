//! Reader of kernel traces, and explanation of late wake-ups.
//!
//! [`Decoder`] turns bytes into events, and [`Explainer`] turns events into culprits. The crate uses no files, clocks or threads:
//! ring buffer pages and format files are arguments, so that a recording can be explained on any machine. Invalid input never
//! causes a panic or unbounded allocation.
//!
//! Data flow: format files → [`Decoder`]; pages of each CPU → [`Decoder::page`] → [`Merge`] (one order over all CPUs) →
//! [`Explainer`] (history of each CPU and each watched thread) → [`Late`] and [`Summary`]. A flight recorder keeps the last pages
//! ([`Window`]) and writes some of them to files ([`stored`]), which can be exported to other formats ([`export`]).
//!
//! ```
//! use base::{DurNs, MonoNs};
//! use trace::{Event, Explainer, Facts, Merge, Name, Task, EventKind};
//!
//! // A loop with FIFO 80 goes to sleep; it is woken while a logger has its CPU.
//! let control = Task { tid: 7, prio: 19, name: Name::of(b"control") };
//! let logger = Task { tid: 9, prio: 120, name: Name::of(b"logger") };
//! let mut merge = Merge::default();
//! let mut happens = |ns: u64, tid: i32, what: EventKind| {
//!     let event = Event { at: MonoNs(ns), cpu: 1, tid, interrupt: false, what };
//!     merge.push(1, (event.at, event.cpu, Some(event)));
//! };
//! happens(1_000, 7, EventKind::Switch { from: control, state: 1, to: logger });
//! happens(5_000, 9, EventKind::Waking { task: control, cpu: 1 });
//! happens(65_000, 9, EventKind::Switch { from: logger, state: 0, to: control });
//!
//! // It ran 60 us late: explained where that is more than 20 us.
//! let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(20), None, 10);
//! explainer.watch(7, "control");
//! let mut late = Vec::new();
//! merge.drain(MonoNs(100_000), |item| explainer.take(&item, |one| late.push(one.clone())));
//! assert_eq!((late.len(), late[0].delay_ns()), (1, 60_000));
//! assert_eq!(late[0].parts.iter().map(|part| part.ns).sum::<u64>(), 60_000);
//! assert!(format!("{:?}", late[0].worst()).contains("logger"), "{:?}", late[0].parts);
//! ```
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

pub use culprit::{Culprit, DelayPart, Late, Occasion};
pub use decode::{Decoder, DecoderError, EVENTS, LossCounters, Row, Scope};
pub use event::{Event, EventKind, Name, ProgramEvent, Task, Vector};
pub use explain::{Clocks, Explainer, Facts, PROGRAM_EVENTS_SHOWN};
pub use format::{Field, Format, FormatError};
pub use merge::{Item, Merge};
pub use page::{Layout, PageError, Record, Records};
pub use summary::{Summary, Tally};
pub use symbols::Symbols;
pub use window::Window;
