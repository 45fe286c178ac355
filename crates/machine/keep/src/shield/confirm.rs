//! A shield that is released unless it is confirmed in time, for machines that are reached only through the network.
//!
//! A separate process waits, so that a lost terminal changes nothing. It waits until a time on the monotonic clock. The
//! file in the run directory exists until the shield is confirmed; confirming removes it.

use super::{Error, Released, release};
use crate::RunDir;
use std::time::Duration;
use sys::root::RootDir;

/// Exists until the shield is confirmed.
const FILE: &str = "shield.unconfirmed";

/// Held while a process checks and removes the file, to confirm or because of expiry. Only one of them succeeds.
const LOCK: &str = "confirm.lock";

/// Interval at which the waiting process checks the file.
const LOOK: Duration = Duration::from_millis(50);

fn kept(dir: &RunDir, error: std::io::Error) -> Error {
    Error::NoJournal { path: dir.path().join(FILE).display().to_string(), error: error.to_string() }
}

/// Records, before the first write of an apply, that it must be confirmed. `token` identifies this apply.
///
/// # Errors
/// There is no space; nothing was changed.
pub fn ask(dir: &RunDir, token: &str) -> Result<(), Error> {
    let _lock = dir.lock(LOCK).map_err(|error| kept(dir, error))?;
    dir.replace(FILE, token).map_err(|error| kept(dir, error))
}

/// Confirms the shield and keeps it. Returns whether a confirmation was pending.
///
/// # Errors
/// The run directory cannot be read or written.
pub fn confirm(dir: &RunDir) -> Result<bool, Error> {
    take(dir, None)
}

/// Removes the file if it exists and has this `token` (any token for `None`). Returns whether it did. Of several
/// concurrent callers one succeeds.
fn take(dir: &RunDir, token: Option<&str>) -> Result<bool, Error> {
    let taken = || -> std::io::Result<bool> {
        let _lock = dir.lock(LOCK)?;
        let Some(found) = dir.read(FILE)? else { return Ok(false) };
        if token.is_some_and(|token| found != token) {
            return Ok(false);
        }
        dir.remove(FILE)?;
        Ok(true)
    };
    taken().map_err(|error| kept(dir, error))
}

/// Whether a confirmation is pending.
///
/// # Errors
/// The run directory cannot be read.
pub fn is_waited_for(dir: &RunDir) -> Result<bool, Error> {
    Ok(dir.read(FILE).map_err(|error| kept(dir, error))?.is_some())
}

/// Waits for the confirmation of `token`, and releases the shield after `within` without one. Returns `None` if the
/// shield was confirmed or if another apply replaced this one.
///
/// # Errors
/// Errors of the release.
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
    // A confirmation may arrive at this moment.
    if !take(dir, Some(token))? {
        return Ok(None);
    }
    release(root, dir, false).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shield_confirmed_at_the_moment_of_expiry_stays_or_is_released_never_both() {
        let dir = RunDir::at(std::env::temp_dir().join(format!("tahti-confirm-{}", std::process::id())));
        for round in 0..200 {
            let token = format!("{round}");
            ask(&dir, &token).unwrap();
            let (confirmed, expired) = std::thread::scope(|scope| {
                let expires = scope.spawn(|| take(&dir, Some(&token)).unwrap());
                (confirm(&dir).unwrap(), expires.join().unwrap())
            });
            assert!(confirmed != expired, "round {round}: confirmed {confirmed}, expired {expired}");
        }
        // The file of a later apply has another token.
        ask(&dir, "later").unwrap();
        assert!(!take(&dir, Some("earlier")).unwrap() && confirm(&dir).unwrap());
        std::fs::remove_dir_all(dir.path()).unwrap();
    }
}
