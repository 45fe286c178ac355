//! What a loop or a frame has given up, what results were worth, and whether that is within what the plant allows.

use super::control::Value;
use base::Tally;
use host::plant::{DeadlineRule, MissRatio};

/// Before the counts in a frame's message to its notify socket: minors run, minors lost, turns of activities that overran.
pub const FRAME_PULSES: &str = "X_TAHTI_PULSES=";

/// Before what the results of a process were worth in a message to its notify socket: results due, late ones, their value in millionths,
/// hard deadlines missed.
pub const VALUE_TOLD: &str = "X_TAHTI_VALUE=";

/// Before what is wrong with a process in a message to its notify socket, for as long as it is: nothing behind it says that nothing is.
pub const TROUBLE_TOLD: &str = "X_TAHTI_TROUBLE=";

/// What a process has told of its trouble, if it tells of that.
pub(crate) fn trouble_told(text: &str) -> Option<Option<String>> {
    let said = text.lines().find_map(|line| line.strip_prefix(TROUBLE_TOLD))?.trim();
    // It is shown on terminals.
    Some((!said.is_empty()).then(|| said.replace(char::is_control, " ")))
}

/// What a process has told of the value of its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// All together.
    pub(crate) tally: Tally,
    /// Hard deadlines missed.
    pub(crate) hard: u64,
}

impl Told {
    /// Reads what it tells, if it tells it.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(VALUE_TOLD))?;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { tally: Tally { due: next()?, late: next()?, worth: next()? }, hard: next()? })
    }
}

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

/// How the value of a process's results stands to what its deadline asks for. `deadline` is `None` where each result has one of its own.
pub(crate) fn judge_value(name: &str, value: &Value, deadline: Option<&DeadlineRule>, hard: u64) -> MissVerdict {
    let text = format!("{name}: {value}");
    let least = deadline.and_then(|deadline| deadline.least);
    match deadline {
        _ if hard > 0 => MissVerdict::Beyond(format!("{text}: hard deadlines were missed")),
        Some(deadline) if deadline.is_hard() && !deadline.allows(&value.tally) => {
            MissVerdict::Beyond(format!("{text}: hard deadlines were missed"))
        }
        Some(deadline) if !deadline.allows(&value.tally) => {
            let least = least.map_or(String::new(), |least| format!(", less than the {least} that it must obtain"));
            MissVerdict::Beyond(text + &least)
        }
        Some(_) if least.is_some() && value.share.is_none() => {
            MissVerdict::Beyond(format!("{name}: no result was due, so that what it must obtain could not be judged"))
        }
        _ => MissVerdict::Within(text),
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
    use base::{DurNs, Lateness, ResultDeadline, Worth};

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
        assert_eq!(trouble_told("STATUS=x\nX_TAHTI_TROUBLE=disk\x1bfull \n"), Some(Some("disk full".into())));
        assert_eq!([trouble_told("X_TAHTI_TROUBLE="), trouble_told("STATUS=x")], [Some(None), None]);
        let pulses = Pulses::of_frame("STATUS=x\nX_TAHTI_PULSES=9995 5 20\n").unwrap();
        let text = "fast: 5 of 10,000 minors lost, 20 turns overran, more than its limit of 0.2 %";
        assert_eq!(pulses.judge("fast", true, Some(MissRatio(2000))), MissVerdict::Beyond(text.to_owned()));
        assert!(matches!(pulses.judge("fast", true, Some(MissRatio(2500))), MissVerdict::Within(_)));
        for text in ["", "X_TAHTI_PULSES=", "X_TAHTI_PULSES=1 2", "X_TAHTI_PULSES=1 2 -3", "X_TAHTI_PULSES=a b c"] {
            assert_eq!(Pulses::of_frame(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_value_of_results_is_always_named_and_judged_where_so_much_is_asked_for() {
        let told = Told::of("X_TAHTI_VALUE=1000 27 973456000 0\n").unwrap();
        assert_eq!(Told::of("X_TAHTI_VALUE=1000 27 973456000"), None);
        let judge = |late: Lateness, least: Option<u32>, tally: Tally, hard| {
            let result = ResultDeadline { at: DurNs::from_ms(5), late };
            let rule = DeadlineRule { result, least: least.map(Worth) };
            let value = Value { deadline: Some(rule.to_string()), least: rule.least, tally, share: tally.share() };
            judge_value("loop", &value, Some(&rule), hard)
        };
        let words = "loop: 97.34 % of the possible value obtained (27 of 1000 results late, deadline 5ms firm)";
        let within = MissVerdict::Within(words.to_owned());
        assert_eq!(judge(Lateness::Firm, None, told.tally, 0), within);
        assert_eq!(judge(Lateness::Firm, Some(970_000), told.tally, 0), within);
        let less = judge(Lateness::Firm, Some(980_000), told.tally, 0);
        assert_eq!(less, MissVerdict::Beyond(format!("{words}, less than the 98.00 % that it must obtain")));
        assert!(
            matches!(judge(Lateness::Hard, None, told.tally, 0), MissVerdict::Beyond(text) if text.contains("hard deadlines"))
        );
        assert!(
            matches!(judge(Lateness::Firm, None, told.tally, 1), MissVerdict::Beyond(_)),
            "one of several was hard"
        );
        let none = judge(Lateness::Firm, Some(1), Tally::default(), 0);
        assert!(matches!(none, MissVerdict::Beyond(text) if text.contains("no result was due")));
    }

    #[test]
    fn lives_add_up_and_long_numbers_are_grouped() {
        assert_eq!(loop_of(1, 2).plus(loop_of(3, u64::MAX)), loop_of(4, u64::MAX));
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
