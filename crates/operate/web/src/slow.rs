//! Slow work, such as disk access: a limited number of threads, and a limited number of them per owner.

use crate::seats::Owner;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Maximum number of tasks at once. Others wait in order of arrival.
pub(crate) const SLOW_THREADS: usize = 4;
/// Maximum number of tasks of one owner. Its further tasks wait for these, and do not delay other owners.
pub(crate) const SLOW_THREADS_OF_ONE: usize = 2;

/// For each owner, the number of running and waiting tasks, and its turns.
type Each = HashMap<Owner, (usize, Arc<Semaphore>)>;

/// The turns for slow work. Clones share them.
#[derive(Clone)]
pub(crate) struct Slow {
    all: Arc<Semaphore>,
    /// For each owner with running or waiting tasks, their number and its turns.
    each: Arc<Mutex<Each>>,
}

/// The permission to run one slow task.
pub(crate) struct Turn {
    _held: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Waiting)>,
}

/// A task that is running or waiting for a turn of its owner.
struct Waiting {
    owner: Owner,
    of: Slow,
}

impl Default for Slow {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(SLOW_THREADS)), each: Arc::default() }
    }
}

impl Slow {
    /// Waits for a turn. A caller that is cancelled takes no turn.
    pub(crate) async fn turn(&self, owner: Owner) -> Turn {
        let (turns, waiting) = self.wait(owner);
        // The semaphores are never closed.
        let Ok(of_one) = turns.acquire_owned().await else { return Turn::not_needed() };
        let Ok(of_all) = self.all.clone().acquire_owned().await else { return Turn::not_needed() };
        Turn { _held: Some((of_one, of_all, waiting)) }
    }

    fn wait(&self, owner: Owner) -> (Arc<Semaphore>, Waiting) {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, turns) = each.entry(owner).or_insert_with(|| (0, Arc::new(Semaphore::new(SLOW_THREADS_OF_ONE))));
        *count += 1;
        (turns.clone(), Waiting { owner, of: self.clone() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut each = self.of.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = each.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                each.remove(&self.owner);
            }
        }
    }
}

impl Turn {
    /// A turn for work that needs no permission.
    pub(crate) const fn not_needed() -> Self {
        Self { _held: None }
    }

    /// Runs `work` on a thread that may block. Releases the turn at its end, even if the caller was cancelled.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn one_owner_takes_no_more_than_its_share_of_slow_threads() {
        let (slow, one, other) = (Slow::default(), Owner::User(1000), Owner::User(1001));
        let now = |owner| slow.turn(owner).now_or_never();
        let mut own: Vec<Turn> = (0..SLOW_THREADS_OF_ONE).map(|_| now(one).unwrap()).collect();
        assert!(now(one).is_none(), "it has the maximum of one owner");
        let others: Vec<Turn> = (0..SLOW_THREADS - SLOW_THREADS_OF_ONE).map(|_| now(other).unwrap()).collect();
        assert!(now(Owner::User(1002)).is_none(), "all are in use");
        own.pop();
        own.push(now(one).unwrap());
        drop((own, others));
        assert!(slow.each.lock().unwrap().is_empty(), "an owner that neither works nor waits needs no memory");
    }
}
