//! System calls, one per function: files under a root directory, scheduling, affinity, clocks.
//!
//! A function decides nothing. It loops only where a system call needs it (`EINTR`, short reads), and returns the kernel's
//! error unchanged. Callers such as `keep`, `rt` and `cli` decide.
//!
//! `unsafe` is allowed here, as in the few other crates that `CONTRIBUTING.md` lists. Each block has one operation and its
//! reason.
#![allow(unsafe_code, reason = "the crate that talks to the kernel; every block states why it is sound")]

pub mod alloc;
pub mod bell;
pub mod child;
pub mod clock;
pub mod datagrams;
mod error;
pub mod files;
pub mod futex;
pub mod gpio;
pub mod handover;
pub mod interfaces;
pub mod kernel;
pub mod lock;
pub mod mem;
pub mod mutex;
pub mod notify;
pub mod open_files;
mod option;
pub mod out;
pub mod peer;
pub mod perf;
pub mod plugin;
pub mod poll;
pub mod pps;
pub mod process;
pub mod program;
pub mod registers;
pub mod root;
pub mod rounds;
pub mod run_folder;
pub mod sched;
pub mod sender;
pub mod shared_file;
pub mod shm;
pub mod signal;
pub mod spawn;
pub mod tcp;
pub mod thread;
pub mod tool;
pub mod trace;
pub mod tracing;
pub mod traffic;
pub mod turn;
pub mod uio;
pub mod users;
pub mod vfio;
pub mod watchdog;
pub mod whole;
pub mod xdp;

pub use error::{Error, Result};
pub use rustix::io::Errno;
