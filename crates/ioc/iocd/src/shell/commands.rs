//! Command table, one row per command.

use super::script::OnError;
use super::{End, Failed, Shell, clients, report, values};
use db::Db;
use std::fmt::Write as _;

/// Result of a command.
pub(super) type CommandResult = Result<Option<End>, Failed>;

/// A command.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    pub(super) what: &'static str,
    pub(super) run: fn(&mut Shell, &[String]) -> CommandResult,
}

macro_rules! command {
    ($name:literal, $arguments:literal, $what:literal, $run:expr) => {
        $crate::shell::commands::Command { name: $name, arguments: $arguments, what: $what, run: $run }
    };
}
pub(super) use command;

/// All commands, except `exit`, which the interpreter handles.
pub(super) fn all() -> impl Iterator<Item = &'static Command> {
    [
        COMMANDS,
        super::autosave::COMMANDS,
        super::breaks::COMMANDS,
        super::dbr::COMMANDS,
        super::devices::COMMANDS,
        super::dump::COMMANDS,
        super::putlog::COMMANDS,
        super::security::COMMANDS,
        super::trial::COMMANDS,
        super::utilities::COMMANDS,
        super::look::COMMANDS,
        super::octets::COMMANDS,
        super::pvaccess::COMMANDS,
        super::recsync::COMMANDS,
        super::sequencer::COMMANDS,
        super::variables::COMMANDS,
    ]
    .into_iter()
    .flatten()
}

