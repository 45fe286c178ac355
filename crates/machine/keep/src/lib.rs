//! Starting processes, keeping them running, guarding against runaway threads, and applying shield and partition plans.
//!
//! The crate `host` decides; this crate acts, through `sys`. It opens Unix sockets only and runs no async runtime. It always
//! reports a real-time property that it could not obtain.
//!
//! ```no_run
//! use host::plan::Want;
//! use keep::{RunDir, shield};
//! use sys::root::RootDir;
//!
//! let (root, dir) = (RootDir::machine(), RunDir::from_env());
//! let want = Want { cpus: base::CpuSet::single(1), ..Want::default() };
//! let applied = shield::apply(&root, &want, &dir)?;
//! println!("{} writes; refused: {}", applied.writes, applied.refused.len());
//! let released = shield::release(&root, &dir, false)?;
//! println!("left as others wrote them: {}", released.kept.len());
//! # Ok::<(), shield::Error>(())
//! ```
#![forbid(unsafe_code)]

mod appended;
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
pub mod partition;
mod run_dir;
pub mod shield;
pub mod supervisor;
pub mod threads;
pub mod watchdog;
pub use family::{families, family};
pub use run_dir::RunDir;
