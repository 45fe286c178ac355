//! Which threads are to be watched.

use super::{Args, read};
use base::CpuSet;
use std::collections::BTreeMap;
use sys::root::RootDir;

/// What is to be watched, and what was found of it.
pub(super) struct Target {
    tids: Vec<i32>,
    pids: Vec<i32>,
    name: Option<String>,
    /// Whether threads of any process are meant.
    everybody: bool,
    found: BTreeMap<i32, String>,
}

impl Target {
    /// What the command line asks for.
    pub(super) fn of(args: &Args) -> Result<Self, String> {
        if args.tid.is_empty() && args.pid.is_empty() && args.name.is_none() && args.command.is_empty() {
            return Err(
                "nothing to watch: name threads (--tid, --name PATTERN), processes (--pid) or a program (-- CMD)"
                    .into(),
            );
        }
        for (option, id) in args.tid.iter().map(|id| ("--tid", id)).chain(args.pid.iter().map(|id| ("--pid", id))) {
            if comm(*id).is_none() {
                return Err(format!("{option} {id}: there is no such thread"));
            }
        }
        Ok(Self {
            tids: args.tid.clone(),
            pids: args.pid.clone(),
            name: args.name.clone(),
            everybody: args.tid.is_empty() && args.pid.is_empty() && args.command.is_empty(),
            found: BTreeMap::new(),
        })
    }

    /// Watches the threads of one more process.
    pub(super) fn add_process(&mut self, pid: i32) {
        self.pids.push(pid);
    }

    /// Where they may run, as far as they exist; `None` where that is to be seen.
    pub(super) fn cpus(&mut self) -> Result<Option<CpuSet>, String> {
        let mut all = None;
        for (tid, _) in self.candidates() {
            let cpus = sys::sched::affinity(tid).ok();
            all = Some(all.unwrap_or(CpuSet::EMPTY).or(&cpus.unwrap_or(CpuSet::EMPTY)));
        }
        Ok(all.filter(|cpus: &CpuSet| !cpus.is_empty()))
    }

    /// Threads that were not known before, with their names.
    pub(super) fn search(&mut self) -> Vec<(i32, String)> {
        let all = self.candidates();
        let fresh = all.iter().filter(|(tid, _)| !self.found.contains_key(tid)).cloned().collect();
        // Names change: a program has its own only once it runs.
        self.found.extend(all);
        fresh
    }

    fn candidates(&self) -> Vec<(i32, String)> {
        let mut threads: Vec<i32> = self.tids.clone();
        let files = RootDir::machine();
        let numbers = |path: &str| -> Vec<i32> {
            files.list(path).unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect()
        };
        let processes = if self.everybody { numbers("/proc") } else { self.pids.clone() };
        processes.iter().for_each(|pid| threads.extend(numbers(&format!("/proc/{pid}/task"))));
        let named = threads.into_iter().filter_map(|tid| Some((tid, comm(tid)?)));
        let fits = |name: &str| self.name.as_deref().is_none_or(|pattern| base::glob(pattern, name));
        named.filter(|(tid, name)| self.tids.contains(tid) || fits(name)).collect()
    }

    /// The threads that were found, in words: each name once, with its ids.
    pub(super) fn shown(&self) -> String {
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        self.found.iter().for_each(|(tid, name)| names.entry(name).or_default().push(tid.to_string()));
        let shown = names.iter().map(|(name, tids)| match tids.len() {
            0..=4 => format!("{name} ({})", tids.join(", ")),
            more => format!("{name} ({more} threads)"),
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// What was asked for.
    pub(super) fn wanted(&self) -> String {
        match (&self.name, self.pids.is_empty()) {
            (Some(name), true) => format!("nobody is called {name:?}"),
            (Some(name), false) => format!("no thread of process {:?} is called {name:?}", self.pids),
            _ => "they had ended".into(),
        }
    }
}

fn comm(tid: i32) -> Option<String> {
    read(&format!("/proc/{tid}/comm")).map(|text| text.trim_end().to_owned())
}
