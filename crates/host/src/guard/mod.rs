//! The guard against runaways, as decisions: how much a thread burns, when that is a runaway, and what is
//! done about it, step by step.
//!
//! Must never allocate once made, nor look at a clock: [`Meter`], [`Silence`] and [`Ladder`] are fed with what
//! was read and when. The shell that reads and acts is `keep::guard`.

mod ladder;
mod meter;

pub use crate::plant::{Budget, Rung, RungAction};
pub use ladder::{Deed, Ladder, RUNGS_MAX, Seen};
pub use meter::{Meter, Sample, Silence, Verdict};

use base::DurNs;

/// The ladder that is climbed where the plant says nothing else.
pub const LADDER: [Rung; 4] = [
    Rung { action: RungAction::Demote, wait: DurNs::from_ms(500) },
    Rung { action: RungAction::Freeze, wait: DurNs::from_ms(200) },
    Rung { action: RungAction::Abort, wait: DurNs::from_secs(2) },
    Rung { action: RungAction::Kill, wait: DurNs::from_secs(1) },
];

/// The budget of a real-time process where nothing else is said.
pub const BUDGET: Budget = Budget::Share { percent: 80, period: DurNs::from_ms(100) };

/// Reads a budget as the command line writes it: `80%/100ms` or `none`.
///
/// # Errors
/// What was expected.
pub fn parse_budget(text: &str) -> Result<Budget, String> {
    let expected = "expected a share of a period such as 80%/100ms (1 % to 99 %, 10 ms to 60 s), or none";
    if text == "none" {
        return Ok(Budget::None);
    }
    let (percent, period) = text.split_once('/').ok_or(expected)?;
    let percent = percent.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok()).ok_or(expected)?;
    let period: DurNs = period.trim().parse().map_err(|error| format!("{error}; {expected}"))?;
    let possible = (1..=99).contains(&percent) && DurNs::from_ms(10) <= period && period <= DurNs::from_secs(60);
    if possible { Ok(Budget::Share { percent, period }) } else { Err(expected.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let share = |percent, ms| Ok(Budget::Share { percent, period: DurNs::from_ms(ms) });
        assert_eq!(parse_budget("80%/100ms"), share(80, 100));
        assert_eq!(parse_budget("5 % / 1s"), share(5, 1000));
        assert_eq!(parse_budget("none"), Ok(Budget::None));
        for text in ["", "80", "80/100ms", "100%/1s", "0%/1s", "80%/1ms", "80%/2h", "80%/100", "-1%/1s"] {
            assert!(parse_budget(text).unwrap_err().contains("80%/100ms"), "{text}");
        }
    }
}
