//! What goes into the archive: variables of Channel Access servers, each by a policy.
//!
//! [`read`] reads the file that names them, [`Gate`] decides which values are kept, [`serve()`] moves them from the network to
//! [`store::Logger`]. Never here: what a block is, how a circuit speaks.
#![forbid(unsafe_code)]

mod config;
mod gate;
mod serve;

pub use config::{Collect, DOCUMENT, Wanted, read};
pub use gate::{Gate, Policy};
pub use serve::{CollectError, serve};
