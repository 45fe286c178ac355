//! Journal of partitions in the plant's folder. It is written before anything is created.

use crate::RunDir;
use host::partition::Ground;
use host::plan::Step;
use host::snapshot::{Target, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const FILE: &str = "partitions.json";
const FORMAT: u32 = 1;

/// Failure to use the journal.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}; {remedy}")]
pub struct JournalError {
    path: String,
    what: String,
    remedy: &'static str,
}

/// The journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    /// Boot in which the journal was written. Its end undid all changes.
    boot_id: String,
    /// Places of the directories.
    pub(super) ground: Ground,
    /// All steps, round by round.
    pub(super) rounds: Vec<Vec<Step>>,
}

impl Journal {
    pub(super) fn new(boot_id: &str, ground: Ground) -> Self {
        Self { format: FORMAT, boot_id: boot_id.to_owned(), ground, rounds: Vec::new() }
    }

    fn error(dir: &RunDir, what: impl ToString, remedy: &'static str) -> JournalError {
        JournalError { path: dir.path().join(FILE).display().to_string(), what: what.to_string(), remedy }
    }

    pub(super) fn load(dir: &RunDir, boot_id: &str) -> Result<Option<Self>, JournalError> {
        const REMEDY: &str = "remove the control groups tahti-* that it names (rmdir), then the file";
        let Some(text) = dir.read(FILE).map_err(|error| Self::error(dir, error, REMEDY))? else { return Ok(None) };
        let journal: Self = serde_json::from_str(&text).map_err(|error| Self::error(dir, error, REMEDY))?;
        if journal.format != FORMAT {
            return Err(Self::error(dir, format!("format {}, expected {FORMAT}", journal.format), REMEDY));
        }
        if journal.boot_id != boot_id {
            Self::remove(dir)?;
            return Ok(None);
        }
        Ok(Some(journal))
    }

    pub(super) fn save(&self, dir: &RunDir) -> Result<(), JournalError> {
        crate::shield::before_write();
        let text = serde_json::to_string(self).map_err(|error| Self::error(dir, error, "report this"))?;
        dir.replace(FILE, &text).map_err(|error| Self::error(dir, error, "nothing was changed; make room there"))
    }

    pub(super) fn remove(dir: &RunDir) -> Result<(), JournalError> {
        crate::shield::before_write();
        dir.remove(FILE).map_err(|error| Self::error(dir, error, "remove it"))
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.rounds.iter().flatten().cloned().collect()
    }

    /// All targets in the journal.
    pub(super) fn targets(&self) -> BTreeSet<Target> {
        let made = self.rounds.iter().flatten().filter(|step| step.to != Value::Absent);
        made.map(|step| step.target.clone()).collect()
    }

    /// All directories in the journal.
    pub(super) fn dirs(&self) -> BTreeSet<String> {
        let dir = |step: &Step| match (&step.target, &step.to) {
            (Target::Dir { path }, Value::Present) => Some(path.clone()),
            _ => None,
        };
        self.rounds.iter().flatten().filter_map(dir).collect()
    }
}
