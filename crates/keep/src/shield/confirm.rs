//! A shield that goes by itself unless it is confirmed: for machines that are reached only through the network.
//!
//! A small process of its own waits, so that a terminal which dies changes nothing. It waits for a moment on
//! the boot clock that stands in the run directory; confirming removes that file.

use super::{Error, Released, release};
use crate::RunDir;
use std::time::Duration;
use sys::root::RootDir;

/// The file that stands as long as nobody has confirmed.
const FILE: &str = "shield.unconfirmed";

/// How often the waiting process looks.
const LOOK: Duration = Duration::from_millis(50);

fn kept(dir: &RunDir, error: std::io::Error) -> Error {
    Error::NoJournal { path: dir.path().join(FILE).display().to_string(), error: error.to_string() }
}

/// Says, before the first write of an apply, that it must be confirmed. `token` tells this apply from others.
///
/// # Errors
/// If there is no room; nothing was changed.
pub fn ask(dir: &RunDir, token: &str) -> Result<(), Error> {
    dir.replace(FILE, token).map_err(|error| kept(dir, error))
}

/// Confirms; says whether a confirmation was waited for.
///
/// # Errors
/// If the run directory cannot be read or written.
pub fn confirm(dir: &RunDir) -> Result<bool, Error> {
    let waited = dir.read(FILE).map_err(|error| kept(dir, error))?.is_some();
    dir.remove(FILE).map_err(|error| kept(dir, error))?;
    Ok(waited)
}

/// Whether a confirmation is waited for.
///
/// # Errors
/// If the run directory cannot be read.
pub fn is_waited_for(dir: &RunDir) -> Result<bool, Error> {
    Ok(dir.read(FILE).map_err(|error| kept(dir, error))?.is_some())
}

/// Waits for the confirmation of `token`; releases the shield if none comes in time. Nothing if it came, or if
/// another apply took this one's place.
///
/// # Errors
/// Those of the release.
pub fn wait(root: &RootDir, dir: &RunDir, token: &str, within: Duration) -> Result<Option<Released>, Error> {
    let end = sys::clock::mono_now() + base::DurNs(within.as_nanos().min(i64::MAX as u128) as i64);
    loop {
        if dir.read(FILE).map_err(|error| kept(dir, error))?.as_deref() != Some(token) {
            return Ok(None);
        }
        let now = sys::clock::mono_now();
        if now >= end {
            break;
        }
        let left = Duration::from_nanos(end.0 - now.0);
        std::thread::sleep(left.min(LOOK));
    }
    dir.remove(FILE).map_err(|error| kept(dir, error))?;
    release(root, dir, false).map(Some)
}
