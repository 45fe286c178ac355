//! The threads that a recorder watches, and the loops whose skipped periods it keeps windows of.

use super::Serve;
use crate::explain::plant::PlantProcesses;
use crate::explain::target::Target;
use crate::failure::Failure;
use base::{DurNs, MonoNs};
use keep::supervisor::control::{LoopStatus, Status as Plant};
use keep::supervisor::short;
use std::collections::{BTreeMap, BTreeSet};
use sys::clock::mono_now;
use trace::stored::Thread;

/// Maximum names of threads in a message.
const NAMES_MAX: usize = 8;

/// The watched threads.
pub(super) struct WatchedThreads {
    target: Target,
    choice: Choice,
    processes: PlantProcesses,
    /// Name of the plant's process of each thread.
    pub(super) names: BTreeMap<i32, String>,
    every: DurNs,
    /// Skipped periods of each loop of the plant.
    loops: BTreeMap<String, SkippedPeriods>,
    /// Windows to store for skipped periods: label and reason.
    pub(super) skips: Vec<(String, String)>,
}

impl WatchedThreads {
    pub(super) fn of(args: &Serve) -> Result<Self, Failure> {
        if args.threads.is_empty() && args.plant.is_none() {
            return Err("nothing to watch: select threads (--tid, --name PATTERN), processes (--pid) or a plant".into());
        }
        let target = Target::of(&args.threads, args.plant.is_some())?;
        let (plant, name) = (args.plant.clone(), args.threads.name.clone());
        let choice = Choice { plant, name, ordinary: args.how.ordinary };
        Ok(Self {
            target,
            choice,
            processes: PlantProcesses::default(),
            names: BTreeMap::new(),
            every: args.how.every,
            loops: BTreeMap::new(),
            skips: Vec::new(),
        })
    }

    /// The threads that are alive now and are to be watched, and why there are none.
    pub(super) fn threads(&mut self) -> (Vec<Thread>, Option<String>) {
        // If the supervisor does not answer, the processes are unchanged. The next request follows a second later.
        if let Some(status) = self.choice.plant.as_deref().and_then(|plant| crate::ps::status(plant).ok()) {
            self.processes = PlantProcesses::of(&status);
            self.target.set_processes(self.processes.pids());
            self.observe(&status, mono_now());
        }
        let all = self.target.of_processes();
        self.names = self.processes.of_threads(all.iter().map(|thread| (thread.tid, thread.pid)));
        let is_real_time = |tid| sys::sched::scheduling(tid).is_ok_and(|thread| thread.policy.is_real_time());
        let selected = all.iter().filter(|thread| self.target.is_selected(thread));
        let watched = self.choice.watched(selected, &self.processes.loops, is_real_time);
        let shortfall = watched.is_empty().then(|| self.choice.shortfall(&all));
        (watched, shortfall)
    }

    /// Finds the loops that have skipped periods since their last window.
    fn observe(&mut self, status: &Plant, now: MonoNs) {
        for process in &status.processes {
            let (Some(page), name) = (&process.loop_page, &process.name) else { continue };
            let Some(skipped) = self.loops.get_mut(name) else {
                self.loops.insert(name.clone(), SkippedPeriods::of(page, now));
                continue;
            };
            if let Some((more, since)) = skipped.observe(page, now, self.every) {
                let label = format!("miss-{name}-{}", sys::clock::wall_ns() / 1_000_000);
                self.skips.push((label, format!("{name} skipped {more} periods within the last {}", short(since))));
            }
        }
    }
}

/// Skipped periods of a loop.
struct SkippedPeriods {
    /// A value of its counter, and the last time at which it had that value.
    counted: (u64, MonoNs),
    /// Time of the last window.
    window: Option<MonoNs>,
}

impl SkippedPeriods {
    fn of(page: &LoopStatus, now: MonoNs) -> Self {
        Self { counted: (page.misses, now), window: None }
    }

    /// The skipped periods that are in no window yet, and the time in which they were skipped, if a window is due. The time between
    /// two windows is at least `every`.
    fn observe(&mut self, page: &LoopStatus, now: MonoNs, every: DurNs) -> Option<(u64, DurNs)> {
        let (before, since) = self.counted;
        // A restarted loop counts from 0.
        let more = page.misses.checked_sub(before).unwrap_or(page.misses);
        if more > 0 && self.window.is_some_and(|at| now - at < every) {
            return None;
        }
        self.counted = (page.misses, now);
        if more == 0 {
            return None;
        }
        self.window = Some(now);
        Some((more, now - since))
    }
}

/// Rule for the threads to watch.
struct Choice {
    plant: Option<String>,
    /// Pattern of the names.
    name: Option<String>,
    /// Whether time-sharing threads are watched that are not selected by id or name.
    ordinary: bool,
}

