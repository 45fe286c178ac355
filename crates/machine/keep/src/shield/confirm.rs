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

/// Held by whoever confirms and by whoever expires while it looks and takes the file away: one of them has it.
const LOCK: &str = "confirm.lock";

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
    let _lock = dir.lock(LOCK).map_err(|error| kept(dir, error))?;
    dir.replace(FILE, token).map_err(|error| kept(dir, error))
}

/// Confirms; says whether a confirmation was waited for. If so, the shield stays: nobody expires any more.
///
/// # Errors
/// If the run directory cannot be read or written.
pub fn confirm(dir: &RunDir) -> Result<bool, Error> {
    take(dir, None)
}

/// Takes the file away, if it stands and is `token`'s (anybody's for `None`); says whether it did. Of all that try
/// at the same time one does.
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
    // Somebody may confirm at this very moment.
    if !take(dir, Some(token))? {
        return Ok(None);
    }
    release(root, dir, false).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_confirms_at_the_moment_of_expiry_is_told_that_it_stays_or_it_is_released_never_both() {
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
        // A later apply's file is nobody else's.
        ask(&dir, "later").unwrap();
        assert!(!take(&dir, Some("earlier")).unwrap() && confirm(&dir).unwrap());
        std::fs::remove_dir_all(dir.path()).unwrap();
    }
}
