//! Hardware watchdogs (`/dev/watchdog*`, `Documentation/watchdog/watchdog-api.rst`).

use crate::error::{Error, Result};
use rustix::fd::{AsRawFd, BorrowedFd};

/// `_IOWR('W', 6, int)`.
const WDIOC_SETTIMEOUT: libc::Ioctl = 0xc004_5706_u32 as libc::Ioctl;

/// Requests a timeout. Returns the actual one, in seconds.
///
/// # Errors
/// The kernel's: `ENOTTY` (not a watchdog), `EINVAL` (unsupported timeout), `EOPNOTSUPP`.
pub fn set_timeout(device: BorrowedFd<'_>, seconds: u32) -> Result<u32> {
    let mut value = seconds as libc::c_int;
    // SAFETY: the ioctl reads and writes one int at the pointer.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), WDIOC_SETTIMEOUT, &raw mut value) };
    if answer < 0 {
        return Err(Error::last(format!("set the watchdog's timeout to {seconds} s")));
    }
    Ok(value as u32)
}
