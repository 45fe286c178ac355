//! Reports of processes on their periods, results and faults.

use base::Tally;

/// Prefix of a frame's counts in a message to its notify socket: minor frames run, minor frames skipped, overruns of
/// activities.
pub const FRAME_PULSES: &str = "X_TAHTI_PULSES=";

/// Prefix of the value of a process's results in a message to its notify socket: results due, late results, total value in
/// millionths, hard deadlines missed.
pub const VALUE_TOLD: &str = "X_TAHTI_VALUE=";

/// The fault in a process's message: `None` if the message does not mention faults, `Some(None)` if there is none any
/// longer.
pub(crate) fn trouble_told(text: &str) -> Option<Option<String>> {
    text.lines().find_map(|line| line.strip_prefix(sys::notify::TROUBLE)).map(shown)
}

/// Something that a process reports as not obtained.
pub(crate) fn shortfall_told(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(sys::notify::SHORTFALL)).and_then(shown)
}

/// The status in a process's message, in the same form.
pub(crate) fn status_told(text: &str) -> Option<Option<String>> {
    text.lines().find_map(|line| line.strip_prefix("STATUS=")).map(shown)
}

/// A process's text for users; `None` if it is empty. It is displayed on terminals, so control characters are replaced.
pub(crate) fn shown(text: &str) -> Option<String> {
    /// Maximum characters.
    const TEXT_MAX: usize = 400;
    let text = text.trim();
    let letters = text.chars().take(TEXT_MAX).map(|letter| if letter.is_control() { ' ' } else { letter });
    (!text.is_empty()).then(|| letters.collect())
}

/// Reported value of a process's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedValue {
    /// Totals of all results.
    pub(crate) tally: Tally,
    /// Hard deadlines missed.
    pub(crate) hard: u64,
}

impl ReportedValue {
    /// Parses a message, if it has this prefix.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(VALUE_TOLD))?;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { tally: Tally { due: next()?, late: next()?, worth: next()? }, hard: next()? })
    }
}

/// Pulses of a loop, or minor frames of a frame, over all restarts of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulses {
    /// Number that ran.
    pub(crate) ran: u64,
    /// Number skipped.
    pub(crate) given_up: u64,
    /// Overruns of a frame's activities.
    pub(crate) overran: u64,
}

impl Pulses {
    /// Parses a frame's counts.
    pub(crate) fn of_frame(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix(FRAME_PULSES))?;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { ran: next()?, given_up: next()?, overran: next()? })
    }

    /// Sum of both.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            ran: self.ran.saturating_add(more.ran),
            given_up: self.given_up.saturating_add(more.given_up),
            overran: self.overran.saturating_add(more.overran),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_process_are_parsed_completely_or_not_at_all() {
        assert_eq!(trouble_told("STATUS=x\nX_TAHTI_TROUBLE=disk\x1bfull \n"), Some(Some("disk full".into())));
        assert_eq!([trouble_told("X_TAHTI_TROUBLE="), trouble_told("STATUS=x")], [Some(None), None]);
        assert_eq!(shortfall_told("X_TAHTI_SHORTFALL=no\x1bfile\nSTATUS=x"), Some("no file".into()));
        assert_eq!([shortfall_told("X_TAHTI_SHORTFALL= "), shortfall_told("STATUS=x")], [None, None]);
        assert_eq!(status_told("WATCHDOG=1\nSTATUS=tuning \x1b[31m\n"), Some(Some("tuning  [31m".into())));
        assert_eq!([status_told("STATUS="), status_told("X_TAHTI_TROUBLE=x")], [Some(None), None]);
        assert_eq!(shown(&"é".repeat(5000)).unwrap().chars().count(), 400);
        let pulses = Pulses { ran: 9995, given_up: 5, overran: 20 };
        assert_eq!(Pulses::of_frame("STATUS=x\nX_TAHTI_PULSES=9995 5 20\n"), Some(pulses));
        for text in ["", "X_TAHTI_PULSES=", "X_TAHTI_PULSES=1 2", "X_TAHTI_PULSES=1 2 -3", "X_TAHTI_PULSES=a b c"] {
            assert_eq!(Pulses::of_frame(text), None, "{text:?}");
        }
        let told = ReportedValue::of("X_TAHTI_VALUE=1000 27 973456000 1\n").unwrap();
        assert_eq!((told.tally, told.hard), (Tally { due: 1000, late: 27, worth: 973_456_000 }, 1));
        assert_eq!(ReportedValue::of("X_TAHTI_VALUE=1000 27 973456000"), None);
    }

    #[test]
    fn pulses_of_several_runs_are_added() {
        let all = |ran, given_up| Pulses { ran, given_up, overran: 0 };
        assert_eq!(all(1, 2).plus(all(3, u64::MAX)), all(4, u64::MAX));
    }
}
