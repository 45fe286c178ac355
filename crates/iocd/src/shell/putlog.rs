//! Commands of the put log, under caPutLog's names.

use super::commands::{Command, arg, command, needed, said};
use super::{Failed, Shell};
use crate::config::addresses;
use crate::putlog::{PutLog, Target, Which};
use std::sync::atomic::Ordering;

/// The port of caPutLog's servers.
const PORT: u16 = 7011;

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "caPutLogInit",
        "\"host[:port] ./file\" [which]",
        "logs writes that TRAPWRITE rules ask for: 0 changes, 1 all, 2 all without putting bursts together, -1 none",
        |shell, args| {
            let targets = targets(shell, arg(args, 0))?;
            let log = PutLog::open(targets, which(arg(args, 1))?)
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
    ),
    command!("caPutLogReconf", "which", "changes which writes are logged", |shell, args| {
        let which = which(needed(args, "caPutLogReconf which")?)?;
        let done = shell.with_engine(move |engine| engine.store.put_log.as_mut().map(|log| log.which = which))?;
        done.map(|()| None).ok_or_else(|| Failed("caPutLogReconf: caPutLogInit first".into()))
    }),
    command!("caPutLogShow", "[level]", "what became of the writes that were logged", |shell, _| {
        let text = shell.with_engine(|engine| {
            engine.store.put_log.as_ref().map_or("caPutLog: not initialised".to_owned(), |log| {
                let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
                let counts = &log.counts;
                let (logged, dropped, failed) = (load(&counts.logged), load(&counts.dropped), load(&counts.failed));
                format!("caPutLog: {logged} logged, {dropped} dropped (queue full), {failed} failed (file, server)")
            })
        })?;
        said(shell, &text)
    }),
];

/// Log servers and files, divided by blanks: what has a slash in it is a file.
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
        found.ok_or_else(|| Failed(format!("caPutLogInit: found \"{word}\", which is no known host; {expected}")))
    };
    text.split_whitespace().map(target).collect()
}

fn which(text: &str) -> Result<Which, Failed> {
    let number = if text.is_empty() { Ok(0) } else { text.parse() };
    number.map(Which::from_number).map_err(|_| Failed(format!("found \"{text}\", expected -1, 0, 1 or 2")))
}
