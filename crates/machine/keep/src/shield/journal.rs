//! What was there before: the whole plan with the old values, on disk before the first write.

use super::{Error, ShieldGroup};
use crate::RunDir;
use host::plan::{Kept, Note, Step, Want};
use host::snapshot::Target;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The journal's name in the run directory.
pub const FILE: &str = "shield.json";

/// The format that this build writes and reads.
const FORMAT: u32 = 2;

/// What every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// A shield that stands, or is being made or given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    pub(super) format: u32,
    /// The boot in which it was written: a reboot undoes everything that it holds.
    pub boot_id: String,
    /// How far it has come.
    pub state: State,
    /// What was asked for.
    pub want: Want,
    /// How tasks are kept off.
    pub backend: String,
    /// Where the shield's own tasks belong.
    pub place: ShieldGroup,
    /// Every step, round after round, with the value before it.
    pub rounds: Vec<Vec<Step>>,
    /// Steps that the kernel refused.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// What cannot be moved, and what else there is to know.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// What only a boot parameter could do.
    #[serde(default)]
    pub boot: Vec<Note>,
    /// What somebody else had changed at the release.
    #[serde(default)]
    pub kept: Vec<Kept>,
}

/// How far a shield has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Being made; if nobody is making it, it was interrupted.
    Applying,
    /// It stands; while it is repaired, in part.
    Applied,
    /// Being given back; if nobody is at it, it was interrupted.
    Releasing,
    /// Given up, but for values that somebody else had changed, or that would not go back.
    Left,
}

impl State {
    /// What a shield in this state on `cpus` is, to whoever finds it in his way.
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

    /// What of a shield that does not stand is there, and what to do about it.
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

    /// What its release needs besides.
    pub(super) fn force(self) -> &'static str {
        if self == Self::Left { " --force" } else { "" }
    }
}

/// A step that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Where.
    pub target: Target,
    /// Its name for people.
    pub label: String,
    /// The kernel's answer.
    pub answer: String,
    /// What that may mean.
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

    /// Every step in order.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.rounds.iter().flatten().cloned().collect()
    }

    /// Reads the journal of this boot, if there is one. One from another boot is removed: what it
    /// describes ended with that boot.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(dir: &RunDir, boot_id: &str) -> Result<Found, Error> {
        let path = dir.path().join(FILE).display().to_string();
        let Some(text) =
            dir.read(FILE).map_err(|error| Error::Journal { path: path.clone(), error: error.to_string() })?
        else {
            return Ok(Found::None);
        };
        let found = read(&text, boot_id, &dir.path().join(FILE))?;
        if matches!(found, Found::OtherBoot) {
            dir.remove(FILE).map_err(|error| Error::Journal { path, error: error.to_string() })?;
        }
        Ok(found)
    }

    /// Its text, for the file at `path`.
    ///
    /// # Errors
    /// If it has none.
    pub(super) fn text(&self, path: &Path) -> Result<String, Error> {
        serde_json::to_string(self)
            .map_err(|error| Error::NoJournal { path: path.display().to_string(), error: error.to_string() })
    }

    /// Writes it, whole, before whatever it announces is done.
    ///
    /// # Errors
    /// If there is no room, or no permission.
    pub fn save(&self, dir: &RunDir) -> Result<(), Error> {
        super::fault::before_write();
        let text = self.text(&dir.path().join(FILE))?;
        dir.replace(FILE, &text).map_err(|error| Error::NoJournal {
            path: dir.path().join(FILE).display().to_string(),
            error: error.to_string(),
        })
    }

    /// Removes it: nothing is left to put back.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(dir: &RunDir) -> Result<(), Error> {
        super::fault::before_write();
        dir.remove(FILE).map_err(|error| Error::Journal {
            path: dir.path().join(FILE).display().to_string(),
            error: error.to_string(),
        })
    }
}

/// Reads a journal's text.
///
/// # Errors
/// If it is none.
pub(super) fn read(text: &str, boot_id: &str, path: &Path) -> Result<Found, Error> {
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
        return Ok(Found::OtherBoot);
    }
    Ok(Found::Here(Box::new(journal)))
}

/// What was found in the run directory.
#[derive(Debug)]
pub enum Found {
    /// No journal.
    None,
    /// One from another boot, which has been removed.
    OtherBoot,
    /// A shield of this boot.
    Here(Box<Journal>),
}