/// Commands for records and for the interpreter itself.
const COMMANDS: &[Command] = &[
    command!("cd", "folder", "changes the working folder", |_, args| {
        std::env::set_current_dir(arg(args, 0)).map_err(|error| Failed(format!("cd {}: {error}", arg(args, 0))))?;
        Ok(None)
    }),
    command!("casr", "[level]", "Channel Access clients with their channels and traffic", |shell, args| {
        let level = number(args, 0);
        // As in C, there is no output while the server is not running.
        if !shell.is_running() {
            return Ok(None);
        }
        let text = shell.with_engine(move |engine| clients::report(engine, level))?;
        said(shell, &text)
    }),
    command!("coreRelease", "", "the version", |shell, _| {
        said(shell, &format!("## tahti {}", env!("CARGO_PKG_VERSION")))
    }),
    command!("date", "[format]", "the time, as strftime writes it, with EPICS' %03f", |shell, args| {
        let format = Some(arg(args, 0)).filter(|format| !format.is_empty()).unwrap_or("%Y/%m/%d %H:%M:%S.%06f");
        said(shell, &db::stamp_text(crate::engine::wall(), format, sys::clock::local_text))
    }),
    command!("dbDeleteRecord", "record", "removes a record; its clients get a disconnect event", |shell, args| {
        let name = arg(args, 0).to_owned();
        shell.with_engine(move |engine| engine.remove_record(&name))??;
        Ok(None)
    }),
    command!("dbLoadDatabase", "file [path]", "loads menus and breakpoint tables of a .dbd", |shell, args| {
        shell.load_dbd(needed(args, "dbLoadDatabase file [path]")?, arg(args, 1)).map(|()| None)
    }),
    command!("dbLoadRecords", "file [macros]", "loads records, also while the IOC runs", |shell, args| {
        shell.load_records(needed(args, "dbLoadRecords file [macros]")?, arg(args, 1)).map(|()| None)
    }),
    command!("dbLoadTemplate", "file [macros]", "loads the templates of a .substitutions file", |shell, args| {
        shell.load_template(needed(args, "dbLoadTemplate file [macros]")?, arg(args, 1)).map(|()| None)
    }),
    command!("dbLoadBuiltin", "name [macros]", "loads a template that is part of tahti, as exit.db", |shell, args| {
        shell.load_builtin(needed(args, "dbLoadBuiltin name [macros]")?, arg(args, 1)).map(|()| None)
    }),
    command!("dbStateClear", "name", "sets a state to false", |shell, args| state(shell, args, false)),
    command!("dbStateCreate", "name", "makes a state", |shell, args| state(shell, args, false)),
    command!("dbStateSet", "name", "sets a state to true", |shell, args| state(shell, args, true)),
    command!("dbStateShow", "name [level]", "a state's value", |shell, args| {
        let name = arg(args, 0).to_owned();
        let state = shell.with_db(move |db, _| db.state(&name))?;
        match state {
            Some(on) => said(shell, if on { "TRUE" } else { "FALSE" }),
            None => Err(Failed(format!("there is no state \"{}\"", arg(args, 0)))),
        }
    }),
    command!("dbStateShowAll", "[level]", "all states", |shell, _| {
        about(shell, |db| {
            db.states().fold(String::new(), |mut out, (name, on)| {
                let _ = writeln!(out, "id {name}: {}", if on { "TRUE" } else { "FALSE" });
                out
            })
        })
    }),
    command!("dbgf", "field", "reads a field", |shell, args| {
        let name = needed(args, "dbgf field")?.to_owned();
        about_record(shell, name.clone(), move |db| values::field(db, &name))
    }),
    command!("dbgrep", "pattern", "names of records that match", |shell, args| {
        let pattern = needed(args, "dbgrep pattern")?.to_owned();
        about(shell, move |db| report::matching(db, &pattern))
    }),
    command!("dbl", "[type [fields]]", "names of records", |shell, args| {
        let (of_type, fields) = (arg(args, 0).to_owned(), args.get(1..).unwrap_or_default().join(" "));
        if fields.is_empty() {
            return about(shell, move |db| report::names(db, &of_type, &fields));
        }
        // The owners of the records have the values.
        let texts = shell.with_each(move |db, _| report::names(db, &of_type, &fields))?;
        said(shell, &texts.concat())
    }),
    command!("dbla", "[pattern]", "aliases", |shell, args| {
        let pattern = arg(args, 0).to_owned();
        about(shell, move |db| report::aliases(db, &pattern))
    }),
    command!("dbnr", "[verbose]", "how many records of each type; 1: also types without", |shell, args| {
        let verbose = number(args, 0) != 0;
        about(shell, move |db| report::counts(db, verbose))
    }),
    command!("dbpf", "field value", "writes a field and reads it back", |shell, args| {
        let [_, value, ..] = args else { return Err("Usage: dbpf \"pv name\", \"value\"".into()) };
        let (name, value) = (needed(args, "dbpf field value")?.to_owned(), value.to_owned());
        // As in C, the value is read back in any case, even if the write was rejected.
        let (done, text) = shell.with_record(&name.clone(), move |db, now| match db.find(&name) {
            Err(error) => (Err(error.to_string()), String::new()),
            Ok(channel) => {
                let done = db.put_text(&channel, &value, now).map_err(|error| format!("{name}: {error}"));
                (done, values::field(db, &name))
            }
        })?;
        said(shell, &text)?;
        done.map(|()| None).map_err(Failed)
    }),
    command!("dbpr", "record [level]", "a record's fields", |shell, args| {
        let (name, level) = (needed(args, "dbpr record [level]")?.to_owned(), number(args, 1));
        about_record(shell, name.clone(), move |db| report::record(db, &name, level as u8))
    }),
    command!("dbtr", "record", "processes a record and shows it", |shell, args| {
        let name = needed(args, "dbtr record")?.to_owned();
        let text = shell.with_record(&name.clone(), move |db, now| match db.find(&name) {
            Err(error) => Err(error.to_string()),
            Ok(channel) => {
                db.process(channel.record, now);
                Ok(report::record(db, &name, 3))
            }
        })?;
        said(shell, &text.map_err(Failed)?)
    }),
    command!(
        "dlload",
        "file [inside | seconds]",
        "loads a plug-in with functions of sub and aSub records: into a separate process with this limit of a call, or the IOC",
        |shell, args| {
            let place = arg(args, 1).parse().map_err(|error| Failed(format!("dlload: {error}")))?;
            shell.load_plugin(needed(args, "dlload file.so [inside | seconds]")?, place).map(|()| None)
        }
    ),
    command!("echo", "text", "prints, with C's escapes", |shell, args| {
        said(shell, &base::raw::decode(&db::unescape(&args.join(" "))))
    }),
    command!("epicsEnvSet", "name value", "sets a variable", |shell, args| {
        let name = needed(args, "epicsEnvSet name value")?.to_owned();
        shell.env.insert(name, arg(args, 1).to_owned());
        Ok(None)
    }),
    command!("epicsEnvShow", "[pattern]", "the variables", |shell, args| {
        let pattern = arg(args, 0);
        let shown = shell.env.iter().filter(|(name, _)| pattern.is_empty() || base::glob(pattern, name));
        let text = shown.fold(String::new(), |mut out, (name, value)| {
            let _ = writeln!(out, "{name}={value}");
            out
        });
        said(shell, &text)
    }),
    command!("epicsEnvUnset", "name", "removes a variable", |shell, args| {
        shell.env.remove(arg(args, 0));
        Ok(None)
    }),
    command!("epicsThreadSleep", "seconds", "waits", |_, args| {
        let seconds: f64 = arg(args, 0).parse().unwrap_or(0.0);
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e6)));
        Ok(None)
    }),
    command!("help", "[command]", "the commands", |shell, args| {
        let wanted = arg(args, 0).trim_end_matches('*').to_owned();
        let text = if wanted.is_empty() {
            let mut names: Vec<&str> = all().map(|command| command.name).chain(["exit"]).collect();
            names.sort_unstable();
            columns(&names) + "\nType 'help <command>' to see the arguments of <command>.  eg. 'help db*'"
        } else {
            all().filter(|command| command.name.starts_with(&wanted)).fold(String::new(), |mut out, command| {
                let _ = writeln!(out, "{} {}\n    {}", command.name, command.arguments, command.what);
                if command.name == "var" {
                    out.push_str(&super::variables::explained());
                }
                out
            })
        };
        said(shell, &text)
    }),
    command!("iocInit", "", "starts the IOC", |shell, _| shell.init().map(|()| None)),
    command!("iocshCmd", "command", "runs a command", |shell, args| shell.run_line(arg(args, 0))),
    command!("iocshLoad", "file [macros]", "runs a script with macros", |shell, args| {
        with_macros(shell, arg(args, 1), |shell| {
            shell.run_file(arg(args, 0)).map(|end| (end == End::Exit).then_some(end))
        })
    }),
    command!("iocshRun", "command [macros]", "runs a command with macros", |shell, args| {
        with_macros(shell, arg(args, 1), |shell| shell.run_line(arg(args, 0)))
    }),
    command!("on", "error continue|break|halt|wait [seconds]", "reaction of a script to a failure", |shell, args| {
        shell.on_error = match (arg(args, 0), arg(args, 1)) {
            ("error", "continue") => OnError::Continue,
            ("error", "break") => OnError::Break,
            ("error", "halt") => OnError::Halt,
            ("error", "wait") => OnError::Wait(number(args, 2).max(1)),
            _ => return Err("usage: on error continue|break|halt|wait [seconds]".into()),
        };
        Ok(None)
    }),
    command!("postEvent", "name", "posts an event", |shell, args| {
        let name = arg(args, 0).to_owned();
        shell.with_db(move |db, _| db.post_event(&name))?;
        Ok(None)
    }),
    command!("pwd", "", "the working folder", |shell, _| {
        let folder = std::env::current_dir()?;
        said(shell, &folder.display().to_string())
    }),
    command!("scanpel", "[event]", "event lists", |shell, args| {
        let name = arg(args, 0).to_owned();
        let texts = shell.with_each(move |db, _| report::events(db, &name))?;
        said(shell, &texts.concat())
    }),
    command!("scanppl", "[rate]", "periodic scans with their records, over-runs and lateness", |shell, _| {
        // The owners have the scan lists; the engine has the measurements.
        let (measured, owners) = shell.with_engine(|engine| {
            let shards = engine.store.shards.iter().enumerate();
            let first = shards.filter(|(number, shard)| shard.owner == *number);
            let first =
                first.map(|(_, shard)| (shard.name.clone(), shard.scans.clone(), Some(shard.shared.counters())));
            let home = std::iter::once((String::new(), engine.scans.clone(), None));
            let owners = engine.store.live().map(|(_, shard)| shard.owner + 1);
            (home.chain(first).collect::<Vec<_>>(), std::iter::once(0).chain(owners).collect::<Vec<_>>())
        })?;
        let lists = report::by_owner(shell.with_each(|db, _| report::scan_lists(db))?, &owners);
        said(shell, &report::scans(&measured, &lists))
    }),
    command!("system", "command", "runs a program of the operating system", |_, args| {
        let status = std::process::Command::new("/bin/sh").arg("-c").arg(arg(args, 0)).status()?;
        if status.success() { Ok(None) } else { Err(Failed(format!("system: {status}"))) }
    }),
];

