//! A condition variable for use with a mutex with priority inheritance.

use crate::share::ShareError;
use base::{DurNs, MonoNs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use sys::clock::mono_now;
use sys::futex;
use sys::shm::SharedWords;

/// A condition variable: a thread waits until another one has changed the state that a mutex protects. Clones share it, as
/// do processes that map its memory.
///
/// It contains no lock, so there is no owner that could be preempted or die. A count advances with each signal, and a
/// waiting thread sleeps until it does. The kernel wakes the waiter with the highest priority first. That waiter then locks
/// the mutex like any other thread and lends its priority to the owner. (`FUTEX_CMP_REQUEUE_PI` would move waiters straight
/// to the mutex. It would save one context switch if the signalling thread still holds the mutex. Signal after unlocking,
/// and there is no such switch.)
///
/// ```
/// let (queue, filled) = (rt::Mutex::new(Vec::new())?, rt::Condition::new()?);
/// std::thread::scope(|scope| {
///     let taker = scope.spawn(|| loop {
///         let mut taken = queue.lock().unwrap();
///         if let Some(item) = taken.pop() {
///             return item;
///         }
///         // Noted while the mutex is held: a signal from here on ends the wait.
///         let ticket = filled.ticket();
///         drop(taken);
///         let _ = ticket.wait(None);
///     });
///     queue.lock().unwrap().push("sample");
///     filled.signal();
///     assert_eq!(taker.join().unwrap(), "sample");
/// });
/// # Ok::<(), sys::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    words: Arc<SharedWords>,
}

impl Condition {
    /// Creates a condition.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> sys::Result<Self> {
        let words = SharedWords::create("tahti-condition", ring::Condition::WORDS)?;
        ring::Condition::format(words.words()).expect("made as long as it must be");
        Ok(Self { words: Arc::new(words) })
    }

    /// Attaches to a condition whose memory another process has handed over.
    ///
    /// # Errors
    /// The memory does not hold a condition.
    pub fn attach(fd: OwnedFd) -> Result<Self, ShareError> {
        let words = SharedWords::attach(fd)?;
        ring::Condition::attach(words.words())?;
        Ok(Self { words: Arc::new(words) })
    }

    /// Its memory, to be handed to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    /// Records the present count of the condition. Call it while the mutex is locked, unlock the mutex, then
    /// [`wait`](Ticket::wait). A signal in between is not missed.
    ///
    /// Real-time: two locked instructions.
    #[must_use]
    pub fn ticket(&self) -> Ticket<'_> {
        let seen = self.event().map_or(0, |event| event.announce());
        Ticket { condition: self, seen }
    }

    /// Wakes the waiting thread with the highest priority. The mutex need not be locked; it is best to signal after
    /// unlocking it.
    ///
    /// Real-time: one locked instruction, and a system call if a thread waits. Does not allocate.
    pub fn signal(&self) {
        if let Some(event) = self.event()
            && event.advance()
        {
            futex::wake_one(event.word());
        }
    }

    /// Wakes all waiting threads.
    ///
    /// Real-time: as [`signal`](Self::signal).
    pub fn broadcast(&self) {
        if let Some(event) = self.event()
            && event.advance()
        {
            futex::wake(event.word());
        }
    }

    /// The event; `None` only if a process that shares the memory has damaged it since it was checked.
    fn event(&self) -> Option<ring::Event<'_>> {
        Some(ring::Condition::attach(self.words.words()).ok()?.event())
    }
}

/// A registered wait for a [`Condition`].
#[derive(Debug)]
pub struct Ticket<'a> {
    condition: &'a Condition,
    seen: u64,
}

impl Ticket<'_> {
    /// Sleeps until a signal or until `limit` has passed. Returns whether there was a signal. One signal may wake two
    /// waiters, so check the protected state and wait again if necessary.
    ///
    /// Real-time: one system call that blocks; does not allocate.
    #[must_use]
    pub fn wait(self, limit: Option<DurNs>) -> bool {
        let Some(event) = self.condition.event() else { return false };
        let until = limit.map_or(MonoNs(u64::MAX), |limit| mono_now() + limit);
        loop {
            if event.moved(self.seen) {
                return true;
            }
            let now = mono_now();
            if now >= until {
                return false;
            }
            futex::wait(event.word(), self.seen, limit.map(|_| until - now));
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.condition.event() {
            event.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mutex;

    #[test]
    fn a_waiting_thread_continues_when_its_state_is_reached() {
        let (turn, changed) = (Mutex::new(0u32).unwrap(), Condition::new().unwrap());
        // Three threads increment alternately; each change is signalled.
        std::thread::scope(|scope| {
            for me in 0..3 {
                let (turn, changed) = (&turn, Condition::attach(changed.fd().try_clone_to_owned().unwrap()).unwrap());
                scope.spawn(move || {
                    for _ in 0..100 {
                        let mut now = turn.lock().unwrap();
                        while *now % 3 != me {
                            let ticket = changed.ticket();
                            now = now.without(|| ticket.wait(None)).unwrap().0;
                        }
                        *now += 1;
                        drop(now);
                        changed.broadcast();
                    }
                });
            }
        });
        assert_eq!(*turn.lock().unwrap(), 300);
    }

    #[test]
    fn a_signal_between_ticket_and_wait_is_not_missed_and_a_wait_without_one_times_out() {
        let condition = Condition::new().unwrap();
        let ticket = condition.ticket();
        condition.signal();
        assert!(ticket.wait(None));
        assert!(!condition.ticket().wait(Some(DurNs::from_ms(2))));
    }
}
