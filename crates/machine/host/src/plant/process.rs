//! Reads `[[process]]`.

use super::keys;
use super::model::*;
use crate::guard::{BUDGET, LADDER};
use base::{DurNs, Policy, RtLevel, Size};
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use table::{Diagnostics, Placed, Section, clipped};
use toml::de::DeValue;

/// A process with the positions in the plant file that later checks report.
pub(crate) struct PlacedProcess {
    pub(crate) process: Process,
    pub(crate) header: Range<usize>,
    pub(crate) name: Range<usize>,
    pub(crate) command: Range<usize>,
    pub(crate) class: Range<usize>,
    pub(crate) cpus: Range<usize>,
    pub(crate) numa: Range<usize>,
    pub(crate) user: Range<usize>,
    pub(crate) dir: Range<usize>,
    pub(crate) partition: Option<Placed<String>>,
    pub(crate) after: Vec<Range<usize>>,
    pub(crate) on_fault: Range<usize>,
    /// Positions of the CPUs in its thread rules.
    pub(crate) threads: Vec<Range<usize>>,
    /// Files that it reads at its start, as written.
    pub(crate) files: Vec<Placed<String>>,
}

const DAY: DurNs = DurNs::from_secs(24 * 3600);
const HOUR: DurNs = DurNs::from_secs(3600);
const SECOND: DurNs = DurNs::from_secs(1);
/// Minimum memory limit. A program needs this much before its first instruction.
const MEMORY_MIN: Size = Size(1 << 20);

/// The value with its position. A missing value is `default`, at the position of the header.
fn placed<T>(value: Option<Placed<T>>, default: T, header: &Range<usize>) -> Placed<T> {
    value.unwrap_or_else(|| (default, header.clone()))
}

/// Generated command of a table other than `[[process]]`.
pub(crate) struct GeneratedCommand {
    /// The command.
    pub(crate) command: Vec<String>,
    /// Whether the process gives some of its threads a fixed priority, regardless of its class.
    pub(crate) has_own_priorities: bool,
}

/// Reads a process. A key that cannot be read gets its default and a finding, so that the plant is refused. The command
/// is in `made` if it is generated, otherwise in the section.
pub(crate) fn read(
    section: &Section<'_>,
    called: &str,
    has_shield: bool,
    made: Option<GeneratedCommand>,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let name = name(section, found).unwrap_or_else(|| (String::new(), section.range()));
    read_as(section, name, called, has_shield, made, found)
}

