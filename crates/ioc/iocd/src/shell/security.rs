//! Access security commands and their output.

use super::commands::{Command, arg, command, number, said};
use super::{Failed, Shell};
use crate::engine::Engine;
use ca::server::Peer;
use db::{Condition, Db, Group, Macros, Members, RecId, Security};
use std::fmt::Write as _;
use std::net::{IpAddr, ToSocketAddrs};

pub(super) const COMMANDS: &[Command] = &[
    command!("asInit", "", "reads the access security file again", |shell, _| {
        let rules = shell.read_rules()?.ok_or_else(|| Failed("asInit: no file: asSetFilename first".into()))?;
        let by_address = shell.checks_addresses();
        shell.with_engine(move |engine| engine.secure(rules, by_address))?;
        Ok(None)
    }),
    command!("asSetFilename", "file", "names the access security file, before iocInit", |shell, args| {
        shell.acf = Some(arg(args, 0).to_owned()).filter(|file| !file.is_empty());
        Ok(None)
    }),
    command!("asSetSubstitutions", "macros", "macros for the access security file", |shell, args| {
        arg(args, 0).clone_into(&mut shell.acf_macros);
        Ok(None)
    }),
    command!("asdbdump", "", "all of access security: groups, rules, records, clients", |shell, _| {
        printed(shell, |engine, rules| {
            let mut out = String::new();
            members(&mut out, "UAG", rules.users(), "");
            members(&mut out, "HAG", rules.hosts(), "");
            for (number, group) in rules.groups().iter().enumerate() {
                head(&mut out, group, Detail::All, |out| member_list(out, engine, number, true));
            }
            out
        })
    }),
    command!("asphag", "[name]", "host access groups", |shell, args| {
        let name = arg(args, 0).to_owned();
        printed(shell, move |_, rules| {
            let mut out = String::new();
            members(&mut out, "HAG", rules.hosts(), &name);
            out
        })
    }),
    command!("aspmem", "[group [clients]]", "records of access security groups", |shell, args| {
        let (name, clients) = (arg(args, 0).to_owned(), number(args, 1) != 0);
        printed(shell, move |engine, rules| {
            let mut out = String::new();
            let wanted = |group: &Group| name.is_empty() || group.name == name;
            for (number, group) in rules.groups().iter().enumerate().filter(|(_, group)| wanted(group)) {
                let _ = writeln!(out, "ASG({})", group.name);
                member_list(&mut out, engine, number, clients);
            }
            out
        })
    }),
    command!("asprules", "[group]", "rules of access security groups", |shell, args| {
        let name = arg(args, 0).to_owned();
        printed(shell, move |_, rules| {
            let mut out = String::new();
            for group in rules.groups().iter().filter(|group| name.is_empty() || group.name == name) {
                head(&mut out, group, Detail::Rules, |_| {});
            }
            out
        })
    }),
    command!("aspuag", "[name]", "user access groups", |shell, args| {
        let name = arg(args, 0).to_owned();
        printed(shell, move |_, rules| {
            let mut out = String::new();
            members(&mut out, "UAG", rules.users(), &name);
            out
        })
    }),
    command!("astac", "field user host", "access rights of a user and host to a field", |shell, args| {
        if args.len() < 3 {
            return Err("usage: astac field user host".into());
        }
        let (name, user, host) = (arg(args, 0).to_owned(), arg(args, 1).to_owned(), arg(args, 2).to_owned());
        let text = shell.with_engine(move |engine| {
            let store = &engine.store;
            let channel = store.db.find(&name).map_err(|error| error.to_string())?;
            let peer = Peer { user: &user, host: &host, address: &host };
            let access = store.guard.access(&store.db, &channel, &store.db.info(&channel), peer);
            let yes = |granted| if granted { "Yes" } else { "No" };
            let record = store.db.name_of(channel.record);
            Ok::<_, String>(format!(
                "astac callback {record}: status=0 get {} put {}",
                yes(access.read),
                yes(access.write)
            ))
        })?;
        said(shell, &text.map_err(Failed)?)
    }),
];

/// Level of detail of a group's report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Rules,
    All,
}

impl Shell {
    /// Reads the access security file, if one is set.
    pub(super) fn read_rules(&mut self) -> Result<Option<Security>, Failed> {
        let Some(file) = self.acf.clone() else { return Ok(None) };
        let text = self.read_file(&file)?;
        let mut macros = Macros::parse(&self.acf_macros);
        self.add_environment(&mut macros);
        let mut rules = Security::parse(&text, &file, &macros)?;
        rules.take_notices().iter().for_each(|notice| eprintln!("{notice}"));
        if self.checks_addresses() {
            rules.map_hosts(address_of);
        }
        Ok(Some(rules))
    }

