//! Knobs: kernel settings with a good value for a shielded CPU.
//!
//! One file per knob, with its paths, its good value per profile, and its documentation. Every knob can be reverted by
//! writing the old value back. Settings that cannot are not knobs, such as `ksm/run = 2` or boot parameters (see
//! [`boot`]). If a file is missing, the knob does not apply to this machine.
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

/// A setting of the kernel: a file, or several similar files.
pub trait Knob: Debug + Sync {
    /// Name in plans and documentation.
    fn name(&self) -> &'static str;

    /// Documentation for users.
    fn doc(&self) -> Doc;

    /// The part of a shield that the knob belongs to.
    fn part(&self) -> ShieldPart {
        ShieldPart::Settings
    }

    /// Its files: `{cpu}` is replaced by each shielded CPU, `*` matches any one name. Empty if the knob sets no file.
    fn files(&self) -> &'static [&'static str];

    /// Format of its files.
    fn form(&self) -> Form;

    /// Further files that [`good`](Knob::good) reads but never writes.
    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[]
    }

    /// The good value of the file at `path` with the present value `now`; `None` if the present value is good.
    fn good(&self, _context: &Context<'_>, _path: &str, _now: &Value) -> Option<Value> {
        None
    }

    /// Adds the knob's steps: its files with their good values, unless the knob has another kind of steps.
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

    /// Possible reason for a refusal by the kernel, if that is not a failure of the shield.
    fn may_refuse(&self) -> Option<&'static str> {
        None
    }
}

/// A knob's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    /// Effect of the setting.
    pub what: &'static str,
    /// Reason for the good value.
    pub why: &'static str,
    /// The good value. Values of one profile only are marked with its name.
    pub good: &'static str,
    /// The first kernel that has it.
    pub since: &'static str,
    /// Source of the information.
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
        // Last, because it makes every grace period longer, including those of moving tasks between cgroups.
        rcu_normal: RcuNormal;
    }
}

/// A file to read for a plan. Its path may contain `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The path.
    pub path: String,
    /// Format of the file.
    pub form: Form,
}

/// Every file that the knobs read for a shield on `cpus`.
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

/// Adds the steps of every knob of the requested parts.
pub(crate) fn steps(context: &Context<'_>, draft: &mut Draft) {
    ALL.iter().filter(|knob| context.want.parts.has(knob.part())).for_each(|knob| knob.steps(context, draft));
}

/// The snapshot's files that match a pattern.
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

/// Whether `path` matches `pattern`; `*` matches any part of one name.
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

/// `value` if the present number is smaller.
fn at_least(now: &Value, value: i64) -> Option<Value> {
    (now.text()?.parse::<i64>().ok()? < value).then(|| Value::Text(value.to_string()))
}

/// `value` if the present number is larger.
fn at_most(now: &Value, value: i64) -> Option<Value> {
    (now.text()?.parse::<i64>().ok()? > value).then(|| Value::Text(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_knob_exists_once_and_is_documented() {
        let names: BTreeSet<&str> = ALL.iter().map(|knob| knob.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for knob in ALL {
            let Doc { what, why, good, since, source } = knob.doc();
            assert!([what, why, good, since, source].iter().all(|text| !text.is_empty()), "{}", knob.name());
        }
    }

    #[test]
    fn a_star_matches_within_one_name() {
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
    fn per_cpu_files_are_those_of_shielded_cpus_only() {
        let patterns = patterns(&"1,3".parse().unwrap());
        let of_cpus: Vec<&str> =
            patterns.iter().map(|it| it.path.as_str()).filter(|it| it.contains("/power/")).collect();
        assert_eq!(of_cpus.len(), 4, "{of_cpus:?}");
        assert!(of_cpus.iter().all(|path| path.contains("/cpu1/") || path.contains("/cpu3/")));
    }
}