/// Like [`read`], for a process whose name has been read.
pub(crate) fn read_as(
    section: &Section<'_>,
    name: Placed<String>,
    called: &str,
    has_shield: bool,
    made: Option<GeneratedCommand>,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let header = section.range();
    let has_own_priorities = made.as_ref().is_some_and(|made| made.has_own_priorities);
    let command = made.map(|made| (made.command, header.clone())).unwrap_or_else(|| {
        if section.value("command").is_none() {
            section.missing("command", found);
        }
        placed(section.command("command", found), Vec::new(), &header)
    });
    let class = placed(section.parsed::<Policy>("class", found), Policy::OTHER, &header);
    let real_time = class.0.is_real_time();
    let default_cpus = if real_time && has_shield { Cpus::Shield } else { Cpus::Housekeeping };
    let cpus = placed(cpus(section, "cpus", found), default_cpus, &header);
    let numa = section.number("numa", 0, 1023, found);
    let user = section.words("user", found);
    let heartbeat = heartbeat(section, found);
    let budget = section.parsed::<Budget>("budget", found);
    if let (Some((_, span)), false) = (&budget, matches!(class.0.level(), RtLevel::Fixed(_)) || has_own_priorities) {
        let remedy = "remove it: only fifo and rr can starve a CPU; the kernel limits the others";
        found.warning(span.clone(), format!("`budget` has no effect on class {}", class.0), remedy);
    }
    let budget = placed(budget, BUDGET, &header);
    let miss_ratio = section.parsed::<MissRatio>("miss_ratio_max", found);
    let deadline = super::deadline::read(section, found);
    if !real_time && heartbeat.is_none() {
        for key in ["miss_ratio_max", "deadline"] {
            let Some(value) = section.value(key) else { continue };
            let message = format!("`{key}` in {called}, which has no loop page: it has no effect");
            found.warning(value.span(), message, "give it a real-time class or a `heartbeat`, or remove the limit");
        }
    }
    if budget.0 == Budget::None && heartbeat.is_none() {
        found.error(
            budget.1.clone(),
            format!("`budget = \"none\"` in {called} without a heartbeat: tahti could not detect a runaway"),
            "a `heartbeat`, or a budget such as \"80%/100ms\"",
            "add `heartbeat = { within = \"50ms\" }`",
        );
    }
    let dir = section.words("dir", found);
    let partition = section.words("partition", found).map(|(name, span)| (name.to_owned(), span));
    let after = section.texts("after", found).unwrap_or_default();
    profiles(section, found);
    let on_fault = section.command("on_fault", found);
    let threads = threads(section, found);
    PlacedProcess {
        process: Process {
            name: name.0,
            command: command.0,
            class: class.0,
            cpus: cpus.0,
            numa: numa.as_ref().map(|(node, _)| *node as u16),
            mlock: section.flag("mlock", found).unwrap_or(real_time),
            limits: limits(section, found),
            bounds: bounds(section, found),
            partition: partition.as_ref().map(|(name, _)| name.clone()),
            user: user.as_ref().map(|(user, _)| (*user).to_owned()),
            capabilities: capabilities(section, found),
            env: env(section, found),
            automatic: BTreeMap::new(),
            dir: dir.as_ref().map(|(dir, _)| (*dir).to_owned()),
            after: after.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ready: ready(section, found),
            restart: restart(section, found),
            stop: steps(section, "stop", found, |signal, wait| StopStep { signal, wait })
                .unwrap_or_else(|| vec![StopStep { signal: Signal::TERM, wait: DurNs::from_secs(5) }]),
            hygiene: super::hygiene::read(section, found),
            on_fault: on_fault.as_ref().map(|(command, _)| command.clone()),
            log: log(section, found),
            heartbeat,
            budget: budget.0,
            ladder: ladder(section, found),
            threads: threads.iter().map(|(rule, _)| rule.clone()).collect(),
            own_threads: Vec::new(),
            miss_ratio_max: miss_ratio.map(|(ratio, _)| ratio),
            deadline,
            has_own_priorities,
            optional: false,
        },
        name: name.1,
        command: command.1,
        class: class.1,
        cpus: cpus.1,
        numa: numa.map_or(header.clone(), |(_, span)| span),
        user: user.map_or(header.clone(), |(_, span)| span),
        dir: dir.map_or(header.clone(), |(_, span)| span),
        partition,
        after: after.into_iter().map(|(_, span)| span).collect(),
        on_fault: on_fault.map_or(header.clone(), |(_, span)| span),
        threads: threads.into_iter().map(|(_, span)| span).collect(),
        header,
        files: Vec::new(),
    }
}

/// Checks the names of a member's profiles. The profiles themselves are read before the member ([`super::profiles`]).
pub(crate) fn profiles(section: &Section<'_>, found: &mut Diagnostics<'_>) {
    for (name, span) in section.texts("profiles", found).unwrap_or_default() {
        if !is_name(name) {
            found.error(span, format!("a profile cannot be called {:?}", clipped(name)), NAME, "");
        }
    }
}

/// Rules for the name of a process, for messages.
pub const NAME: &str = "letters, digits, `-`, `_`, `.`, at most 32, beginning with a letter or digit";

/// Whether `name` is valid for a process, see [`NAME`].
#[must_use]
pub fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= 32 && name.chars().all(good) && name.starts_with(|c: char| c.is_alphanumeric())
}

