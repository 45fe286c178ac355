//! Class, CPUs and locked memory of a process's threads, as set in the kernel.
//!
//! The supervisor cannot distinguish changes made by a thread itself from changes made by another program: a loop may give
//! its helper threads another class. A thread is therefore compared only after two consecutive passes found it as the plant
//! file specifies; from then on it must stay so. In addition, at least one thread must have the class of the process from
//! the first pass on.

use crate::RunDir;
use crate::shield;
use crate::supervisor::site::Site;
use base::{CpuSet, Policy};
use host::health::Observation;
use host::plant::{Cpus, Process};
use std::collections::BTreeMap;
use sys::root::RootDir;

/// Maximum number of threads read per process.
const THREADS_MAX: usize = 1024;

/// Findings of earlier passes.
#[derive(Debug, Default)]
pub(super) struct Threads {
    seen: BTreeMap<i32, ThreadHistory>,
    passes: u64,
}

/// Findings about a thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadHistory {
    /// Number of consecutive passes in which it had its class.
    had_class: u32,
    /// Number of consecutive passes in which it had all of its CPUs.
    had_cpus: u32,
    pass: u64,
}

/// Findings of one pass about a process.
#[derive(Debug)]
pub(super) struct ProcessFindings {
    pub(super) pid: i32,
    /// The state letter of `/proc/PID/stat`; `X` if there is no such process.
    pub(super) letter: char,
    pub(super) is_dead: bool,
    pub(super) class: Vec<String>,
    /// Whether any thread has the class of the process.
    pub(super) has_class: bool,
    pub(super) cpus: Vec<String>,
    /// Whether the process is meant for the shield, but no CPU is isolated.
    pub(super) unshielded: bool,
}

impl Threads {
    /// Reads the threads of a process.
    pub(super) fn read(&mut self, pid: i32, process: &Process, site: &Site) -> ProcessFindings {
        let root = RootDir::machine();
        let stat = root.read(&format!("/proc/{pid}/stat")).ok();
        let stat = stat.as_deref().and_then(proc::task_stat::Stat::parse);
        let letter = stat.as_ref().map_or('X', |stat| stat.state);
        let others = stat.as_ref().is_some_and(|stat| stat.threads > 1);
        // The first thread of a process may end before the others.
        let is_dead = matches!(letter, 'X' | 'x') || (letter == 'Z' && !others);
        let unshielded = process.cpus == Cpus::Shield && site.isolated.is_empty();
        let mut found =
            ProcessFindings { pid, letter, is_dead, class: Vec::new(), has_class: false, cpus: Vec::new(), unshielded };
        if letter == 'Z' && others {
            found.letter = 'S';
        }
        if is_dead {
            return found;
        }
        self.passes += 1;
        let tids: Vec<i32> = match others {
            false => vec![pid],
            true => {
                let names = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
                names.iter().filter_map(|name| name.parse().ok()).take(THREADS_MAX).collect()
            }
        };
        let mut some = false;
        for tid in tids {
            some |= self.thread(tid, process, site, &mut found);
        }
        if !some {
            // The process ended between the two reads.
            found.is_dead = true;
        } else if !found.has_class && found.class.is_empty() {
            found.class.push(format!("no thread has class {}", declared_class(process)));
        }
        let passes = self.passes;
        self.seen.retain(|_, seen| seen.pass == passes);
        found
    }

    /// Compares a thread with its declaration. Returns whether the thread exists.
    fn thread(&mut self, tid: i32, process: &Process, site: &Site, found: &mut ProcessFindings) -> bool {
        let (Ok(scheduling), Ok(cpus)) = (sys::sched::scheduling(tid), sys::sched::affinity(tid)) else { return false };
        let seen = self.seen.entry(tid).or_default();
        seen.pass = self.passes;
        let rule = match process.threads.is_empty() && process.own_threads.is_empty() {
            true => None,
            false => {
                let name = RootDir::machine().read(&format!("/proc/{}/task/{tid}/comm", found.pid)).unwrap_or_default();
                let mut rules = process.threads.iter().chain(&process.own_threads);
                rules.find(|rule| base::glob(&rule.pattern, name.trim_end_matches('\n')))
            }
        };
        // A frame gives the threads of its activities individual classes and CPUs.
        let has_own = process.has_own_priorities || !site.plant.frames.is_empty();
        let declared = declared_class(process);
        let any_nice = process.hygiene.nice.is_none();
        let (wanted, any_nice_here) = match rule.and_then(|rule| rule.class) {
            Some(class) => (class, true),
            None => (declared, any_nice),
        };
        found.has_class |= is_at_least(scheduling.policy, declared, any_nice);
        let is_named = || match rule.and_then(|rule| rule.class) {
            Some(_) => true,
            None => !process.has_own_priorities && site.plant.places.line(&format!("{}.class", process.name)).is_some(),
        };
        if is_at_least(scheduling.policy, wanted, any_nice_here) && !is_excessive(scheduling.policy, wanted, is_named) {
            seen.had_class = seen.had_class.saturating_add(1);
        } else if seen.had_class > 1 {
            found.class.push(format!("thread {tid} has class {}, expected {wanted}", scheduling.policy));
        } else {
            seen.had_class = 0;
        }
        let setting = rule.and_then(|rule| rule.cpus).unwrap_or(process.cpus);
        let allowed = site.resolve(setting);
        let is_strict = !has_own;
        let again = || sys::sched::affinity(tid).unwrap_or(cpus);
        if cpus == allowed || (setting == Cpus::Housekeeping && is_housekeeping(&allowed, shielded_here, again)) {
            seen.had_cpus = seen.had_cpus.saturating_add(1);
        } else if seen.had_cpus > 1 || (is_strict && rule.is_none() && !cpus.is_subset(&allowed)) {
            found.cpus.push(format!("thread {tid} may run on CPUs {cpus}, expected {allowed}"));
        } else {
            seen.had_cpus = 0;
        }
        true
    }
}

