//! Health: the promises of a plant file, compared with observations.
//!
//! [`promises`] turns a plant into rows, one per promise. Other crates observe and pass each [`Observation`] with its
//! time to the [`Table`]. The table determines states, transitions, and the [`Outcome`] over the whole life of the
//! plant. A row without an observation for two intervals is *not observed*, which counts as not kept.
//!
//! Start with [`Table::observe`].

pub mod gap;
pub mod keys;
mod outcome;
mod promise;
mod row;
mod table;

pub use outcome::{Outcome, Reason};
pub use promise::{
    Claim, INTERVAL, MACHINE, PLANT, Promise, SHIELD, SUPERVISOR, Service, own_service, partition, promises,
};
pub use row::{Observation, Row, State, Transition};
pub use table::{RowStatus, Table};

#[cfg(test)]
mod tests;
