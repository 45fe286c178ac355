//! The supervisor's use of the guard: watched processes, and class and CPUs of threads by name.

use super::health::unchanged_for;
use super::processes::{Processes, Supervised};
use super::reporter::{Reporter, short};
use super::site::{Site, is_watched};
use crate::guard::{Beats, Guard, GuardEvent, MaxSilence, WatchId, WatchSpec};
use crate::keeper::protocol::ChildId;
use crate::notify;
use crate::page::Page;
use crate::threads::{ThreadRule, ThreadRules};
use base::{DurNs, MonoNs};
use host::guard::STARVED_AFTER;
use host::health::Observation;
use host::plant;
use host::supervise::{Id, State};
use rustix::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::process::Process;

/// Interval for checking the threads of processes with thread rules.
const THREADS_EVERY: DurNs = DurNs::from_ms(500);

/// Maximum time until the guard makes a round that was requested. Without a real-time class it waits for its CPU.
const GUARD_WITHIN: DurNs = DurNs::from_secs(4);

/// The guard, if it is running, and the time of the next thread check.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    guard: Option<Guard>,
    /// Number of the guard's rounds, and the time at which it last changed.
    rounds: Option<(u64, MonoNs)>,
    lost: LostEvents,
    next_threads: MonoNs,
}

/// Events of the guard that were lost.
#[derive(Debug, Default)]
struct LostEvents {
    /// Count of the present guard at the last check.
    counted: u64,
    /// Events of guards that have ended, since the last check.
    of_ended: u64,
}

impl LostEvents {
    /// Takes the final count of a guard that ends.
    fn end(&mut self, count: u64) {
        self.of_ended += count.saturating_sub(std::mem::take(&mut self.counted));
    }

    /// The fault, if events were lost since the last check. `count`: that of the present guard.
    fn fault(&mut self, count: u64) -> Option<String> {
        let before = std::mem::replace(&mut self.counted, count);
        let lost = std::mem::take(&mut self.of_ended) + count.saturating_sub(before);
        let events = base::text::Counted(usize::try_from(lost).unwrap_or(usize::MAX), "event");
        (lost > 0).then(|| format!("{events} of the guard lost: runaways and their steps may be missing in the log"))
    }
}

/// The guard's data of a process.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Signs of life that it sent, readable by the guard.
    signs: Arc<Signs>,
    /// The guard's watch of it.
    watch: Option<WatchId>,
    /// The heartbeat interval that it has set for this life (`WATCHDOG_USEC=`).
    interval: Option<DurNs>,
    /// Its maximum silence, shared with the guard.
    max_silence: Option<MaxSilence>,
    /// Rules for class and CPUs of its threads, by name.
    rules: ThreadRules,
    /// The process to which the rules apply, if there are any.
    ruled: Option<Process>,
}

/// Signs of life of a process, counted where the guard can read them.
#[derive(Debug, Default)]
struct Signs {
    /// Number of messages to its notify socket. Each read also counts as one while silence is allowed.
    counted: AtomicU64,
    /// Whether silence counts as a fault.
    expected: AtomicBool,
}

impl Watcher {
    /// Starts the guard. The shield must not be changed while the guard runs, because its CPU reservation would block the
    /// change.
    pub(crate) fn start(&mut self, site: &Site, processes: &mut Processes, tell: &mut Reporter) {
        if !site.plant.processes.iter().any(is_watched) {
            return;
        }
        match Guard::start(&site.isolated) {
            Ok((guard, lacks)) => {
                self.guard = Some(guard);
                lacks.iter().for_each(|lack| tell.shortfall("guard", lack.to_string()));
            }
            Err(error) => tell.shortfall("guard", format!("no guard against runaways: {error}")),
        }
        for id in processes.ids() {
            if let (Some(child), Some(_)) = (processes[id].child, &self.guard) {
                self.watch(id, child, site, processes, tell);
            }
        }
    }

    /// Stops the guard. Processes continue unwatched.
    pub(crate) fn stop(&mut self, processes: &mut Processes) {
        if let Some(guard) = self.guard.take() {
            self.lost.end(guard.events_dropped());
        }
        processes.iter_mut().for_each(|(_, one)| one.watch.watch = None);
    }

