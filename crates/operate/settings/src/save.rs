//! Saving what channels hold.

use crate::channels::{Channels, Unavailable};
use crate::file::{Head, Saved, Settings};
use crate::folder::{Folder, FolderError};
use crate::value::{States, tame};
use base::{DurNs, Stamp};
use std::io;

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The file.
    pub file: String,
    /// Channels of the set.
    pub channels: usize,
    /// Those that could not be read: their names alone are in the file.
    pub missing: Vec<(String, Unavailable)>,
}

/// Why nothing was saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The folder says no.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// Waiting for servers failed.
    #[error("Channel Access: {0}")]
    Io(#[from] io::Error),
    /// There is nothing to save.
    #[error("none of the {} channels could be read, so nothing was saved: {}", .0.len(), .0.first().map_or_else(String::new, |(name, why)| format!("{name}: {why}")))]
    Nothing(Vec<(String, Unavailable)>),
}

/// Saves what the channels of a set hold, in the name of `by`. Servers have `within` to be found and as long to answer. Blocks.
///
/// # Errors
/// As [`SaveError`] says; no file was made.
pub fn save(folder: &Folder, set: &str, by: &str, note: &str, within: DurNs) -> Result<Kept, SaveError> {
    let names = folder.channels(set)?;
    let read = Channels::open(&names, within)?.read()?;
    let (mut values, mut missing) = (Vec::with_capacity(names.len()), Vec::new());
    for (name, read) in names.into_iter().zip(read) {
        let found = read.map_err(|why| missing.push((name.clone(), why))).ok();
        let states = States::Number(found.as_ref().and_then(|found| found.label().map(tame)));
        values.push(Saved { name, value: found.map(|found| found.value), states });
    }
    let channels = values.len();
    if missing.len() == channels {
        return Err(SaveError::Nothing(missing));
    }
    let now = sys::clock::wall_ns();
    let at = Stamp::from_unix(now / 1_000_000_000, (now % 1_000_000_000) as u32);
    let settings = Settings { head: Some(Head::new(set, at, by, note)), values };
    Ok(Kept { file: folder.save(set, &settings)?, channels, missing })
}
