//! The value of results, in the format of the protocol between a process and its supervisor.

use base::Tally;
use keep::supervisor::VALUE_TOLD;

/// The value of results and the number of missed hard deadlines, as a line for the supervisor.
pub(crate) fn value(tally: &Tally, hard: u64) -> String {
    format!("{VALUE_TOLD}{} {} {} {hard}\n", tally.due, tally.late, tally.worth)
}
