//! Guests: other operating systems beside the real-time part, each a virtual machine in a QEMU of its own.
//!
//! Must never let a guest's or QEMU's words steer a terminal, wait without a bound for QEMU, report an acceleration or a
//! placement that was not read back, or leave a QEMU or a socket behind when it ends.
//!
//! [`model`], [`define`], [`qmp::codec`], [`state`] and [`stop`] decide, and know no file, socket or clock; [`qmp`], [`net`] and [`serve`](mod@serve) do it. Nothing here
//! is for real-time threads: all of it allocates and blocks.

mod console;
pub mod define;
pub mod model;
pub mod net;
pub mod place;
mod qemu;
pub mod qmp;
pub mod serve;
pub mod state;
pub mod stop;
pub mod usage;
mod watch;

pub use model::{Accel, Guest, Home, Network, Profile};
pub use net::Rule;
pub use place::Vcpu;
pub use serve::{Ended, ServeError, serve};
