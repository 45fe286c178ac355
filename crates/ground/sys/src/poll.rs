//! Waiting for descriptors.

use base::DurNs;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::BorrowedFd;

/// Waits at most `limit` until a descriptor is readable or its other end has been closed. Returns one flag per
/// descriptor. A signal ends the wait early.
pub fn readable(fds: &[BorrowedFd<'_>], limit: DurNs) -> Vec<bool> {
    let timeout =
        rustix::time::Timespec { tv_sec: limit.0.max(0) / 1_000_000_000, tv_nsec: limit.0.max(0) % 1_000_000_000 };
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => polled.iter().map(|fd| !fd.revents().is_empty()).collect(),
        Err(_) => vec![false; fds.len()],
    }
}

/// Like [`readable`], for one descriptor.
///
/// Real-time: one system call that blocks; does not allocate.
pub fn is_readable(fd: BorrowedFd<'_>, limit: DurNs) -> bool {
    let timeout =
        rustix::time::Timespec { tv_sec: limit.0.max(0) / 1_000_000_000, tv_nsec: limit.0.max(0) % 1_000_000_000 };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).is_ok_and(|count| count > 0)
}
