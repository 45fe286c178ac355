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

/// The ladder that is climbed where nothing else is said.
pub const LADDER: [Rung; 4] = [
    Rung { action: RungAction::Demote, wait: DurNs::from_ms(500) },
    Rung { action: RungAction::Freeze, wait: DurNs::from_ms(200) },
    Rung { action: RungAction::Abort, wait: DurNs::from_secs(2) },
    Rung { action: RungAction::Kill, wait: DurNs::from_secs(1) },
];

/// The budget of a real-time process where nothing else is said.
pub const BUDGET: Budget = Budget::Share { percent: 80, period: DurNs::from_ms(100) };

/// A real-time thread that is runnable but has not run for this long is starved.
pub const STARVED_AFTER: DurNs = DurNs::from_secs(1);
