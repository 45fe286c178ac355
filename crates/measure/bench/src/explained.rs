//! The host's share of each delay, from the kernel's events of the measured CPU, recorded during a measurement.
//!
//! The recorder runs the whole time, so that both sides of a comparison include its cost.

use crate::Failed;
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy};
use recorder::{Recorder, RecorderSettings};
use report::{Culprit, Latency, Row, Spike};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::root::RootDir;
use sys::sched::Scheduling;
use trace::{DelayPart, Event, EventKind, Explainer, Late, Merge, Occasion, Summary, Vector};

/// Delays above this count in the table of culprits.
const BLAMED: u64 = 50_000;
/// Number of culprits in the table.
const NAMED_MAX: usize = 8;
/// Number of delays listed one by one, the longest.
const SPIKES_MAX: usize = 40;
/// Number of culprits listed for each.
const PARTS_MAX: usize = 6;
/// Time between two reads of the recording.
const LOOK: Duration = Duration::from_millis(20);
/// The kernel's buffer of the measured CPU.
const BUFFER_KB: u32 = 8192;

/// Explains the wake-ups of one thread after the other on one CPU.
pub(crate) struct Explained {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    /// Watches the threads of a process by this name, or those in real-time classes.
    Watch(i32, Option<&'static str>),
    /// Returns the shares of a thread's time.
    Within(i32, [MonoNs; 2], Sender<Result<Vec<DelayPart>, Failed>>),
    /// Returns the results since, and stops watching.
    Take(Sender<Result<Ours, Failed>>),
}

/// Results of a set of wake-ups.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    /// From the timer's due time, or from the event, until the thread had the CPU.
    pub(crate) whole: Histogram,
    /// The same without the host's share by evidence.
    pub(crate) ours: Histogram,
    /// The same also without time that may have been the host's.
    least: Histogram,
    /// Late wake-ups by culprit.
    blamed: Summary,
    /// The steps of each wake-up. In order; not merged.
    pub(crate) steps: Vec<Steps>,
    /// When the recording began.
    begun: MonoNs,
    lost: u64,
}

/// The steps of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steps {
    /// When its timer was due; for an event, as `woken`.
    pub(crate) due: MonoNs,
    /// When the handler of the watched interrupt was last entered before: the timer's, or a device's.
    pub(crate) entered: Option<MonoNs>,
    /// When the thread was woken.
    pub(crate) woken: MonoNs,
    /// When it had the CPU.
    pub(crate) ran: MonoNs,
}

/// Follows the interrupts that wake the watched threads.
#[derive(Debug, Default)]
struct Wakers {
    /// Number of the watched device's interrupt.
    irq: Option<i32>,
    /// When the handler was last entered.
    entered: Option<MonoNs>,
    /// The last wake-up of each watched thread, with `entered` at that time.
    woken: BTreeMap<i32, (MonoNs, Option<MonoNs>)>,
}

impl Wakers {
    fn take(&mut self, event: &Event, occasion: Occasion, is_watched: impl Fn(i32) -> bool) {
        match event.what {
            EventKind::IrqEntry { irq, .. } if Some(irq) == self.irq => self.entered = Some(event.at),
            EventKind::VectorEntry(Vector::LocalTimer) if occasion == Occasion::Timer => self.entered = Some(event.at),
            EventKind::Waking { task, .. } if is_watched(task.tid) => {
                self.woken.insert(task.tid, (event.at, self.entered));
            }
            _ => {}
        }
    }

    fn steps(&self, late: &Late) -> Option<Steps> {
        let (woken, entered) = *self.woken.get(&late.tid)?;
        Some(Steps { due: late.due, entered, woken, ran: late.ran })
    }
}

impl Default for Ours {
    fn default() -> Self {
        let [whole, ours, least] = [Histogram::new(), Histogram::new(), Histogram::new()];
        Self { whole, ours, least, blamed: Summary::new(SPIKES_MAX), steps: Vec::new(), begun: MonoNs(0), lost: 0 }
    }
}

