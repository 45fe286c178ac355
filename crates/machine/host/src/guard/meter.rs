//! Measures how much processor time a thread uses without yielding its CPU, and how long a heartbeat is missing.

use super::Budget;
use base::{DurNs, MonoNs};

/// Tolerance when a window is judged. The kernel accounts the time of running threads at its tick, at least 100 times a
/// second.
const TICK: DurNs = DurNs::from_ms(10);

/// Maximum interval between two samples. If the thread yields its CPU between two samples, the account restarts at the
/// later one. Time used before the yield is then not counted, so the interval must be short.
const LOOK_MAX: DurNs = DurNs::from_ms(20);

/// Number of consecutive windows over budget that make a runaway of a thread that yields its CPU now and then.
const OVER_IN_A_ROW: u32 = 10;

/// A sample of a thread's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub now: MonoNs,
    /// Processor time that the thread has used since its start.
    pub cpu: DurNs,
    /// Number of times that the thread has yielded its CPU since its start.
    pub voluntary: u64,
}

/// Result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The thread keeps its budget.
    Within,
    /// The thread used more than its budget in a period, but yielded its CPU in between.
    Over {
        /// Number of such periods in a row.
        in_a_row: u32,
    },
    /// The thread used up its budget without yielding its CPU, or exceeded it in too many periods in a row.
    Runaway {
        /// Processor time used in the window.
        used: DurNs,
        /// The window's length so far.
        window: DurNs,
    },
}

/// Processor time account of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    runtime: DurNs,
    period: DurNs,
    /// The first sample after the thread last yielded its CPU.
    burst: Option<Sample>,
    /// A sample half a period after `burst`. It replaces `burst` when more than a period has passed since `burst`.
    half: Option<Sample>,
    /// The last sample at which the processor time had grown.
    grew: Sample,
    /// Start of the period that is judged as a whole.
    window: Option<Sample>,
    in_a_row: u32,
}

impl Meter {
    /// Creates a meter for this budget; `None` for a thread without a budget.
    #[must_use]
    pub fn new(budget: Budget) -> Option<Self> {
        let Budget::Share { percent, period } = budget else { return None };
        let runtime = DurNs(period.0 / 100 * i64::from(percent));
        let grew = Sample { now: MonoNs(0), cpu: DurNs::ZERO, voluntary: 0 };
        Some(Self { runtime, period, burst: None, half: None, grew, window: None, in_a_row: 0 })
    }

    /// Handles a sample and returns the verdict.
    pub fn observe(&mut self, sample: Sample) -> Verdict {
        let (Some(burst), Some(window)) = (self.burst, self.window) else {
            (self.burst, self.window, self.grew) = (Some(sample), Some(sample), sample);
            return Verdict::Within;
        };
        if sample.cpu != self.grew.cpu {
            self.grew = sample;
        }
        let idle = sample.now - self.grew.now >= TICK;
        let mut verdict = Verdict::Within;
        let elapsed = sample.now - burst.now;
        let used = DurNs(sample.cpu.0.saturating_sub(burst.cpu.0));
        if sample.voluntary != burst.voluntary || idle {
            (self.burst, self.half) = (Some(sample), None);
        } else if used >= self.runtime && self.exceeds(used, DurNs(elapsed.0.saturating_sub(TICK.0))) {
            verdict = Verdict::Runaway { used, window: elapsed };
        } else if elapsed > DurNs(self.period.0 + TICK.0) {
            (self.burst, self.half) = (self.half.or(Some(sample)), None);
        } else if self.half.is_none() && elapsed >= DurNs(self.period.0 / 2) {
            self.half = Some(sample);
        }
        let elapsed = sample.now - window.now;
        if elapsed >= self.period {
            let used = DurNs(sample.cpu.0.saturating_sub(window.cpu.0));
            let over = self.exceeds(used, elapsed);
            self.in_a_row = if over { self.in_a_row + 1 } else { 0 };
            self.window = Some(sample);
            if over && verdict == Verdict::Within {
                verdict = Verdict::Over { in_a_row: self.in_a_row };
                if self.in_a_row >= OVER_IN_A_ROW {
                    self.in_a_row = 0;
                    verdict = Verdict::Runaway { used, window: elapsed };
                }
            }
        }
        verdict
    }

    /// Whether `used` in a window of this length is more than the budget's share.
    fn exceeds(&self, used: DurNs, window: DurNs) -> bool {
        i128::from(used.0) * i128::from(self.period.0) > i128::from(self.runtime.0) * i128::from(window.0)
    }

    /// Time until the next sample is needed.
    #[must_use]
    pub fn look_again_in(&self, last: Sample) -> DurNs {
        let left = match self.burst {
            Some(burst) => DurNs(self.runtime.0.saturating_sub(last.cpu.0.saturating_sub(burst.cpu.0))),
            None => self.runtime,
        };
        left.clamp(DurNs::from_ms(2), LOOK_MAX)
    }

    /// Discards all samples, as for a new thread.
    pub fn reset(&mut self) {
        (self.burst, self.half, self.window, self.in_a_row) = (None, None, None, 0);
    }
}

/// Measures how long a heartbeat is missing.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    within: DurNs,
    beats: u64,
    since: Option<MonoNs>,
}

