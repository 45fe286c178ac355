//! The shield's journal: the whole plan with the old values, on disk before the first write.

use super::{Error, ShieldGroup};
use crate::RunDir;
use host::plan::{ForeignValue, Note, Step, Want};
use host::snapshot::Target;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The journal's name in the run directory.
pub const FILE: &str = "shield.json";

/// Format that this build reads and writes.
const FORMAT: u32 = 2;

/// Fields that every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// A shield that is active, or is being applied or released.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    pub(super) format: u32,
    /// Boot in which the journal was written. A reboot undoes all its changes.
    pub boot_id: String,
    /// State of the shield.
    pub state: State,
    /// The requested shield.
    pub want: Want,
    /// Method that keeps tasks off the CPUs.
    pub backend: String,
    /// Group of the shield's own tasks.
    pub place: ShieldGroup,
    /// All steps, round by round, each with the value before it.
    pub rounds: Vec<Vec<Step>>,
    /// Steps that the kernel refused.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// Things that cannot be moved, and other remarks.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Changes that only a boot parameter could make.
    #[serde(default)]
    pub boot: Vec<Note>,
    /// Values that another program had changed before the release.
    #[serde(default)]
    pub kept: Vec<ForeignValue>,
}

/// State of a shield.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Being applied. If no process is applying it, the apply was interrupted.
    Applying,
    /// Active. During a repair, active in part.
    Applied,
    /// Being released. If no process is releasing it, the release was interrupted.
    Releasing,
    /// Released, except for values that another program changed or that could not be restored.
    Left,
}

impl State {
    /// Error text for a run directory that finds this shield of another one.
    pub(super) fn elsewhere(self, cpus: &base::CpuSet) -> String {
        match self {
            Self::Applied => {
                format!("another shield is active on CPUs {cpus}, and a machine can have only one: release it first")
            }
            Self::Applying | Self::Releasing => {
                format!("another shield, on CPUs {cpus}, was interrupted half-way: release it first")
            }
            Self::Left => {
                format!("values of another shield, on CPUs {cpus}, were not restored: restore them first")
            }
        }
    }

    /// Describes a shield and how to proceed if it is not active.
    #[must_use]
    pub fn leftover(self, cpus: &base::CpuSet) -> String {
        match self {
            Self::Applied => format!("a shield on CPUs {cpus} is active"),
            Self::Applying => {
                format!("a shield on CPUs {cpus} is being set up, or was interrupted: tahti shield release reverts it")
            }
            Self::Releasing => {
                format!("a shield on CPUs {cpus} is being released, or was interrupted: tahti shield release continues")
            }
            Self::Left => format!("the shield of CPUs {cpus} was released, but not all of its values were restored"),
        }
    }

    /// Extra option that the release needs.
    pub(super) fn force(self) -> &'static str {
        if self == Self::Left { " --force" } else { "" }
    }
}

/// A step that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The target.
    pub target: Target,
    /// Name for users.
    pub label: String,
    /// The kernel's error.
    pub answer: String,
    /// Possible meaning.
    pub why: String,
}

impl Journal {
    /// A journal without steps.
    #[must_use]
    pub fn new(boot_id: &str, want: &Want, backend: &str, place: ShieldGroup) -> Self {
        Self {
            format: FORMAT,
            boot_id: boot_id.to_owned(),
            state: State::Applying,
            want: want.clone(),
            backend: backend.to_owned(),
            place,
            rounds: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
            boot: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// All steps in order.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.rounds.iter().flatten().cloned().collect()
    }

    /// Reads the journal of this boot, if there is one. A journal of another boot is removed: its changes ended with
    /// that boot.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn load(dir: &RunDir, boot_id: &str) -> Result<JournalState, Error> {
        let path = dir.path().join(FILE).display().to_string();
        let Some(text) =
            dir.read(FILE).map_err(|error| Error::Journal { path: path.clone(), error: error.to_string() })?
        else {
            return Ok(JournalState::None);
        };
        let found = read(&text, boot_id, &dir.path().join(FILE))?;
        if matches!(found, JournalState::OtherBoot) {
            dir.remove(FILE).map_err(|error| Error::Journal { path, error: error.to_string() })?;
        }
        Ok(found)
    }

    /// The text of the journal, for the file at `path`.
    ///
    /// # Errors
    /// The journal cannot be serialized.
    pub(super) fn text(&self, path: &Path) -> Result<String, Error> {
        serde_json::to_string(self)
            .map_err(|error| Error::NoJournal { path: path.display().to_string(), error: error.to_string() })
    }

    /// Writes the whole journal before any of its steps is executed.
    ///
    /// # Errors
    /// There is no space or no permission.
    pub fn save(&self, dir: &RunDir) -> Result<(), Error> {
        super::fault::before_write();
        let text = self.text(&dir.path().join(FILE))?;
        dir.replace(FILE, &text).map_err(|error| Error::NoJournal {
            path: dir.path().join(FILE).display().to_string(),
            error: error.to_string(),
        })
    }

    /// Removes the journal: nothing is left to restore.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(dir: &RunDir) -> Result<(), Error> {
        super::fault::before_write();
        dir.remove(FILE).map_err(|error| Error::Journal {
            path: dir.path().join(FILE).display().to_string(),
            error: error.to_string(),
        })
    }
}

/// Parses a journal.
///
/// # Errors
/// The text is not a journal of this format.
pub(super) fn read(text: &str, boot_id: &str, path: &Path) -> Result<JournalState, Error> {
    let path = path.display().to_string();
    let broken = |error: serde_json::Error| Error::Journal {
        path: path.clone(),
        error: format!("line {}, column {}: {error}", error.line(), error.column()),
    };
    let Head { format } = serde_json::from_str(text).map_err(broken)?;
    if format != FORMAT {
        let error = format!("format {format}, expected {FORMAT}: release the shield with the tahti that made it");
        return Err(Error::Journal { path, error });
    }
    let journal: Journal = serde_json::from_str(text).map_err(broken)?;
    if journal.boot_id != boot_id {
        return Ok(JournalState::OtherBoot);
    }
    Ok(JournalState::Here(Box::new(journal)))
}

/// Result of reading the journal in a run directory.
#[derive(Debug)]
pub enum JournalState {
    /// No journal.
    None,
    /// A journal of another boot.
    OtherBoot,
    /// A shield of this boot.
    Here(Box<Journal>),
}
