//! Positions up to which other programs have copied the log. Segments from a mark on are not packed. The limits of size remove
//! them nevertheless, and count them.

use crate::error::StoreError;
use crate::files::Files;
use crate::follow::Position;
use crate::part::{Numbers, UNFINISHED};

/// File name extension of marks.
pub(crate) const MARK: &str = ".mark";

/// Maximum size of a mark in bytes.
const LEN_MAX: usize = 256;

/// Position up to which a log was copied elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Identifies this log among others with the same destination.
    pub log: i64,
    /// Everything before this position has been copied.
    pub done: Position,
    /// Data up to this position may be copied in part. They are sent again, in the same portions.
    pub planned: Position,
}

impl Mark {
    /// Reads the mark `name`; `None` if there is none yet.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn read<F: Files>(files: &F, name: &str) -> Result<Option<Self>, StoreError> {
        let name = format!("{name}{MARK}");
        let listed = files.list().map_err(StoreError::io("", "list"))?;
        if !listed.iter().any(|(listed, _)| *listed == name) {
            return Ok(None);
        }
        let file = files.open(&name).map_err(StoreError::io(&name, "open"))?;
        let mut bytes = vec![0; LEN_MAX];
        let len = files.read_at(&file, 0, &mut bytes).map_err(StoreError::io(&name, "read"))?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        let mark =
            Self::parse(&text).ok_or_else(|| StoreError::Mark { name, found: text.chars().take(60).collect() })?;
        Ok(Some(mark))
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let ["log", log, "done", segment, offset, "planned", to_segment, to_offset] = words[..] else { return None };
        let position = |segment: &str, offset: &str| {
            Some(Position { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
        };
        Some(Self {
            log: log.parse().ok()?,
            done: position(segment, offset)?,
            planned: position(to_segment, to_offset)?,
        })
    }

    /// Replaces the mark atomically; the change survives a power cut.
    ///
    /// # Errors
    /// If it cannot be written. The previous mark then remains.
    pub fn write<F: Files>(&self, files: &F, name: &str) -> Result<(), StoreError> {
        let name = format!("{name}{MARK}");
        let unfinished = format!("{name}{UNFINISHED}");
        // Left by a process that was killed at this point.
        let _ = files.remove(&unfinished);
        let text = format!(
            "log {} done {} {} planned {} {}\n",
            self.log, self.done.segment, self.done.offset, self.planned.segment, self.planned.offset
        );
        let mut file = files.create(&unfinished).map_err(StoreError::io(&unfinished, "create"))?;
        files.append(&mut file, text.as_bytes()).map_err(StoreError::io(&unfinished, "append"))?;
        files.sync(&file).map_err(StoreError::io(&unfinished, "sync"))?;
        files.rename(&unfinished, &name).map_err(StoreError::io(&unfinished, "rename"))?;
        files.sync_names().map_err(StoreError::io("", "sync"))
    }
}

/// Number of a file's segments that still have to be copied. All of them if a mark is invalid.
pub(crate) fn unsent<F: Files>(files: &F, numbers: Numbers) -> u64 {
    let listed = files.list().map_err(StoreError::io("", "list"));
    let held = listed.and_then(|listed| held_from(files, &listed)).unwrap_or(Some(0));
    held.map_or(0, |held| (numbers.last + 1).saturating_sub(held.max(numbers.first)))
}

/// The first segment that still has to be copied, over all marks; `None` if there are no marks.
pub(crate) fn held_from<F: Files>(files: &F, listed: &[(String, u64)]) -> Result<Option<u64>, StoreError> {
    let mut least: Option<u64> = None;
    for (name, _) in listed {
        let Some(name) = name.strip_suffix(MARK) else { continue };
        if let Some(mark) = Mark::read(files, name)? {
            least = Some(least.map_or(mark.done.segment, |least| least.min(mark.done.segment)));
        }
    }
    Ok(least)
}
