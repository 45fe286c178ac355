//! The absolute schedule of a periodic loop: due times of pulses, and the rule for missed ones.

use crate::unit::{DurNs, MonoNs};

/// Pulse `k` is due at `t0 + k * period`, and nothing ever moves `t0`.
///
/// Pulses are numbered from the start of the time scale that `t0` is aligned to (TAI if the clock has its offset). So a
/// number means the same pulse on several machines, and before and after a restart.
///
/// After a delay, pulses whose whole period has passed are skipped and counted. The pulse of the running period starts
/// late. So a delay costs the pulses that it covers, never shifts the phase, and causes no burst.
///
/// Real-time: a few integer operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: DurNs,
    pulse: u64,
    due: MonoNs,
}

/// Skipped pulses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of pulses.
    pub count: u64,
    /// Due time of the first.
    pub first_due: MonoNs,
}

impl Schedule {
    /// A schedule whose first pulse is number `pulse`, due at `due`.
    ///
    /// # Panics
    /// If the period is not positive.
    #[must_use]
    pub fn new(pulse: u64, due: MonoNs, period: DurNs) -> Self {
        assert!(period.0 > 0, "a period is positive");
        Self { period, pulse, due }
    }

    /// A schedule on whole multiples of `period` of another time scale, whose time is `scale_ns` at `now`.
    /// The first pulse is due at least `lead` after `now`.
    ///
    /// # Panics
    /// If the period is not positive.
    #[must_use]
    pub fn aligned(now: MonoNs, scale_ns: u64, period: DurNs, lead: DurNs) -> Self {
        assert!(period.0 > 0, "a period is positive");
        let step = period.0 as u64;
        let pulse = scale_ns.saturating_add_signed(lead.0.max(0)).div_ceil(step);
        let ahead = pulse.saturating_mul(step).saturating_sub(scale_ns);
        Self { period, pulse, due: MonoNs(now.0.saturating_add(ahead)) }
    }

    /// Number of the next pulse.
    #[must_use]
    pub fn pulse(&self) -> u64 {
        self.pulse
    }

    /// Due time of the next pulse.
    #[must_use]
    pub fn due(&self) -> MonoNs {
        self.due
    }

    /// The time between two pulses.
    #[must_use]
    pub fn period(&self) -> DurNs {
        self.period
    }

    /// Advances to the next pulse at `now`. Skips pulses whose whole period has passed.
    pub fn advance(&mut self, now: MonoNs) -> Skipped {
        let first_due = self.due + self.period;
        let late = now.0.saturating_sub(first_due.0);
        let count = late / self.period.0 as u64;
        self.pulse = self.pulse.saturating_add(1).saturating_add(count);
        self.due = MonoNs(first_due.0.saturating_add(count.saturating_mul(self.period.0 as u64)));
        Skipped { count, first_due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A loop under a virtual clock: each item is the time of a cycle's wake-up and work.
    fn pulses(delays_ns: &[u64]) -> std::vec::Vec<(u64, u64)> {
        let mut schedule = Schedule::new(0, MonoNs(10 * MS), DurNs(MS as i64));
        let run = |&delay: &u64| {
            let pulse = schedule.pulse();
            let now = MonoNs(schedule.due().0 + delay);
            (pulse, schedule.advance(now).count)
        };
        delays_ns.iter().map(run).collect()
    }

    #[test]
    fn a_loop_in_time_runs_every_pulse() {
        assert_eq!(pulses(&[5_000, 900_000, MS - 1]), [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn a_short_delay_begins_the_next_pulse_late_and_skips_none() {
        assert_eq!(pulses(&[MS + MS / 2, 1_000, 1_000]), [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn a_long_delay_skips_the_pulses_that_it_covered_and_keeps_the_phase() {
        // Awake 25.3 periods late: 1 to 24 are over, 25 is running.
        assert_eq!(pulses(&[25 * MS + 300_000, 1_000, 1_000]), [(0, 24), (25, 0), (26, 0)]);
        let mut schedule = Schedule::new(7, MonoNs(10 * MS), DurNs(MS as i64));
        let skipped = schedule.advance(MonoNs(13 * MS));
        assert_eq!(skipped, Skipped { count: 2, first_due: MonoNs(11 * MS) });
        assert_eq!((schedule.pulse(), schedule.due()), (10, MonoNs(13 * MS)), "a pulse due now is in time");
    }

    #[test]
    fn the_pulse_number_saturates_after_an_endless_delay() {
        let mut schedule = Schedule::new(u64::MAX - 1, MonoNs(0), DurNs(1));
        schedule.advance(MonoNs(u64::MAX));
        assert_eq!(schedule.pulse(), u64::MAX);
    }

    proptest! {
        #[test]
        fn an_aligned_schedule_is_due_at_whole_periods_of_its_scale(scale in 0u64..u64::MAX / 4, now in 0u64..1 << 50, period in 1i64..10_000_000_000, lead in 0i64..1_000_000_000) {
            let schedule = Schedule::aligned(MonoNs(now), scale, DurNs(period), DurNs(lead));
            let at_due = scale + (schedule.due().0 - now);
            prop_assert_eq!(at_due % period as u64, 0);
            prop_assert_eq!(at_due / period as u64, schedule.pulse());
            prop_assert!(schedule.due().0 - now >= lead as u64 && schedule.due().0 - now <= (lead + period) as u64);
        }

        #[test]
        fn pulses_stay_in_phase_after_any_delays(delays in proptest::collection::vec(0u64..1 << 40, 1..50), period in 1i64..1 << 32) {
            let mut schedule = Schedule::new(3, MonoNs(1_000), DurNs(period));
            let mut now = MonoNs(1_000);
            for delay in delays {
                let before = schedule;
                now = MonoNs(now.0.max(schedule.due().0) + delay);
                let skipped = schedule.advance(now);
                prop_assert_eq!(schedule.pulse(), before.pulse() + 1 + skipped.count);
                prop_assert_eq!(schedule.due().0, 1_000 + (schedule.pulse() - 3) * period as u64);
                prop_assert!(schedule.due().0 + period as u64 > now.0, "never begins a pulse that is over");
            }
        }
    }
}
