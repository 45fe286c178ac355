//! Starting processes. Everything is set before the first instruction of the program.
//!
//! A [`LaunchSpec`] has the requests. If the kernel refuses one, the result is an error with its remedy, or a
//! [`Shortfall`] if the spec allows the start without it.

mod explain;
mod lock;
mod plan;
mod sandbox;
mod spec;
mod start;
pub(crate) mod users;

pub use spec::{Capability, CapabilityError, InheritedFd, LaunchSpec, Limit, Resource, Shortfall, Terminal};
pub use start::{HeldProcess, LaunchError, Started, hold, start};
pub(crate) use start::{is_below, user_of};
pub use sys::process::start_ticks;
pub use users::IdentityError;
pub(crate) use users::group_number;