/// Names in columns, as in C's `help`.
fn columns(names: &[&str]) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for name in names {
        if name.len() + column >= 79 {
            out.push('\n');
            column = 0;
        }
        out.push_str(name);
        column += name.len();
        if column >= 64 {
            out.push('\n');
            column = 0;
        } else {
            let blanks = 16 - column % 16;
            out.extend(std::iter::repeat_n(' ', blanks));
            column += blanks;
        }
    }
    if column > 0 {
        out.push('\n');
    }
    out
}

pub(super) fn arg(args: &[String], index: usize) -> &str {
    args.get(index).map_or("", String::as_str)
}

pub(super) fn needed<'a>(args: &'a [String], usage: &str) -> Result<&'a str, Failed> {
    args.first().map(String::as_str).filter(|word| !word.is_empty()).ok_or_else(|| Failed(format!("usage: {usage}")))
}

pub(super) fn number(args: &[String], index: usize) -> u64 {
    arg(args, index).parse().unwrap_or(0)
}

pub(super) fn said(shell: &mut Shell, text: &str) -> CommandResult {
    if !text.is_empty() {
        shell.print(text);
    }
    Ok(None)
}

pub(super) fn about(shell: &mut Shell, report: impl FnOnce(&mut Db) -> String + Send + 'static) -> CommandResult {
    let text = shell.with_db(move |db, _| report(db))?;
    said(shell, &text)
}

