//! Integer socket options.

use crate::{Error, Result};
use std::os::fd::{AsFd, AsRawFd as _};

/// Sets an option. `doing` describes the operation for the error.
pub(crate) fn set(socket: impl AsFd, level: i32, name: i32, value: i32, doing: &'static str) -> Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    let (socket, at) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(&value).cast());
    // SAFETY: `at` points to an `i32` that outlives the call, and `length` is its size.
    match unsafe { libc::setsockopt(socket, level, name, at, length) } {
        0 => Ok(()),
        _ => Err(Error::last(doing)),
    }
}
