//! Work that may wait long for a disk: a bounded number of threads, and of them a bounded number for each owner.

use crate::seats::Owner;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Pieces of such work at once; others wait, first come, first served.
pub(crate) const SLOW_THREADS: usize = 4;
/// Of them, those of one owner: the others of the same owner wait for these, not in front of everybody else.
pub(crate) const SLOW_THREADS_OF_ONE: usize = 2;

/// Of each owner how often it works or waits, and its turns.
type Each = HashMap<Owner, (usize, Arc<Semaphore>)>;

/// The turns for slow work. Clones share them.
#[derive(Clone)]
pub(crate) struct Slow {
    all: Arc<Semaphore>,
    /// Of each owner that works or waits: how often it does, and its turns.
    each: Arc<Mutex<Each>>,
}

/// Leave to do a piece of slow work.
pub(crate) struct Turn {
    _held: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Waiting)>,
}

/// One that works or waits for its owner's turns.
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
    /// Waits for a turn. A caller that stops waiting takes none.
    pub(crate) async fn turn(&self, owner: Owner) -> Turn {
        let (turns, waiting) = self.wait(owner);
        // No semaphore here is ever closed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn one_owner_waits_for_its_own_turns_and_leaves_the_others_to_others() {
        let (slow, one, other) = (Slow::default(), Owner::User(1000), Owner::User(1001));
        let now = |owner| slow.turn(owner).now_or_never();
        let mut own: Vec<Turn> = (0..SLOW_THREADS_OF_ONE).map(|_| now(one).unwrap()).collect();
        assert!(now(one).is_none(), "it has as many as one may");
        let others: Vec<Turn> = (0..SLOW_THREADS - SLOW_THREADS_OF_ONE).map(|_| now(other).unwrap()).collect();
        assert!(now(Owner::User(1002)).is_none(), "all are taken");
        own.pop();
        own.push(now(one).unwrap());
        drop((own, others));
        assert!(slow.each.lock().unwrap().is_empty(), "an owner that neither works nor waits needs no memory");
    }
}
