//! The collector: archives Channel Access variables, exported variables of local processes, statistics of loops and frames,
//! messages, alarms and images, each according to a policy.
//!
//! [`host::plant::archive`] parses the tables that configure them. [`Gate`] decides which values are kept, [`serve()`] moves them
//! from the network and shared memory to [`store::Logger`], and [`status`] reports the state. The archive's format and the
//! protocols of the sources are in other crates.
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
mod unconnected;

pub use gate::Gate;
pub use serve::{CollectError, serve};
