//! Selects the threads to watch.

use crate::failure::Failure;
use base::CpuSet;
use recorder::thread_name;
use std::collections::{BTreeMap, BTreeSet};
use sys::root::RootDir;
use trace::stored::Thread;

/// Arguments that select threads.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Threads {
    /// Threads to watch
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    pub(crate) tid: Vec<i32>,
    /// Watch all threads of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pub(crate) pid: Vec<i32>,
    /// Watch threads with this name; * and ? are wildcards. With --pid: only in those processes
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
}

impl Threads {
    /// Whether no thread is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.tid.is_empty() && self.pid.is_empty() && self.name.is_none()
    }

    /// The selection as command-line words.
    pub(crate) fn words(&self) -> Vec<String> {
        let list = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let ids = [("--tid", &self.tid), ("--pid", &self.pid)];
        let ids =
            ids.into_iter().filter(|(_, ids)| !ids.is_empty()).flat_map(|(name, ids)| [name.to_owned(), list(ids)]);
        ids.chain(self.name.iter().flat_map(|name| ["--name".to_owned(), name.clone()])).collect()
    }
}

/// The selection, and the threads found so far.
pub(crate) struct Target {
    tids: Vec<i32>,
    pids: Vec<i32>,
    name: Option<String>,
    /// Whether threads of all processes are searched.
    everybody: bool,
    found: BTreeMap<i32, Thread>,
    /// The processes of the threads at the last search.
    processes: BTreeSet<i32>,
}

impl Target {
    /// The selection of the command line. `processes`: whether processes are selected by other means, too.
    pub(crate) fn of(threads: &Threads, processes: bool) -> Result<Self, Failure> {
        let named = |option, ids: &[i32], what| {
            let missing = ids.iter().find(|id| thread_name(**id).is_none());
            missing.map_or(Ok::<_, Failure>(()), |id| Err(format!("{option} {id}: no such {what}").into()))
        };
        named("--tid", &threads.tid, "thread; `ps -eLo pid,lwp,comm` lists the threads")?;
        named("--pid", &threads.pid, "process; `tahti ps` and `ps -e` list the processes")?;
        Ok(Self {
            tids: threads.tid.clone(),
            pids: threads.pid.clone(),
            name: threads.name.clone(),
            everybody: threads.tid.is_empty() && threads.pid.is_empty() && !processes,
            found: BTreeMap::new(),
            processes: BTreeSet::new(),
        })
    }

    /// Replaces the processes whose threads are watched.
    pub(crate) fn set_processes(&mut self, pids: Vec<i32>) {
        self.pids = pids;
    }

    /// Adds a process whose threads are watched.
    pub(crate) fn add_process(&mut self, pid: i32) {
        self.pids.push(pid);
    }

    /// The CPUs on which the threads that exist now may run. `None` if there are no such threads yet.
    pub(crate) fn cpus(&mut self) -> Result<Option<CpuSet>, Failure> {
        let mut all = None;
        for thread in self.all() {
            let cpus = sys::sched::affinity(thread.tid).ok();
            all = Some(all.unwrap_or(CpuSet::EMPTY).or(&cpus.unwrap_or(CpuSet::EMPTY)));
        }
        Ok(all.filter(|cpus: &CpuSet| !cpus.is_empty()))
    }

    /// Threads that are new since the last search.
    pub(crate) fn search(&mut self) -> Vec<Thread> {
        let all = self.all();
        self.processes = all.iter().map(|thread| thread.pid).collect();
        let fresh = all.iter().filter(|thread| !self.found.contains_key(&thread.tid)).cloned().collect();
        // Store the names of known threads too: a name changes when the program is executed.
        self.found.extend(all.into_iter().map(|thread| (thread.tid, thread)));
        fresh
    }

    /// The processes of the threads at the last search.
    pub(crate) fn processes(&self) -> &BTreeSet<i32> {
        &self.processes
    }

    /// All selected threads that are alive.
    pub(crate) fn all(&self) -> Vec<Thread> {
        self.of_processes().into_iter().filter(|thread| self.is_selected(thread)).collect()
    }

    /// Whether a thread has one of the selected ids or names.
    pub(crate) fn is_selected(&self, thread: &Thread) -> bool {
        self.tids.contains(&thread.tid) || self.name.as_deref().is_none_or(|pattern| base::glob(pattern, &thread.name))
    }

    /// All threads of the selected processes, whatever their names.
    pub(crate) fn of_processes(&self) -> Vec<Thread> {
        let files = RootDir::machine();
        let process = |tid: &i32| {
            let status = files.read(&format!("/proc/{tid}/status")).ok()?;
            Some((*tid, proc::status::field(&status, "Tgid")?.parse().ok()?))
        };
        let mut threads: Vec<(i32, i32)> = self.tids.iter().filter_map(process).collect();
        match self.everybody {
            true => threads.extend(ids_of(&numbers("/proc"))),
            false => threads.extend(ids_of(&self.pids)),
        }
        let named = |(tid, pid)| {
            let every_class = self.name.is_some() || self.tids.contains(&tid);
            Some(Thread { tid, pid, name: thread_name(tid)?, every_class })
        };
        threads.into_iter().filter_map(named).collect()
    }

    /// The threads found, as text: each name once, with its thread ids, or with their number if there are more than 4. If all processes
    /// were searched, the number of processes found, too.
    pub(crate) fn shown(&self) -> String {
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        self.found.values().for_each(|one| names.entry(&one.name).or_default().push(one.tid.to_string()));
        let shown = names.iter().map(|(name, tids)| match tids.len() {
            0..=4 => format!("{name} ({})", tids.join(", ")),
            more => format!("{name} ({more} threads)"),
        });
        let processes = self.found.values().map(|thread| thread.pid).collect::<BTreeSet<i32>>().len();
        // A name may select threads of programs that are not meant.
        let of = match self.everybody && processes > 1 {
            true => format!(" of {processes} processes (--pid selects one)"),
            false => String::new(),
        };
        shown.collect::<Vec<_>>().join(", ") + &of
    }

    /// Why no thread was found, as text.
    pub(crate) fn wanted(&self) -> String {
        match (&self.name, self.pids.is_empty()) {
            (Some(name), true) => format!("no thread is named {name:?}"),
            (Some(name), false) => format!("no thread of process {:?} is named {name:?}", self.pids),
            _ => "they had ended".into(),
        }
    }
}

/// The ids in a folder of `/proc`.
fn numbers(path: &str) -> Vec<i32> {
    RootDir::machine().list(path).unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect()
}

/// The threads of processes, each with its process.
pub(crate) fn ids_of(pids: &[i32]) -> impl Iterator<Item = (i32, i32)> {
    pids.iter().flat_map(|&pid| numbers(&format!("/proc/{pid}/task")).into_iter().map(move |tid| (tid, pid)))
}
