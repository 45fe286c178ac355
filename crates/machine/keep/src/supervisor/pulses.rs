//! What a loop or a frame has given up, and whether that is within what the plant allows.

use host::plant::MissRatio;

/// Before the counts in a frame's message to its notify socket: minors run, minors lost, turns of activities that overran.
pub const FRAME_PULSES: &str = "X_TAHTI_PULSES=";

/// Pulses of a loop, or minors of a frame, over all lives of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulses {
    /// Those that ran.
    pub(crate) ran: u64,
    /// Those that were given up.
    pub(crate) given_up: u64,
    /// Turns of a frame's activities that were not over in time.
    pub(crate) overran: u64,
}

/// How these pulses stand to their limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissVerdict {
    /// Nothing was given up.
    None,
    /// Something was; there is no limit, or it is within.
    Within(String),
    /// More than the limit, or nobody knows.
    Beyond(String),
}

impl Pulses {
    /// Reads a frame's counts.
    pub(crate) fn of_frame(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(FRAME_PULSES))?;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { ran: next()?, given_up: next()?, overran: next()? })
    }

    /// Both together.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            ran: self.ran.saturating_add(more.ran),
            given_up: self.given_up.saturating_add(more.given_up),
            overran: self.overran.saturating_add(more.overran),
        }
    }

    /// What is to be told of them.
    pub(crate) fn judge(self, name: &str, is_frame: bool, limit: Option<MissRatio>) -> MissVerdict {
        let due = self.ran.saturating_add(self.given_up);
        let missed = self.given_up.saturating_add(self.overran);
        let what = match is_frame {
            true => format!(
                "{name}: {} of {} minors lost, {} turns overran",
                grouped(self.given_up),
                grouped(due),
                grouped(self.overran)
            ),
            false => format!("{name}: {} of {} pulses given up", grouped(missed), grouped(due)),
        };
        match limit {
            Some(limit) if due == 0 => MissVerdict::Beyond(format!(
                "{name} published no pulse, so that its limit of {limit} could not be judged"
            )),
            Some(limit) if !limit.allows(missed, due) => {
                MissVerdict::Beyond(format!("{what}, more than its limit of {limit}"))
            }
            _ if missed == 0 => MissVerdict::None,
            Some(limit) => MissVerdict::Within(format!("{what}, within its limit of {limit}")),
            None => MissVerdict::Within(format!("{what}; no limit is set")),
        }
    }
}

/// `60,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_of(ran: u64, given_up: u64) -> Pulses {
        Pulses { ran, given_up, overran: 0 }
    }

    #[test]
    fn what_was_given_up_is_always_named_and_judged_where_there_is_a_limit() {
        let judge = |pulses: Pulses, limit: Option<&str>| {
            pulses.judge("loop", false, limit.map(|limit| limit.parse::<MissRatio>().unwrap()))
        };
        assert_eq!(judge(loop_of(60_000, 0), None), MissVerdict::None);
        assert_eq!(judge(loop_of(60_000, 0), Some("0%")), MissVerdict::None);
        let text = "loop: 91 of 60,000 pulses given up; no limit is set";
        assert_eq!(judge(loop_of(59_909, 91), None), MissVerdict::Within(text.to_owned()));
        let text = "loop: 91 of 60,000 pulses given up, within its limit of 0.2 %";
        assert_eq!(judge(loop_of(59_909, 91), Some("0.2%")), MissVerdict::Within(text.to_owned()));
        let text = "loop: 91 of 60,000 pulses given up, more than its limit of 0.15 %";
        assert_eq!(judge(loop_of(59_909, 91), Some("0.15%")), MissVerdict::Beyond(text.to_owned()));
        assert!(matches!(judge(loop_of(0, 0), Some("1%")), MissVerdict::Beyond(text) if text.contains("no pulse")));
        assert_eq!(judge(loop_of(0, 0), None), MissVerdict::None, "a process without a loop");
    }

    #[test]
    fn of_frames_lost_minors_and_overruns_count_together() {
        let pulses = Pulses::of_frame("STATUS=x\nX_TAHTI_PULSES=9995 5 20\n").unwrap();
        let text = "fast: 5 of 10,000 minors lost, 20 turns overran, more than its limit of 0.2 %";
        assert_eq!(pulses.judge("fast", true, Some(MissRatio(2000))), MissVerdict::Beyond(text.to_owned()));
        assert!(matches!(pulses.judge("fast", true, Some(MissRatio(2500))), MissVerdict::Within(_)));
        for text in ["", "X_TAHTI_PULSES=", "X_TAHTI_PULSES=1 2", "X_TAHTI_PULSES=1 2 -3", "X_TAHTI_PULSES=a b c"] {
            assert_eq!(Pulses::of_frame(text), None, "{text:?}");
        }
    }

    #[test]
    fn lives_add_up_and_long_numbers_are_grouped() {
        assert_eq!(loop_of(1, 2).plus(loop_of(3, u64::MAX)), loop_of(4, u64::MAX));
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
