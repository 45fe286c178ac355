//! Restores saved values.

use crate::channels::{Channels, Unavailable, Unfit, Unwritten};
use crate::compare::{Tolerance, are_equal};
use crate::file::Saved;
use crate::value::shown;
use db::SavedValue;
use std::io;

/// The result for a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It already had the saved value and was not written.
    Equal,
    /// It was written and has the saved value. Contains the previous value.
    Written(SavedValue),
    /// It was written but has a different or unknown value.
    Other(Result<SavedValue, Unavailable>),
    /// It was not written.
    Failed(Unwritten),
    /// It was skipped because it cannot be restored, for this reason.
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

/// A channel and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The channel.
    pub name: String,
    /// The saved value.
    pub saved: SavedValue,
    /// The result.
    pub outcome: Outcome,
}

impl Restored {
    /// Returns whether the channel has the saved value.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Equal | Outcome::Written(_))
    }
}

/// The reason why a channel cannot be restored, known before the first write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// It cannot be read.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// The server does not permit writing.
    #[error("its server does not let it be written")]
    NoAccess,
    /// The saved value is invalid for the type or the states of the channel.
    #[error("{0}")]
    BadValue(Unfit),
}

/// The reason why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Waiting for servers failed. It is unknown which channels were written.
    #[error("cannot wait for the servers: {0}")]
    Io(#[from] io::Error),
    /// These channels cannot be written, so none was.
    #[error("{} cannot be written: {}; nothing was", .0.len(), .0.first().map_or_else(String::new, |(name, why)| format!("{name}: {why}")))]
    Blocked(Vec<(String, Blocked)>),
}

/// Writes the channels in `saved` that have a different value, in order, one after the other. Then reads all again. Channels
/// without a saved value are not changed.
///
/// If a channel cannot be written, nothing is written; with `partial` the others are written. Blocks. If n channels are written,
/// it takes at most n + 4 times the time limit of `channels`, n + 8 times with both protocols.
///
/// # Errors
/// See [`RestoreError`].
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
            Ok(found) => match found.check((value, &one.states)) {
                Err(why) => Outcome::LeftOut(Blocked::BadValue(why)),
                Ok(()) => Outcome::Written(found.named()),
            },
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