    /// Watches a process, starting before its first instruction. Returns once the guard has accepted the watch, or after
    /// reporting that it cannot.
    pub(crate) fn watch(
        &mut self,
        id: Id,
        child: ChildId,
        site: &Site,
        processes: &mut Processes,
        tell: &mut Reporter,
    ) {
        let Some(process) = site.process(processes.name(id)).filter(|process| is_watched(process)) else { return };
        let Some(guard) = &mut self.guard else {
            // The first watched process was added by a reload, so the guard is not running yet.
            return self.start(site, processes, tell);
        };
        let running = processes.state(id) == State::Running;
        let one = &mut processes[id];
        // The start counts as the first sign: the guard measures silence from a sign on.
        one.watch.signs = Arc::new(Signs { counted: AtomicU64::new(1), expected: AtomicBool::new(running) });
        let within = process.heartbeat.map(|heartbeat| one.watch.within(heartbeat.within));
        one.watch.max_silence = within.map(MaxSilence::new);
        let spec = WatchSpec {
            child,
            ancestor: one.link.pid.unwrap_or(child.pid),
            budget: process.budget,
            ladder: process.ladder.clone(),
            heartbeat: one.watch.max_silence.clone().map(|within| (one.beats(), within)),
            freezer: None,
            starved_after: STARVED_AFTER,
        };
        match guard.watch(spec) {
            Ok(watch) => one.watch.watch = Some(watch),
            // A process that is already gone needs no watch; its end will be reported.
            Err(error) if error.errno == rustix::io::Errno::SRCH => {}
            Err(error) => tell.shortfall("guard", format!("process {:?} is not watched: {error}", process.name)),
        }
    }

    /// Ends the watch of a process.
    pub(crate) fn unwatch(&mut self, one: &mut Supervised) {
        if let (Some(guard), Some(watch)) = (&mut self.guard, one.watch.watch.take()) {
            guard.unwatch(watch);
        }
    }

    /// The guard's next event.
    pub(crate) fn next_event(&mut self) -> Option<GuardEvent> {
        self.guard.as_mut()?.next_event()
    }

    /// A fault of the guard itself: it was stopped, lost its class, or lost events. A guard with a real-time class may have another one while
    /// a shield moves it.
    pub(crate) fn fault(&mut self, now: MonoNs) -> Option<String> {
        let lost = self.lost.fault(self.guard.as_ref().map_or(0, Guard::events_dropped));
        let Some(guard) = &self.guard else {
            self.rounds = None;
            return lost;
        };
        if lost.is_some() {
            return lost;
        }
        let silence = unchanged_for(&mut self.rounds, guard.rounds(), now);
        if silence > GUARD_WITHIN {
            return Some(format!("the guard (thread {}) has made no round for {}", guard.tid(), short(silence)));
        }
        let found = sys::sched::scheduling(guard.tid()).ok()?.policy;
        (guard.class().is_real_time() && !found.is_real_time())
            .then(|| format!("the guard (thread {}) has class {found}, expected {}", guard.tid(), guard.class()))
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.guard.as_ref().map(Guard::as_fd)
    }

    /// Loads the thread rules of a process that has just been started.
    pub(crate) fn new_rules(&mut self, one: &mut Supervised, process: &plant::Process, site: &Site) {
        let rules = process.threads.iter().map(|rule| ThreadRule {
            pattern: rule.pattern.clone(),
            policy: rule.class,
            cpus: rule.cpus.map(|cpus| site.resolve(cpus)),
        });
        one.watch.rules = ThreadRules::new(rules.collect());
        let child = one.child.filter(|_| !one.watch.rules.is_empty());
        // A process that has already ended has no threads.
        one.watch.ruled = child.and_then(|child| Process::started_at(child.pid, child.start_ticks).ok());
        self.next_threads = MonoNs(0);
    }

    /// Time of the next thread check.
    pub(crate) fn next_threads(&self, processes: &Processes) -> Option<MonoNs> {
        let ruled = processes.iter().any(|(_, one)| one.child.is_some() && one.watch.ruled.is_some());
        ruled.then_some(self.next_threads)
    }

