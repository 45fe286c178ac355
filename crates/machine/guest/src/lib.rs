//! Guests: other operating systems next to the real-time part. Each is a virtual machine in a separate QEMU.
//!
//! The crate must never
//!
//! - print control characters of a guest or QEMU on a terminal,
//! - wait for QEMU without a limit,
//! - report an acceleration or a placement that was not read back,
//! - leave a QEMU or a socket behind when it ends.
//!
//! [`model`], [`define`], [`qmp::codec`], [`state`] and [`stop`] decide, without files, sockets or clocks. [`qmp`],
//! [`net`] and [`serve`](mod@serve) act. Nothing here is for real-time threads: all of it allocates and blocks.

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
pub use serve::{GuestEnd, ServeError, serve};