impl Ours {
    fn add(&mut self, late: &Late) {
        let sum = |which: fn(&DelayPart) -> bool| {
            late.parts.iter().filter(|part| which(part)).map(|part| part.ns).sum::<u64>()
        };
        let host = sum(|part| part.culprit.is_host());
        let either = host + sum(|part| part.culprit.may_be_host());
        let all = late.delay_ns();
        let span = |ns: u64| DurNs(i64::try_from(ns).unwrap_or(i64::MAX));
        self.whole.record(span(all));
        self.ours.record(span(all.saturating_sub(host)));
        self.least.record(span(all.saturating_sub(either)));
        if all > BLAMED {
            self.blamed.add(late.clone());
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.whole.merge(&other.whole);
        self.ours.merge(&other.ours);
        self.least.merge(&other.least);
        self.lost += other.lost;
        self.begun = other.begun;
        self.blamed.worst.extend(other.blamed.worst.iter().cloned());
        self.blamed.worst.sort_by_key(|late| std::cmp::Reverse(late.delay_ns()));
        self.blamed.worst.truncate(SPIKES_MAX);
        self.blamed.late += other.blamed.late;
        self.blamed.late_ns += other.blamed.late_ns;
        for (culprit, tally) in &other.blamed.culprits {
            let mine = self.blamed.culprits.entry(culprit.clone()).or_default();
            mine.total_ns += tally.total_ns;
            mine.delays += tally.delays;
            mine.longest_ns = mine.longest_ns.max(tally.longest_ns);
        }
    }

    /// The rows of a condition, the measured one first; `pieces` are the 99th percentiles of *ours* of each piece.
    pub(crate) fn rows(&self, name: &str, pieces: Vec<f64>) -> [Row; 2] {
        let p99 = |hist| Latency::from(hist).p99().map_or(String::from("-"), |p99| format!("{:.1}", p99.value));
        let host = self.blamed.share(trace::Culprit::is_host);
        let either = self.blamed.share(trace::Culprit::may_be_host);
        let unexplained = self.blamed.share(|culprit| *culprit == trace::Culprit::Unexplained);
        let lost = if self.lost > 0 { format!("; {} events lost", self.lost) } else { String::new() };
        let bound = format!("p99 at least {} if all undecided time was the host's", p99(&self.least));
        let shares = format!(
            "{} later than 50 us: host {host:.1} %, undecided {either:.1} %, unexplained {unexplained:.1} %{lost}",
            self.blamed.late
        );
        let mut ours = Row::latency(format!("{name}, ours"), Latency::from(&self.ours), pieces).note(bound);
        let ranked = self.blamed.ranked();
        ours.culprits = ranked.into_iter().take(NAMED_MAX).map(|(culprit, tally)| self.named(culprit, tally)).collect();
        ours.spikes = self.spikes();
        [Row::reference(format!("{name}, as explained"), Latency::from(&self.whole)).note(shares), ours]
    }

    /// The longest delays, in chronological order.
    fn spikes(&self) -> Vec<Spike> {
        let mut spikes: Vec<Spike> = self.blamed.worst.iter().map(|late| spike(late, self.begun)).collect();
        spikes.sort_by_key(|spike| spike.at_ns);
        spikes
    }

    fn named(&self, culprit: &trace::Culprit, tally: trace::Tally) -> Culprit {
        Culprit {
            name: culprit.to_string(),
            share_percent: 100.0 * tally.total_ns as f64 / self.blamed.late_ns.max(1) as f64,
            count: tally.delays,
        }
    }
}

/// One delay with the shares of its culprits.
fn spike(late: &Late, begun: MonoNs) -> Spike {
    let all = late.by_culprit();
    let named = all.iter().take(PARTS_MAX).map(|(culprit, ns)| (culprit.to_string(), *ns));
    let rest: u64 = all.iter().skip(PARTS_MAX).map(|(_, ns)| ns).sum();
    let rest = (rest > 0).then(|| ("others".to_owned(), rest));
    Spike { at_ns: late.due.0.saturating_sub(begun.0), late_ns: late.delay_ns(), parts: named.chain(rest).collect() }
}

impl Explained {
    /// Starts to record `cpu`, to explain threads that timers wake; the reading thread runs on other CPUs.
    ///
    /// # Errors
    /// No privilege, or no tracing in this kernel.
    pub(crate) fn start(cpu: CpuId) -> Result<Self, Failed> {
        Self::of(cpu, Occasion::Timer, None)
    }

