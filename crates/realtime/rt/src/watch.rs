//! The watcher: a non-real-time thread that detects what a loop cannot detect itself. It records when the hypervisor took
//! the loop's CPU, and which tasks preempted the loop.

use crate::page::SharedPage;
use crate::preempt::Preemptions;
use base::{CpuId, DurNs, MonoNs};
use ring::{Counter, Cursor, Cycle, Identity, LoopWatcher, Trail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use sys::clock::{mono_now, sleep_until};
use sys::root::RootDir;

/// Period of the watcher's checks. The kernel's steal counter advances in steps of 10 ms.
const LOOK: DurNs = DurNs::from_ms(10);
/// Minimum period of loops whose pulses helper threads avoid.
const PERIOD_MIN: DurNs = DurNs::from_us(200);
/// Maximum number of cycles read in one check.
const PENDING_MAX: usize = 8192;

/// A running watcher of one loop. End it to get the last counts onto the page.
pub struct Watch {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    report: WatchReport,
}

/// Capabilities of a watcher on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Reason why preempting tasks are not identified; `None` if they are.
    pub unnamed_because: Option<String>,
    /// Reason why cycles near steal are not counted separately; `None` if they are.
    pub no_steal_because: Option<String>,
}

impl Watch {
    /// Watches the loop of thread `tid` on `cpu`; without a CPU, no steal is recorded. Call it between arming and starting,
    /// because enabling a tracepoint interrupts every CPU once.
    #[must_use]
    pub fn begin(page: SharedPage, tid: i32, cpu: Option<CpuId>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, ready) = channel();
        let told = stop.clone();
        let builder = std::thread::Builder::new().name("watch".into()).stack_size(256 << 10);
        let spawned = builder.spawn(move || {
            let preemptions = Preemptions::follow(&[tid]);
            let steal = cpu.ok_or(NoSteal::NotBound).and_then(Steal::of);
            let report = WatchReport {
                unnamed_because: preemptions.as_ref().err().map(ToString::to_string),
                no_steal_because: steal.as_ref().err().map(ToString::to_string),
            };
            if tell.send(report).is_ok() {
                watch(&page, preemptions.ok(), steal.ok(), &told);
            }
        });
        let failed = |why: String| WatchReport { unnamed_because: Some(why.clone()), no_steal_because: Some(why) };
        match spawned {
            Ok(handle) => {
                let report = ready.recv().unwrap_or_else(|_| failed("the watcher's thread ended".into()));
                Self { stop, handle: Some(handle), report }
            }
            Err(error) => Self { stop, handle: None, report: failed(error.to_string()) },
        }
    }

    /// Its capabilities on this machine.
    #[must_use]
    pub fn report(&self) -> &WatchReport {
        &self.report
    }

    /// Does a last check and ends. Call it after the loop has ended.
    pub fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Reason why the steal counter is unavailable.
#[derive(Debug, thiserror::Error)]
enum NoSteal {
    #[error("the loop is not bound to one CPU")]
    NotBound,
    #[error("/proc/stat: no line of 8 numbers for cpu{0}")]
    NoLine(CpuId),
    #[error(transparent)]
    Unreadable(#[from] sys::Error),
}

/// The steal counter of one CPU.
struct Steal {
    cpu: CpuId,
    root: RootDir,
}

impl Steal {
    fn of(cpu: CpuId) -> Result<Self, NoSteal> {
        let steal = Self { cpu, root: RootDir::machine() };
        steal.ticks().map(|_| steal)
    }

    fn ticks(&self) -> Result<u64, NoSteal> {
        let text = self.root.read("/proc/stat")?;
        parse_steal(&text, self.cpu).ok_or(NoSteal::NoLine(self.cpu))
    }
}

/// The eighth number of a CPU's line in `/proc/stat`.
fn parse_steal(text: &str, cpu: CpuId) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = text.lines().find(|line| line.split(' ').next() == Some(&name))?;
    line.split_ascii_whitespace().nth(8)?.parse().ok()
}

