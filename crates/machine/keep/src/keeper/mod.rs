//! The keeper: one small process per supervised child. It holds the child's terminal, log and exit records, and outlives the
//! supervisor.
//!
//! The keeper makes no decisions: it starts, signals and records as requested over its Unix socket. [`Keeper`] is the
//! supervisor's side, [`run`] the keeper process itself.

mod client;
mod console;
pub(crate) mod ending;
mod last_line;
mod log;
pub mod protocol;
mod running;
mod serve;
mod silence;

pub use client::{ANSWER_WITHIN, Keeper, KeeperError, News, Refusal, SPEC_NAME, SUBCOMMAND, run};
pub use protocol::SOCKET_NAME;
pub(crate) use running::kill_left_behind;
pub(crate) use serve::open_to;
pub use serve::{ServeError, serve};
