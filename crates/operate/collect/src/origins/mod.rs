//! Sources by kind.

mod alarms;
mod frames;
mod loops;
mod messages;
mod pvaccess;
mod streams;

pub(crate) use alarms::Alarms;
pub(crate) use frames::Frames;
pub(crate) use loops::Loops;
pub(crate) use messages::Messages;
pub(crate) use pvaccess::PvAccess;
pub(crate) use streams::Streams;

use crate::interval::Figures;
use crate::origin::Item;
use base::{DurNs, MonoNs};
use sys::clock::{mono_now, sleep_until};

/// Interval at which statistics are read.
const EVERY: DurNs = DurNs::from_secs(1);

/// Waits for the next poll, one second after the last.
fn next_second(due: &mut MonoNs) {
    *due = (*due + EVERY).max(mono_now());
    sleep_until(*due);
}

/// Adds quantiles of an interval in nanoseconds; none if the interval is empty.
fn quantiles(prefix: &str, figures: &Figures, at: i64, found: &mut Vec<Item>) {
    for (name, num, den) in [("p50", 1, 2), ("p99", 99, 100), ("p999", 999, 1_000), ("max", 1, 1)] {
        if let Some(value) = figures.quantile(num, den) {
            found.push(Item::number(format!("{prefix}{name}"), "ns", at, value));
        }
    }
}

/// Increase of a counter.
fn more(now: u64, before: u64) -> i64 {
    i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX)
}
