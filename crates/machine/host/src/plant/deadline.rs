//! Reads `deadline = {…}`: the time until which results count, and the value of late results.

use super::MissRatio;
use super::keys::{Table, key};
use base::{DurNs, Fall, Lateness, ResultDeadline, Tally, Worth};
use serde::{Deserialize, Serialize};
use std::fmt;
use table::{Diagnostics, Section};

const HOUR: DurNs = DurNs::from_secs(3600);

/// `deadline = {…}`
pub(crate) const DEADLINE: Table = Table {
    header: "deadline",
    doc: "Deadline for full value, and the value of a late result ([values](../supervisor.md#the-value-of-late-results)). A result that never comes has \
          no value. `ps` and the verdict show the value in percent of the full value.",
    keys: &[
        key(
            "at",
            r#""5ms""#,
            "time, 1us to 1h",
            "",
            "Deadline, measured from the time at which the result was due to start: a loop's pulse, a minor frame, or the arrival of a request at \
             the server.",
        ),
        key(
            "kind",
            r#""soft""#,
            "`hard`, `firm` or `soft`",
            "",
            "Effect of a late result. `hard`: a failure; no value, and the output becomes safe. `firm`: no value; it is discarded and counted. \
             `soft`: it is used, with the value that `value` sets.",
        ),
        key(
            "value",
            r#""linear 10ms""#,
            "`linear TIME` or `half TIME`, for `soft`",
            "none: must be given for `soft`",
            "Value after the deadline: `linear` falls linearly to zero within TIME, `half` halves in each TIME.",
        ),
        key(
            "least",
            r#""95%""#,
            "percentage, `0%` to `100%`",
            "none: any late result degrades the plant",
            "Minimum value of all results over the plant's life, in percent of the full value. Below it the plant is *failed*.",
        ),
    ],
};

/// `deadline = {…}`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineRule {
    /// The deadline, and the value of a late result.
    pub result: ResultDeadline,
    /// Minimum value of all results, as a share of the full value.
    pub least: Option<Worth>,
}

impl DeadlineRule {
    /// Whether a late result is a failure.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.result.late == Lateness::Hard
    }

    /// Whether the results in `tally` are good enough: with a hard deadline all are in time, and the minimum value is
    /// reached.
    #[must_use]
    pub fn allows(&self, tally: &Tally) -> bool {
        let share = tally.share().unwrap_or(Worth::WHOLE);
        // A hard result has its whole value or none, so any missing value means a missed result.
        let missed = self.is_hard() && share < Worth::WHOLE;
        !missed && self.least.is_none_or(|least| share >= least)
    }
}

impl fmt::Display for DeadlineRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.result.fmt(f)
    }
}

/// Reads `deadline`, if there is one.
pub(crate) fn read(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<DeadlineRule> {
    let table = section.section("deadline", &DEADLINE, "deadline", found)?;
    let least = table.parsed::<MissRatio>("least", found).map(|(least, _)| Worth(least.0));
    Some(DeadlineRule { result: read_in(&table, found)?, least })
}

/// Reads the keys of a deadline, except `least`.
pub(crate) fn read_in(table: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<ResultDeadline> {
    for name in ["at", "kind"] {
        if table.value(name).is_none() {
            table.missing(name, found);
        }
    }
    let at = table.time("at", DurNs::from_us(1), HOUR, found).map(|(at, _)| at);
    let fall = table.parsed::<Fall>("value", found);
    let (kind, span) = table.text("kind", found)?;
    let late = match (kind, fall) {
        ("soft", Some((fall, _))) => Lateness::Soft(fall),
        ("soft", None) => {
            if table.value("value").is_none() {
                let message = "a soft `deadline` without the value of a late result";
                found.error(span, message, "`value`", "add `value = \"linear 10ms\"`");
            }
            return None;
        }
        ("hard" | "firm", Some((_, span))) => {
            let message = format!("`value` of a {kind} `deadline`");
            found.error(
                span,
                message,
                "no `value`: a late result has no value",
                "remove it, or make the deadline `soft`",
            );
            return None;
        }
        ("hard", None) => Lateness::Hard,
        ("firm", None) => Lateness::Firm,
        (other, _) => {
            found.error(span, format!("`kind` cannot be {other:?}"), "`hard`, `firm` or `soft`", "");
            return None;
        }
    };
    Some(ResultDeadline { at: at?, late })
}
