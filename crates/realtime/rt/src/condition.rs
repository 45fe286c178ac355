//! A condition variable beside a mutex with priority inheritance.

use crate::share::ShareError;
use base::{DurNs, MonoNs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use sys::clock::mono_now;
use sys::futex;
use sys::shm::SharedWords;

/// Lets who holds a mutex wait for what another thread does with it. Clones, and whoever maps its memory, share it.
///
/// There is no lock in it, so none whose owner could be preempted or die: a count goes up with each signal, and who waits
/// sleeps until it does. The kernel wakes the most urgent waiter first; it then takes the mutex like everybody else,
/// lending its priority to the owner. (Moving waiters straight to the mutex, `FUTEX_CMP_REQUEUE_PI`, would save that
/// wake-up one switch where the mutex is still held by who signals: signal after giving it up, and there is none.)
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
    /// A condition.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> sys::Result<Self> {
        let words = SharedWords::create("tahti-condition", ring::Condition::WORDS)?;
        ring::Condition::format(words.words()).expect("made as long as it must be");
        Ok(Self { words: Arc::new(words) })
    }

    /// The condition whose memory somebody handed over.
    ///
    /// # Errors
    /// For what is no condition.
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

    /// Notes where the condition stands; call it while the mutex is held, give the mutex up, then [`wait`](Ticket::wait).
    /// A signal in between is not missed.
    ///
    /// Real-time: two locked instructions.
    #[must_use]
    pub fn ticket(&self) -> Ticket<'_> {
        let seen = self.event().map_or(0, |event| event.announce());
        Ticket { condition: self, seen }
    }

    /// Lets one who waits go on, the most urgent. Also without the mutex, best after it was given up.
    ///
    /// Real-time: one locked instruction; a system call where somebody waits. Does not allocate.
    pub fn signal(&self) {
        if let Some(event) = self.event()
            && event.advance()
        {
            futex::wake_one(event.word());
        }
    }

    /// Lets all who wait go on.
    ///
    /// Real-time: as [`signal`](Self::signal).
    pub fn broadcast(&self) {
        if let Some(event) = self.event()
            && event.advance()
        {
            futex::wake(event.word());
        }
    }

    /// `None` only where somebody who shares it has damaged it since it was checked.
    fn event(&self) -> Option<ring::Event<'_>> {
        Some(ring::Condition::attach(self.words.words()).ok()?.event())
    }
}

/// Somebody about to wait for a [`Condition`].
#[derive(Debug)]
pub struct Ticket<'a> {
    condition: &'a Condition,
    seen: u64,
}

impl Ticket<'_> {
    /// Sleeps until a signal or until `limit` is over; whether there was a signal. Two that wait may both be woken by one
    /// signal: look at what the condition is about, and wait again if need be.
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
    fn who_waits_goes_on_when_the_state_it_waits_for_is_there() {
        let (turn, changed) = (Mutex::new(0u32).unwrap(), Condition::new().unwrap());
        // Three threads count in turns; each change is signalled.
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
    fn a_signal_between_ticket_and_wait_is_not_missed_and_none_ends_with_the_limit() {
        let condition = Condition::new().unwrap();
        let ticket = condition.ticket();
        condition.signal();
        assert!(ticket.wait(None));
        assert!(!condition.ticket().wait(Some(DurNs::from_ms(2))));
    }
}
