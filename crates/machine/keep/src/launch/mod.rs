//! Starting a process with everything set before its first instruction.
//!
//! A [`LaunchSpec`] says what is wanted; what the kernel refuses is an error with its remedy, or a
//! [`Shortfall`] where the spec allows to go on without. Nothing is set after the program runs that
//! could have been set before.

mod explain;
mod lock;
mod plan;
mod sandbox;
mod spec;
mod start;
pub(crate) mod users;

pub use spec::{Capability, CapabilityError, InheritedFd, LaunchSpec, Limit, Resource, Shortfall, Terminal};
pub use start::{Held, LaunchError, Started, hold, start};
pub(crate) use start::{is_below, user_of};
pub use sys::process::start_ticks;
pub use users::IdentityError;
pub(crate) use users::group_number;
