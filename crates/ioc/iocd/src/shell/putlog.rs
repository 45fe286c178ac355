//! Put log commands, with the names of caPutLog.

use super::commands::{Command, CommandResult, arg, command, needed, said};
use super::{Failed, Shell};
use crate::putlog::{Form, PutFilter, PutLog, QUIET, Target};
use base::DurNs;
use canet::config::addresses;
use std::sync::atomic::Ordering;

/// Default port of caPutLog servers.
const PORT: u16 = 7011;

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "caPutLogInit",
        "\"host[:port] ./file\" [which]",
        "logs writes that TRAPWRITE rules ask for: 0 changes, 1 all, 2 all without putting bursts together, -1 none",
        |shell, args| { start(shell, args, Form::Plain) }
    ),
    command!(
        "caPutJsonLogInit",
        "\"host[:port] ./file\" [which [seconds]]",
        "as caPutLogInit, with lines of JSON instead of the others; a burst is over after so many seconds (5)",
        |shell, args| {
            let form = Form::Json(shell.put_metadata.clone());
            start(shell, args, form)
        }
    ),
    command!("caPutJsonLogAddMetadata", "name value", "a pair for each line of JSON", |shell, args| {
        let name = needed(args, "caPutJsonLogAddMetadata name value")?.to_owned();
        if let Ok(mut metadata) = shell.put_metadata.lock() {
            metadata.insert(name, arg(args, 1).to_owned());
        }
        Ok(None)
    }),
    command!("caPutJsonLogReconf", "which [seconds]", "as caPutLogReconf, and when a burst is over", reconf),
    command!("caPutJsonLogSetBurstTimeout", "seconds", "when a burst is over", |shell, args| {
        let quiet = quiet(needed(args, "caPutJsonLogSetBurstTimeout seconds")?)?;
        with_log(shell, move |log| log.set_quiet(quiet))
    }),
    command!("caPutJsonLogShow", "[level]", "as caPutLogShow", |shell, _| show(shell)),
    command!("caPutLogReconf", "which", "changes which writes are logged", reconf),
    command!("caPutLogShow", "[level]", "state of the put log: logged, dropped and failed writes", |shell, _| show(
        shell
    )),
];

/// Starts the put log. An IOC has only one: a new one replaces it.
fn start(shell: &mut Shell, args: &[String], form: Form) -> CommandResult {
    let (targets, quiet) = (targets(shell, arg(args, 0))?, quiet(arg(args, 2))?);
    let log = PutLog::open(targets, which(arg(args, 1))?, form, quiet, shell.faults.clone())
        .map_err(|error| Failed(format!("caPutLogInit: {error}")))?;
    let traps = shell.with_engine(move |engine| {
        engine.store.put_log = Some(log);
        engine.store.guard.rules().is_some_and(db::Security::traps)
    })?;
    if traps {
        return Ok(None);
    }
    said(shell, "caPutLog: no rule of access security has TRAPWRITE, so nothing will be logged")
}

fn with_log(shell: &mut Shell, work: impl FnOnce(&mut PutLog) + Send + 'static) -> CommandResult {
    let done = shell.with_engine(move |engine| engine.store.put_log.as_mut().map(work))?;
    done.map(|()| None).ok_or_else(|| Failed("no put log: call caPutLogInit or caPutJsonLogInit first".into()))
}

fn reconf(shell: &mut Shell, args: &[String]) -> CommandResult {
    let which = which(needed(args, "caPutLogReconf which")?)?;
    let quiet = if arg(args, 1).is_empty() { None } else { Some(quiet(arg(args, 1))?) };
    with_log(shell, move |log| {
        log.which = which;
        quiet.into_iter().for_each(|quiet| log.set_quiet(quiet));
    })
}

fn show(shell: &mut Shell) -> CommandResult {
    let text = shell.with_engine(|engine| {
        engine.store.put_log.as_ref().map_or("caPutLog: not initialised".to_owned(), |log| {
            let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            let counts = &log.counts;
            let (logged, dropped, failed) = (load(&counts.logged), load(&counts.dropped), load(&counts.failed));
            let name = if log.is_json() { "caPutJsonLog" } else { "caPutLog" };
            format!("{name}: {logged} logged, {dropped} dropped (queue full), {failed} failed (file, server)")
        })
    })?;
    said(shell, &text)
}

/// Parses the time after which a burst ends.
fn quiet(text: &str) -> Result<DurNs, Failed> {
    if text.is_empty() {
        return Ok(QUIET);
    }
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| Failed(format!("found \"{text}\", expected seconds, up to 86400")))?;
    Ok(if seconds > 0.0 { DurNs((seconds * 1e9) as i64) } else { QUIET })
}

/// Parses log servers and files, separated by blanks. A word with a slash is a file.
fn targets(shell: &Shell, text: &str) -> Result<Vec<Target>, Failed> {
    let variable = "EPICS_CA_PUT_LOG_ADDR";
    let text = if text.is_empty() { shell.env.get(variable).map_or("", String::as_str) } else { text };
    if text.trim().is_empty() {
        return Err(Failed(format!("caPutLogInit: expected host[:port] or ./file, or {variable}")));
    }
    let target = |word: &str| {
        if word.contains('/') {
            return Ok(Target::File(word.to_owned()));
        }
        let found = addresses("caPutLogInit", word, PORT, &mut Vec::new()).pop().map(Target::Server);
        let expected = format!("expected host[:port], or a file with a slash in its name: ./{word}");
        found.ok_or_else(|| Failed(format!("caPutLogInit: unknown host \"{word}\"; {expected}")))
    };
    text.split_whitespace().map(target).collect()
}

fn which(text: &str) -> Result<PutFilter, Failed> {
    let number = if text.is_empty() { Ok(0) } else { text.parse() };
    number.map(PutFilter::from_number).map_err(|_| Failed(format!("found \"{text}\", expected -1, 0, 1 or 2")))
}
