//! `tahti settings`: saves, compares and restores the values of channels.

use crate::failure::{Failure, end};
use crate::out::{Colour, Painted};
use base::{DurNs, Visible};
use serde_json::json;
use settings::{
    Channels, Folder, Outcome, RestoreError, Restored, Row, Saved, SavedValue, Settings, State, Tolerance, compare,
    shown,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum number of characters printed of a value.
const VALUE_MAX: usize = 60;

/// Save, compare and restore the values of channels
#[derive(clap::Args)]
#[command(after_help = "\
A set is a file NAME.req in the folder with one channel per line, as for EPICS autosave.
A line pva://NAME is a channel of PVAccess.

Examples:
  tahti settings save settings rf --note 'before the shift'
  tahti settings list settings rf
  tahti settings compare settings rf              the newest file with the present values
  tahti settings restore settings rf --only 'RF:PHASE*'")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: SettingsCommand,
}

#[derive(clap::Subcommand)]
enum SettingsCommand {
    List(List),
    Save(Save),
    Compare(Compare),
    Restore(Restore),
}

/// The folder of the sets, and how servers are waited for
#[derive(clap::Args)]
struct SetArgs {
    /// Folder with a file NAME.req for each set
    folder: PathBuf,
    /// Maximum wait for servers
    #[arg(long, value_name = "TIME", default_value = "2s")]
    within: DurNs,
}

