//! The archive on a disk: what is logged, found again, packed, verified.
//!
//! A folder holds *segments*, which a [`Logger`] appends to, and *packs*, which [`pack()`] makes of closed segments: in a pack
//! the samples of each signal stand together, with an index that knows what is in each chunk. A pack is of the archive's own
//! form or a Parquet file ([`Form`]). A segment is written by one logger, once: each start begins a new one, so nothing that is
//! on the disk is ever changed. An [`Archive`] reads all of it, also while it is written.
//!
//! Who reads needs not know where an archive is kept: [`Reader`] is what a folder and a database have in common. Who takes
//! samples elsewhere follows the log ([`Follow`]) and leaves a [`Mark`]: nothing behind it is packed.
//!
//! What a block holds is decided in `segment`; here bytes are moved, by way of [`Files`], which tests replace.
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
pub use archive::{Archive, Found, Samples, Span};
pub use bins::{Bin, Bins, Filling};
pub use catalogue::Problem;
pub use error::StoreError;
pub use files::{Files, Folder, opened};
pub use follow::{Follow, Logged, Position, Window, behind, written_to};
pub use logger::{Logger, SignalId};
pub use mark::Mark;
pub use memory::{Memory, MemoryFile, MemoryLock};
pub use pack::{PACKED_AT_ONCE, Packed, due, form, pack, unpacked};
pub use part::Form;
pub use reader::{Reader, Stream};
pub use verify::{Checked, Damage, verify, verify_while};
