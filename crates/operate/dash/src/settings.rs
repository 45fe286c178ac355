//! Settings: sets of channels, saved values, comparison with present values, and restoring.

use crate::signals::Outcome;
use base::DurNs;
use serde::Deserialize;
use serde_json::{Value, json};
use settings::{Channels, Entry, Folder, Saved, State, Tolerance, compare, restore, save, shown};
use std::path::Path;

/// Timeout for reading all channels, and for each write.
const PATIENCE: DurNs = DurNs::from_secs(2);
/// Maximum rows displayed; the total is given.
const ROWS_MAX: usize = 1000;
/// Maximum files listed, the newest.
const FILES_MAX: usize = 200;

const NO_FOLDER: &str = "this dashboard has no settings; `settings` of [dashboard] names their folder";

/// A request about settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// List the sets and their files.
    List,
    /// Save the present values of a set; operators only.
    Save {
        /// Name of the set.
        set: String,
        /// A note.
        note: String,
    },
    /// Compare a file with the present values.
    Compare {
        /// Name of the set.
        set: String,
        /// Name of the file.
        file: String,
        /// Tolerance: `0`, `0.01` or `1%`.
        tolerance: String,
    },
    /// Restore channels; operators only. If one of them cannot be written, none is.
    Restore {
        /// Name of the set.
        set: String,
        /// Name of the file.
        file: String,
        /// Names of the channels.
        names: Vec<String>,
    },
}

impl Act {
    /// Whether it changes something.
    pub(crate) const fn writes(&self) -> bool {
        matches!(self, Self::Save { .. } | Self::Restore { .. })
    }

    /// Description for the log.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::List => "list settings".to_owned(),
            Self::Save { set, note } => format!("save settings {set}, note {note:?}"),
            Self::Compare { set, file, .. } => format!("compare settings {set}/{file}"),
            Self::Restore { set, file, names } => format!("restore {} channels of settings {set}/{file}", names.len()),
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Executes a request for `user`. Blocks while waiting for servers.
pub(crate) fn act(folder: Option<&Path>, user: &str, act: &Act) -> Outcome {
    let folder = Folder::new(folder.ok_or(NO_FOLDER)?);
    match act {
        Act::List => list(&folder),
        Act::Save { set, note } => {
            let kept = save(&folder, set, user, note, PATIENCE).map_err(words)?;
            let missing: Vec<&str> = kept.missing.iter().take(ROWS_MAX).map(|(name, _)| name.as_str()).collect();
            Ok(json!({ "file": kept.file, "channels": kept.channels, "missing": missing }))
        }
        Act::Compare { set, file, tolerance } => {
            let settings = folder.load(set, file).map_err(words)?;
            let tolerance: Tolerance = tolerance.parse().map_err(words)?;
            let now = channels(&settings.values)?.read().map_err(words)?;
            let rows = compare(&settings.values, &now, tolerance);
            let differ: Vec<_> = rows.iter().filter(|row| row.state != State::Equal).collect();
            Ok(json!({
                "equal": rows.len() - differ.len(), "differ": differ.len(),
                "rows": differ.into_iter().take(ROWS_MAX).map(row).collect::<Value>(),
            }))
        }
        Act::Restore { set, file, names } => {
            let names: std::collections::HashSet<&str> = names.iter().map(String::as_str).collect();
            let values = folder.load(set, file).map_err(words)?.values;
            let wanted: Vec<Saved> = values.into_iter().filter(|one| names.contains(one.name.as_str())).collect();
            let restored = restore(&mut channels(&wanted)?, &wanted, Tolerance::default(), false).map_err(words)?;
            let lacks = |one: &&settings::Restored| !one.is_good();
            let bad: Vec<String> =
                restored.iter().filter(lacks).map(|one| format!("{}: {}", one.name, one.outcome)).collect();
            if bad.is_empty() {
                return Ok(json!({ "restored": restored.len() }));
            }
            Err(format!(
                "{} of {} were not restored: {}",
                bad.len(),
                restored.len(),
                bad.into_iter().take(20).collect::<Vec<_>>().join("; ")
            ))
        }
    }
}

fn channels(saved: &[Saved]) -> Result<Channels, String> {
    let names: Vec<String> = saved.iter().map(|one| one.name.clone()).collect();
    Channels::open(&names, PATIENCE).map_err(words)
}

fn list(folder: &Folder) -> Outcome {
    let mut sets = Vec::new();
    for name in folder.sets().map_err(words)? {
        // An invalid set must not hide the others.
        let (channels, files) = match (folder.channels(&name), folder.list(&name)) {
            (Ok(channels), Ok(files)) => (channels, files),
            (Err(why), _) | (_, Err(why)) => {
                sets.push(json!({ "set": name, "error": why.to_string() }));
                continue;
            }
        };
        let files: Value = files.iter().rev().take(FILES_MAX).map(entry).collect();
        sets.push(json!({ "set": name, "channels": channels.len(), "files": files }));
    }
    Ok(json!({ "sets": sets }))
}

fn entry(entry: &Entry) -> Value {
    let head = entry.head.as_ref();
    json!({
        "file": entry.file, "channels": entry.channels, "missing": entry.missing,
        "at_s": head.map(|head| head.at.to_unix().0), "by": head.map(|head| &head.by), "note": head.map(|head| &head.note),
    })
}

fn row(row: &settings::Row) -> Value {
    let (now, why) = match &row.state {
        State::Equal => (None, None),
        State::Differs(now) => (Some(shown(now)), None),
        State::Unavailable(why) => (None, Some(why.to_string())),
        State::NotSaved(now) => (now.as_ref().map(shown), Some("not read when saved".to_owned())),
    };
    json!({ "name": row.name, "saved": row.saved.as_ref().map(shown), "now": now, "why": why })
}
