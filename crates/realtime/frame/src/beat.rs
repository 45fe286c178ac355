//! Rhythm of an external time base: whether its ticks come as the plan expects.

use base::{DurNs, MonoNs};

/// State of an external time base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beat {
    /// The ticks match the minors' lengths, or were too few for a decision.
    #[default]
    Steady,
    /// The last tick came after less than three quarters of the minor's length.
    Early,
    /// The last tick came after more than one and a half times the minor's length.
    Late,
    /// No tick came within the dispatcher's maximum wait.
    Stopped,
}

/// Monitors an external time base. A step in time causes one tick that is early or late; a wrong rate causes many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rhythm {
    last: Option<MonoNs>,
    beat: Beat,
}

impl Rhythm {
    /// Processes `ticks` ticks, detected at `now`, while a minor of `length` was running. Returns the state and the time per
    /// tick.
    pub fn tick(&mut self, now: MonoNs, ticks: u64, length: DurNs) -> (Beat, DurNs) {
        let Some(last) = self.last.replace(now) else { return (self.beat, length) };
        let each = DurNs((now - last).0 / ticks.clamp(1, i64::MAX as u64) as i64);
        self.beat = match each.0 {
            // The product cannot overflow, because a minor is at most one hour.
            short if short < length.0 / 4 * 3 => Beat::Early,
            long if long > length.0 / 2 * 3 => Beat::Late,
            _ => Beat::Steady,
        };
        (self.beat, each)
    }

    /// Records that no tick has come for a long time.
    pub fn silence(&mut self) -> Beat {
        self.beat = Beat::Stopped;
        self.beat
    }

    /// The last state.
    #[must_use]
    pub fn beat(&self) -> Beat {
        self.beat
    }

    /// Time until which the dispatcher ignores the time base, after a minor that began at `begun`. Otherwise a time base
    /// that ticks too often would take all of the processor. Ticks in that time are lost.
    #[must_use]
    pub fn rest(&self, begun: MonoNs, length: DurNs) -> Option<MonoNs> {
        (self.beat == Beat::Early).then(|| begun + DurNs(length.0 / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;
    const LENGTH: DurNs = DurNs::from_ms(1);

    /// The states for ticks at these times (in us).
    fn beats(times: &[u64]) -> Vec<Beat> {
        let mut rhythm = Rhythm::default();
        times.iter().map(|us| rhythm.tick(MonoNs(us * 1000), 1, LENGTH).0).collect()
    }

    #[test]
    fn a_doubled_rate_a_halved_rate_and_a_step_are_distinguished() {
        use Beat::{Early, Late, Steady};
        assert_eq!(beats(&[1000, 2000, 2900, 4100]), [Steady; 4]);
        assert_eq!(beats(&[1000, 2000, 2500, 3000, 3500]), [Steady, Steady, Early, Early, Early]);
        assert_eq!(beats(&[1000, 3000, 5000]), [Steady, Late, Late]);
        assert_eq!(beats(&[1000, 2000, 3700, 4700]), [Steady, Steady, Late, Steady]);
    }

    #[test]
    fn several_ticks_at_a_time_share_the_time_since_the_last() {
        let mut rhythm = Rhythm::default();
        rhythm.tick(MonoNs(0), 1, LENGTH);
        assert_eq!(rhythm.tick(MonoNs(4 * MS), 4, LENGTH), (Beat::Steady, LENGTH));
        assert_eq!(rhythm.rest(MonoNs(4 * MS), LENGTH), None);
        assert_eq!(rhythm.tick(MonoNs(5 * MS), 10, LENGTH), (Beat::Early, DurNs::from_us(100)));
        assert_eq!(rhythm.rest(MonoNs(5 * MS), LENGTH), Some(MonoNs(5 * MS + MS / 4)));
        assert_eq!(rhythm.silence(), Beat::Stopped);
        // The first tick after a silence is late.
        assert_eq!(rhythm.tick(MonoNs(9 * MS), 1, LENGTH).0, Beat::Late);
    }
}
