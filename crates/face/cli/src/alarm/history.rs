//! `tahti alarm history`: past alarm changes and operator actions, from the journal.

use super::{ServerArgs, visible};
use crate::archive::time;
use crate::failure::Failure;
use alarm::{Act, Entry, EntryContent};
use std::path::PathBuf;

/// Print alarm states and operator actions from the journal
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti alarm history --from -8h
  tahti alarm history 'RF:*' --from 2026-11-23 --json
  tahti alarm history --folder /var/lib/tahti/alarms    without a running server")]
pub(super) struct Args {
    /// Channels, paths or areas such as /ring/RF; * and ? are wildcards
    names: Vec<String>,
    #[command(flatten)]
    of: JournalArgs,
    /// Print the lines of the journal unchanged
    #[arg(long)]
    json: bool,
}

/// Which journal, and which part of it.
#[derive(clap::Args)]
pub(super) struct JournalArgs {
    #[command(flatten)]
    which: ServerArgs,
    /// Folder of the journal [default: that of the running alarm server]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Start time: now, a time before now such as -1h or -7d, or a date and time in UTC
    #[arg(long, default_value = "-24h", allow_hyphen_values = true)]
    from: String,
}

impl JournalArgs {
    /// Calls `entry` for each journal entry of the span. The flag is true if the entry only repeats the state at the
    /// start of a file.
    /// Returns the start of the span, the present time (both wall-clock nanoseconds), and whether a process is writing
    /// the journal now.
    pub(super) fn read(&self, entry: &mut dyn FnMut(Entry, bool)) -> Result<(i64, i64, bool), Failure> {
        let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
        let from = time::parse(&self.from, now)?;
        let folder = match &self.folder {
            Some(folder) => folder.clone(),
            None => super::list::folder(&self.which)?.into(),
        };
        let unread = alarmd::read(&folder, alarm::Wall(from), entry)?;
        if unread > 0 {
            eprintln!("tahti alarm: {unread} lines cannot be read: truncated by a kill or power failure, or damaged");
        }
        Ok((from, now, alarmd::is_written(&folder)))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let is_meant = |path: &str| args.names.is_empty() || args.names.iter().any(|name| alarm::is_meant(name, path));
    args.of.read(&mut |entry, is_snapshot| {
        if is_snapshot || !(is_meant(&entry.path) || is_about(&entry, &is_meant)) {
            return;
        }
        if args.json {
            println!("{}", serde_json::json!(entry));
        } else {
            println!("{}", line(&entry));
        }
    })?;
    Ok(())
}

/// Whether an operator action names at least one alarm that `is_meant` accepts.
fn is_about(entry: &Entry, is_meant: &dyn Fn(&str) -> bool) -> bool {
    match &entry.what {
        EntryContent::Act { act, .. } => act.names().iter().any(|name| is_meant(&format!("/{name}"))),
        _ => false,
    }
}

fn line(entry: &Entry) -> String {
    let at = time::show(entry.at.0);
    match &entry.what {
        EntryContent::Begins { started: true, .. } => format!("{at}  -- started"),
        EntryContent::Begins { .. } => format!("{at}  -- a new file begins"),
        EntryContent::Stopped => format!("{at}  -- stopped"),
        EntryContent::Act { by, act } => {
            let behalf =
                if by.on_behalf_of.is_empty() { String::new() } else { format!(" for {}", visible(&by.on_behalf_of)) };
            format!("{at}  {} by {}{behalf} (user {}, process {})", described(act), visible(&by.user), by.uid, by.pid)
        }
        EntryContent::State { state, announce } => {
            let (alarm, aside) = (&state.alarm, state.hidden().map_or_else(String::new, |aside| format!("  {aside}")));
            let announced = if announce.is_some() { "  announced" } else { "" };
            format!(
                "{at}  {:<13} {:<9} {}  {}  {}{aside}{announced}",
                alarm.severity.name(),
                state.current_severity.name(),
                visible(&entry.path),
                visible(&alarm.value),
                visible(&alarm.message)
            )
        }
    }
}

fn described(act: &Act) -> String {
    let names = visible(&act.names().join(" ")).to_string();
    let why = |why: &str| if why.is_empty() { String::new() } else { format!(" ({})", visible(why)) };
    match act {
        Act::Acknowledge { .. } => format!("acknowledged {names}"),
        Act::Unacknowledge { .. } => format!("acknowledgement withdrawn: {names}"),
        Act::Shelve { time, once, why: text, .. } => {
            let once = if *once { " or until all is well" } else { "" };
            format!("shelved {names} for {}{once}{}", visible(time), why(text))
        }
        Act::Unshelve { .. } => format!("unshelved {names}"),
        Act::Disable { time, why: text, .. } => {
            let time = time.as_ref().map_or_else(String::new, |time| format!(" for {}", visible(time)));
            format!("disabled {names}{time}{}", why(text))
        }
        Act::Enable { .. } => format!("enabled {names}"),
        Act::OutOfService { why: text, .. } => format!("put out of service {names}{}", why(text)),
        Act::InService { .. } => format!("put into service {names}"),
        Act::Maintenance { on: true } => "maintenance begun".to_owned(),
        Act::Maintenance { on: false } => "maintenance ended".to_owned(),
    }
}
