//! The keeper: one small process per supervised child, which holds its terminal, its log and its exit
//! record, and outlives the supervisor.
//!
//! The keeper decides nothing: it starts, signals and records as it is told over its Unix socket.

pub mod protocol;
