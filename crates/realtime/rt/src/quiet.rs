//! A quiet section: a period in which a thread needs its CPU without interruption, with a measurement of the time it lost.
//!
//! Stock Linux does not allow a program to switch off ticks, timers or RCU at run time. So a quiet section changes nothing.
//! It reports in advance the known sources of disturbance on the CPU, and measures the effect. The boot line (`nohz_full=`)
//! and the shield make a CPU quiet.

use crate::disturbance::{Counts, Remains};
use crate::obtained::Obtained;
use base::{CpuId, CpuSet, DurNs, MonoNs, RtLevel};
use sys::clock::mono_now;
use sys::root::RootDir;
use sys::thread::{ThreadUsage, usage};

/// Number of gaps that are kept individually. All gaps are counted.
pub const GAPS_KEPT: usize = 16;

/// A period in which the thread did not run its own code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Start of the gap, counted from the start of the section.
    pub at: DurNs,
    /// Length of the gap.
    pub length: DurNs,
}

/// Result of the gap detector. A gap is a time between two readings of the clock that is longer than a threshold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// Number of readings of the clock.
    pub looks: u64,
    /// Minimum time between consecutive readings: the resolution of the detector.
    pub quickest: DurNs,
    /// Number of gaps.
    pub count: u64,
    /// Total length of all gaps.
    pub lost: DurNs,
    longest: [Gap; GAPS_KEPT],
}

impl Gaps {
    /// The longest gaps, in descending order of length.
    pub fn longest(&self) -> impl Iterator<Item = &Gap> {
        self.longest.iter().take(usize::try_from(self.count).unwrap_or(GAPS_KEPT))
    }

    fn add(&mut self, gap: Gap) {
        self.count += 1;
        self.lost = DurNs(self.lost.0 + gap.length.0);
        let place = self.longest.partition_point(|kept| kept.length >= gap.length);
        if place < GAPS_KEPT {
            self.longest.copy_within(place..GAPS_KEPT - 1, place + 1);
            self.longest[place] = gap;
        }
    }

    /// Reads the clock until `until`.
    ///
    /// Real-time: spins. Neither allocates nor makes a system call, if reading the clock needs none.
    fn detect(from: MonoNs, until: MonoNs, threshold: DurNs, mut clock: impl FnMut() -> MonoNs) -> Self {
        let mut gaps = Self { quickest: DurNs(i64::MAX), ..Self::default() };
        let mut last = from;
        while last < until {
            let now = clock();
            let length = now - last;
            gaps.looks += 1;
            gaps.quickest = gaps.quickest.min(length);
            if length > threshold {
                gaps.add(Gap { at: last - from, length });
            }
            last = now;
        }
        gaps
    }
}

/// A prepared quiet section: the known disturbances on its CPU have been determined.
#[derive(Debug)]
pub struct Quiet {
    cpu: CpuId,
    root: RootDir,
    obtained: Vec<Obtained>,
    /// The clock source, if the kernel is known not to trust its clock.
    distrusted: Option<String>,
}

/// Reason why a quiet section is not possible.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QuietError {
    /// The thread may run on several CPUs.
    #[error("a quiet section needs a thread that is bound to one CPU; this one may run on {0}")]
    NotBound(Box<CpuSet>),
    /// The counters cannot be read.
    #[error(transparent)]
    Counters(#[from] sys::Error),
}

/// Result of a quiet section.
#[derive(Debug)]
pub struct QuietReport {
    /// The CPU.
    pub cpu: CpuId,
    /// Duration of the section.
    pub lasted: DurNs,
    /// Result of the gap detector, if it ran.
    pub gaps: Option<Gaps>,
    /// Interrupts on this CPU between the readings of the counters just before and after the section: name and count, most
    /// frequent first.
    pub interrupts: Vec<(String, u64)>,
    /// Page faults and context switches of the thread.
    pub usage: ThreadUsage,
    /// Ticks of 10 ms that the hypervisor took; `None` if the kernel does not report them.
    pub steal_ticks: Option<u64>,
    /// Properties that were reported as obtained before the section but did not hold during it.
    pub broken: Vec<Obtained>,
}

