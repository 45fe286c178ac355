//! How a thread that waits for sockets is woken by another.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;

/// Wakes who waits for sockets, from another thread. Clones wake the same.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker of one's own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes, now or when it is waited for next.
    ///
    /// Real-time: one system call that neither blocks nor allocates.
    pub fn wake(&self) {
        // The counter can only be full when it is read soon anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// What to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes note of having been woken.
    pub(crate) fn answer(&self) {
        // Nothing to read means that nobody has woken.
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}