    /// Whether hosts are identified by address (`var asCheckClientIP 1`).
    pub(super) fn checks_addresses(&self) -> bool {
        self.vars.get("asCheckClientIP").is_some_and(|on| *on != 0.0)
    }
}

/// Address of a host as text; a word that matches no address if it has none.
fn address_of(host: &str) -> String {
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut all| {
        all.find_map(|address| match address.ip() {
            IpAddr::V4(ip) => Some(ip.to_string()),
            IpAddr::V6(_) => None,
        })
    });
    found.unwrap_or_else(|| {
        eprintln!("ACF: Unable to resolve host '{host}'");
        format!("unresolved:{host}")
    })
}

fn printed(
    shell: &mut Shell,
    report: impl FnOnce(&Engine, &Security) -> String + Send + 'static,
) -> super::commands::CommandResult {
    let text = shell.with_engine(|engine| engine.store.guard.rules().map(|rules| report(engine, rules)))?;
    // As in EPICS, the output is empty without rules.
    said(shell, &text.unwrap_or_default())
}

fn members(out: &mut String, kind: &str, all: &[Members], wanted: &str) {
    if all.is_empty() {
        let _ = writeln!(out, "No {kind}s");
    }
    for group in all.iter().filter(|group| wanted.is_empty() || group.name == wanted) {
        let _ = match group.members.is_empty() {
            true => writeln!(out, "{kind}({})", group.name),
            false => writeln!(out, "{kind}({}) {{{}}}", group.name, group.members.join(",")),
        };
    }
}

/// A group with inputs and rules. `more` writes text before the closing brace.
fn head(out: &mut String, group: &Group, detail: Detail, more: impl FnOnce(&mut String)) {
    let braces = !group.inputs.is_empty() || !group.rules.is_empty();
    let _ = writeln!(out, "ASG({}){}", group.name, if braces { " {" } else { "" });
    for input in &group.inputs {
        let (value, valid) = group.value(input.letter);
        let state = match (valid, detail) {
            (false, _) => " INVALID",
            (true, Detail::All) => "   VALID",
            (true, Detail::Rules) => "",
        };
        let letter = char::from(b'A' + input.letter);
        let _ = writeln!(out, "\tINP{letter}({}){state} value={value:.6}", input.channel);
    }
    for rule in &group.rules {
        let trap = if rule.trap { "TRAPWRITE" } else { "NOTRAPWRITE" };
        let braces = !rule.users.is_empty() || !rule.hosts.is_empty() || rule.condition.is_some();
        let _ = writeln!(out, "\tRULE({},{},{trap}){}", rule.level, rule.grant, if braces { " {" } else { "" });
        for (kind, names) in [("UAG", &rule.users), ("HAG", &rule.hosts)].iter().filter(|(_, names)| !names.is_empty())
        {
            let _ = writeln!(out, "\t\t{kind}({})", names.join(","));
        }
        if let Some(Condition { text, holds, .. }) = &rule.condition {
            let _ = writeln!(out, "\t\tCALC(\"{text}\") result={}", if *holds { "TRUE" } else { "FALSE" });
        }
        if braces {
            out.push_str("\t}\n");
        }
    }
    more(out);
    if braces {
        out.push_str("}\n");
    }
}

/// Records of a group, sorted by type as in EPICS, and the clients with channels to them.
fn member_list(out: &mut String, engine: &Engine, number: usize, clients: bool) {
    let store = &engine.store;
    let (Some(rules), db): (_, &Db) = (store.guard.rules(), &store.db) else { return };
    let mut records: Vec<RecId> =
        db.records().filter(|record| rules.group_of(db.access_group(*record)) == number).collect();
    if records.is_empty() {
        return;
    }
    records.sort_by(|a, b| (db.type_name(*a), a).cmp(&(db.type_name(*b), b)));
    out.push_str("\tMEMBERLIST\n");
    for record in records {
        let group = db.access_group(record);
        let _ = writeln!(out, "\t\t{} Record:{}", if group.is_empty() { "<null>" } else { group }, db.name_of(record));
        if !clients {
            continue;
        }
        for (peer, opened) in engine.server.channels() {
            let Some(channel) = store.channel(opened.handle).filter(|channel| channel.record == record) else {
                continue;
            };
            let level = db.info(channel).level;
            let host = store.guard.host(peer);
            let rights = rules.rights(number, level, peer.user, host);
            let trap = if rights.trap { "TRAPWRITE" } else { "NOTRAPWRITE" };
            let _ = writeln!(out, "\t\t\t {} {host} ASL{level} {} {trap}", peer.user, rights.grant);
        }
    }
}
