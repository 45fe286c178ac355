//! Class and CPUs of threads by their name: for programs that cannot be told otherwise.
//!
//! A thread names itself some time after it was born; hence the threads are looked at again and again.

use crate::launch::Shortfall;
use base::{CpuSet, Policy};
use std::collections::BTreeMap;
use sys::process::{Process, ThreadId};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// A rule: the first whose pattern matches a thread's name is the thread's.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRule {
    /// `*` stands for any text, `?` for one character.
    pub pattern: String,
    /// The class, where the rule says one.
    pub policy: Option<Policy>,
    /// The CPUs, where the rule says so.
    pub cpus: Option<CpuSet>,
}

/// Rules of one process, and what has been done so far.
#[derive(Clone, Debug, Default)]
pub struct ThreadRules {
    rules: Vec<ThreadRule>,
    /// Thread → the name under which it was last dealt with.
    known: BTreeMap<ThreadId, String>,
}

/// What was done to a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What the kernel refused.
    pub shortfalls: Vec<Shortfall>,
}

impl ThreadRules {
    /// Rules, none applied yet.
    #[must_use]
    pub fn new(rules: Vec<ThreadRule>) -> Self {
        Self { rules, known: BTreeMap::new() }
    }

    /// Whether there is nothing to do, ever.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Looks at the threads of a process and deals with those that are new or have a new name.
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
            let Some(rule) = self.rules.iter().find(|rule| base::glob(&rule.pattern, name)) else { continue };
            // One that has ended needs no class, and another process's thread may have its number.
            if let Some(tid) = thread.tid().filter(|tid| process.has_thread(*tid)) {
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

/// A class whose nice value is 0 asks for none: the thread keeps its own.
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
    fn a_thread_gets_its_rule_when_it_takes_its_name() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (told, tells) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("poller-7".into()).spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = wait.recv();
        });
        let tid = tells.recv().unwrap();
        let policy: Policy = "batch:3".parse().unwrap();
        let mut rules =
            ThreadRules::new(vec![ThreadRule { pattern: "poller-*".into(), policy: Some(policy), cpus: None }]);
        let own = &Process::open(std::process::id() as i32).unwrap();
        let done = rules.apply(own);
        assert_eq!(done, [Applied { tid, name: "poller-7".into(), shortfalls: vec![] }]);
        assert_eq!(sys::sched::scheduling(tid).unwrap().policy, policy);
        assert_eq!(rules.apply(own), []);
        // A class without a nice value leaves the thread its own.
        let other = ThreadRule { pattern: "*".into(), policy: Some("other".parse().unwrap()), cpus: None };
        assert_eq!(other.apply(tid), []);
        assert_eq!(sys::sched::scheduling(tid).unwrap().policy, "other:3".parse().unwrap());
        drop(go);
        thread.unwrap().join().unwrap();
    }
}