fn watch(page: &SharedPage, mut preemptions: Option<Preemptions>, steal: Option<Steal>, stop: &AtomicBool) {
    // The trail, its cursor and the counters belong to one generation of the page. A loop that takes the page starts a new
    // one.
    let mut generation = None;
    let mut sorter = Sorter::default();
    let mut ticks = steal.as_ref().and_then(|steal| steal.ticks().ok()).unwrap_or_default();
    let mut wake = mono_now();
    loop {
        let last = stop.load(Ordering::Acquire);
        let seen = page.read();
        let (now, moved) = match steal.as_ref().map(Steal::ticks) {
            Some(Ok(is)) => {
                let moved = is.saturating_sub(ticks);
                ticks = is;
                (mono_now(), moved)
            }
            _ => (mono_now(), 0),
        };
        if seen.identity().is_some() {
            let watcher = seen.watcher();
            if generation != Some(seen.generation()) {
                generation = Some(seen.generation());
                sorter = Sorter::default();
                watcher.add(Counter::Naming, u64::from(preemptions.is_some()));
            }
            watcher.add(Counter::StealTicks, moved);
            if steal.is_some()
                && let Some(trail) = seen.trail()
            {
                let lost = sorter.cursor.lost();
                sorter.take(&trail, PENDING_MAX);
                watcher.add(Counter::WatchLost, sorter.cursor.lost() - lost);
                sorter.look(now, moved > 0, last, &watcher);
            }
            if let Some(followed) = &mut preemptions {
                let each = |switch: &crate::Switch<'_>| {
                    watcher.preempted_by(Some((switch.name, switch.to as u32)));
                };
                if followed.drain(each).is_err() {
                    preemptions = None;
                }
            }
        }
        if last {
            break;
        }
        wake = between_pulses((wake + LOOK).max(now), seen.identity());
        sleep_until(wake);
    }
}

/// The first time from `wake` on that is half-way between two pulses of the loop.
///
/// On a shielded CPU the other threads of the loop's process have no other CPU. A helper thread with a period of ten pulses
/// that runs at the time of a pulse would disturb every tenth pulse permanently. Loops faster than [`PERIOD_MIN`] leave no
/// room between their pulses.
#[must_use]
pub fn between_pulses(wake: MonoNs, identity: Option<Identity>) -> MonoNs {
    let Some(Identity { first_due, period, .. }) = identity else { return wake };
    if period < PERIOD_MIN || wake < first_due {
        return wake;
    }
    let period = period.0 as u64;
    let phase = (wake.0 - first_due.0) % period;
    MonoNs(wake.0 + (period / 2 + period - phase) % period)
}

/// Separates calm cycles from those that steal may have affected.
///
/// The counter advances up to one kernel tick after the steal. So a cycle is calm only if the counter did not change in the
/// check that first saw the cycle, nor in the next one.
#[derive(Default)]
struct Sorter {
    cursor: Cursor,
    fresh: Vec<Cycle>,
    waiting: Vec<Cycle>,
    moved_before: bool,
}

impl Sorter {
    fn add(&mut self, cycle: Cycle) {
        self.fresh.push(cycle);
    }