/// Whether a thread has the housekeeping CPUs, without those of the machine's shield. Its CPUs are read after the shield, which
/// ends last when it is released.
fn is_housekeeping(allowed: &CpuSet, shielded: impl FnOnce() -> CpuSet, cpus: impl FnOnce() -> CpuSet) -> bool {
    let left = allowed.minus(&shielded());
    [*allowed, left].contains(&cpus())
}

/// The CPUs of the machine's shield, which takes them from all plants, also from one that was up before; also while the
/// shield is being applied or released. Read only for threads whose CPUs differ from the declaration.
fn shielded_here() -> CpuSet {
    let journal = shield::here(&RootDir::machine(), &RunDir::from_env()).ok().flatten();
    journal.map_or(CpuSet::EMPTY, |journal| journal.want.cpus)
}

/// The class of a process with its nice value.
fn declared_class(process: &Process) -> Policy {
    match (process.class, process.hygiene.nice) {
        (Policy::Other { .. }, Some(nice)) => Policy::Other { nice },
        (Policy::Batch { .. }, Some(nice)) => Policy::Batch { nice },
        (class, _) => class,
    }
}

/// Whether a thread is at least as urgent as the plant file specifies, in a class of the same kind or a more urgent one.
/// With `any_nice`, a class with nice value 0 sets no nice value, so the thread keeps the inherited one.
fn is_at_least(found: Policy, wanted: Policy, any_nice: bool) -> bool {
    if found == wanted || found.level() > wanted.level() {
        return true;
    }
    match (found, wanted) {
        (Policy::Other { .. }, Policy::Other { nice: 0 } | Policy::Batch { nice: 0 })
        | (Policy::Batch { .. }, Policy::Batch { nice: 0 })
            if any_nice =>
        {
            true
        }
        (Policy::Other { nice }, Policy::Other { nice: most } | Policy::Batch { nice: most })
        | (Policy::Batch { nice }, Policy::Batch { nice: most }) => nice <= most,
        (Policy::Other { .. } | Policy::Batch { .. }, Policy::Idle) => true,
        _ => false,
    }
}

/// Whether a thread has a real-time class although the plant file names another one (`is_named`). By default a program may
/// have real-time threads.
fn is_excessive(found: Policy, wanted: Policy, is_named: impl FnOnce() -> bool) -> bool {
    found.is_real_time() && !wanted.is_real_time() && is_named()
}

/// Prefixes of a launch shortfall, by the setting that the keeper could not obtain.
const CLASS: [&str; 2] = ["no class ", "no nice value "];
const CPUS: [&str; 1] = ["no CPUs "];
const MEMORY: [&str; 1] = ["no memory lock"];

/// Whether a shortfall concerns a setting other than class, CPUs and locked memory.
pub(super) fn is_other(text: &str) -> bool {
    ![&CLASS[..], &CPUS, &MEMORY].concat().iter().any(|start| text.starts_with(start))
}

pub(super) fn lacking(shortfalls: &[String], starts: &[&str]) -> Option<String> {
    let about = |text: &&String| starts.iter().any(|start| text.starts_with(start));
    shortfalls.iter().find(about).map(|text| in_short(text).to_owned())
}

/// The first part of a shortfall, which names the setting. Reason and remedy are in the log.
pub(super) fn in_short(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(what, _)| what)
}

impl ProcessFindings {
    /// Whether all threads have their class.
    pub(super) fn class(&self, shortfalls: &[String]) -> Observation {
        verdict(&self.class, lacking(shortfalls, &CLASS))
    }