/// Reads a name that can be part of a path: letters, digits, `-`, `_`, and `.` inside.
pub(crate) fn name(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Placed<String>> {
    if section.value("name").is_none() {
        section.missing("name", found);
    }
    let (name, span) = section.text("name", found)?;
    if !is_name(name) {
        let message = format!("`name` cannot be {:?}", clipped(name));
        found.error(span, message, NAME, "");
        return None;
    }
    Some((name.to_owned(), span))
}

fn cpus(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<Cpus>> {
    match section.value(name)?.get_ref() {
        DeValue::String(text) if matches!(text.trim(), "shield" | "housekeeping") => {
            let (text, span) = section.text(name, found)?;
            Some((if text.trim() == "shield" { Cpus::Shield } else { Cpus::Housekeeping }, span))
        }
        _ => section.cpu_list(name, found).map(|(cpus, span)| (Cpus::List(cpus), span)),
    }
}

fn limits(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Limits {
    let Some(limits) = section.section("limits", &keys::LIMITS, "limits", found) else { return Limits::default() };
    let mut size = |name: &str| limits.parsed::<Size>(name, found).map(|(size, _)| size);
    let (core, locked, memory, stack) = (size("core"), size("locked"), size("memory"), size("stack"));
    let rttime = limits.time("rttime", DurNs(1000), HOUR, found).map(|(time, _)| time);
    Limits { files: limits.number("files", 1, 1 << 30, found).map(|(n, _)| n), core, locked, memory, stack, rttime }
}

/// Reads the limits of memory and of the number of tasks.
pub(crate) fn bounds(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Bounds {
    let memory = section.parsed::<Size>("memory_max", found);
    if let Some((size, span)) = &memory
        && *size < MEMORY_MIN
    {
        let message = format!("`memory_max` cannot be {size}");
        found.error(span.clone(), message, format!("at least {MEMORY_MIN}"), "no program starts in less");
    }
    let tasks = section.number("tasks_max", 1, 1 << 22, found);
    Bounds { memory_max: memory.map(|(size, _)| size), tasks_max: tasks.map(|(tasks, _)| tasks) }
}

/// Reads the environment variables of a table.
pub(super) fn env(section: &Section<'_>, found: &mut Diagnostics<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let Some(value) = section.value("env") else { return env };
    let DeValue::Table(table) = value.get_ref() else {
        section.wrong("env", value, "a table of texts", found);
        return env;
    };
    for (key, value) in table {
        let name: &str = key.get_ref();
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("{:?} cannot be the name of a variable", clipped(name));
            found.error(key.span(), message, "a name without `=` and NUL", "");
        } else if let Some(text) = value.get_ref().as_str().filter(|text| !text.contains('\0')) {
            env.insert(name.to_owned(), text.to_owned());
        } else {
            section.wrong("env", value, "texts without NUL", found);
        }
    }
    env
}

fn capabilities(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Vec<String>> {
    let names = section.texts("capabilities", found)?;
    let mut kept = Vec::new();
    for (name, span) in names {
        let upper = name.to_ascii_uppercase();
        let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
        if CAPABILITIES.contains(&full.as_str()) {
            kept.push(full);
        } else {
            let remedy = match base::nearest(&full, CAPABILITIES.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => String::new(),
            };
            let message = format!("{:?} is no capability", clipped(name));
            found.error(span, message, "a name of capabilities(7), such as \"CAP_NET_RAW\"", remedy);
        }
    }
    Some(kept)
}

fn ready(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Ready {
    let mut ready = Ready { when: ReadyCondition::Started, within: DurNs::from_secs(10) };
    let Some(table) = section.section("ready", &keys::READY, "ready", found) else { return ready };
    let signs: Vec<_> =
        ["line", "file", "port", "notify"].into_iter().filter(|name| table.value(name).is_some()).collect();
    if signs.len() != 1 {
        let message = match signs.len() {
            0 => "`ready` names no sign".to_owned(),
            _ => format!("`ready` names {} signs: {}", signs.len(), signs.join(", ")),
        };
        found.error(table.range(), message, "one of line, file, port, notify", "keep the last one to appear");
    }
    if let Some((line, _)) = table.words("line", found) {
        ready.when = ReadyCondition::Line(line.to_owned());
    }
    if let Some((file, _)) = table.words("file", found) {
        ready.when = ReadyCondition::File(file.to_owned());
    }
    if let Some((port, _)) = table.number("port", 1, 65535, found) {
        ready.when = ReadyCondition::Port(port as u16);
    }
    match table.flag("notify", found) {
        Some(true) => ready.when = ReadyCondition::Notify,
        Some(false) => {
            let span = table.value("notify").map_or(table.range(), toml::Spanned::span);
            found.error(span, "`notify = false` is no sign of readiness", "true", "remove `ready` to be ready at once");
        }
        None => {}
    }
    if let Some((within, _)) = table.time("within", DurNs::from_ms(10), HOUR, found) {
        ready.within = within;
    }
    ready
}

fn restart(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Restart {
    let mut restart = Restart {
        policy: RestartPolicy::OnFailure,
        backoff: DurNs::from_ms(200),
        backoff_max: DurNs::from_secs(10),
        window: DurNs::from_secs(60),
        limit: 5,
    };
    let Some(table) = section.section("restart", &keys::RESTART, "restart", found) else { return restart };
    if let Some((policy, _)) = table.parsed("policy", found) {
        restart.policy = policy;
    }
    let backoff = table.time("backoff", DurNs::ZERO, HOUR, found);
    let most = table.time("backoff_max", DurNs::ZERO, HOUR, found);
    if let Some((backoff, _)) = &backoff {
        restart.backoff = *backoff;
        restart.backoff_max = restart.backoff_max.max(*backoff);
    }
    if let Some((most, span)) = most {
        restart.backoff_max = most;
        if most < restart.backoff {
            let message = format!("`backoff_max` {most} is shorter than `backoff` {}", restart.backoff);
            found.error(span, message, format!("at least {}", restart.backoff), "");
        }
    }
    if let Some((window, _)) = table.time("window", SECOND, DAY, found) {
        restart.window = window;
    }
    if let Some((limit, _)) = table.number("limit", 0, 1000, found) {
        restart.limit = limit as u32;
    }
    restart
}

impl FromStr for RestartPolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "always" => Ok(Self::Always),
            "on-failure" => Ok(Self::OnFailure),
            "never" => Ok(Self::Never),
            _ => Err("`always`, `on-failure` or `never`"),
        }
    }
}

impl FromStr for RungAction {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|action| action.word() == text).ok_or("`demote`, `freeze`, `abort` or `kill`")
    }
}

/// Reads a list of words, each with a time: `["INT 2s", "TERM 3s"]`. The default time is one second.
fn steps<A: FromStr<Err = &'static str>, T>(
    section: &Section<'_>,
    name: &str,
    found: &mut Diagnostics<'_>,
    make: impl Fn(A, DurNs) -> T,
) -> Option<Vec<T>> {
    let texts = section.texts(name, found)?;
    if texts.len() > 16 {
        let span = section.value(name).map_or(section.range(), toml::Spanned::span);
        found.error(span, format!("`{name}` has {} steps", texts.len()), "at most 16", "");
    }
    let mut out = Vec::new();
    for (text, span) in texts {
        let (word, wait) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "1s"));
        let wait = wait.trim().parse::<DurNs>().map_err(|why| why.to_string()).and_then(|wait| {
            let good = wait >= DurNs::ZERO && wait <= HOUR;
            if good { Ok(wait) } else { Err("a time from 0s to 1h".to_owned()) }
        });
        match (word.parse::<A>(), wait) {
            (Ok(action), Ok(wait)) => out.push(make(action, wait)),
            (Err(expected), _) => {
                found.error(span, format!("`{name}` cannot be {:?}", clipped(text)), expected, "");
            }
            (_, Err(expected)) => {
                found.error(span, format!("`{name}` cannot wait {:?}", clipped(text)), expected, "");
            }
        }
    }
    Some(out)
}

