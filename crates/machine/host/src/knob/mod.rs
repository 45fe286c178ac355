//! Knobs: files of the kernel with a value that is good for a shielded CPU.
//!
//! One file per knob. Each says its paths, its good value per profile, and its documentation; all of them
//! have an inverse (the old value, written back), or they would not be here: `ksm/run = 2` is not, nor is
//! anything that only a boot parameter can do (see [`boot`]). A file that is missing means that the knob
//! does not apply to this machine.
//!
//! To add one: `docs/how-to/add-a-knob.md`.

pub mod boot;

mod document;

pub(crate) use cache::GROUP as CACHE_GROUP;
pub use document::table;

use crate::plan::{Context, Draft, ShieldPart};
use crate::snapshot::{Form, Target, Value};
use base::CpuSet;
use std::fmt::Debug;

/// A file of the kernel, or several alike.
pub trait Knob: Debug + Sync {
    /// Its name in plans and documentation.
    fn name(&self) -> &'static str;

    /// What it is, for people.
    fn doc(&self) -> Doc;

    /// The part of a shield that it belongs to.
    fn part(&self) -> ShieldPart {
        ShieldPart::Settings
    }

    /// Its files: `{cpu}` stands for each shielded CPU, `*` for any one name. None where it is no file that is set.
    fn files(&self) -> &'static [&'static str];

    /// How its files are written.
    fn form(&self) -> Form;

    /// Files that [`good`](Knob::good) looks at besides, and never writes.
    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[]
    }

    /// The good value of the file at `path` that holds `now`; nothing where it is good as it is.
    fn good(&self, _context: &Context<'_>, _path: &str, _now: &Value) -> Option<Value> {
        None
    }

    /// Adds its steps: its files with their good values, unless it has steps of another kind.
    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        let mut patterns = Vec::new();
        self.files().iter().for_each(|path| expand(path, self.form(), &context.want.cpus, &mut patterns));
        for pattern in &patterns {
            for (path, now) in matching(context, &pattern.path) {
                let Some(to) = self.good(context, path, now) else { continue };
                let target = Target::File { path: path.to_owned(), form: self.form() };
                if let Some(step) = draft.step(context, target, to, path, self.doc().why) {
                    step.may_refuse = self.may_refuse().map(str::to_owned);
                }
            }
        }
    }

    /// Why the kernel may refuse, where that is no failure of the shield.
    fn may_refuse(&self) -> Option<&'static str> {
        None
    }
}

/// A knob's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    /// What it does.
    pub what: &'static str,
    /// Why it is set so.
    pub why: &'static str,
    /// Its good value; what differs for a profile is said with its name.
    pub good: &'static str,
    /// The first kernel that has it.
    pub since: &'static str,
    /// Where that is written.
    pub source: &'static str,
}

table! {
    /// Every knob, in the order in which they are set.
    ALL: dyn Knob = mod {
        workqueue: Workqueue;
        watchdog_cpumask: WatchdogCpumask;
        nmi_watchdog: NmiWatchdog;
        block_completion: BlockCompletion;
        packet_steering: Receive ReceiveLater Transmit;
        busy_poll: BusyPoll;
        stat_interval: StatInterval;
        numa_balancing: NumaBalancing;
        transparent_hugepage: TransparentHugepage;
        khugepaged: Khugepaged;
        compaction: Compaction;
        compaction_locked: CompactionLocked;
        swappiness: Swappiness;
        ksm: Ksm;
        machine_check: MachineCheck;
        timer_migration: TimerMigration;
        clocksource: Clocksource;
        aspm: Aspm;
        preemption: Preemption;
        kernel_threads: KernelThreads;
        cache: CacheWays;
        governor: Governor;
        scaling_min: ScalingMin;
        energy: EnergyPreference;
        energy_bias: EnergyBias;
        uncore: Uncore;
        cpuidle: IdleState;
        resume_latency: ResumeLatency;
        fair_server: FairServer;
        // Last, since it makes every grace period longer, those of our own cgroup moves included.
        rcu_normal: RcuNormal;
    }
}

/// A file to read for a plan; its path may hold `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The path.
    pub path: String,
    /// How it is written.
    pub form: Form,
}