impl QuietReport {
    /// Number of gaps in excess of all interrupts, switches and faults that were counted. Their cause is not in the kernel's
    /// counters (firmware, hypervisor). `None` if no detector ran.
    #[must_use]
    pub fn unexplained(&self) -> Option<u64> {
        let interrupts = self.interrupts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        let usage = &self.usage;
        let known = [usage.minor_faults, usage.major_faults, usage.voluntary, usage.involuntary];
        let known = known.into_iter().fold(interrupts, u64::saturating_add);
        self.gaps.map(|gaps| gaps.count.saturating_sub(known))
    }
}

impl Quiet {
    /// Prepares a quiet section of the calling thread, which must be bound to one CPU. Reads files, so an armed loop must
    /// not call it.
    ///
    /// # Errors
    /// If the thread may run on several CPUs, or the counters cannot be read.
    pub fn prepare() -> Result<Self, QuietError> {
        let root = RootDir::machine();
        let cpus = sys::sched::affinity(0)?;
        let cpu = cpus.lowest().filter(|_| cpus.count() == 1).ok_or_else(|| QuietError::NotBound(Box::new(cpus)))?;
        // Both are read in advance, to check that they are readable, and so that no memory is touched for the first time
        // later.
        Counts::of(&root, cpu)?;
        let remains = Remains::of(&root, cpu);
        let obtained = judge(&remains, cpu);
        let distrusted = (remains.clock_trusted == Some(false)).then_some(remains.clock_source);
        Ok(Self { cpu, root, obtained, distrusted })
    }

    /// The thread's CPU.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Conditions for a quiet CPU, obtained or not.
    #[must_use]
    pub fn obtained(&self) -> &[Obtained] {
        &self.obtained
    }

    /// Spins for `duration` and finds every gap longer than `threshold`.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn measure(&self, duration: DurNs, threshold: DurNs) -> Result<QuietReport, QuietError> {
        let mut gaps = Gaps::default();
        let mut report = self.around(|| {
            let from = mono_now();
            gaps = Gaps::detect(from, from + duration, threshold, mono_now);
        })?;
        report.gaps = Some(gaps);
        Ok(report)
    }

    /// Runs `work` as the quiet section and counts the disturbances.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn around(&self, work: impl FnOnce()) -> Result<QuietReport, QuietError> {
        let read = || Counts::of(&self.root, self.cpu);
        let before = read()?;
        let (used, from) = (usage(), mono_now());
        work();
        let (lasted, now) = (mono_now() - from, usage());
        let after = read()?;
        let usage = ThreadUsage {
            minor_faults: now.minor_faults - used.minor_faults,
            major_faults: now.major_faults - used.major_faults,
            voluntary: now.voluntary - used.voluntary,
            involuntary: now.involuntary - used.involuntary,
            cpu: DurNs(now.cpu.0 - used.cpu.0),
        };
        let steal_ticks = after.steal_ticks.zip(before.steal_ticks).map(|(is, was)| is.saturating_sub(was));
        let interrupts = after.since(&before);
        let claimed = self.obtained.iter().any(|item| item.what == NO_TICK && item.missing.is_none());
        let clock = self.distrusted.as_deref();
        let broken = claimed.then(|| went_on(&interrupts, lasted, clock)).flatten().into_iter().collect();
        Ok(QuietReport { cpu: self.cpu, lasted, gaps: None, interrupts, usage, steal_ticks, broken })
    }
}

/// Runs a quiet section of the calling thread, see [`Quiet::measure`].
///
/// # Errors
/// As [`Quiet::prepare`] and [`Quiet::measure`].
pub fn quiet(duration: DurNs, threshold: DurNs) -> Result<QuietReport, QuietError> {
    Quiet::prepare()?.measure(duration, threshold)
}

