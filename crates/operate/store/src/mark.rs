//! How far somebody has taken the log: what is behind a mark is neither packed nor forgotten.

use crate::error::StoreError;
use crate::files::Files;
use crate::follow::Position;
use crate::part::UNFINISHED;

/// Endings of marks' names.
const MARK: &str = ".mark";

/// Most bytes of a mark.
const LEN_MAX: usize = 256;

/// How far a log has been taken elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What tells this log from others that go to the same place.
    pub log: i64,
    /// All before it is there.
    pub done: Position,
    /// Up to here it may be there in part: it is sent once more in the same portions.
    pub planned: Position,
}

impl Mark {
    /// The mark of a name; `None` where there is none yet.
    ///
    /// # Errors
    /// Where it cannot be read, or is none.
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

    /// Puts the mark in the place of the one before, in one step that survives a power cut.
    ///
    /// # Errors
    /// Where it cannot be written; the one before is there then.
    pub fn write<F: Files>(&self, files: &F, name: &str) -> Result<(), StoreError> {
        let name = format!("{name}{MARK}");
        let unfinished = format!("{name}{UNFINISHED}");
        // Left by who was killed here.
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

/// The first segment that somebody has not taken yet; `None` where nobody takes any.
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