impl Silence {
    /// Creates a monitor of a heartbeat that must beat at least once `within` this time. Monitoring starts with the
    /// first beat.
    #[must_use]
    pub fn new(within: DurNs) -> Self {
        Self { within, beats: 0, since: None }
    }

    /// Changes the time within which it must beat.
    pub fn change(&mut self, within: DurNs) {
        self.within = within;
    }

    /// Handles the present number of beats. Returns the time since the last beat if it is longer than allowed.
    pub fn observe(&mut self, now: MonoNs, beats: u64) -> Option<DurNs> {
        if beats != self.beats {
            (self.beats, self.since) = (beats, Some(now));
        }
        let silent = now - self.since?;
        (silent > self.within).then_some(silent)
    }

    /// Time until the next observation is needed.
    #[must_use]
    pub fn look_again_in(&self) -> DurNs {
        DurNs(self.within.0 / 2).max(DurNs::from_ms(2))
    }

    /// Stops monitoring until the next beat.
    pub fn reset(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meter() -> Meter {
        Meter::new(Budget::Share { percent: 80, period: DurNs::from_ms(100) }).unwrap()
    }

    fn sample(at_ms: u64, cpu_ms: i64, voluntary: u64) -> Sample {
        Sample { now: MonoNs(at_ms * 1_000_000), cpu: DurNs::from_ms(cpu_ms), voluntary }
    }

    #[test]
    fn a_loop_that_never_yields_its_cpu_is_caught_when_its_budget_is_used() {
        let mut meter = meter();
        let mut at = 0;
        let verdict = loop {
            let now = sample(at, at as i64, 7);
            let verdict = meter.observe(now);
            if verdict != Verdict::Within {
                break verdict;
            }
            at += meter.look_again_in(now).0 as u64 / 1_000_000;
        };
        assert_eq!((at, verdict), (80, Verdict::Runaway { used: DurNs::from_ms(80), window: DurNs::from_ms(80) }));
    }

    #[test]
    fn a_rest_before_a_burst_does_not_extend_its_budget() {
        // The thread sleeps for some time, then spins. It is sampled every 5 ms.
        for rest in (0..400).step_by(5) {
            let mut meter = meter();
            let caught = (0..1000).step_by(5).find(|at| {
                let burnt = at.max(&rest) - rest;
                matches!(meter.observe(sample(*at, burnt as i64, 3)), Verdict::Runaway { .. })
            });
            assert!(caught.unwrap() - rest <= 90, "{rest}: {caught:?}");
        }
    }

    #[test]
    fn a_thread_that_sleeps_in_each_cycle_is_not_a_runaway() {
        let mut meter = meter();
        for at in 0..2000 {
            assert_eq!(meter.observe(sample(at * 5, at as i64 * 3, at)), Verdict::Within, "{at}");
        }
    }

    #[test]
    fn slow_work_that_is_preempted_is_not_a_runaway() {
        let mut meter = meter();
        for at in 0..2000 {
            assert_eq!(meter.observe(sample(at * 10, at as i64 * 7, 0)), Verdict::Within, "{at}");
        }
    }

    #[test]
    fn naps_do_not_hide_a_thread_that_is_permanently_over_its_budget() {
        let mut meter = meter();
        let verdicts: Vec<Verdict> = (0..=200).map(|at| meter.observe(sample(at * 10, at as i64 * 9, at))).collect();
        let first = verdicts.iter().position(|verdict| *verdict != Verdict::Within).unwrap();
        assert_eq!((first, verdicts[first]), (10, Verdict::Over { in_a_row: 1 }));
        let caught = verdicts.iter().position(|verdict| matches!(verdict, Verdict::Runaway { .. })).unwrap();
        assert_eq!(caught, 100);
    }

    #[test]
    fn silence_counts_from_the_first_beat() {
        let mut silence = Silence::new(DurNs::from_ms(10));
        let at = |ms: u64| MonoNs(ms * 1_000_000);
        assert_eq!(silence.observe(at(500), 0), None);
        assert_eq!(silence.observe(at(600), 1), None);
        assert_eq!(silence.observe(at(610), 1), None);
        assert_eq!(silence.observe(at(611), 1), Some(DurNs::from_ms(11)));
        assert_eq!(silence.observe(at(612), 2), None);
    }

    proptest! {
        /// A spinning thread is detected within its budget and two samples, for any sampling interval.
        #[test]
        fn spinning_is_always_caught(step in 1u64..20, percent in 1u8..=99, period in 20i64..500) {
            let mut meter = Meter::new(Budget::Share { percent, period: DurNs::from_ms(period) }).unwrap();
            let runtime = period as u64 * u64::from(percent) / 100;
            let caught = (0..2000).find(|at| {
                matches!(meter.observe(sample(at * step, (at * step) as i64, 0)), Verdict::Runaway { .. })
            });
            prop_assert!(caught.unwrap() * step <= runtime + 2 * step, "{caught:?}");
        }

        #[test]
        fn no_sample_panics(samples in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<u64>()), 0..20)) {
            let mut meter = meter();
            for (now, cpu, voluntary) in samples {
                meter.observe(Sample { now: MonoNs(now), cpu: DurNs(cpu), voluntary });
            }
        }
    }
}
