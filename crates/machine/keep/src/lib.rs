//! The shells that act on the machine: starting processes, keeping them, guarding against runaways, and
//! executing plans.
//!
//! What to do is decided in `host`; this crate does it through `sys`. It opens Unix sockets only, and
//! runs no async runtime. A failure to obtain a real-time property is always reported, never papered over.
#![forbid(unsafe_code)]

pub mod evidence;
mod family;
pub mod foreground;
mod forward;
mod group;
pub mod guard;
pub mod keeper;
pub mod launch;
pub mod machine;
mod notify;
mod page;
mod run_dir;
pub mod shield;
pub mod supervisor;
pub mod threads;
pub mod watchdog;
pub use family::family;
pub use run_dir::RunDir;
