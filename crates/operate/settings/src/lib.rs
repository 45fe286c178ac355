//! Settings of a plant: saves the values of a list of channels in a file, compares them with the present values, and restores
//! them.
//!
//! A folder has a set of channels in each `NAME.req`, and its saved values in files below `NAME/`. Both use the formats of EPICS
//! autosave: its request files can be used unchanged, its `.sav` files can be compared and restored, and it can read our files.
//! States are saved as numbers, with their names in comments.
//!
//! Invariants: a channel is written only on request and only if its value differs. No channel is written if it is known that
//! another one of the request cannot be written (unless a partial restore is requested).
#![forbid(unsafe_code)]

mod channels;
mod compare;
mod file;
mod folder;
mod restore;
mod save;
mod value;

pub use channels::{ChannelValue, Channels, Unavailable, Unfit, Unwritten};
pub use compare::{Row, State, Tolerance, ToleranceError, compare};
pub use db::SavedValue;
pub use file::{Head, Saved, Settings};
pub use folder::{CHANNELS_MAX, Entry, Folder, FolderError};
pub use restore::{Blocked, Outcome, RestoreError, Restored, restore};
pub use save::{SaveError, SaveReport, save};
pub use value::{States, shown};
