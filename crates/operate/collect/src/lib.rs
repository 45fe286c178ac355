//! What goes into the archive: variables of Channel Access servers, exported ones of this machine's processes, statistics of loops and frames,
//! messages, alarms and images, each by a policy.
//!
//! The tables that name them are read by [`host::plant::archive`]; [`Gate`] decides which values are kept, [`serve()`] moves them from network and shared memory to
//! [`store::Logger`]; [`status`] is what it tells of itself. Never here: what a block is, how a circuit speaks.
#![forbid(unsafe_code)]

mod channels;
mod clock;
mod exported;
mod gate;
mod image;
mod interval;
mod kept;
mod origin;
mod origins;
mod serve;
pub mod status;
mod troubles;

pub use gate::Gate;
pub use serve::{CollectError, serve};
