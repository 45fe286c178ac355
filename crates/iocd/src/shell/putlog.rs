//! Commands of the put log, under caPutLog's names.

use super::Failed;
use super::commands::{Command, arg, command, needed, said};
use crate::putlog::{PutLog, Which};
use std::sync::atomic::Ordering;

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "caPutLogInit",
        "file [which]",
        "logs writes that TRAPWRITE rules ask for: 0 changes, 1 all, -1 none",
        |shell, args| {
            let path = needed(args, "caPutLogInit file [which]")?;
            let log = PutLog::open(path, which(arg(args, 1))?).map_err(|error| Failed(format!("{path}: {error}")))?;
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
                format!("caPutLog: {logged} logged, {dropped} dropped (queue full), {failed} failed (file)")
            })
        })?;
        said(shell, &text)
    }),
];

fn which(text: &str) -> Result<Which, Failed> {
    let number = if text.is_empty() { Ok(0) } else { text.parse() };
    number.map(Which::from_number).map_err(|_| Failed(format!("found \"{text}\", expected -1, 0, 1 or 2")))
}