    /// The same for threads with other wakers, which may run on any CPU: records all of them. `irq` is the interrupt of the
    /// device that wakes them, if one does.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn of(cpu: CpuId, occasion: Occasion, irq: Option<i32>) -> Result<Self, Failed> {
        let measured = CpuSet::single(cpu);
        let online = sys::kernel::online(&RootDir::machine())
            .ok_or(Failed::Needs("the list of CPUs that are online (/sys/devices/system/cpu/online)"))?;
        let cpus = if occasion == Occasion::Timer { measured } else { online };
        let wanted = RecorderSettings { cpus, online, buffer_kb: BUFFER_KB, threads: Vec::new(), syscalls: false };
        let recorder = Recorder::start(&wanted)?;
        let (orders, received) = channel();
        // Reading the names of the kernel's functions takes a while; the measurement waits for it.
        let reader = Work::new(recorder, occasion, irq);
        let work = move || {
            let aside = online.minus(&measured);
            if !aside.is_empty() {
                let _ = sys::sched::set_affinity(0, &aside);
            }
            // Events that are not read in time are lost.
            let policy = Policy::Other { nice: -20 };
            let _ = sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: true });
            reader.run(&received);
        };
        let thread =
            std::thread::Builder::new().name("explain".into()).spawn(work).map_err(Failed::process("explain"))?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Watches the threads of process `pid` from now on: those in real-time classes, or, where that is `policy`, those of time
    /// sharing that are called `name`.
    pub(crate) fn watch(&self, pid: i32, policy: Policy, name: &'static str) {
        let name = if policy.is_real_time() { None } else { Some(name) };
        // A failed reader returns its error with the results.
        let _ = self.orders.send(Order::Watch(pid, name));
    }

    /// Shares of a watched thread's time between two past moments.
    ///
    /// # Errors
    /// The recording failed.
    pub(crate) fn within(&self, tid: i32, window: [MonoNs; 2]) -> Result<Vec<DelayPart>, Failed> {
        let (sender, receiver) = channel();
        let _ = self.orders.send(Order::Within(tid, window, sender));
        receiver.recv().unwrap_or(Err(Failed::Thread))
    }

    /// The results since the last call.
    ///
    /// # Errors
    /// The recording failed.
    pub(crate) fn take(&self) -> Result<Ours, Failed> {
        let (sender, receiver) = channel();
        let _ = self.orders.send(Order::Take(sender));
        receiver.recv().unwrap_or(Err(Failed::Thread))
    }
}

