//! Breakpoint commands `dbb`, `dbd`, `dbc`, `dbs`, `dbp`, `dbap`, `dbstat`, with the output of C.

use super::commands::{Command, CommandResult, arg, command, needed, number, said};
use super::{Failed, Shell, report};
use crate::engine::Engine;
use base::Stamp;
use db::{Db, FindError, RecId, StopSet};
use std::fmt::Write as _;

pub(super) const COMMANDS: &[Command] = &[
    command!("dbb", "record", "sets a breakpoint: its lock set stops there", |shell, args| {
        let name = needed(args, "dbb \"record_name\"")?.to_owned();
        at_record(shell, name, |engine, record| {
            let fresh = engine.set_break(record, |db, name| report::record(db, name, 2))?;
            Ok(if fresh { String::new() } else { "   BKPT> Breakpoint already set in this record\n".into() })
        })
    }),
    command!("dbd", "record", "deletes a breakpoint", |shell, args| {
        let name = needed(args, "dbd \"record_name\"")?.to_owned();
        at_record(shell, name, |engine, record| {
            let had = engine.store.db.clear_break(record);
            Ok(if had { String::new() } else { "   BKPT> No breakpoint set in this record\n".into() })
        })
    }),
    command!("dbap", "record", "switches printing of a record after each processing on or off", |shell, args| {
        let name = needed(args, "dbap \"record_name\"")?.to_owned();
        at_record(shell, name, |engine, record| {
            let on = if engine.store.db.toggle_print(record) { "on" } else { "off" };
            Ok(format!("   BKPT> Auto print {on} for record {}\n", engine.store.db.name_of(record)))
        })
    }),
    command!("dbc", "[record]", "continues to the next breakpoint", |shell, args| go_on(shell, args, false)),
    command!("dbs", "[record]", "continues to the next record", |shell, args| go_on(shell, args, true)),
    command!("dbp", "[record [level]]", "prints the record at which a lock set is stopped", |shell, args| {
        let (name, level) = (arg(args, 0).to_owned(), number(args, 1));
        let text = shell.with_engine(move |engine| {
            let db = &mut engine.store.db;
            let Some((_, record)) = standing(db, &name)? else { return Ok(none_stands(&name)) };
            let name = db.name_of(record).to_owned();
            Ok::<_, FindError>(report::record(db, &name, if level == 0 { 2 } else { level as u8 }))
        })?;
        said(shell, &text?)
    }),
    command!("dbstat", "", "lock sets with breakpoints, and where they are stopped", |shell, _| {
        let text = shell.with_engine(|engine| status(&engine.store.db, engine.store.now.wall))?;
        said(shell, &text)
    }),
];

fn at_record(
    shell: &mut Shell,
    name: String,
    work: impl FnOnce(&mut Engine, RecId) -> Result<String, Failed> + Send + 'static,
) -> CommandResult {
    let text = shell.with_engine(move |engine| match engine.store.db.find(&name) {
        Ok(channel) => work(engine, channel.record),
        Err(error) => Err(error.into()),
    })?;
    said(shell, &text?)
}

/// The stopped lock set: that of the named record, or the one that stopped last; and its record.
fn standing(db: &Db, name: &str) -> Result<Option<(u32, RecId)>, FindError> {
    if name.is_empty() {
        return Ok(db.stop_sets().iter().find_map(|set| Some((set.number, set.stopped?))));
    }
    let record = db.find(name)?.record;
    let set = db.stop_set_of(record).filter(|set| set.stopped.is_some());
    // As in C, this is the named record, even if the lock set is stopped at another one.
    Ok(set.map(|set| (set.number, record)))
}

fn none_stands(name: &str) -> String {
    match name {
        "" => "   BKPT> No records are currently stopped\n".into(),
        _ => "   BKPT> Currently not stopped in this lockset\n".into(),
    }
}

fn go_on(shell: &mut Shell, args: &[String], step: bool) -> CommandResult {
    let (name, last) = (arg(args, 0).to_owned(), shell.last_stop);
    let found = shell.with_engine(move |engine| {
        let db = &engine.store.db;
        let Some((number, record)) = standing(db, &name)? else { return Ok((none_stands(&name), None)) };
        let word = if step { "Stepping:    " } else { "Continuing:  " };
        let changes = name.is_empty() && last != Some(number);
        let text = if changes { format!("   BKPT> {word}{}\n", db.name_of(record)) } else { String::new() };
        Ok::<_, FindError>((text, Some(number)))
    })?;
    let (text, number) = found?;
    said(shell, &text)?;
    if let Some(number) = number {
        shell.last_stop = Some(number);
        shell.with_engine(move |engine| engine.go_on(number, step))?;
    }
    Ok(None)
}

/// The report of C, without thread addresses.
fn status(db: &Db, now: Stamp) -> String {
    let mut out = String::new();
    for StopSet { number, breaks, entries, stopped, .. } in db.stop_sets() {
        let count = breaks.len();
        match stopped {
            Some(record) => {
                let _ = writeln!(out, "LSet: {number}  Stopped at: {:<28.28}  #B: {count:05}", db.name_of(*record));
                for entry in entries {
                    let (name, since) = (db.name_of(entry.record), seconds(now) - seconds(entry.since));
                    if since != 0.0 {
                        let _ = writeln!(
                            out,
                            "             Entrypoint: {name:<28.28}  #C: {:05}  C/S: {since:7.1}",
                            entry.count
                        );
                    }
                }
            }
            None => drop(writeln!(out, "LSet: {number}{:44}#B: {count:05}", "")),
        }
        for record in breaks {
            let printed = if db.break_marks(*record) & 2 != 0 { " (ap)" } else { "" };
            let _ = writeln!(out, "             Breakpoint: {:<28.28}{printed}", db.name_of(*record));
        }
    }
    out
}

fn seconds(stamp: Stamp) -> f64 {
    f64::from(stamp.secs) + f64::from(stamp.nanos) * 1e-9
}
