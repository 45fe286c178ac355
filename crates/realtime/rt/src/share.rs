//! Shared memory with a name on this machine. A process that runs as the same user or as root can get its descriptor.
//!
//! The name is that of a socket ([`sys::handover`]). The memory exists as long as a process has it mapped.

use base::DurNs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use sys::handover::Counter;

/// Reason why shared memory is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShareError {
    /// It cannot be offered under this name.
    #[error("{name:?} cannot be offered: {error}")]
    Offer {
        /// The name.
        name: String,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// No process offers memory under this name.
    #[error("nothing is offered as {name:?} ({error}); expected a running process that offers it")]
    NotOffered {
        /// The name.
        name: String,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// A segment of variables cannot be exported.
    #[error("variables {name:?} cannot be exported: {error}")]
    Export {
        /// The segment's name.
        name: String,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// No process exports variables under this name.
    #[error("no variables are exported as {name:?} ({error}); expected a running process that exports them")]
    NotExported {
        /// The segment's name.
        name: String,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// Another thread samples the variables for the oscilloscope already.
    #[error(
        "variables {name:?} are sampled for the oscilloscope by another thread already; expected one loop or activity"
    )]
    Sampled {
        /// The segment's name.
        name: String,
    },
    /// A variable does not fit into the segment.
    #[error(
        "variable {name:?} cannot be exported; expected a new name of 1 to {} bytes, a unit of at most {}, and room",
        ring::NAME_BYTES,
        ring::UNIT_BYTES
    )]
    Variable {
        /// Its name.
        name: String,
    },
    /// Events cannot be reported.
    #[error("events of this program cannot be offered: {error}")]
    Events {
        /// The kernel's answer.
        error: sys::Error,
    },
    /// The name of an event does not fit.
    #[error("event {name:?} cannot be reported; expected 1 to {} bytes as its name", crate::EVENT_NAME_BYTES)]
    EventName {
        /// The name.
        name: String,
    },
    /// Too many threads report events, or the thread ends.
    #[error(
        "this thread cannot report events; expected at most {} threads of a process to report any, and none that ends",
        crate::EVENT_THREADS_MAX
    )]
    EventThreads,
    /// The kernel refused the memory.
    #[error(transparent)]
    Memory(#[from] sys::Error),
    /// The memory does not have the expected layout.
    #[error(transparent)]
    Layout(#[from] ring::LayoutError),
}

/// Offers `fd` under `name` to every client that asks. A separate non-real-time thread serves clients until the process
/// ends.
///
/// # Errors
/// The name is already in use, or the kernel's error.
pub fn offer(name: &str, fd: BorrowedFd<'_>) -> Result<(), ShareError> {
    let fd = fd.try_clone_to_owned().map_err(|error| sys::Error::of("duplicate a descriptor", &error));
    fd.and_then(|fd| offer_at(&address(name), fd)).map_err(|error| ShareError::Offer { name: name.to_owned(), error })
}

/// Requests the descriptor that is offered under `name`.
///
/// # Errors
/// No process offers anything under this name.
pub fn ask(name: &str) -> Result<OwnedFd, ShareError> {
    let asked = sys::handover::ask(&address(name));
    asked.map(|(fd, _)| fd).map_err(|error| ShareError::NotOffered { name: name.to_owned(), error })
}

fn address(name: &str) -> String {
    format!("tahti-shared-{name}")
}

/// Opens the socket `address` and serves it until the process ends.
pub(crate) fn offer_at(address: &str, fd: OwnedFd) -> sys::Result<()> {
    let counter = Counter::open(address)?;
    let serve = move || {
        let mut readers: Vec<OwnedFd> = Vec::new();
        // Signals must go to the threads that wait for them, even if such a thread starts later.
        let _ = sys::signal::block_all();
        // The kernel only refuses this if the thread is time-sharing already.
        let _ =
            sys::sched::set_scheduling(0, sys::sched::Scheduling { policy: base::Policy::OTHER, reset_on_fork: false });
        loop {
            let fds: Vec<_> = std::iter::once(counter.as_fd()).chain(readers.iter().map(OwnedFd::as_fd)).collect();
            let ready = sys::poll::readable(&fds, DurNs::from_secs(3600));
            // A client that disconnects or fails in `accept` does not end the server.
            if ready[0]
                && let Ok(Some(reader)) = counter.serve(fd.as_fd())
            {
                readers.push(reader);
            }
            readers.retain(|reader| sys::handover::is_alive(reader.as_fd()));
        }
    };
    let builder = std::thread::Builder::new().name("tahti-share".to_owned()).stack_size(64 << 10);
    builder.spawn(serve).map(drop).map_err(|error| sys::Error::of("start a thread", &error))
}