impl Drop for Explained {
    fn drop(&mut self) {
        let (unused, _) = channel();
        drop(std::mem::replace(&mut self.orders, unused));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The reading thread.
struct Work {
    recorder: Recorder,
    merge: Merge,
    explainer: Explainer,
    occasion: Occasion,
    wakers: Wakers,
    process: Option<(i32, Option<&'static str>)>,
    ours: Ours,
    begun: MonoNs,
    lost: u64,
}

impl Work {
    fn new(recorder: Recorder, occasion: Occasion, irq: Option<i32>) -> Self {
        let explainer = Explainer::new(recorder::facts(), DurNs::ZERO, None, 0);
        Self {
            recorder,
            merge: Merge::default(),
            explainer,
            occasion,
            wakers: Wakers { irq, ..Wakers::default() },
            process: None,
            ours: Ours::default(),
            begun: sys::clock::mono_now(),
            lost: 0,
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        let mut first_error = None;
        loop {
            if let Err(why) = self.read_events() {
                first_error.get_or_insert(why);
            }
            match orders.recv_timeout(LOOK) {
                Ok(Order::Watch(pid, name)) => self.process = Some((pid, name)),
                Ok(Order::Within(tid, [from, to], sender)) => {
                    let found = self.read_events().map(|()| self.explainer.within(tid, from, to));
                    let _ = sender.send(found);
                }
                Ok(Order::Take(sender)) => {
                    let found = self.read_events().map(|()| self.take_results());
                    let found = first_error.take().map_or(found, Err);
                    // The receiver may have ended.
                    let _ = sender.send(found);
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn read_events(&mut self) -> Result<(), Failed> {
        if let Some((pid, name)) = self.process {
            let threads = threads(pid, name);
            // Threads that have ended meanwhile must still be explained.
            threads.iter().for_each(|(tid, name)| self.explainer.watch(*tid, name));
        }
        let Self { recorder, merge, explainer, occasion, wakers, ours, .. } = self;
        let until = recorder.poll(|lane, item| merge.push(lane, item))?;
        merge.drain(until, |item| {
            if let (_, _, Some(event)) = &item {
                wakers.take(event, *occasion, |tid| explainer.prio(tid).is_some());
            }
            explainer.take(&item, |late| {
                if late.occasion == *occasion {
                    ours.add(late);
                    ours.steps.extend(wakers.steps(late));
                }
            });
        });
        Ok(())
    }

    fn take_results(&mut self) -> Ours {
        self.process = None;
        self.wakers.woken.clear();
        self.explainer.watch_only(std::iter::empty());
        let lost = self.recorder.lost().times;
        let mut ours = std::mem::take(&mut self.ours);
        ours.begun = self.begun;
        ours.lost = lost - std::mem::replace(&mut self.lost, lost);
        ours
    }
}

/// Threads of a process by this name; without one, those in real-time classes.
fn threads(pid: i32, name: Option<&str>) -> Vec<(i32, String)> {
    let root = RootDir::machine();
    let tids = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    let tids = tids.iter().filter_map(|tid| tid.parse::<i32>().ok());
    let named = tids.filter_map(|tid| Some((tid, root.read(&format!("/proc/{pid}/task/{tid}/comm")).ok()?)));
    named
        .map(|(tid, comm)| (tid, comm.trim_end().to_owned()))
        .filter(|(tid, comm)| {
            name.map_or_else(|| sys::sched::has_fixed_priority(*tid) == Some(true), |name| comm == name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Culprit as By;

    #[test]
    fn the_own_share_excludes_the_hosts_and_the_lower_bound_excludes_undecided_time_too() {
        let part = |from, ns, culprit| DelayPart { from: MonoNs(from), ns, culprit };
        let late = Late {
            tid: 1,
            name: "loop".into(),
            occasion: Occasion::Timer,
            cpu: 1,
            due: MonoNs(0),
            ran: MonoNs(100_000),
            parts: vec![
                part(0, 60_000, By::Host { evidence: "idle" }),
                part(60_000, 30_000, By::HostOrMasked { under: "cc1".into() }),
                part(90_000, 10_000, By::Timer),
            ],
            faults: 0,
            stack: Vec::new(),
            program_events: Vec::new(),
        };
        let mut ours = Ours::default();
        ours.add(&late);
        let mut both = Ours::default();
        both.merge(&ours);
        both.merge(&ours);
        assert_eq!(both.whole.max(), Some(DurNs(100_000)));
        assert_eq!(both.ours.max(), Some(DurNs(40_000)));
        assert_eq!(both.least.max(), Some(DurNs(10_000)));
        let [_, row] = both.rows("CPU 1 open", vec![40.0]);
        assert_eq!(row.name, "CPU 1 open, ours");
        assert_eq!(
            (row.culprits[0].name.as_str(), row.culprits[0].share_percent, row.culprits[0].count),
            ("host (idle)", 60.0, 2)
        );
        // The parts of each add up to the delay.
        let parts = vec![
            ("host (idle)".to_owned(), 60_000),
            ("host or masked interrupts, under cc1".to_owned(), 30_000),
            ("timer interrupt".to_owned(), 10_000),
        ];
        assert_eq!(row.spikes, vec![Spike { at_ns: 0, late_ns: 100_000, parts }; 2]);
    }
}