    /// Whether all threads have their CPUs.
    pub(super) fn cpus(&self, shortfalls: &[String]) -> Observation {
        if self.unshielded {
            return Observation::Absent("no CPU is isolated: it may run on all".to_owned());
        }
        verdict(&self.cpus, lacking(shortfalls, &CPUS))
    }
}

/// A setting that the kernel refused at the start is unavailable. A setting that was applied and differs now is a broken
/// promise.
fn verdict(wrong: &[String], lacking: Option<String>) -> Observation {
    match (wrong, lacking) {
        (_, Some(lacking)) => Observation::Absent(lacking),
        ([], None) => Observation::Kept,
        ([one], None) => Observation::Broken(one.clone()),
        ([one, more @ ..], None) => Observation::Broken(format!("{one}; and {} more threads", more.len())),
    }
}

/// Whether the memory of a process is locked.
pub(super) fn memory(root: &RootDir, pid: i32, shortfalls: &[String]) -> Observation {
    if let Some(lacking) = lacking(shortfalls, &MEMORY) {
        return Observation::Absent(lacking);
    }
    // A process that has just ended has no memory: its end is reported elsewhere.
    let Ok(status) = root.read(&format!("/proc/{pid}/status")) else { return Observation::Kept };
    let kilobytes = |name: &str| proc::status::field(&status, name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    match (kilobytes("VmLck"), kilobytes("RssAnon")) {
        (Some(0), _) => Observation::Broken("no memory is locked (VmLck 0 kB)".to_owned()),
        (Some(locked), Some(used)) if locked < used => {
            Observation::Broken(format!("{locked} kB of {used} kB of its own memory are locked (VmLck, RssAnon)"))
        }
        _ => Observation::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shield_that_is_released_between_two_reads_breaks_no_promise() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        // The thread got its CPUs back before the shield was gone.
        let thread = std::cell::Cell::new(cpus("0-2"));
        let released = || {
            thread.set(cpus("0-3"));
            CpuSet::EMPTY
        };
        assert!(is_housekeeping(&cpus("0-3"), released, || thread.get()));
        assert!(is_housekeeping(&cpus("0-3"), || cpus("3"), || cpus("0-2")));
        assert!(!is_housekeeping(&cpus("0-3"), || CpuSet::EMPTY, || cpus("0-2")));
        assert!(!is_housekeeping(&cpus("0-3"), || cpus("3"), || cpus("1")));
    }

    #[test]
    fn the_promise_of_a_class_is_kept_by_that_class_or_a_more_urgent_one() {
        let class = |text: &str| text.parse::<Policy>().unwrap();
        let kept = |found: &str, wanted: &str| is_at_least(class(found), class(wanted), false);
        for (found, wanted) in
            [("fifo:20", "fifo:20"), ("fifo:30", "fifo:20"), ("fifo:1", "other"), ("other:-5", "other")]
        {
            assert!(kept(found, wanted), "{found} for {wanted}");
        }
        for (found, wanted) in [
            ("other", "fifo:20"),
            ("fifo:19", "fifo:20"),
            ("rr:20", "fifo:20"),
            ("other:5", "other"),
            ("idle", "other"),
        ] {
            assert!(!kept(found, wanted), "{found} for {wanted}");
        }
        // Under `nice`, a process without a configured nice value inherits one.
        assert!(is_at_least(class("other:5"), class("other"), true));
        assert!(
            !is_at_least(class("other:5"), class("other:2"), true) && !is_at_least(class("idle"), class("other"), true)
        );
    }

    #[test]
    fn a_real_time_class_breaks_the_promise_of_another_class_that_the_plant_file_names() {
        let class = |text: &str| text.parse::<Policy>().unwrap();
        let excessive = |found: &str, wanted: &str, named| is_excessive(class(found), class(wanted), || named);
        for found in ["fifo:2", "rr:1", "deadline:1ms/2ms/2ms"] {
            assert!(excessive(found, "other", true) && excessive(found, "batch", true), "{found}");
            assert!(!excessive(found, "other", false), "a default is no promise");
        }
        assert!(!excessive("fifo:30", "fifo:20", true) && !excessive("other:-5", "other", true));
    }

    #[test]
    fn a_shortfall_makes_a_promise_unavailable_and_not_broken() {
        let lacks = ["no class fifo:20: not permitted; run as root".to_owned()];
        assert_eq!(lacking(&lacks, &CLASS).as_deref(), Some("no class fifo:20"));
        let wrong = ["thread 7 has class other, expected fifo:20".to_owned()];
        assert!(matches!(verdict(&wrong, lacking(&lacks, &CLASS)), Observation::Absent(_)));
        assert!(matches!(verdict(&wrong, lacking(&lacks, &CPUS)), Observation::Broken(_)));
        assert!(!is_other(&lacks[0]) && is_other("no resource limit: x; y"));
    }
}
