//! Who is asked, and what their signals are.

mod alarms;
mod frames;
mod loops;
mod messages;
mod streams;

pub(crate) use alarms::Alarms;
pub(crate) use frames::Frames;
pub(crate) use loops::Loops;
pub(crate) use messages::Messages;
pub(crate) use streams::Streams;

use crate::interval::Figures;
use crate::origin::Found;
use base::{DurNs, MonoNs};
use sys::clock::{mono_now, sleep_until};

/// How often statistics are read.
const EVERY: DurNs = DurNs::from_secs(1);

/// Waits for the next second of the monotonic clock.
fn next_second(due: &mut MonoNs) {
    *due = (*due + EVERY).max(mono_now());
    sleep_until(*due);
}

/// Quantiles of an interval, in nanoseconds; none where nothing came.
fn quantiles(prefix: &str, figures: &Figures, at: i64, found: &mut Vec<Found>) {
    for (name, num, den) in [("p50", 1, 2), ("p99", 99, 100), ("p999", 999, 1_000), ("max", 1, 1)] {
        if let Some(value) = figures.quantile(num, den) {
            found.push(Found::number(format!("{prefix}{name}"), "ns", at, value));
        }
    }
}

/// A count that only grows, as what came since the last look.
fn more(now: u64, before: u64) -> i64 {
    i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX)
}