fn about_record(
    shell: &mut Shell,
    name: String,
    report: impl FnOnce(&mut Db) -> String + Send + 'static,
) -> CommandResult {
    let text = shell.with_record(&name, move |db, _| report(db))?;
    said(shell, &text)
}

fn state(shell: &mut Shell, args: &[String], on: bool) -> CommandResult {
    let name = needed(args, "dbStateSet name")?.to_owned();
    shell.with_db(move |db, _| db.set_state(&name, on))?;
    Ok(None)
}

/// Runs `run` with additional variables, which have their former values afterwards. Other variables that it sets stay.
pub(super) fn with_macros(
    shell: &mut Shell,
    macros: &str,
    run: impl FnOnce(&mut Shell) -> CommandResult,
) -> CommandResult {
    let pairs = macros.split(',').filter(|pair| !pair.trim().is_empty());
    let pairs =
        pairs.map(|pair| pair.split_once('=').ok_or_else(|| Failed(format!("\"{pair}\": expected NAME=VALUE"))));
    let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
    let mut before = Vec::new();
    for (name, value) in pairs {
        before.push((name.trim(), shell.env.insert(name.trim().to_owned(), value.to_owned())));
    }
    let result = run(shell);
    for (name, value) in before.into_iter().rev() {
        match value {
            Some(value) => drop(shell.env.insert(name.to_owned(), value)),
            None => drop(shell.env.remove(name)),
        }
    }
    result
}

#[cfg(test)]
mod tests {

    #[test]
    fn each_command_is_listed_once() {
        let names: Vec<String> = super::all().map(|command| command.name.to_lowercase()).collect();
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(names.len(), sorted.len());
    }
}
