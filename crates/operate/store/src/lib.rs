//! The archive on a disk: logging, reading, packing, verification.
//!
//! A folder contains *segments*, which a [`Logger`] appends to, and *packs*, which [`pack()`] makes from closed segments. A pack
//! stores the samples of each signal together, with an index and a summary of each chunk. It is a Parquet file. Each start of the logger begins a new segment, so data on the disk never change. An [`Archive`] reads
//! the folder, also while a logger writes to it.
//!
//! [`Reader`] is the common interface of folders and databases. Programs that copy samples elsewhere follow the log with
//! [`Follow`] and store a [`Mark`]; segments from the mark on are not packed.
//!
//! The crate `segment` defines the contents of blocks. This crate moves bytes through [`Files`], which tests replace.
//!
//! ```
//! use segment::{Sample, rows::About};
//! use store::{Archive, Config, Logger, Memory, Span};
//!
//! let files = Memory::default();
//! let mut logger = Logger::open(files.clone(), Config::default(), 0)?;
//! let signal = logger.signal("RF:TEMP", About::default(), 0)?;
//! for k in 0..100 {
//!     logger.push(signal, &Sample::new(k * 1_000_000_000, 20.0 + k as f64));
//! }
//! logger.sync(0);
//! assert_eq!(logger.account().safe, 100);
//!
//! let archive = Archive::open(files)?;
//! let span = Span { from: 10_000_000_000, to: 12_000_000_000 };
//! let found: Vec<f64> = archive.samples("RF:TEMP", span)?.filter_map(|row| row.ok()?.datum.to_f64()).collect();
//! assert_eq!(found, [30.0, 31.0, 32.0]);
//! # Ok::<(), store::StoreError>(())
//! ```
#![forbid(unsafe_code)]

mod account;
mod archive;
mod bins;
mod catalogue;
mod error;
mod files;
mod follow;
mod logger;
mod manifest;
mod mark;
mod memory;
mod merge;
mod pack;
mod part;
mod reader;
mod scan;
mod verify;

pub use account::{Account, Config, Newest, Pushed, WhenFull};
pub use archive::{Archive, Samples, SignalInfo, Span};
pub use bins::{Bin, Bins, Filling};
pub use catalogue::{Problem, manifest_damage};
pub use error::StoreError;
pub use files::{Files, Folder, opened};
pub use follow::{Follow, Logged, Position, Window, begin, behind, written_to};
pub use logger::{Logger, SignalId};
pub use mark::Mark;
pub use memory::{Memory, MemoryFile, MemoryLock};
pub use pack::{PACKED_AT_ONCE, Packed, due, pack, unpacked};
pub use part::PACK;
pub use reader::{Reader, Stream};
pub use verify::{Checked, Damage, verify, verify_while};
