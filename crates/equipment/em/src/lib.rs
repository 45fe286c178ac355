//! Equipment managers as processes: tables and lanes of [`equipment`], requests of the [`broker`].
//!
//! Each band has a thread that takes its requests. The thread of the highest band is the real-time lane: it owns the
//! rt-safe devices, serves its own band directly, runs loops and polls, and takes what other bands have for it in bounded
//! bursts. Each device that may block has a thread of its own. Requests and answers pass between threads by bounded
//! wait-free rings of fixed-size items; no lock, no allocation on the real-time lane.
//!
//! Never here: what a request means (that is [`equipment`]'s), and who may ask (the message server's).
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

/// Reads a manager's file and those that it names; `drivers` beside those of tahti.
///
/// # Errors
/// The main file cannot be read.
pub fn read(file: &Path, more: &[&'static Driver]) -> Result<Checked, Error> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let main = text_of(file).map_err(|source| Error::File { file: file.to_owned(), source })?;
    let drivers: Vec<&'static Driver> = equipment::DRIVERS.iter().chain(DRIVERS).chain(more.iter().copied()).collect();
    let load = &mut |name: &str| text_of(&folder.join(name)).map_err(|error| error.to_string());
    Ok(check(&file.display().to_string(), &main, &drivers, load, &Here { folder }))
}

/// The text of a file.
fn text_of(file: &Path) -> std::io::Result<String> {
    table::utf8(std::fs::read(file)?).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

/// This machine, as a check sees it.
struct Here<'a> {
    /// From where the file's relative names count.
    folder: &'a Path,
}

impl Machine for Here<'_> {
    fn look(&self, spec: &DeviceSpec) -> Vec<Wrong> {
        devices::check(spec, self.folder)
    }

    fn online(&self) -> Option<CpuSet> {
        sys::kernel::online(&sys::root::RootDir::machine())
    }
}