fn ladder(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<Rung> {
    let read = steps(section, "ladder", found, |action: RungAction, wait| Rung { action, wait });
    let Some(ladder) = read else {
        return LADDER.to_vec();
    };
    let given = section.value("ladder").and_then(|value| value.get_ref().as_array()).map_or(0, |items| items.len());
    let rank = |rung: &Rung| RungAction::ALL.iter().position(|action| *action == rung.action);
    if given == 0 || !ladder.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])) {
        let span = section.value("ladder").map_or(section.range(), toml::Spanned::span);
        let expected = "some of demote, freeze, abort, kill, each once and in this order";
        found.error(span, "`ladder` is empty or does not rise", expected, "");
    }
    ladder
}

fn log(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Log {
    let mut log = Log { size: Size(1 << 20), keep: 3 };
    let Some(table) = section.section("log", &keys::LOG, "log", found) else { return log };
    if let Some((size, span)) = table.parsed::<Size>("size", found) {
        log.size = size;
        if size < Size(4 << 10) || size > Size(1 << 30) {
            found.error(span, format!("`size` cannot be {size}"), "4KiB to 1GiB", "");
        }
    }
    if let Some((keep, _)) = table.number("keep", 0, 100, found) {
        log.keep = keep as u32;
    }
    log
}

fn heartbeat(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Heartbeat> {
    let table = section.section("heartbeat", &keys::HEARTBEAT, "heartbeat", found)?;
    if table.value("within").is_none() {
        table.missing("within", found);
    }
    let within = table.time("within", DurNs::from_ms(1), HOUR, found).map_or(SECOND, |(within, _)| within);
    Some(Heartbeat { within, critical: table.flag("critical", found).unwrap_or(false) })
}

fn threads(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<(ThreadRule, Range<usize>)> {
    let mut rules = Vec::new();
    let Some(value) = section.value("threads") else { return rules };
    let DeValue::Array(items) = value.get_ref() else {
        section.wrong("threads", value, "a list of tables", found);
        return rules;
    };
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            section.wrong("threads", item, "tables", found);
            continue;
        };
        let rule = Section::open(table, item.span(), &keys::THREADS, "a rule for threads", found);
        if rule.value("match").is_none() {
            rule.missing("match", found);
        }
        let pattern = rule.words("match", found);
        if let Some((pattern, span)) = &pattern
            && pattern.chars().filter(|c| *c != '*').count() > 15
        {
            let message = format!("no thread's name matches {:?}", clipped(pattern));
            found.error(span.clone(), message, "at most 15 bytes without `*`: the kernel truncates names", "");
        }
        let class = rule.parsed::<Policy>("class", found);
        if let Some((Policy::Deadline(_), span)) = &class {
            let expected = "fifo, rr, other, batch or idle";
            found.error(span.clone(), "a rule for threads cannot give DEADLINE", expected, "give it to a process");
        }
        let cpus = cpus(&rule, "cpus", found);
        if class.is_none() && cpus.is_none() && rule.value("class").is_none() && rule.value("cpus").is_none() {
            found.error(item.span(), "a rule for threads that changes nothing", "`class`, `cpus` or both", "");
        }
        let span = cpus.as_ref().map_or(item.span(), |(_, span)| span.clone());
        let pattern = pattern.map_or(String::new(), |(pattern, _)| pattern.to_owned());
        rules.push((ThreadRule { pattern, class: class.map(|(c, _)| c), cpus: cpus.map(|(c, _)| c) }, span));
    }
    rules
}

/// The capabilities of Linux (`capabilities(7)`), in the order of their numbers.
pub const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];
