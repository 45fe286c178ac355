//! The guard against runaways, as decisions: how much processor time a thread uses, when it is a runaway, and which
//! steps are taken against it.
//!
//! Must never allocate after its creation and never read a clock: [`Meter`], [`Silence`] and [`Ladder`] get the
//! counters with the time at which they were read. `keep::guard` reads the counters and executes the steps.

mod ladder;
mod meter;

pub use crate::plant::{Budget, Rung, RungAction};
pub use ladder::{BudgetState, Ladder, LadderStep, RUNGS_MAX};
pub use meter::{Meter, Sample, Silence, Verdict};

use base::DurNs;

/// The default ladder.
pub const LADDER: [Rung; 4] = [
    Rung { action: RungAction::Demote, wait: DurNs::from_ms(500) },
    Rung { action: RungAction::Freeze, wait: DurNs::from_ms(200) },
    Rung { action: RungAction::Abort, wait: DurNs::from_secs(2) },
    Rung { action: RungAction::Kill, wait: DurNs::from_secs(1) },
];

/// The default budget of a real-time process.
pub const BUDGET: Budget = Budget::Share { percent: 80, period: DurNs::from_ms(100) };

/// A real-time thread that is runnable but does not run for this long is starved.
pub const STARVED_AFTER: DurNs = DurNs::from_secs(1);
