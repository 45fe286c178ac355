//! Equipment managers as processes: tables and lanes from [`equipment`], requests from the [`broker`].
//!
//! Each band has a thread that receives its requests. The thread of the highest band is the real-time lane: it owns the
//! rt-safe devices, serves its band directly, runs loops and polls, and accepts requests of other bands in bounded bursts.
//! Each device that may block has a separate thread. Requests and answers pass between threads through bounded wait-free
//! rings of fixed-size items. The real-time lane neither locks nor allocates.
//!
//! Not in this crate: the meaning of requests (see [`equipment`]) and access rights (see the message server).
//!
//! ```
//! let file = std::env::temp_dir().join(format!("magnets-{}.toml", std::process::id()));
//! std::fs::write(&file, r#"
//! [manager]
//! name = "magnets"
//!
//! [[device]]
//! name = "ps_b"
//! driver = "power-supply"
//!
//! [[map]]
//! verb = "get"
//! object = "sr_mag_{name}"
//! complement = "current"
//! device = "{name}"
//! point = "current"
//! "#)?;
//! let checked = em::read(&file, &[])?;
//! assert!(checked.tables.is_some(), "{}", checked.render());
//!
//! // Serves until SIGTERM, where a message server runs.
//! let serve = || {
//!     let options = em::Options {
//!         file: file.clone(),
//!         server: "main".into(),
//!         drivers: &[],
//!         plug_in: Box::new(|_| None),
//!         require_rt: false,
//!     };
//!     em::serve(&options, &mut |line| println!("{line}"), &mut |_| {})
//! };
//! # let _ = serve;
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod devices;
mod error;
mod front;
mod job;
mod lane;
mod polls;
mod serve;
mod values;
mod work;

pub use devices::{DRIVERS, Maker, plug_in};
pub use error::{DeviceError, Error, ValuesError};
pub use serve::{Options, serve};
pub use values::{Shown, values};

use base::CpuSet;
use equipment::{Checked, DeviceSpec, Driver, Machine, Wrong, check};
use std::path::Path;

/// Reads the file of a manager and the files it refers to. `more` contains drivers in addition to those of tahti.
///
/// # Errors
/// The main file cannot be read.
pub fn read(file: &Path, more: &[&'static Driver]) -> Result<Checked, Error> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let main = text_of(file).map_err(|source| Error::File { file: file.to_owned(), source })?;
    let drivers: Vec<&'static Driver> = equipment::DRIVERS.iter().chain(DRIVERS).chain(more.iter().copied()).collect();
    let load = &mut |name: &str| text_of(&folder.join(name)).map_err(std::io::Error::other);
    Ok(check(&file.display().to_string(), &main, &drivers, load, &LocalMachine { folder }))
}

/// Reads a text file.
fn text_of(file: &Path) -> std::io::Result<String> {
    table::utf8(std::fs::read(file)?).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

/// This machine, for checks.
struct LocalMachine<'a> {
    /// The base of relative names in the file.
    folder: &'a Path,
}

impl Machine for LocalMachine<'_> {
    fn look(&self, spec: &DeviceSpec) -> Vec<Wrong> {
        devices::check(spec, self.folder)
    }

    fn online(&self) -> Option<CpuSet> {
        sys::kernel::online(&sys::root::RootDir::machine())
    }
}