    /// Takes at most `room` cycles from the trail. The rest stays there for the next check.
    fn take<const N: usize>(&mut self, trail: &Trail<'_, N>, room: usize)
    where
        Cycle: From<[u64; N]>,
    {
        for _ in 0..room {
            let Some(cycle) = trail.next(&mut self.cursor) else { return };
            self.add(Cycle::from(cycle));
        }
    }

    fn look(&mut self, now: MonoNs, moved: bool, last: bool, watcher: &LoopWatcher<'_>) {
        let settle = |cycles: &mut Vec<Cycle>, touched: bool| {
            watcher.add(Counter::Watched, cycles.len() as u64);
            match touched {
                true => watcher.add(Counter::SetApart, cycles.len() as u64),
                false => cycles.iter().for_each(|cycle| watcher.calm(cycle)),
            }
            cycles.clear();
        };
        settle(&mut self.waiting, moved || self.moved_before);
        // Cycles that woke after the reading of the counter wait for the next check.
        let later = self.fresh.partition_point(|cycle| cycle.woke <= now);
        self.waiting.extend(self.fresh.drain(..later));
        if last {
            settle(&mut self.waiting, moved);
            settle(&mut self.fresh, moved);
        }
        self.moved_before = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steal_counter_is_the_eighth_number_of_the_line_of_the_cpu() {
        let text = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 10 20 30 40 50 60 70 80 90 100\ncpu10 0 0 0 0 0 0 0 5 0 0\n";
        for (cpu, expected) in [(1, Some(80)), (10, Some(5)), (2, None)] {
            assert_eq!(parse_steal(text, cpu), expected, "cpu{cpu}");
        }
    }

    #[test]
    fn checks_are_made_half_way_between_pulses() {
        let page = SharedPage::own("phase").unwrap();
        assert_eq!(between_pulses(MonoNs(7), page.read().identity()), MonoNs(7), "no loop yet");
        let identity = |period: DurNs| Identity {
            name: [0; 16],
            pid: 1,
            tid: 1,
            period,
            first_due: MonoNs(1_000),
            first_pulse: 0,
            cpu: None,
            wait: ring::Wait::Sleep,
            priority: 0,
            armed: MonoNs(0),
        };
        let period = DurNs::from_ms(1);
        for wake in (1_000..5_000_000).step_by(1237) {
            let moved = between_pulses(MonoNs(wake), Some(identity(period))).0;
            assert!((wake..wake + 1_000_000).contains(&moved), "{wake}: {moved}");
            assert_eq!((moved - 1_000) % 1_000_000, 500_000, "{wake}");
        }
        assert_eq!(between_pulses(MonoNs(500), Some(identity(period))), MonoNs(500), "before the first pulse");
        assert_eq!(between_pulses(MonoNs(9_999), Some(identity(DurNs::from_us(50)))), MonoNs(9_999), "no room");
    }

    #[test]
    fn cycles_beyond_the_maximum_of_a_check_are_read_by_the_next_check() {
        let page = SharedPage::own("room").unwrap();
        let read = page.read();
        let identity = Identity {
            name: [0; 16],
            pid: 1,
            tid: 1,
            period: DurNs::from_ms(1),
            first_due: MonoNs(0),
            first_pulse: 0,
            cpu: None,
            wait: ring::Wait::Sleep,
            priority: 0,
            armed: MonoNs(0),
        };
        let mut writer = page.read().take(&identity).unwrap();
        for pulse in 0..100 {
            let _ = writer.end(&Cycle { pulse, ..Cycle::default() });
        }
        let mut sorter = Sorter::default();
        let trail = read.trail().unwrap();
        (0..4).for_each(|_| sorter.take(&trail, 30));
        assert_eq!(sorter.fresh.iter().map(|cycle| cycle.pulse).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert_eq!(sorter.cursor.lost(), 0);
    }

    #[test]
    fn cycles_near_stolen_time_are_excluded_and_all_others_count_as_calm() {
        let page = SharedPage::own("sorter").unwrap();
        let read = page.read();
        let watcher = read.watcher();
        let cycle = |ms: u64| Cycle {
            expected: MonoNs(ms * 1_000_000),
            woke: MonoNs(ms * 1_000_000 + 5_000),
            ..Cycle::default()
        };
        let mut sorter = Sorter::default();
        // Checks at 10, 20, … 60 ms. The change of the counter is seen at 30 ms.
        for look in 1..=6u64 {
            (look * 10 - 10..look * 10).for_each(|ms| sorter.add(cycle(ms)));
            sorter.look(MonoNs(look * 10_000_000), look == 3, look == 6, &watcher);
        }
        assert_eq!((read.counter(Counter::Watched), read.counter(Counter::SetApart)), (60, 20));
        assert_eq!(read.calm().count(), 40);
    }
}
