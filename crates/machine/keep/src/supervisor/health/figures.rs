//! Figures over the whole life of a process: skipped periods, and the value of results.

use crate::supervisor::control::Value;
use crate::supervisor::pulses::Pulses;
use host::health::Observation;
use host::plant::{DeadlineRule, MissRatio};

/// Progress of a process, for figures that it publishes only after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It was never started.
    NotStarted,
    /// It was started a moment ago.
    Beginning,
    /// It must have published its figures.
    Begun,
}

/// Checks the number of skipped periods against the limit.
pub(crate) fn judge_pulses(
    pulses: &Pulses,
    is_frame: bool,
    limit: Option<MissRatio>,
    progress: Progress,
) -> Observation {
    let due = pulses.ran.saturating_add(pulses.given_up);
    let missed = pulses.given_up.saturating_add(pulses.overran);
    let what = match is_frame {
        true => of_frame(pulses, due),
        false => format!("{} of {} periods skipped", grouped(missed), grouped(due)),
    };
    match limit {
        _ if progress == Progress::NotStarted => Observation::NotDue("it was never started".to_owned()),
        _ if progress == Progress::Beginning && due == 0 => {
            Observation::NotDue("it has published no period yet".to_owned())
        }
        Some(limit) if due == 0 => {
            Observation::Broken(format!("it published no period, so its limit of {limit} cannot be judged"))
        }
        Some(limit) if !limit.allows(missed, due) => {
            Observation::Broken(format!("{what}, more than its limit of {limit}"))
        }
        None if due == 0 => Observation::NotDue("it has published no period".to_owned()),
        _ if missed == 0 => Observation::Kept,
        Some(limit) => Observation::Within(format!("{what}, within its limit of {limit}")),
        None => Observation::Within(format!("{what}; each one degrades the plant")),
    }
}

/// The skipped minor frames and the overruns of a frame, only what happened.
fn of_frame(pulses: &Pulses, due: u64) -> String {
    let skipped = || format!("{} of {} minor frames skipped", grouped(pulses.given_up), grouped(due));
    let overran = match pulses.overran {
        1 => "1 activity overran".to_owned(),
        more => format!("{} activities overran", grouped(more)),
    };
    match (pulses.given_up, pulses.overran) {
        (_, 0) => skipped(),
        (0, _) => format!("{overran} in {} minor frames", grouped(due)),
        _ => format!("{}, {overran}", skipped()),
    }
}

/// Checks the value of results against the deadline. `deadline` is `None` if each result has its own.
pub(crate) fn judge_value(
    value: Option<&Value>,
    deadline: Option<&DeadlineRule>,
    hard: u64,
    progress: Progress,
) -> Observation {
    let least = deadline.and_then(|deadline| deadline.least);
    // Without a deadline of the process, each result has its own, and none may have been due.
    let nothing = match (deadline, progress) {
        (Some(_), Progress::Begun) => {
            Observation::Broken("no result was due, so its value cannot be judged".to_owned())
        }
        _ => Observation::NotDue("no result was due yet".to_owned()),
    };
    let Some(value) = value else { return nothing };
    match deadline {
        _ if hard > 0 => Observation::Broken(format!("{value}: hard deadlines were missed")),
        Some(deadline) if deadline.is_hard() && !deadline.allows(&value.tally) => {
            Observation::Broken(format!("{value}: hard deadlines were missed"))
        }
        Some(deadline) if !deadline.allows(&value.tally) => {
            let least = least.map_or(String::new(), |least| format!(", less than the required {least}"));
            Observation::Broken(format!("{value}{least}"))
        }
        _ if value.share.is_none() => nothing,
        _ if value.tally.late > 0 => Observation::Within(value.to_string()),
        _ => Observation::Kept,
    }
}

