//! Saves the values of channels.

use crate::channels::{Channels, Unavailable};
use crate::file::{Head, Saved, Settings};
use crate::folder::{Folder, FolderError};
use crate::value::{States, tame};
use base::{DurNs, Stamp};
use std::io;

/// The result of saving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// The file.
    pub file: String,
    /// Number of channels of the set.
    pub channels: usize,
    /// The channels that could not be read. The file contains only their names.
    pub missing: Vec<(String, Unavailable)>,
}

/// The reason why nothing was saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// An error in the folder.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// Waiting for servers failed.
    #[error("Channel Access: {0}")]
    Io(#[from] io::Error),
    /// No channel could be read.
    #[error("none of the {} channels could be read, so nothing was saved: {}", .0.len(), .0.first().map_or_else(String::new, |(name, why)| format!("{name}: {why}")))]
    Nothing(Vec<(String, Unavailable)>),
}

/// Saves the values of the channels of a set, with `by` as the author. Servers have the time `within` to be found, and again to
/// answer. Blocks.
///
/// # Errors
/// See [`SaveError`]. No file was created.
pub fn save(folder: &Folder, set: &str, by: &str, note: &str, within: DurNs) -> Result<SaveReport, SaveError> {
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
    Ok(SaveReport { file: folder.save(set, &settings)?, channels, missing })
}
