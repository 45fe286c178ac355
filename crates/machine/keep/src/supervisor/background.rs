//! Background threads for work that may block. Meanwhile the supervisor's loop pets watchdogs and serves processes. It polls
//! for the result.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// An event descriptor that wakes the loop's poll.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> sys::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self(Arc::new(fd)))
            .map_err(|errno| sys::Error { doing: "make an event descriptor".to_owned(), errno })
    }

    pub(crate) fn ring(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Clears the event.
    pub(crate) fn heard(&self) {
        // An error means that the event is already clear.
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A task on a separate thread. Dropping it does not stop the thread.
#[derive(Debug)]
pub(crate) struct BackgroundTask<T> {
    outcome: Receiver<T>,
    bell: Bell,
}

/// Rings the bell at the end of the thread, also after a panic.
struct Rings(Bell);

impl Drop for Rings {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// The thread ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its background thread ended without a result")]
pub(crate) struct NoResult;

impl<T: Send + 'static> BackgroundTask<T> {
    /// Starts the task.
    ///
    /// # Errors
    /// The thread or the descriptor cannot be created.
    pub(crate) fn begin(name: &str, work: impl FnOnce() -> T + Send + 'static) -> sys::Result<Self> {
        let bell = Bell::new()?;
        let (tells, outcome) = sync_channel(1);
        let rings = Rings(bell.clone());
        start_thread(name, move || {
            let _rings = rings;
            // Sending fails only if the loop has ended.
            let _ = tells.send(work());
        })?;
        Ok(Self { outcome, bell })
    }

    /// The result, if the task has ended; an error if it ended without one.
    pub(crate) fn take(&self) -> Option<Result<T, NoResult>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(Ok(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(NoResult)),
        }
    }
}

/// Starts a detached thread.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> sys::Result<()> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| sys::Error::of("start a thread", &error))
}

impl<T> AsFd for BackgroundTask<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DurNs;

    #[test]
    fn the_loop_is_woken_by_a_result_and_by_work_that_ends_without_one() {
        let (go, waits) = sync_channel::<()>(1);
        let task = BackgroundTask::begin("test", move || waits.recv().map(|()| 7)).unwrap();
        assert!(task.take().is_none() && !sys::poll::is_readable(task.as_fd(), DurNs::ZERO));
        go.send(()).unwrap();
        assert!(sys::poll::is_readable(task.as_fd(), DurNs::from_secs(60)));
        // The bell may ring before the result is sent.
        let outcome = std::iter::repeat_with(|| task.take()).flatten().next().unwrap();
        assert_eq!(outcome.unwrap().unwrap(), 7);
        let lost = BackgroundTask::<()>::begin("test", || std::panic::resume_unwind(Box::new(()))).unwrap();
        assert!(sys::poll::is_readable(lost.as_fd(), DurNs::from_secs(60)));
        let outcome = std::iter::repeat_with(|| lost.take()).flatten().next().unwrap();
        assert_eq!(outcome, Err(NoResult));
    }
}
