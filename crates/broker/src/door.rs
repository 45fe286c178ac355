//! How a lane of the server sleeps although many clients may wake it, and none of them can keep it from being woken.
//!
//! Clients map the page for reading only: `futex(2)` wakes through such a mapping too. So no client can forge the mark
//! that tells others whether waking is needed ([`Doorstep`]).

use base::DurNs;
use ring::{Doorstep, Words};
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use sys::shm::{ReadWords, SharedWords};

/// Unheard knocks after which others may run, for the lane may wait for this very CPU, and after which even those of
/// lower priority may.
const YIELD_AFTER: u32 = 4;
const SLEEP_AFTER: u32 = 32;
const PAUSE: DurNs = DurNs::from_us(20);
/// Unheard knocks after which a client goes away: whoever sets the mark falls asleep within far less, unless the server
/// was stopped just there. A lane that was missed nevertheless looks by itself when its longest sleep is over.
const GIVE_UP_AFTER: u32 = 288;

/// The lane's side.
pub(crate) struct Door(SharedWords);

/// A client's side.
pub(crate) struct Knocker {
    words: ReadWords,
    woken: Cell<u64>,
}

impl Door {
    pub(crate) fn new() -> sys::Result<Self> {
        SharedWords::create("tahti-door", Doorstep::WORDS).map(Self)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Sleeps until somebody knocks, at most for `limit`, unless there is work by now. `naps` is the lane's own count.
    pub(crate) fn sleep(&self, naps: &mut u64, limit: DurNs, has_work: impl FnOnce() -> bool) {
        let step = step(self.0.words());
        step.nap(naps, has_work, || {
            sys::futex::wait(step.bell(), 0, Some(limit));
        });
    }

    /// Wakes the lane, from another thread of the server.
    pub(crate) fn knock(&self) {
        knock(self.0.words(), &mut 0);
    }
}

impl Knocker {
    pub(crate) fn new(fd: OwnedFd) -> sys::Result<Self> {
        let words = SharedWords::attach_read_only(fd)?;
        let enough = words.words().len() >= Doorstep::WORDS;
        enough.then_some(Self { words, woken: Cell::new(0) }).ok_or_else(|| sys::Error {
            doing: "map the door of a message server".to_owned(),
            errno: rustix::io::Errno::INVAL,
        })
    }

    /// Wakes the lane if it sleeps. To be called after what it must not miss was written.
    pub(crate) fn knock(&self) {
        let mut woken = self.woken.get();
        knock(self.words.words(), &mut woken);
        self.woken.set(woken);
    }
}

fn step(words: &Words) -> Doorstep<'_> {
    Doorstep::attach(words).expect("its length was looked at when it was mapped")
}

fn knock(words: &Words, woken: &mut u64) {
    let step = step(words);
    let wake = || sys::futex::wake(step.bell()) > 0;
    step.knock(woken, wake, |unheard| {
        match unheard {
            ..YIELD_AFTER => std::hint::spin_loop(),
            YIELD_AFTER..SLEEP_AFTER => std::thread::yield_now(),
            SLEEP_AFTER.. => sys::clock::sleep_until(sys::clock::mono_now() + PAUSE),
        }
        unheard < GIVE_UP_AFTER
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn who_knocks_at_a_server_that_was_stopped_while_falling_asleep_gives_up() {
        let door = Door::new().unwrap();
        let knocker = Knocker::new(door.fd().try_clone_to_owned().unwrap()).unwrap();
        step(door.0.words()).nap(&mut 0, || false, || knocker.knock());
    }

    #[test]
    fn a_sleeping_lane_never_misses_a_knock_through_a_mapping_for_reading() {
        const ROUNDS: u64 = 2_000;
        let door = Door::new().unwrap();
        let knocker = Knocker::new(door.fd().try_clone_to_owned().unwrap()).unwrap();
        let (sent, heard) = (AtomicU64::new(0), AtomicU64::new(0));
        let (sent, heard, mut naps) = (&sent, &heard, 0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    sent.store(round, Ordering::Release);
                    knocker.knock();
                    while heard.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                while sent.load(Ordering::Acquire) < round {
                    let began = sys::clock::mono_now();
                    door.sleep(&mut naps, DurNs::from_secs(20), || sent.load(Ordering::Acquire) >= round);
                    assert!(sys::clock::mono_now() - began < DurNs::from_secs(20), "nobody woke it");
                }
                heard.store(round, Ordering::Release);
            }
        });
    }
}
