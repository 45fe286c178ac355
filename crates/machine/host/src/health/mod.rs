//! Health: the promises of a plant file, compared with observations.
//!
//! [`promises`] turns a plant into rows, one for each promise. Process crates observe and hand each [`Observation`] to the
//! [`Table`] with the time. The table decides: states, transitions, and the [`Outcome`] over the whole life of the plant.
//! A row without an observation for two intervals is *not observed*, which is not kept.
//!
//! Start with [`Table::observe`].

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