impl Choice {
    /// Of the selected threads: those in real-time classes, loops, and those selected by id or name.
    fn watched<'a>(
        &self,
        selected: impl Iterator<Item = &'a Thread>,
        loops: &BTreeSet<i32>,
        is_real_time: impl Fn(i32) -> bool,
    ) -> Vec<Thread> {
        let every_class = |thread: &Thread| thread.every_class || self.ordinary || loops.contains(&thread.tid);
        let all = selected.map(|thread| Thread { every_class: every_class(thread), ..thread.clone() });
        all.filter(|thread| thread.every_class || is_real_time(thread.tid)).collect()
    }

    /// Why no thread is watched, with the remedy. `all`: the threads of the selected processes.
    fn shortfall(&self, all: &[Thread]) -> String {
        let names: BTreeSet<&str> = all.iter().map(|thread| thread.name.as_str()).collect();
        let mut list: Vec<&str> = names.iter().take(NAMES_MAX).copied().collect();
        if names.len() > NAMES_MAX {
            list.push("…");
        }
        let list = list.join(", ");
        let why = match (&self.plant, &self.name) {
            (Some(_), Some(name)) => {
                format!("`watch = {name:?}` in [recorder] matches no thread of the plant; its threads are {list}")
            }
            (Some(_), None) => format!(
                "the plant has no loop and no real-time thread; `watch = \"NAME\"` in [recorder] watches threads of any class; \
                 its threads are {list}"
            ),
            (None, Some(name)) => format!("no thread is named {name:?}; `ps -eLo pid,lwp,comm` lists the names"),
            (None, None) if all.is_empty() => "the selected threads have ended".to_owned(),
            (None, None) => format!(
                "the selected processes have no real-time thread; `--ordinary` or `--name PATTERN` watches threads of any class; \
                 their threads are {list}"
            ),
        };
        format!("watches 0 threads: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32, name: &str) -> Thread {
        Thread { tid, pid: tid, name: name.to_owned(), every_class: false }
    }

    fn plant(name: Option<&str>) -> Choice {
        Choice { plant: Some("rt".to_owned()), name: name.map(str::to_owned), ordinary: false }
    }

    /// The chosen threads, of which thread 5 is in a real-time class.
    fn chosen(choice: &Choice, loops: &[i32], all: &[Thread]) -> Vec<(i32, bool)> {
        let watched = choice.watched(all.iter(), &loops.iter().copied().collect(), |tid| tid == 5);
        watched.into_iter().map(|thread| (thread.tid, thread.every_class)).collect()
    }

    #[test]
    fn a_loop_in_a_time_sharing_class_is_watched_next_to_the_real_time_threads() {
        let all = [thread(4, "llrf"), thread(5, "scan"), thread(6, "share")];
        assert_eq!(chosen(&plant(None), &[4], &all), [(4, true), (5, false)]);
        assert_eq!(chosen(&plant(None), &[], &all), [(5, false)]);
        assert_eq!(chosen(&Choice { ordinary: true, ..plant(None) }, &[], &all).len(), 3);
    }

    #[test]
    fn threads_selected_by_name_are_watched_in_any_class() {
        let named = Thread { every_class: true, ..thread(6, "share") };
        assert_eq!(chosen(&plant(Some("share")), &[], &[named]), [(6, true)]);
    }

    #[test]
    fn a_recorder_without_threads_reports_why_and_what_to_change() {
        let all = [thread(4, "ioc"), thread(6, "share")];
        assert_eq!(
            plant(Some("nosuch")).shortfall(&all),
            "watches 0 threads: `watch = \"nosuch\"` in [recorder] matches no thread of the plant; its threads are ioc, share"
        );
        let none = plant(None).shortfall(&all);
        assert!(none.contains("the plant has no loop and no real-time thread; `watch = \"NAME\"`"), "{none}");
        let alone = Choice { plant: None, ..plant(None) };
        assert!(alone.shortfall(&all).contains("`--ordinary` or `--name PATTERN` watches threads of any class"));
        assert!(alone.shortfall(&[]).contains("have ended"));
        let many: Vec<Thread> = (0..20).map(|tid| thread(tid, &format!("scan-{tid}"))).collect();
        assert!(plant(Some("x")).shortfall(&many).ends_with(", …"));
    }

    #[test]
    fn a_loop_that_skips_periods_continuously_gets_one_window_per_interval() {
        let second = |n: u64| MonoNs(n * 1_000_000_000);
        let page = |misses| LoopStatus {
            thread: 4,
            cycles: 0,
            first: MonoNs(0),
            period: DurNs::from_ms(1),
            wake: keep::supervisor::Figures::default(),
            misses,
        };
        let mut skipped = SkippedPeriods::of(&page(0), second(0));
        let every = DurNs::from_secs(10);
        let mut windows = Vec::new();
        for now in 1..=25 {
            // From the third second on, 100 periods are skipped in each second.
            let misses = if now < 3 { 0 } else { 100 * (now - 2) };
            if let Some((more, since)) = skipped.observe(&page(misses), second(now), every) {
                windows.push((now, more, since.0 / 1_000_000_000));
            }
        }
        assert_eq!(windows, [(3, 100, 1), (13, 1000, 10), (23, 1000, 10)]);
        assert_eq!(skipped.observe(&page(7), second(40), every), Some((7, DurNs::from_secs(17))), "a restarted loop");
    }
}
