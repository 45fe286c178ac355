//! Checks across tables: names, dependencies, CPUs, programs.

use super::model::Cpus;
use super::process::PlacedProcess;
use super::{Inactive, Missing, Surroundings};
use base::{CpuSet, Policy};
use std::collections::BTreeMap;
use std::ops::Range;
use table::Diagnostics;

/// Finds errors that can be found only after the whole file has been read.
pub(crate) fn check(
    reads: &[PlacedProcess],
    has_shield: bool,
    isolated: Option<(CpuSet, Range<usize>)>,
    watchdog: Option<Range<usize>>,
    inactive: &Inactive,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) {
    names(reads, found);
    dependencies(reads, inactive, found);
    reservations(reads, isolated.as_ref().map(|(cpus, _)| *cpus), around, found);
    for read in reads {
        let isolated = isolated.as_ref().map(|(cpus, _)| *cpus);
        placement(read, has_shield, isolated, around, found);
        existence(read, around, found);
    }
    let critical = |read: &PlacedProcess| read.process.heartbeat.is_some_and(|heartbeat| heartbeat.critical);
    match watchdog {
        Some(span) if !reads.iter().any(critical) => found.warning(
            span,
            "no heartbeat is critical: the watchdog would be fed even if the processes hang",
            "give the processes that matter `heartbeat = { within = \"…\", critical = true }`",
        ),
        None => {
            for read in reads.iter().filter(|read| critical(read)) {
                let message = format!("the heartbeat of {:?} is critical, but there is no watchdog", read.process.name);
                found.warning(read.header.clone(), message, "add a [watchdog] table");
            }
        }
        Some(_) => {}
    }
}

fn names(reads: &[PlacedProcess], found: &mut Diagnostics<'_>) {
    let mut seen = BTreeMap::new();
    for read in reads.iter().filter(|read| !read.process.name.is_empty()) {
        let name = read.process.name.as_str();
        match seen.get(name) {
            Some(first) => {
                let message = format!("a second process {name:?}; the first one is at {}", found.line_of(first));
                found.error(read.name.clone(), message, "a unique name", "rename one");
            }
            None => drop(seen.insert(name, read.name.clone())),
        }
    }
}

fn dependencies(reads: &[PlacedProcess], inactive: &Inactive, found: &mut Diagnostics<'_>) {
    let known = || reads.iter().map(|read| read.process.name.as_str()).filter(|name| !name.is_empty());
    // A process whose name or table has an error may be the one that is meant.
    let is_unreadable = found.has_syntax_errors() || known().count() < reads.len();
    for read in reads {
        for (name, span) in read.process.after.iter().zip(&read.after) {
            if *name == read.process.name {
                found.error(span.clone(), format!("process {name:?} would wait for itself"), "another process", "");
            } else if known().any(|other| other == name) {
            } else if let Some((message, remedy)) = inactive.waited_for(&read.process.name, name) {
                found.error(span.clone(), message, "a member that is always there, or one of the same profile", remedy);
            } else {
                let others = || known().filter(|other| *other != read.process.name);
                let meant = base::nearest(name, others());
                if meant.is_none() && is_unreadable {
                    continue;
                }
                let remedy = meant.map_or(String::new(), |meant| format!("did you mean {meant:?}?"));
                let all = others().collect::<Vec<_>>().join(", ");
                let all = if all.is_empty() { "another process; there is none".to_owned() } else { all };
                found.error(span.clone(), format!("`after` names an unknown process {name:?}"), all, remedy);
            }
        }
    }
    for cycle in cycles(reads) {
        let mut path: Vec<_> = cycle.iter().map(|index| reads[*index].process.name.as_str()).collect();
        path.push(path[0]);
        let first = &reads[cycle[0]];
        let next = reads[cycle[1 % cycle.len()]].process.name.as_str();
        let at = first.process.after.iter().position(|name| name == next);
        let span = at.and_then(|at| first.after.get(at)).unwrap_or(&first.header).clone();
        let message = format!("processes wait for each other: {}", path.join(" after "));
        found.error(span, message, "an order without a cycle", "remove one of these `after`");
    }
}

