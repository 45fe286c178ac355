//! `tahti alarm list` and `watch`: the state of alarms.

use super::{ServerArgs, visible};
use crate::failure::Failure;
use crate::out::{Colour, Painted};
use alarm::wire::{List, Look, Reply, Row};
use alarm::{Severity, Wall};
use base::DurNs;
use keep::supervisor::short;

/// List alarms by severity, then shelved and suppressed ones with the reason
#[derive(clap::Args)]
pub(super) struct Args {
    /// Channels, paths or areas such as /ring/RF; * and ? are wildcards
    names: Vec<String>,
    #[command(flatten)]
    which: ServerArgs,
    /// Include alarms that are OK
    #[arg(long, short = 'a')]
    all: bool,
    /// Print the guidance of each alarm
    #[arg(long, short = 'g')]
    guidance: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    which: ServerArgs,
    /// Print JSON, one object per line: all alarms first, then each change
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let look = Look::List { names: args.names.clone(), all: args.all };
    let mut list = ask(&args.which, &look)?;
    // Without --all, alarms that are OK are not in the list.
    if list.rows.is_empty() && !args.names.is_empty() {
        let every = ask(&args.which, &Look::List { names: args.names.clone(), all: true })?;
        if every.rows.is_empty() {
            let names = args.names.join(" ");
            return Err(format!("no alarm matches {names}; `tahti alarm list --all` lists all {}", every.alarms).into());
        }
    }
    if args.json {
        println!("{}", serde_json::json!(list));
        return Ok(());
    }
    list.sort();
    let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
    println!("{}", heading(&list));
    if !list.rows.is_empty() {
        let heads =
            format!("{:<13} {:<9} {:<28} {:<14} {:<12} {:>8}", "alarm", "now", "channel", "value", "message", "since");
        println!("{}", Painted(Colour::Faint, heads));
    }
    for shown in &list.rows {
        println!("{}", row(shown, now));
        if let Some(aside) = aside(shown, now) {
            println!("{:<13} {aside}", "");
        }
        let guides = shown.guidance.iter().chain(&shown.displays).filter(|_| args.guidance);
        guides.for_each(|guide| println!("{:<13} {}: {}", "", visible(&guide.title), visible(&guide.details)));
    }
    Ok(())
}

pub(super) fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let mut client = args.which.connect()?;
    let lost = |error: std::io::Error| args.which.lost(&error);
    let mut next = Some(client.look(&Look::Watch).map_err(lost)?);
    while let Some(reply) = next {
        match reply {
            Reply::Refused(why) => return Err(why.into()),
            reply if args.json => println!("{}", serde_json::json!(reply)),
            Reply::List(list) => println!("{}", heading(&list)),
            Reply::Change(changed) => {
                let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
                let aside = aside(&changed, now).map_or_else(String::new, |aside| format!("  {aside}"));
                println!("{}{aside}", row(&changed, now));
            }
            Reply::Done { .. } => {}
        }
        next = client.hear().map_err(lost)?;
    }
    Err(format!("alarm server {:?} has ended", args.which.server).into())
}

fn ask(which: &ServerArgs, look: &Look) -> Result<List, Failure> {
    match which.connect()?.look(look).map_err(|error| which.lost(&error))? {
        Reply::List(list) => Ok(*list),
        Reply::Refused(why) => Err(why.into()),
        other => Err(format!("alarm server {:?} answered {other:?} to a request for its list", which.server).into()),
    }
}

/// The journal folder of the alarm server.
pub(super) fn folder(which: &ServerArgs) -> Result<String, Failure> {
    // An empty name matches no alarm, so the reply has no rows.
    Ok(ask(which, &Look::List { names: vec![String::new()], all: false })?.folder)
}

fn heading(list: &List) -> String {
    let shown = |row: &&Row| row.state.hidden().is_none();
    let count = |is: &dyn Fn(&Row) -> bool| list.rows.iter().filter(|row| is(row)).count();
    let active = list.rows.iter().filter(shown).filter(|row| row.state.alarm.severity.is_active()).count();
    let acknowledged =
        list.rows.iter().filter(shown).filter(|row| row.state.alarm.severity != Severity::Ok).count() - active;
    let mut text = format!("{}: {active} active, {acknowledged} acknowledged", visible(&list.name));
    for what in ["shelved", "suppressed", "out of service", "disabled"] {
        match count(&|row| row.state.hidden() == Some(what)) {
            0 => {}
            some => text.push_str(&format!(", {some} {what}")),
        }
    }
    text.push_str(&format!("; {} in all", list.alarms));
    if list.disconnected > 0 {
        text.push_str(&format!(", {} not connected", list.disconnected));
    }
    if list.maintenance {
        text.push_str(", MAINTENANCE");
    }
    text
}

fn painted(severity: Severity) -> String {
    let word = format!("{severity:<13}");
    match severity {
        Severity::Ok => Painted(Colour::Good, word),
        Severity::Minor => Painted(Colour::Doubtful, word),
        severity if severity.is_active() => Painted(Colour::Bad, word),
        _ => Painted(Colour::Faint, word),
    }
    .to_string()
}

fn row(row: &Row, now: i64) -> String {
    let alarm = &row.state.alarm;
    let text = |text: &str| visible(text).to_string();
    let since = if alarm.severity == Severity::Ok {
        "-".to_owned()
    } else {
        short(DurNs(now.saturating_sub(alarm.time.0).max(0)))
    };
    format!(
        "{} {:<9} {:<28} {:<14} {:<12} {since:>8}  {}",
        painted(alarm.severity),
        row.state.current_severity.name(),
        text(&row.channel),
        text(&alarm.value),
        text(&alarm.message),
        text(&row.description)
    )
    .trim_end()
    .to_owned()
}

/// Why an alarm is hidden: disabled, out of service, shelved or suppressed. `None` if it is displayed.
fn aside(row: &Row, now: i64) -> Option<String> {
    let left = |until: Wall| short(DurNs(until.0.saturating_sub(now).max(0)));
    let state = &row.state;
    let why = |why: &str| if why.is_empty() { String::new() } else { format!(": {}", visible(why)) };
    if let Some(mark) = &state.disabled {
        let left = mark.until.map_or_else(String::new, |until| format!(" for {}", left(until)));
        return Some(format!("disabled{left} by {}{}", visible(&mark.by), why(&mark.why)));
    }
    if let Some(mark) = &state.out_of_service {
        return Some(format!("out of service by {}{}", visible(&mark.by), why(&mark.why)));
    }
    if let Some(shelf) = &state.shelved {
        let once = if shelf.once { ", or until all is well" } else { "" };
        return Some(format!("shelved for {}{once} by {}{}", left(shelf.until), visible(&shelf.by), why(&shelf.why)));
    }
    state.suppressed.then(|| "suppressed by its filter".to_owned())
}