/// Every file that the knobs look at, for a shield on `cpus`.
#[must_use]
pub fn patterns(cpus: &CpuSet) -> Vec<Pattern> {
    let mut patterns = vec![Pattern { path: "/proc/irq/default_smp_affinity".into(), form: Form::Mask }];
    for knob in ALL {
        for path in knob.files() {
            expand(path, knob.form(), cpus, &mut patterns);
        }
        for (path, form) in knob.also_reads() {
            expand(path, *form, cpus, &mut patterns);
        }
    }
    patterns
}

fn expand(path: &str, form: Form, cpus: &CpuSet, patterns: &mut Vec<Pattern>) {
    let mut add = |path: String| {
        if !patterns.iter().any(|pattern| pattern.path == path) {
            patterns.push(Pattern { path, form });
        }
    };
    if path.contains("{cpu}") {
        cpus.iter().for_each(|cpu| add(path.replace("{cpu}", &cpu.to_string())));
    } else {
        add(path.to_owned());
    }
}

/// Adds the steps of every knob of the wanted parts.
pub(crate) fn steps(context: &Context<'_>, draft: &mut Draft) {
    ALL.iter().filter(|knob| context.want.parts.has(knob.part())).for_each(|knob| knob.steps(context, draft));
}

/// The snapshot's files that a pattern means.
fn matching<'a>(context: &'a Context<'_>, pattern: &str) -> Vec<(&'a str, &'a Value)> {
    let files = &context.snapshot.files;
    let prefix = &pattern[..pattern.find('*').unwrap_or(pattern.len())];
    files
        .range(prefix.to_owned()..)
        .take_while(|(path, _)| path.starts_with(prefix))
        .filter(|(path, _)| is_match(pattern, path))
        .map(|(path, value)| (path.as_str(), value))
        .collect()
}

/// Whether `path` is what `pattern` means; a `*` stands for any part of one name.
#[must_use]
pub fn is_match(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut paths) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), paths.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) => {
                let fits = match pattern.split_once('*') {
                    None => pattern == name,
                    Some((head, tail)) => {
                        name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
                    }
                };
                if !fits {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// The mask without the shielded CPUs, or the housekeeping CPUs if none is left.
fn without_shield(context: &Context<'_>, now: &Value) -> Option<Value> {
    let now = now.cpus()?;
    if !now.intersects(&context.want.cpus) {
        return None;
    }
    let left = now.minus(&context.want.cpus);
    Some(Value::Cpus(if left.is_empty() { context.housekeeping } else { left }))
}

/// `value` as text.
fn text(value: &str) -> Option<Value> {
    Some(Value::Text(value.to_owned()))
}

/// `value` if the file holds a smaller number.
fn at_least(now: &Value, value: i64) -> Option<Value> {
    (now.text()?.parse::<i64>().ok()? < value).then(|| Value::Text(value.to_string()))
}

/// `value` if the file holds a larger number.
fn at_most(now: &Value, value: i64) -> Option<Value> {
    (now.text()?.parse::<i64>().ok()? > value).then(|| Value::Text(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_knob_is_there_once_and_documented() {
        let names: BTreeSet<&str> = ALL.iter().map(|knob| knob.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for knob in ALL {
            let Doc { what, why, good, since, source } = knob.doc();
            assert!([what, why, good, since, source].iter().all(|text| !text.is_empty()), "{}", knob.name());
        }
    }

    #[test]
    fn a_star_stands_for_part_of_one_name() {
        for (pattern, path, expected) in [
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/d/c", false),
            ("/a/rx-*/c", "/a/rx-0/c", true),
            ("/a/rx-*/c", "/a/tx-0/c", false),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
        ] {
            assert_eq!(is_match(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn per_cpu_files_are_those_of_the_shield_alone() {
        let patterns = patterns(&"1,3".parse().unwrap());
        let of_cpus: Vec<&str> =
            patterns.iter().map(|it| it.path.as_str()).filter(|it| it.contains("/power/")).collect();
        assert_eq!(of_cpus.len(), 4, "{of_cpus:?}");
        assert!(of_cpus.iter().all(|path| path.contains("/cpu1/") || path.contains("/cpu3/")));
    }
}