/// Each cycle of dependencies once, as indices. A process that waits for itself is reported elsewhere.
fn cycles(reads: &[PlacedProcess]) -> Vec<Vec<usize>> {
    let index: BTreeMap<&str, usize> =
        reads.iter().enumerate().map(|(index, read)| (read.process.name.as_str(), index)).collect();
    let next = |at: usize| -> Vec<usize> {
        let names = reads[at].process.after.iter();
        names.filter_map(|name| index.get(name.as_str()).copied()).filter(|to| *to != at).collect()
    };
    let mut done = vec![false; reads.len()];
    let mut circles = Vec::new();
    for start in 0..reads.len() {
        if done[start] {
            continue;
        }
        // Depth-first search with an explicit stack, because a chain can be as long as the plant.
        let mut path = vec![(start, next(start), 0)];
        while let Some((at, to, taken)) = path.last_mut() {
            let Some(&step) = to.get(*taken) else {
                done[*at] = true;
                path.pop();
                continue;
            };
            *taken += 1;
            if let Some(begin) = path.iter().position(|(at, ..)| *at == step) {
                circles.push(path[begin..].iter().map(|(at, ..)| *at).collect());
            } else if !done[step] {
                path.push((step, next(step), 0));
            }
        }
    }
    circles
}

fn placement(
    read: &PlacedProcess,
    has_shield: bool,
    isolated: Option<CpuSet>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) {
    let process = &read.process;
    let shield = isolated.unwrap_or_default();
    let rules = process.threads.iter().zip(&read.threads).filter_map(|(rule, span)| Some((rule.cpus?, span)));
    for (cpus, span) in std::iter::once((process.cpus, &read.cpus)).chain(rules) {
        match cpus {
            Cpus::Shield if !has_shield => found.error(
                span.clone(),
                format!("process {:?} needs the shield's CPUs, but the plant has no shield", process.name),
                "a [shield] table",
                "add `[shield]` with `cpus = \"…\"`, or name the CPUs here",
            ),
            Cpus::List(list) => {
                if let Some(online) = around.online()
                    && !list.is_subset(&online)
                {
                    let absent = list.minus(&online);
                    let message = super::not_online(&absent, &format!("of process {:?}", process.name));
                    found.error(span.clone(), message, format!("CPUs of this machine: {online}"), "");
                } else if list.intersects(&shield) && !list.is_subset(&shield) {
                    found.error(
                        span.clone(),
                        format!(
                            "CPUs {list} of process {:?} are partly isolated ({})",
                            process.name,
                            list.and(&shield)
                        ),
                        "either isolated CPUs or others: a cpuset cannot contain both",
                        "",
                    );
                }
            }
            Cpus::Shield | Cpus::Housekeeping => {}
        }
    }
    let on_shield = process.cpus == Cpus::Shield
        || matches!(process.cpus, Cpus::List(list) if !shield.is_empty() && list.is_subset(&shield));
    if let Policy::Deadline(_) = process.class {
        let whole = process.cpus == Cpus::Shield || matches!(process.cpus, Cpus::List(list) if list == shield);
        if !has_shield || !whole {
            found.error(
                read.class.clone(),
                format!("process {:?} needs a partition for DEADLINE", process.name),
                "all CPUs of a shield: the kernel admits DEADLINE only on a whole root domain",
                "add a [shield] and `cpus = \"shield\"`, or use fifo",
            );
        } else if let Err(why) = around.partition() {
            let message = format!("process {:?} needs DEADLINE, which this machine does not support", process.name);
            found.error(read.class.clone(), message, "a partition", why.to_string());
        }
        reservation(read, around, found);
    } else if process.class.is_real_time() && has_shield && !on_shield {
        found.warning(
            read.class.clone(),
            format!(
                "process {:?} is real time on housekeeping CPUs: it delays other processes and is delayed by them",
                process.name
            ),
            "use `cpus = \"shield\"`",
        );
    }
    if let Some(node) = process.numa
        && !around.has_node(node)
    {
        let message = format!("process {:?} needs memory of NUMA node {node}, which does not exist", process.name);
        found.error(read.numa.clone(), message, "a node of this machine", "see /sys/devices/system/node");
    }
}

/// Checks whether the kernel accepts a reservation on its own.
fn reservation(read: &PlacedProcess, around: &dyn Surroundings, found: &mut Diagnostics<'_>) {
    let Policy::Deadline(asked) = read.process.class else { return };
    let rules = around.reservations();
    if asked.period < rules.period_min || asked.period > rules.period_max {
        let message = format!(
            "process {:?} has a DEADLINE period of {}, which the kernel refuses",
            read.process.name, asked.period
        );
        let expected = format!("{} to {}", rules.period_min, rules.period_max);
        let remedy = "another period, or change kernel.sched_deadline_period_min_us and _max_us";
        found.error(read.class.clone(), message, expected, remedy);
    }
}

