//! What results were worth, as a process reports it to its supervisor.

use base::Tally;
use keep::supervisor::VALUE_TOLD;

/// What results were worth, and hard deadlines that were missed, as the supervisor hears it.
pub(crate) fn value(tally: &Tally, hard: u64) -> String {
    format!("{VALUE_TOLD}{} {} {} {hard}\n", tally.due, tally.late, tally.worth)
}