/// The most important condition for a quiet CPU.
const NO_TICK: &str = "the tick stops while one task runs";

/// Reports the tick if it continued. A kernel ticks at least a hundred times per second; a stopped tick still occurs now and
/// then. `clock` is the clock source if the kernel is known not to trust its clock, which is one reason for a tick that
/// continues.
fn went_on(interrupts: &[(String, u64)], lasted: DurNs, clock: Option<&str>) -> Option<Obtained> {
    const LEAST: DurNs = DurNs::from_ms(20);
    let ticks = interrupts.iter().find(|(what, _)| what.contains("Local timer")).map_or(0, |(_, count)| *count);
    (ticks > 1 && ticks.saturating_mul(LEAST.0 as u64) > lasted.0 as u64).then(|| {
        let clock = clock.map_or(String::new(), |source| format!("; the kernel does not trust its clock, now {source}"));
        let remedy = "one runnable task on the CPU, no limits of processor time, and a clock that the kernel trusts (see its log)";
        Obtained::no(NO_TICK, format!("{ticks} local timer interrupts in {lasted}{clock}"), remedy)
    })
}

/// The state of a CPU as conditions, obtained or not.
fn judge(remains: &Remains, cpu: CpuId) -> Vec<Obtained> {
    const BOOT: &str = "boot with nohz_full= for this CPU";
    let mut obtained = Vec::new();
    obtained.push(match remains.nohz_full {
        Some(cpus) if cpus.contains(cpu) => Obtained::yes(NO_TICK),
        Some(_) => Obtained::no(NO_TICK, format!("CPU {cpu} is not in nohz_full="), BOOT),
        None => Obtained::no(NO_TICK, "this kernel has no NO_HZ_FULL", "use one that has"),
    });
    obtained.push(match remains.rcu_elsewhere.contains(cpu) {
        true => Obtained::yes("RCU callbacks run elsewhere"),
        false => Obtained::no("RCU callbacks run elsewhere", format!("CPU {cpu} is not in rcu_nocbs="), BOOT),
    });
    obtained.push(match &remains.timers {
        Some(timers) if timers.is_empty() => Obtained::yes("no timer is armed"),
        Some(timers) => {
            let remedy = "a timer stays where it was armed: arm it elsewhere; the tick's own goes with nohz_full=";
            Obtained::no("no timer is armed", timers.join(", "), remedy)
        }
        None => Obtained::no("no timer is armed", "unknown: /proc/timer_list is unreadable", "run as root"),
    });
    obtained.push(match remains.interrupts.is_empty() {
        true => Obtained::yes("no interrupt is handled here"),
        false => Obtained::no("no interrupt is handled here", remains.interrupts.join(", "), "shield the CPU"),
    });
    let fixed =
        sys::sched::scheduling(0).map_or(RtLevel::None, |scheduling| scheduling.policy.level()) != RtLevel::None;
    obtained.push(match fixed {
        true => Obtained::yes("real-time class"),
        false => Obtained::no("real-time class", "the thread is time sharing", "run it as fifo"),
    });
    if let (true, Some(after)) = (fixed, remains.throttled_after_us.filter(|us| *us < 1_000_000)) {
        let why = format!("real-time threads are stopped after {after} us in each second");
        obtained.push(Obtained::no("never throttled", why, "keep the section shorter, or sched_rt_runtime_us=-1"));
    }
    obtained
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::CpuSet;

    #[test]
    fn gaps_are_counted_and_the_longest_are_kept_in_order() {
        // Readings 10 ns apart, and 40 gaps of 1, 2, … 40 us.
        let mut steps: Vec<u64> = (1..=40).flat_map(|us| [10, 10, us * 1_000 + 10]).collect();
        steps.extend([10, 10]);
        let until = steps.iter().sum::<u64>();
        let mut steps = steps.into_iter();
        let mut now = 5;
        let gaps = Gaps::detect(MonoNs(5), MonoNs(5 + until), DurNs(1_000), || {
            now += steps.next().unwrap();
            MonoNs(now)
        });
        assert_eq!((gaps.looks, gaps.count, gaps.quickest), (122, 40, DurNs(10)));
        assert_eq!(gaps.lost, DurNs((1..=40).map(|us| us * 1_000 + 10).sum()));
        let lengths: Vec<i64> = gaps.longest().map(|gap| gap.length.0).collect();
        assert_eq!(lengths, (25..=40).rev().map(|us| us * 1_000 + 10).collect::<Vec<i64>>());
        let first = Gaps::detect(MonoNs(0), MonoNs(30), DurNs(5), {
            let mut looks = [1u64, 21, 31].into_iter().map(MonoNs);
            move || looks.next().unwrap()
        });
        assert_eq!(first.longest().next(), Some(&Gap { at: DurNs(1), length: DurNs(20) }));
    }

    #[test]
    fn disturbances_that_remain_on_a_cpu_are_reported() {
        let bare = Remains { throttled_after_us: Some(950_000), ..Remains::default() };
        let missing = |remains: &Remains, cpu| -> Vec<String> {
            judge(remains, cpu).iter().filter(|item| item.missing.is_some()).map(ToString::to_string).collect()
        };
        let said = missing(&bare, 1).join("\n");
        for expected in ["no NO_HZ_FULL", "CPU 1 is not in rcu_nocbs=", "/proc/timer_list is unreadable"] {
            assert!(said.contains(expected), "{said}");
        }
        let quiet = Remains {
            nohz_full: Some(CpuSet::single(2)),
            rcu_elsewhere: CpuSet::single(2),
            timers: Some(vec![]),
            ..Remains::default()
        };
        assert!(missing(&quiet, 2).iter().all(|text| text.contains("real-time class")), "{:?}", missing(&quiet, 2));
        let busy = Remains { timers: Some(vec!["watchdog_timer_fn".into()]), ..quiet };
        assert!(missing(&busy, 2).iter().any(|text| text.contains("watchdog_timer_fn")));
        assert!(missing(&busy, 3).iter().any(|text| text.contains("CPU 3 is not in nohz_full=")));
    }

    #[test]
    fn a_continuing_tick_is_distinguished_from_single_ticks() {
        let ticks = |count| [("Local timer interrupts".to_owned(), count), ("Rescheduling interrupts".to_owned(), 900)];
        let said = |clock| went_on(&ticks(80), DurNs::from_ms(800), clock).unwrap().to_string();
        assert!(said(None).contains("(80 local timer interrupts in 800ms)"), "{}", said(None));
        assert!(said(Some("hpet")).contains("in 800ms; the kernel does not trust its clock, now hpet)"));
        assert_eq!(went_on(&ticks(3), DurNs::from_ms(800), None), None);
        assert_eq!(went_on(&ticks(1), DurNs::from_ms(5), None), None, "one tick has no rate");
        assert_eq!(went_on(&[], DurNs::from_secs(9), None), None);
    }

    #[test]
    fn a_section_reports_the_cost_of_its_work() {
        std::thread::spawn(|| {
            let cpu = sys::sched::affinity(0).unwrap().lowest().unwrap();
            sys::sched::set_affinity(0, &CpuSet::single(cpu)).unwrap();
            let section = Quiet::prepare().unwrap();
            assert_eq!(section.cpu(), cpu);
            let report = section.around(|| std::thread::sleep(std::time::Duration::from_millis(2))).unwrap();
            assert!(report.usage.voluntary >= 1 && report.unexplained().is_none());
            let report = section.measure(DurNs::from_ms(20), DurNs::from_us(50)).unwrap();
            let gaps = report.gaps.unwrap();
            assert!(gaps.looks > 0 && report.lasted >= DurNs::from_ms(20) && gaps.lost <= report.lasted);
            assert_eq!(gaps.count == 0, gaps.longest().next().is_none());
        })
        .join()
        .unwrap();
    }
}