/// Checks whether all reservations together fit on the shield.
fn reservations(
    reads: &[PlacedProcess],
    isolated: Option<CpuSet>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) {
    let Some(shield) = isolated else { return };
    let share = |read: &PlacedProcess| match read.process.class {
        // Rounded up, because this check must not accept what the kernel refuses.
        Policy::Deadline(asked) => {
            (asked.runtime.0.max(0) as u64).saturating_mul(1000).div_ceil(asked.period.0.max(1) as u64)
        }
        _ => 0,
    };
    let (asked, room) =
        (reads.iter().map(share).sum::<u64>(), u64::from(around.reservations().share_milli) * shield.count() as u64);
    let Some(last) = reads.iter().rev().find(|read| share(read) > 0) else { return };
    if asked > room {
        let percent = |milli: u64| format!("{}.{} %", milli / 10, milli % 10);
        let message = format!("all DEADLINE reservations together ask for {} of a CPU", percent(asked));
        let expected = format!("at most {} on CPUs {shield} (kernel.sched_rt_runtime_us)", percent(room));
        found.error(last.class.clone(), message, expected, "less runtime, longer periods, or more CPUs");
    }
}

/// Finds files that do not exist. A file that another process creates first cannot be checked here, nor one whose name has
/// macros.
fn files(read: &PlacedProcess, around: &dyn Surroundings, found: &mut Diagnostics<'_>) {
    let process = &read.process;
    if !process.after.is_empty() || process.hygiene.sandbox.is_some() {
        return;
    }
    let folder = std::path::Path::new(process.dir.as_deref().unwrap_or_default());
    for (file, span) in read.files.iter().filter(|(file, _)| !file.contains('$')) {
        if let Err(why) = around.is_file(&folder.join(file)) {
            let message = format!("process {:?} cannot read {file:?}: {why}", process.name);
            let remedy = "a relative path begins in `dir` of the process, or in the plant file's folder";
            found.error(span.clone(), message, "a file that exists", remedy);
        }
    }
}

fn existence(read: &PlacedProcess, around: &dyn Surroundings, found: &mut Diagnostics<'_>) {
    let process = &read.process;
    let commands = [Some((&process.command, &read.command)), process.on_fault.as_ref().map(|c| (c, &read.on_fault))];
    for (command, span) in commands.into_iter().flatten() {
        let Some(program) = command.first() else { continue };
        let dir = process.dir.as_deref();
        // A sandbox shows other paths, and a capability may replace permissions.
        let by_mode = process.hygiene.sandbox.is_none() && process.capabilities.is_none();
        let user = process.user.as_deref().filter(|user| by_mode && around.has_user(user));
        if let Err(why) = around.program(program, dir, user) {
            let message = format!("program {program:?} of process {:?} cannot be run: {why}", process.name);
            let remedy = match why {
                Missing::Executable(path) => format!("chmod +x {}", path.display()),
                Missing::Permission { path, is_folder: true, .. } => format!("chmod o+x {}", path.display()),
                Missing::Permission { path, .. } => format!("chmod o+rx {}", path.display()),
                Missing::Interpreter { script, name } if name.ends_with('\r') => {
                    format!("its lines end with CR LF: sed -i 's/\\r$//' {}", script.display())
                }
                _ => String::new(),
            };
            found.error(span.clone(), message, "a program that exists and may be run", remedy);
        }
    }
    // A folder that another process creates first cannot be checked here.
    if let Some(dir) = process.dir.as_ref().filter(|_| process.after.is_empty() && process.hygiene.sandbox.is_none())
        && let Err(why) = around.is_folder(std::path::Path::new(dir))
    {
        let message = format!("process {:?} cannot work in `dir`: {why}", process.name);
        found.error(read.dir.clone(), message, "a folder that exists", format!("mkdir -p {dir}"));
    }
    files(read, around, found);
    if let Some(user) = &process.user
        && !around.has_user(user)
    {
        let message = format!("process {:?} should run as an unknown user {user:?}", process.name);
        found.error(read.user.clone(), message, "a user of this machine", "see `getent passwd`");
    }
}
