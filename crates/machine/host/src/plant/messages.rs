//! Reads `[messages]`. The message server is a process whose command line is generated from the table.

use super::ioc::each;
use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Cpus, Ready, ReadyCondition, ThreadRule};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::{DurNs, Policy, RtLevel, Size, Verb};
use std::ops::{Range, RangeInclusive};
use table::{Diagnostics, Placed, Section, clipped};

/// Output of `tahti msg serve` when it serves.
const SERVING: &str = "tahti msg: serving as ";
const BEGIN_WITHIN: DurNs = DurNs::from_secs(10);

/// Allowed size of a file of the message log.
pub const LOG_SIZES: RangeInclusive<Size> = Size(64 << 10)..=Size(1 << 40);
/// The allowed size, for messages.
pub const LOG_SIZES_TEXT: &str = "size, 64KiB to 1TiB";

const OWN: [Key; 7] = [
    key(
        "bands",
        r#"[{ number = "7", class = "fifo:80", cpu = "3" }]"#,
        "list of tables, see *bands*",
        "all eight as the process",
        "Classes and CPUs of the threads of single bands.",
    ),
    key(
        "rules",
        r#"[{ access = "deny", verbs = ["call"], objects = "sr_rf_*" }]"#,
        "list of tables, see *rules*",
        "the server's user and root may do all, others may read",
        "Access rules; the first match decides.",
    ),
    key(
        "deadlines",
        r#"[{ objects = "sr_rf_*", verbs = ["put"], at = "5ms", kind = "firm" }]"#,
        "list of tables, see *deadlines*",
        "none: results are not valued",
        "Deadlines of replies; the first match decides.",
    ),
    key("message_log", r#""messages.log""#, "file", "none", "Log file of all writes and errors, with user and time."),
    key(
        "message_log_size",
        r#""64MiB""#,
        LOG_SIZES_TEXT,
        "`64MiB`",
        "Maximum size; then the file is renamed to `messages.log.1`.",
    ),
    key("message_log_keep", "4", "number, 0 to 100", "`4`", "Number of old log files to keep."),
    key(
        "require_rt",
        "true",
        "true or false",
        "`false`",
        "Exit if the class, CPU or memory lock of a band is unavailable.",
    ),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 1] = with_process(&OWN, &["command"]);

/// `[messages]`, for the documentation.
pub(crate) const MESSAGES: Table = Table {
    header: "[messages]",
    doc: "The message server ([messages](../messages.md)). It is a process: all keys of `[[process]]` except `command` are valid here. Clients find it \
          by its `name`, usually `main`.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[messages]", doc: "", keys: &SHAPE };

/// `bands = [{…}]`
pub(crate) const BANDS: Table = Table {
    header: "bands",
    doc: "Class and CPU of the thread of one band.",
    keys: &[
        key("number", r#""7""#, "\"0\" to \"7\"", "", "Band; 7 is the most urgent."),
        key("class", r#""fifo:80""#, "as in `[[process]]`", "", "Class of its thread."),
        key("cpu", r#""3""#, "CPU list of one", "those of the process", "CPU of its thread."),
    ],
};

/// `rules = [{…}]`
pub(crate) const RULES: Table = Table {
    header: "rules",
    doc: "An access rule. An omitted key matches everything.",
    keys: &[
        key("access", r#""deny""#, "`allow` or `deny`", "", "Effect of the rule."),
        key("objects", r#""sr_rf_*""#, "name with `*` and `?`", "", "Matching objects."),
        key("verbs", r#"["put", "call"]"#, "list of verbs", "all", "Matching verbs."),
        key("bands", r#"["6", "7"]"#, "list of \"0\" to \"7\"", "all", "Matching bands."),
        key("users", r#"["1000"]"#, "list of user numbers", "all", "Matching users."),
        key(
            "hosts",
            r#""other""#,
            "`local`, `other`, or names such as `control-1,zmq`",
            "all",
            "Matching hosts: this host, other hosts, or hosts by name; `zmq` means ZeroMQ clients.",
        ),
    ],
};

/// `deadlines = [{…}]`
pub(crate) const DEADLINES: Table = Table {
    header: "deadlines",
    doc: "Deadline for the reply to a request, from its arrival at the server. The server does not wait for a reply without value: it informs the \
          client, and a manager that has not started the request by then does not execute it. A missed `hard` deadline runs the server's `on_fault`. \
          `objects`, `verbs` and `bands` select the requests, as in *rules*; an omitted key matches everything.",
    keys: &[
        key("objects", r#""sr_rf_*""#, "name with `*` and `?`", "all", "Matching objects."),
        key("verbs", r#"["put", "call"]"#, "list of verbs", "all", "Matching verbs."),
        key("bands", r#"["6", "7"]"#, "list of \"0\" to \"7\"", "all", "Matching bands."),
        super::deadline::DEADLINE.keys[0],
        super::deadline::DEADLINE.keys[1],
        super::deadline::DEADLINE.keys[2],
    ],
};

/// Reads the message server as a process.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    has_shield: bool,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let called = "[messages]";
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "msg", "serve"].map(str::to_owned).into();
    if let Some((name, _)) = section.words("name", found) {
        command.extend(["--name".into(), name.to_owned()]);
    }
    if let Some((file, _)) = section.words("message_log", found) {
        command.extend(["--log".into(), file.to_owned()]);
    }
    if let Some((size, span)) = section.parsed::<Size>("message_log_size", found) {
        if !LOG_SIZES.contains(&size) {
            found.error(span, format!("`message_log_size` cannot be {size}"), LOG_SIZES_TEXT, "");
        }
        command.extend(["--log-size".into(), size.to_string()]);
    }
    if let Some((keep, _)) = section.number("message_log_keep", 0, 100, found) {
        command.extend(["--log-keep".into(), keep.to_string()]);
    }
    let (has_own_priorities, own_threads) = bands(&section, &mut command, found);
    rules(&section, &mut command, found);
    deadlines(&section, &mut command, found);
    if section.flag("require_rt", found).unwrap_or(false) {
        command.push("--require-rt".into());
    }
    let made = GeneratedCommand { command, has_own_priorities };
    let mut read = process::read(&section, called, has_shield, Some(made), found);
    read.process.own_threads = own_threads;
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(SERVING.to_owned()), within: BEGIN_WITHIN };
    }
    read
}

/// Reads the bands. Returns whether any has a fixed priority, and what their threads have.
fn bands(section: &Section<'_>, command: &mut Vec<String>, found: &mut Diagnostics<'_>) -> (bool, Vec<ThreadRule>) {
    let (mut seen, mut fixed, mut rules): (Vec<&str>, bool, _) = (Vec::new(), false, Vec::new());
    for band in each(section, "bands", &BANDS, found) {
        for needed in ["number", "class"].into_iter().filter(|needed| band.value(needed).is_none()) {
            band.missing(needed, found);
        }
        let number = band.words("number", found);
        let class = band.parsed::<Policy>("class", found);
        let cpu = band.cpu_list("cpu", found);
        if let Some((cpus, span)) = cpu.as_ref().filter(|(cpus, _)| cpus.count() != 1) {
            found.error(span.clone(), format!("`cpu` cannot be {cpus}"), "one CPU", "");
        }
        let Some((number, span)) = number else { continue };
        if seen.contains(&number) || !matches!(number.as_bytes(), [b'0'..=b'7']) {
            found.error(span, format!("`number` cannot be {:?}", clipped(number)), "\"0\" to \"7\", each once", "");
        }
        seen.push(number);
        if let Some((class, _)) = class {
            let cpus = cpu.as_ref().map(|(cpu, _)| Cpus::List(*cpu));
            rules.push(ThreadRule { pattern: format!("band-{number}"), class: Some(class), cpus });
            let place = cpu.map_or_else(String::new, |(cpu, _)| format!("@{cpu}"));
            command.extend(["--band".into(), format!("{number}={class}{place}")]);
            fixed |= matches!(class.level(), RtLevel::Fixed(_));
        }
    }
    (fixed, rules)
}

fn rules(section: &Section<'_>, command: &mut Vec<String>, found: &mut Diagnostics<'_>) {
    for rule in each(section, "rules", &RULES, found) {
        for needed in ["access", "objects"].into_iter().filter(|needed| rule.value(needed).is_none()) {
            rule.missing(needed, found);
        }
        let mut text = String::new();
        if let Some((access, span)) = rule.words("access", found) {
            if !matches!(access, "allow" | "deny") {
                found.error(span, format!("`access` cannot be {:?}", clipped(access)), "\"allow\" or \"deny\"", "");
            }
            text += access;
        }
        about(&rule, &mut text, found);
        let users = rule.texts("users", found).unwrap_or_default();
        for (user, span) in users.iter().filter(|(user, _)| user.parse::<u32>().is_err()) {
            found.error(
                span.clone(),
                format!("{:?} is no user number", clipped(user)),
                "such as \"1000\"",
                "see `id -u NAME`",
            );
        }
        add("users", &users, &mut text);
        if let Some((hosts, span)) = rule.words("hosts", found) {
            let name = |name: &str| {
                (1..=48).contains(&name.len())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            };
            if !hosts.split(',').all(name) {
                let expected = "\"local\", \"other\", or names of hosts with commas between them";
                found.error(span, format!("`hosts` cannot be {:?}", clipped(hosts)), expected, "");
            }
            text += &format!(" hosts={hosts}");
        }
        command.extend(["--rule".into(), text]);
    }
}

fn deadlines(section: &Section<'_>, command: &mut Vec<String>, found: &mut Diagnostics<'_>) {
    for deadline in each(section, "deadlines", &DEADLINES, found) {
        let Some(rule) = super::deadline::read_in(&deadline, found) else { continue };
        let mut text = rule.to_string();
        about(&deadline, &mut text, found);
        command.extend(["--deadline".into(), text]);
    }
}

/// Reads which requests a table applies to: objects, verbs and bands.
fn about(table: &Section<'_>, text: &mut String, found: &mut Diagnostics<'_>) {
    if let Some((objects, span)) = table.words("objects", found) {
        if objects.len() > 127
            || !objects.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'*' | b'?'))
        {
            let expected = "lower-case letters, digits, underscores, * and ?, at most 127 of them";
            found.error(span, format!("`objects` cannot be {:?}", clipped(objects)), expected, "");
        }
        *text += &format!(" objects={objects}");
    }
    let verbs = table.texts("verbs", found).unwrap_or_default();
    for (verb, span) in &verbs {
        if let Err(error) = verb.parse::<Verb>() {
            let remedy = error.nearest.map_or(String::new(), |meant| format!("did you mean `{meant}`?"));
            let expected = Verb::words(Verb::ALL.into_iter()).to_string();
            found.error(span.clone(), format!("{:?} is no verb", clipped(verb)), expected, remedy);
        }
    }
    let bands = table.texts("bands", found).unwrap_or_default();
    for (band, span) in bands.iter().filter(|(band, _)| !matches!(band.as_bytes(), [b'0'..=b'7'])) {
        found.error(span.clone(), format!("{:?} is no band", clipped(band)), "\"0\" to \"7\"", "");
    }
    add("verbs", &verbs, text);
    add("bands", &bands, text);
}

/// Adds words to a rule, if there are any.
fn add(name: &str, words: &[Placed<&str>], text: &mut String) {
    if !words.is_empty() {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        *text += &format!(" {name}={}", words.join(","));
    }
}
