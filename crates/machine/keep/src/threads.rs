//! Scheduling class and CPUs of threads by thread name, for programs that cannot set them.
//!
//! A thread sets its name some time after its start, so the threads must be checked repeatedly.

use crate::launch::Shortfall;
use base::{CpuSet, Policy};
use std::collections::{BTreeMap, BTreeSet};
use sys::process::{Process, ThreadId};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// A rule for threads. The first rule whose pattern matches a thread's name applies.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRule {
    /// `*` matches any text, `?` one character.
    pub pattern: String,
    /// The class, if the rule sets one.
    pub policy: Option<Policy>,
    /// The CPUs, if the rule sets them.
    pub cpus: Option<CpuSet>,
}

/// Rules of one process, and the threads that they were applied to.
#[derive(Clone, Debug, Default)]
pub struct ThreadRules {
    rules: Vec<ThreadRule>,
    /// Which rules have been applied to a thread.
    applied: BTreeSet<usize>,
    /// Name of each thread at the last pass.
    known: BTreeMap<ThreadId, String>,
}

/// Result of applying a rule to a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Settings that the kernel refused.
    pub shortfalls: Vec<Shortfall>,
}

impl ThreadRules {
    /// A set of rules, none applied yet.
    #[must_use]
    pub fn new(rules: Vec<ThreadRule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Patterns of the rules that no thread has matched.
    #[must_use]
    pub fn unmatched(&self) -> Vec<&str> {
        let unmatched = |(nth, _): &(usize, &ThreadRule)| !self.applied.contains(nth);
        self.rules.iter().enumerate().filter(unmatched).map(|(_, rule)| rule.pattern.as_str()).collect()
    }

    /// Applies the rules to threads of a process that are new or have a new name.
    pub fn apply(&mut self, process: &Process) -> Vec<Applied> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let (root, pid) = (RootDir::machine(), process.pid());
        let listed = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
        let named: BTreeMap<ThreadId, String> = listed
            .iter()
            .filter_map(|tid| tid.parse().ok())
            .filter_map(|tid: i32| {
                let name = root.read(&format!("/proc/{pid}/task/{tid}/comm")).ok()?;
                Some((ThreadId::of(tid)?, name.trim_end_matches('\n').to_owned()))
            })
            .collect();
        let mut done = Vec::new();
        for (thread, name) in named.iter().filter(|(thread, name)| self.known.get(*thread) != Some(*name)) {
            let mut rules = self.rules.iter().enumerate();
            let Some((nth, rule)) = rules.find(|(_, rule)| base::glob(&rule.pattern, name)) else { continue };
            // A thread that has ended is skipped: a thread of another process may have its number.
            if let Some(tid) = thread.tid().filter(|tid| process.has_thread(*tid)) {
                self.applied.insert(nth);
                done.push(Applied { tid, name: name.clone(), shortfalls: rule.apply(tid) });
            }
        }
        self.known = named;
        done
    }
}

impl ThreadRule {
    fn apply(&self, tid: i32) -> Vec<Shortfall> {
        let mut shortfalls = Vec::new();
        let mut refused = |wanted: String, error: sys::Error, remedy: &str| {
            shortfalls.push(Shortfall { wanted, found: error.to_string(), remedy: remedy.to_owned() });
        };
        if let Some(cpus) = &self.cpus
            && let Err(error) = set_affinity(tid, cpus)
        {
            refused(format!("CPUs {cpus}"), error, "choose CPUs of its cpuset");
        }
        if let Some(policy) = self.policy.map(|policy| with_own_nice(tid, policy))
            && let Err(error) = set_scheduling(tid, Scheduling { policy, reset_on_fork: false })
        {
            refused(format!("class {policy}"), error, "run as root, or add CAP_SYS_NICE; see `tahti doctor`");
        }
        shortfalls
    }
}

/// A nice value of 0 in the rule means none: the thread keeps its own.
fn with_own_nice(tid: i32, policy: Policy) -> Policy {
    let own =
        || rustix::process::Pid::from_raw(tid).and_then(|tid| rustix::process::getpriority_process(Some(tid)).ok());
    let own = || own().map_or(0, |nice| nice as i8);
    match policy {
        Policy::Other { nice: 0 } => Policy::Other { nice: own() },
        Policy::Batch { nice: 0 } => Policy::Batch { nice: own() },
        policy => policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_scheduling_rule_when_it_sets_its_name() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (told, tells) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("poller-7".into()).spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = wait.recv();
        });
        let tid = tells.recv().unwrap();
        let policy: Policy = "batch:3".parse().unwrap();
        let rule = |pattern: &str| ThreadRule { pattern: pattern.into(), policy: Some(policy), cpus: None };
        let mut rules = ThreadRules::new(vec![rule("poller-*"), rule("nosuch-*")]);
        assert_eq!(rules.unmatched(), ["poller-*", "nosuch-*"]);
        let own = &Process::open(std::process::id() as i32).unwrap();
        let done = rules.apply(own);
        assert_eq!(done, [Applied { tid, name: "poller-7".into(), shortfalls: vec![] }]);
        assert_eq!(sys::sched::scheduling(tid).unwrap().policy, policy);
        assert_eq!(rules.apply(own), []);
        assert_eq!(rules.unmatched(), ["nosuch-*"]);
        // A class without a nice value leaves the thread's nice value unchanged.
        let other = ThreadRule { pattern: "*".into(), policy: Some("other".parse().unwrap()), cpus: None };
        assert_eq!(other.apply(tid), []);
        assert_eq!(sys::sched::scheduling(tid).unwrap().policy, "other:3".parse().unwrap());
        drop(go);
        thread.unwrap().join().unwrap();
    }
}