    /// Applies the plant file's thread rules: sets class and CPUs of threads by name.
    pub(crate) fn rule_threads(&mut self, now: MonoNs, processes: &mut Processes, tell: &mut Reporter) {
        if now < self.next_threads {
            return;
        }
        self.next_threads = now + THREADS_EVERY;
        for (unit, one) in processes.iter_mut() {
            let Some(process) = one.watch.ruled.as_ref().filter(|_| one.child.is_some()) else { continue };
            for applied in one.watch.rules.apply(process) {
                let text = format!("thread {} ({}) has class and CPUs by its rule", applied.tid, applied.name);
                tell.event(now, &unit.spec.name, &text);
                for lack in applied.shortfalls.iter().map(ToString::to_string) {
                    tell.shortfall(&unit.spec.name, lack.clone());
                    if !one.shortfalls.contains(&lack) {
                        one.shortfalls.push(lack);
                    }
                }
            }
        }
    }
}

impl Watched {
    /// Whether this is the guard's id for it.
    pub(crate) fn is(&self, watch: WatchId) -> bool {
        self.watch == Some(watch)
    }

    /// A new life begins, with the interval of the plant file.
    pub(crate) fn begin_life(&mut self) {
        self.interval = None;
    }

    /// Sets the heartbeat interval of this life. Returns a message, unless it is the same as before.
    pub(crate) fn set_interval(&mut self, interval: DurNs) -> Option<String> {
        if self.interval.replace(interval) == Some(interval) {
            return None;
        }
        let Some(within) = &self.max_silence else {
            return Some("WATCHDOG_USEC ignored: the plant file declares no `heartbeat`".to_owned());
        };
        within.set(notify::silence_of(interval));
        Some(match interval {
            DurNs::ZERO => "its heartbeat is off now (WATCHDOG_USEC=0)".to_owned(),
            interval => format!("its heartbeat is due within {interval} now (WATCHDOG_USEC)"),
        })
    }

    /// The maximum silence: the declared one, or that of this life's interval.
    pub(crate) fn within(&self, declared: DurNs) -> DurNs {
        self.interval.map_or(declared, notify::silence_of)
    }

    /// The observation of a heartbeat within `declared`, if the process has switched it off or set a longer interval.
    pub(crate) fn excess(&self, declared: DurNs) -> Option<Observation> {
        match self.interval? {
            DurNs::ZERO => Some(Observation::Broken("it switched its heartbeat off (WATCHDOG_USEC=0)".to_owned())),
            interval if interval > declared => {
                Some(Observation::Within(format!("it set its heartbeat interval to {interval} (WATCHDOG_USEC)")))
            }
            _ => None,
        }
    }

    /// Whether there are rules for its threads.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Patterns of thread rules that no thread of this life has matched.
    pub(crate) fn unmatched(&self) -> Vec<&str> {
        self.rules.unmatched()
    }

    /// Counts a sign of life.
    pub(crate) fn sign(&self) {
        self.signs.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets whether silence counts as a fault from now on.
    pub(crate) fn expect_signs(&self, expected: bool) {
        self.signs.expected.store(expected, Ordering::Relaxed);
    }
}

impl Supervised {
    /// Number of signs of life so far, from loop page and notify socket together.
    pub(crate) fn signs(&self) -> u64 {
        let of_page = self.page.as_ref().map_or(0, |page| page.watcher().beats());
        self.watch.signs.counted.load(Ordering::Relaxed).wrapping_add(of_page)
    }

    /// Counter of signs of life for the guard, from loop page and notify socket together.
    pub(crate) fn beats(&self) -> Beats {
        let signs = self.watch.signs.clone();
        let page = self.page.as_ref().map(Page::watcher);
        Box::new(move || {
            if !signs.expected.load(Ordering::Relaxed) {
                return signs.counted.fetch_add(1, Ordering::Relaxed);
            }
            let of_page = page.as_ref().map_or(0, |page| page.beats());
            signs.counted.load(Ordering::Relaxed).wrapping_add(of_page)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_the_guard_lost_are_a_fault_once_also_if_it_has_ended_meanwhile() {
        let mut lost = LostEvents::default();
        assert_eq!(lost.fault(0), None);
        let text = "3 events of the guard lost: runaways and their steps may be missing in the log";
        assert_eq!(lost.fault(3).as_deref(), Some(text));
        assert_eq!(lost.fault(3), None);
        // It lost one more, and the next guard begins to count at 0.
        lost.end(4);
        assert!(lost.fault(0).is_some_and(|fault| fault.starts_with("1 event of the guard lost")));
        assert_eq!(lost.fault(0), None);
        lost.end(0);
        assert_eq!(lost.fault(0), None);
    }
}
