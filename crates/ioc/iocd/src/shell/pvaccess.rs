//! Commands for PVAccess: files with groups, and reports in the format of QSRV2.

use super::commands::{Command, CommandResult, arg, command, needed, number, said};
use super::{Failed, IocState, Shell};
use crate::engine::Engine;
use db::{Db, Macros};
use pva::group::Definitions;
use std::fmt::Write as _;

/// A file with groups, as named and with its macros expanded.
pub(super) struct GroupFile {
    path: String,
    macros: String,
    text: String,
}

pub(super) const COMMANDS: &[Command] = &[
    command!("dbLoadGroup", "file [macros]", "adds groups of a JSON file, before iocInit; -file or -* removes", load),
    command!("pvxgl", "[level [pattern]]", "groups; 1: number of members, 2: members, 3: triggers", |shell, args| {
        let (level, pattern) = (number(args, 0), arg(args, 1).to_owned());
        let text = shell.with_engine(move |engine| engine.store.groups.report(level, &pattern))?;
        said(shell, text.trim_end())
    }),
    command!("pvxsl", "[details]", "names of channels of PVAccess", |shell, args| {
        let details = number(args, 0) != 0;
        let text = shell.with_engine(move |engine| names(engine, details))?;
        said(shell, text.trim_end())
    }),
    command!("pvxsr", "[level]", "clients of PVAccess; 1: with their channels", |shell, args| {
        let level = number(args, 0);
        // As with casr, there is no output while the server is not running.
        if !shell.is_running() {
            return Ok(None);
        }
        let text = shell.with_engine(move |engine| clients(engine, level))?;
        said(shell, text.trim_end())
    }),
];

fn load(shell: &mut Shell, args: &[String]) -> CommandResult {
    let path = needed(args, "dbLoadGroup file [macros]")?;
    let macros = arg(args, 1);
    if !matches!(shell.state, IocState::Building(_)) {
        return Err("dbLoadGroup: found a running IOC, expected the command before iocInit".into());
    }
    if path == "-*" {
        shell.group_files.clear();
        return Ok(None);
    }
    if let Some(path) = path.strip_prefix('-') {
        shell.group_files.retain(|file| file.path != path || file.macros != macros);
        return Ok(None);
    }
    let text = shell.read_file(path)?;
    let mut values = Macros::parse(macros);
    shell.add_environment(&mut values);
    // As in QSRV2, a file without macros is not expanded.
    let text = if macros.is_empty() {
        text
    } else {
        let (text, absent) = values.expand(&text);
        if !absent.is_empty() {
            let absent = absent.join(", ");
            return Err(Failed(format!(
                "{path}: found macros without a value: {absent}, expected them in \"{macros}\""
            )));
        }
        text.into_owned()
    };
    shell.group_files.retain(|file| file.path != path || file.macros != macros);
    shell.group_files.push(GroupFile { path: path.to_owned(), macros: macros.to_owned(), text });
    Ok(None)
}

impl Shell {
    /// The groups of the loaded records and files.
    pub(super) fn definitions(&self, db: &Db) -> Definitions {
        let mut definitions = Definitions::default();
        for record in db.records() {
            crate::store::pva::wrong_tags(db, record).into_iter().for_each(|fault| definitions.report(fault));
            for (_, text) in db.info_tags(record).iter().filter(|(name, _)| name == "Q:group") {
                let name = db.name_of(record);
                definitions.add(text, &format!("record \"{name}\", info(Q:group)"), Some(name));
            }
        }
        for file in &self.group_files {
            definitions.add(&file.text, &file.path, None);
        }
        definitions
    }
}

/// The channels by their source.
fn names(engine: &Engine, details: bool) -> String {
    let mut out = String::new();
    let mut records: Vec<&str> = engine.store.db.all_names().map(|(name, _)| name).collect();
    records.sort_unstable();
    let groups: Vec<&str> = engine.store.groups.names().collect();
    for (source, names) in [("qsrvSingle@0", records), ("qsrvGroup@1", groups)] {
        if names.is_empty() {
            continue;
        }
        let line = "------------------";
        if details {
            let _ = writeln!(out, "{line}\nSOURCE: {source}\n{line}\nRECORDS: ");
        }
        let indent = if details { "  " } else { "" };
        for name in names {
            let _ = writeln!(out, "{indent}{name}");
        }
    }
    out
}

/// The clients with their traffic, and the counters of the server.
fn clients(engine: &Engine, level: u64) -> String {
    let Some(pvaccess) = &engine.pvaccess else { return "PVAccess is disabled.".to_owned() };
    let mut out = String::new();
    let (connections, channels, operations) = pvaccess.server.size();
    let _ = writeln!(
        out,
        "PVAccess server on port {}: {connections} connections, {channels} channels, {operations} operations",
        pvaccess.net.tcp_port
    );
    for client in pvaccess.server.clients() {
        let _ = writeln!(
            out,
            "    TCP client at {}: user '{}', {} channels, {} operations, {} bytes wait",
            client.address,
            client.user,
            client.channels.len(),
            client.operations,
            client.unsent
        );
        for (handle, monitors) in client.channels.iter().filter(|_| level > 0) {
            let name = engine.store.name_of_handle(*handle);
            let _ = writeln!(out, "        {name}, {monitors} monitors");
        }
    }
    if level > 0 {
        let counters = pvaccess.server.counters;
        let _ = writeln!(
            out,
            "{} updates, {} replaced, {} connections with invalid bytes, {} requests beyond a limit",
            counters.updates, counters.replaced, counters.faults, counters.refused
        );
    }
    out
}