/// Formats a number with thousands separators, as in `60,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{DurNs, Lateness, ResultDeadline, Tally, Worth};

    fn pulses(ran: u64, given_up: u64) -> Pulses {
        Pulses { ran, given_up, overran: 0 }
    }

    fn limit(text: &str) -> Option<MissRatio> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_skipped_period_is_never_good_and_beyond_its_limit_it_is_broken() {
        let judge = |all: Pulses, limit| judge_pulses(&all, false, limit, Progress::Begun);
        for none in [None, limit("0%")] {
            assert_eq!(judge(pulses(60_000, 0), none), Observation::Kept);
        }
        let text = "91 of 60,000 periods skipped; each one degrades the plant";
        assert_eq!(judge(pulses(59_909, 91), None), Observation::Within(text.to_owned()));
        let text = "91 of 60,000 periods skipped, within its limit of 0.2 %";
        assert_eq!(judge(pulses(59_909, 91), limit("0.2%")), Observation::Within(text.to_owned()));
        let text = "91 of 60,000 periods skipped, more than its limit of 0.15 %";
        assert_eq!(judge(pulses(59_909, 91), limit("0.15%")), Observation::Broken(text.to_owned()));
        assert!(matches!(judge(pulses(0, 0), limit("1%")), Observation::Broken(text) if text.contains("no period")));
        assert!(matches!(judge(pulses(0, 0), None), Observation::NotDue(_)), "a process without a loop");
        for progress in [Progress::NotStarted, Progress::Beginning] {
            let early = judge_pulses(&pulses(0, 0), false, limit("1%"), progress);
            assert!(matches!(early, Observation::NotDue(_)), "{progress:?}: {early:?}");
        }
        let bad = judge_pulses(&pulses(50, 50), false, limit("1%"), Progress::Beginning);
        assert!(matches!(bad, Observation::Broken(_)), "skipped periods count from the first on: {bad:?}");
    }

    #[test]
    fn minor_frames_and_overruns_count_together() {
        let frame = Pulses { ran: 9995, given_up: 5, overran: 20 };
        let text = "5 of 10,000 minor frames skipped, 20 activities overran, more than its limit of 0.2 %";
        assert_eq!(
            judge_pulses(&frame, true, Some(MissRatio(2000)), Progress::Begun),
            Observation::Broken(text.to_owned())
        );
        assert!(matches!(judge_pulses(&frame, true, Some(MissRatio(2500)), Progress::Begun), Observation::Within(_)));
        for (given_up, overran, text) in [
            (0, 1, "1 activity overran in 575 minor frames; each one degrades the plant"),
            (2, 0, "2 of 575 minor frames skipped; each one degrades the plant"),
        ] {
            let pulses = Pulses { ran: 575 - given_up, given_up, overran };
            assert_eq!(judge_pulses(&pulses, true, None, Progress::Begun), Observation::Within(text.to_owned()));
        }
    }

    #[test]
    fn a_late_result_is_never_good_and_less_than_the_minimum_value_is_broken() {
        let late = Tally { due: 1000, late: 27, worth: 973_456_000 };
        let judge = |lateness: Lateness, least: Option<u32>, tally: Tally, hard| {
            let result = ResultDeadline { at: DurNs::from_ms(5), late: lateness };
            let rule = DeadlineRule { result, least: least.map(Worth) };
            let value = Value { deadline: Some(rule.to_string()), least: rule.least, tally, share: tally.share() };
            judge_value(Some(&value), Some(&rule), hard, Progress::Begun)
        };
        let words = "97.34 % of the full value obtained (27 of 1000 results late, deadline 5ms firm)";
        let within = Observation::Within(words.to_owned());
        assert_eq!(judge(Lateness::Firm, None, late, 0), within);
        assert_eq!(judge(Lateness::Firm, Some(970_000), late, 0), within);
        let less = judge(Lateness::Firm, Some(980_000), late, 0);
        assert_eq!(less, Observation::Broken(format!("{words}, less than the required 98.00 %")));
        for (lateness, hard) in [(Lateness::Hard, 0), (Lateness::Firm, 1)] {
            let broken = judge(lateness, None, late, hard);
            assert!(matches!(broken, Observation::Broken(text) if text.contains("hard deadlines")));
        }
        let none = judge(Lateness::Firm, Some(1), Tally::default(), 0);
        assert!(matches!(none, Observation::Broken(text) if text.contains("no result was due")));
        let rule = DeadlineRule {
            result: ResultDeadline { at: DurNs::from_ms(5), late: Lateness::Firm },
            least: Some(Worth(1)),
        };
        for progress in [Progress::NotStarted, Progress::Beginning] {
            assert!(matches!(judge_value(None, Some(&rule), 0, progress), Observation::NotDue(_)), "{progress:?}");
        }
        let hard = DeadlineRule { result: ResultDeadline { at: DurNs::from_ms(5), late: Lateness::Hard }, least: None };
        assert!(matches!(judge_value(None, Some(&hard), 0, Progress::Begun), Observation::Broken(_)));
        assert!(matches!(judge_value(None, None, 0, Progress::Begun), Observation::NotDue(_)));
        let all = Tally { due: 10, late: 0, worth: 10_000_000 };
        assert_eq!(judge(Lateness::Firm, Some(990_000), all, 0), Observation::Kept);
    }

    #[test]
    fn long_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
