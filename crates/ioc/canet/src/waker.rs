//! Wakes a thread that waits for sockets.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;

/// Wakes a thread that waits for sockets, from another thread. Clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a separate waker.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes the thread immediately, or at the start of its next wait.
    ///
    /// Real-time: one system call that neither blocks nor allocates.
    pub fn wake(&self) {
        // The counter is full only if the thread will read it soon anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// The file descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears the wake-up.
    pub fn answer(&self) {
        // Without a wake-up there is nothing to read.
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}
