//! Writing back what was saved.

use crate::channels::{Channels, Unavailable, Unwritten};
use crate::compare::{Tolerance, are_equal};
use crate::file::Saved;
use crate::value::shown;
use db::SavedValue;
use std::io;

/// What became of a channel that was to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It held what was saved already, and was not written.
    Equal,
    /// It was written, held this before, and holds what was saved.
    Written(SavedValue),
    /// It was written, and holds something else: this, or nobody knows what.
    Other(Result<SavedValue, Unavailable>),
    /// It was not written.
    Failed(Unwritten),
    /// It was left out: it, or why, is not known.
    LeftOut(Blocked),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal => f.write_str("equal before"),
            Self::Written(before) => write!(f, "written, was {}", shown(before)),
            Self::Other(Ok(now)) => write!(f, "written, but it holds {}", shown(now)),
            Self::Other(Err(why)) => write!(f, "written, then {why}"),
            Self::Failed(why) => write!(f, "not written: {why}"),
            Self::LeftOut(why) => write!(f, "left out: {why}"),
        }
    }
}

/// A channel, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The channel.
    pub name: String,
    /// What was saved.
    pub saved: SavedValue,
    /// What became of it.
    pub outcome: Outcome,
}

impl Restored {
    /// Whether it holds what was saved.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Equal | Outcome::Written(_))
    }
}

/// Why a channel cannot be restored, as is known before the first one is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// It cannot be read.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// Its server does not let it be written.
    #[error("its server does not let it be written")]
    NoAccess,
    /// What was saved is no value of its type, or no one of its states.
    #[error("what was saved is no value of its type, or no one of its states")]
    BadValue,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Waiting for servers failed; what was written is not known.
    #[error("Channel Access: {0}")]
    Io(#[from] io::Error),
    /// These channels cannot be written, so none was.
    #[error("{} cannot be written: {}; nothing was", .0.len(), .0.first().map_or_else(String::new, |(name, why)| format!("{name}: {why}")))]
    Blocked(Vec<(String, Blocked)>),
}

/// Writes those of the `saved` that hold something else, in their order, each when the one before is done; then reads all again.
/// Those that could not be read when they were saved are left alone.
///
/// Where one cannot be written nothing is, unless `partial`: then the others are. Blocks; with n channels to be written at most n + 4
/// times as long as the channels were given.
///
/// # Errors
/// As [`RestoreError`] says.
pub fn restore(
    channels: &mut Channels,
    saved: &[Saved],
    tolerance: Tolerance,
    partial: bool,
) -> Result<Vec<Restored>, RestoreError> {
    let before = channels.read()?;
    let mut all = Vec::new();
    for (at, one) in saved.iter().enumerate() {
        let Some(value) = &one.value else { continue };
        let outcome = match &before[at] {
            Err(why) => Outcome::LeftOut(Blocked::Unavailable(why.clone())),
            Ok(found) if are_equal(one, found, tolerance) => Outcome::Equal,
            Ok(found) if !found.may_write => Outcome::LeftOut(Blocked::NoAccess),
            Ok(found) if !channels.is_value(at, (value, &one.states), found) => Outcome::LeftOut(Blocked::BadValue),
            Ok(found) => Outcome::Written(found.named()),
        };
        let then = before[at].as_ref().map_or_else(|_| value.clone(), |found| found.named_as_now(value, &one.states));
        all.push((at, Restored { name: one.name.clone(), saved: then, outcome }));
    }
    let blocked: Vec<(String, Blocked)> = all
        .iter()
        .filter_map(|(_, one)| match &one.outcome {
            Outcome::LeftOut(why) => Some((one.name.clone(), why.clone())),
            _ => None,
        })
        .collect();
    if !blocked.is_empty() && !partial {
        return Err(RestoreError::Blocked(blocked));
    }
    let mut is_written = false;
    for (at, one) in all.iter_mut().filter(|(_, one)| matches!(one.outcome, Outcome::Written(_))) {
        is_written = true;
        if let Err(why) = channels.write(*at, &saved[*at])? {
            one.outcome = Outcome::Failed(why);
        }
    }
    if is_written {
        let after = channels.read()?;
        for (at, one) in &mut all {
            let Outcome::Written(_) = &one.outcome else { continue };
            match &after[*at] {
                Ok(found) if are_equal(&saved[*at], found, tolerance) => {}
                Ok(found) => one.outcome = Outcome::Other(Ok(found.named())),
                Err(why) => one.outcome = Outcome::Other(Err(why.clone())),
            }
        }
    }
    Ok(all.into_iter().map(|(_, one)| one).collect())
}
