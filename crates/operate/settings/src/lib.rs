//! Settings of a plant: what a list of channels held at one time, kept in a file, compared with what they hold now, written back.
//!
//! A folder has a set of channels in each `NAME.req`, and what they held in files below `NAME/`. Both have the forms of EPICS'
//! autosave, so that its request files can be used as they are, its `.sav` files be compared and restored, and ours be read by it:
//! states are saved by their numbers, with their names in comments.
//!
//! Must never write a channel that nobody asked to have restored, one that holds already what was saved, nor the first of several
//! where it is known that another one cannot be written.
#![forbid(unsafe_code)]

mod channels;
mod compare;
mod file;
mod folder;
mod restore;
mod save;
mod value;

pub use channels::{Channels, Found, Unavailable, Unwritten};
pub use compare::{Row, State, Tolerance, ToleranceError, compare};
pub use db::SavedValue;
pub use file::{Head, Saved, Settings};
pub use folder::{CHANNELS_MAX, Entry, Folder, FolderError};
pub use restore::{Blocked, Outcome, RestoreError, Restored, restore};
pub use save::{Kept, SaveError, save};
pub use value::{States, shown};