/// List the sets of a folder, or the saved files of a set, oldest first
#[derive(clap::Args)]
struct List {
    /// Folder with a file NAME.req for each set
    folder: PathBuf,
    /// Set
    set: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Save the values of a set; exit status 1 if a channel could not be read
#[derive(clap::Args)]
struct Save {
    #[command(flatten)]
    which: SetArgs,
    /// Set
    set: String,
    /// Note
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// Compare saved values with the present ones or with another file; exit status 1 if they differ
#[derive(clap::Args)]
struct Compare {
    #[command(flatten)]
    which: SetArgs,
    /// Set
    set: String,
    /// Saved file [default: the newest]
    file: Option<String>,
    /// Compare with this file instead of the present values
    #[arg(long, value_name = "FILE")]
    with: Option<String>,
    /// Tolerance of numbers: 0.01 in the unit of the channel, or 1% of the saved value
    #[arg(long, default_value = "0")]
    tolerance: Tolerance,
    /// Also list equal channels
    #[arg(long, short = 'a')]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Write saved values to the channels that differ, and verify them
///
/// If one channel cannot be written, nothing is written.
#[derive(clap::Args)]
struct Restore {
    #[command(flatten)]
    which: SetArgs,
    /// Set
    set: String,
    /// Saved file [default: the newest]
    file: Option<String>,
    /// Only these channels; * and ? are wildcards; repeatable
    #[arg(long, value_name = "NAMES")]
    only: Vec<String>,
    /// Tolerance of numbers: 0.01 in the unit of the channel, or 1% of the saved value
    #[arg(long, default_value = "0")]
    tolerance: Tolerance,
    /// Write the writable channels even if others fail
    #[arg(long)]
    partial: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.what, SettingsCommand::List(_) | SettingsCommand::Compare(_))
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.what {
        SettingsCommand::List(args) => end(list(args)),
        SettingsCommand::Save(args) => end(save(args)),
        SettingsCommand::Compare(args) => end(compare_run(args)),
        SettingsCommand::Restore(args) => end(restore(args)),
    }
}

/// Shortens text from other programs to [`VALUE_MAX`] characters and escapes control characters.
fn tame(text: &str) -> String {
    let short: String = text.chars().take(VALUE_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", Visible { text: &short, colours: false })
}

fn value(value: &SavedValue) -> String {
    tame(&shown(value))
}

fn list(args: &List) -> Result<(), Failure> {
    let folder = Folder::new(&args.folder);
    let Some(set) = &args.set else {
        for set in folder.sets()? {
            let (channels, saved) = (folder.channels(&set)?.len(), folder.list(&set)?.len());
            if args.json {
                println!("{}", json!({ "set": set, "channels": channels, "saved": saved }));
            } else {
                println!("{set}: {channels} channels, saved {saved} times");
            }
        }
        return Ok(());
    };
    for entry in folder.list(set)? {
        let head = entry.head.as_ref();
        if args.json {
            let at = head.map(|head| head.at.to_string());
            let (by, note) = (head.map(|head| &head.by), head.map(|head| &head.note));
            println!(
                "{}",
                json!({ "file": entry.file, "at": at, "by": by, "note": note, "channels": entry.channels, "missing": entry.missing })
            );
            continue;
        }
        let missing = if entry.missing > 0 { format!(", {} not read", entry.missing) } else { String::new() };
        let head = head.map_or_else(String::new, |head| {
            let note = if head.note.is_empty() { String::new() } else { format!(": {}", tame(&head.note)) };
            format!(", by {}{note}", tame(&head.by))
        });
        match entry.channels {
            0 => println!("{}: not a whole file of settings", entry.file),
            channels => println!("{}: {channels} channels{missing}{head}", entry.file),
        }
    }
    Ok(())
}

/// The present user's name, which is stored in the file.
fn who() -> String {
    let (uid, name) = sys::users::own();
    name.unwrap_or_else(|| format!("user {uid}"))
}

fn save(args: &Save) -> Result<ExitCode, Failure> {
    let folder = Folder::new(&args.which.folder);
    let kept = settings::save(&folder, &args.set, &who(), &args.note, args.which.within)?;
    for (name, why) in &kept.missing {
        eprintln!("tahti settings: {}: {why}", tame(name));
    }
    println!("{}: {} of {} channels", kept.file, kept.channels - kept.missing.len(), kept.channels);
    Ok(if kept.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The named file of a set, or the newest one.
fn load(folder: &Folder, set: &str, file: Option<&str>) -> Result<(String, Settings), Failure> {
    let file = file.map_or_else(|| folder.newest(set), |file| Ok(file.to_owned()))?;
    let settings = folder.load(set, &file)?;
    Ok((file, settings))
}

fn names(saved: &[Saved]) -> Vec<String> {
    saved.iter().map(|one| one.name.clone()).collect()
}

fn compare_run(args: &Compare) -> Result<ExitCode, Failure> {
    let folder = Folder::new(&args.which.folder);
    let (file, settings) = load(&folder, &args.set, args.file.as_deref())?;
    let (other, now) = match &args.with {
        Some(other) => (other.clone(), folder.load(&args.set, other)?.found(&settings)),
        None => ("the present values".to_owned(), Channels::open(&names(&settings.values), args.which.within)?.read()?),
    };
    let rows = compare(&settings.values, &now, args.tolerance);
    let equal = rows.iter().filter(|row| row.state == State::Equal).count();
    if args.json {
        rows.iter().for_each(|row| println!("{}", row_json(row)));
    } else {
        println!("{file} compared with {other}: {equal} of {} channels equal", rows.len());
        rows.iter().filter(|row| args.all || row.state != State::Equal).for_each(|row| println!("{}", row_line(row)));
    }
    Ok(if equal == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row_line(row: &Row) -> String {
    let saved = row.saved.as_ref().map_or_else(String::new, value);
    let state = match &row.state {
        State::Equal => Painted(Colour::Good, "equal".to_owned()),
        State::Differs(now) => Painted(Colour::Bad, format!("now {}", value(now))),
        State::Unavailable(why) => Painted(Colour::Doubtful, format!("unavailable: {why}")),
        State::NotSaved(Some(now)) => Painted(Colour::Doubtful, format!("not read when saved; now {}", value(now))),
        State::NotSaved(None) => Painted(Colour::Doubtful, "not read when saved, nor now".to_owned()),
    };
    format!("  {:<28} {saved:<20} {state}", tame(&row.name))
}

fn row_json(row: &Row) -> serde_json::Value {
    let (state, now) = match &row.state {
        State::Equal => ("equal", None),
        State::Differs(now) => ("differs", Some(shown(now))),
        State::Unavailable(why) => ("unavailable", Some(why.to_string())),
        State::NotSaved(now) => ("not saved", now.as_ref().map(shown)),
    };
    json!({ "name": row.name, "saved": row.saved.as_ref().map(shown), "state": state, "now": now })
}

fn restore(args: &Restore) -> Result<ExitCode, Failure> {
    let folder = Folder::new(&args.which.folder);
    let (file, settings) = load(&folder, &args.set, args.file.as_deref())?;
    let is_wanted = |one: &Saved| args.only.is_empty() || args.only.iter().any(|only| base::glob(only, &one.name));
    let wanted: Vec<Saved> = settings.values.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        return Err(format!("{file} has no channel like {}", args.only.join(", ")).into());
    }
    let mut channels = Channels::open(&names(&wanted), args.which.within)?;
    let restored = match settings::restore(&mut channels, &wanted, args.tolerance, args.partial) {
        Err(RestoreError::Blocked(blocked)) => {
            for (name, why) in &blocked {
                eprintln!("tahti settings: {}: {why}", tame(name));
            }
            let count = blocked.len();
            let why = format!(
                "{count} of {} channels cannot be written: nothing was; `--partial` writes the others",
                wanted.len()
            );
            return Err(why.into());
        }
        restored => restored?,
    };
    let count = |is: fn(&Outcome) -> bool| restored.iter().filter(|one| is(&one.outcome)).count();
    let (equal, written) = (count(|one| *one == Outcome::Equal), count(|one| matches!(one, Outcome::Written(_))));
    if args.json {
        restored.iter().for_each(|one| println!("{}", outcome_json(one)));
    } else {
        println!("{file}: {written} written, {equal} equal before, {} not restored", restored.len() - written - equal);
        restored.iter().filter(|one| one.outcome != Outcome::Equal).for_each(|one| println!("{}", outcome_line(one)));
    }
    Ok(if equal + written == restored.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn outcome_line(one: &Restored) -> String {
    let colour = if one.is_good() { Colour::Good } else { Colour::Bad };
    let outcome = Painted(colour, tame(&one.outcome.to_string()));
    format!("  {:<28} {:<20} {outcome}", tame(&one.name), value(&one.saved))
}

fn outcome_json(one: &Restored) -> serde_json::Value {
    let (outcome, detail) = match &one.outcome {
        Outcome::Equal => ("equal", None),
        Outcome::Written(before) => ("written", Some(shown(before))),
        Outcome::Other(now) => ("other", Some(now.as_ref().map_or_else(ToString::to_string, shown))),
        Outcome::Failed(why) => ("failed", Some(why.to_string())),
        Outcome::LeftOut(why) => ("left out", Some(why.to_string())),
    };
    json!({ "name": one.name, "saved": shown(&one.saved), "outcome": outcome, "detail": detail })
}
