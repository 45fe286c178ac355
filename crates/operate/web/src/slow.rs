//! Work that may wait long for a disk: so much of it at once that the threads of what does not are never taken.

use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Pieces of such work at once; others wait for their turn, in their order.
pub(crate) const SLOW_THREADS: usize = 4;

/// Who hands out turns. Clones share them.
#[derive(Clone)]
pub(crate) struct Slow(Arc<Semaphore>);

/// Leave to do a piece of slow work.
pub(crate) struct Turn {
    _held: Option<OwnedSemaphorePermit>,
}

impl Default for Slow {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SLOW_THREADS)))
    }
}

impl Slow {
    /// Waits for a turn; who no longer waits takes none.
    pub(crate) async fn turn(&self) -> Turn {
        // Nobody closes it.
        Turn { _held: self.0.clone().acquire_owned().await.ok() }
    }
}

impl Turn {
    /// Work that needs no turn.
    pub(crate) const fn not_needed() -> Self {
        Self { _held: None }
    }

    /// Does the work on a thread that may wait, and gives the turn back at its end, also where nobody waits for the result any more.
    ///
    /// # Errors
    /// The work panicked.
    pub(crate) async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let done = spawn_blocking(move || {
            let done = work();
            drop(self);
            done
        });
        done.await.map_err(io::Error::other)
    }
}
