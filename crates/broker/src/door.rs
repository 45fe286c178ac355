//! How a lane of the server sleeps although many clients may wake it, and none of them can keep it from being woken.
//!
//! Clients map the page for reading only: `futex(2)` wakes through such a mapping too. So no client can forge the mark
//! that tells others whether waking is needed. The word that the lane sleeps on never changes; a client that finds the
//! mark before the lane has fallen asleep knocks again until somebody was woken or the mark is gone.

use base::DurNs;
use ring::Words;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use sys::shm::{ReadWords, SharedWords};

const WORDS: usize = 16;
const ASLEEP: usize = 0;
const BELL: usize = 8;
/// Times that a client knocks at once before it lets others run: the lane may wait for this very CPU.
const KNOCKS: u32 = 64;
const PAUSE: DurNs = DurNs::from_us(20);
/// Times that a client knocks at all: whoever sets the mark falls asleep within far less, unless the server was stopped
/// just there. A lane that was missed nevertheless looks by itself when its longest sleep is over.
const KNOCKS_MAX: u32 = 256 * KNOCKS;

/// The lane's side.
pub(crate) struct Door(SharedWords);

/// A client's side.
pub(crate) struct Knocker(ReadWords);

impl Door {
    pub(crate) fn new() -> sys::Result<Self> {
        SharedWords::create("tahti-door", WORDS).map(Self)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Sleeps until somebody knocks, at most for `limit`, unless there is work by now.
    pub(crate) fn sleep(&self, limit: DurNs, has_work: impl FnOnce() -> bool) {
        let words = self.0.words();
        words[ASLEEP].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            sys::futex::wait(&words[BELL], 0, Some(limit));
        }
        words[ASLEEP].store(0, Ordering::Relaxed);
    }

    /// Wakes the lane, from another thread of the server.
    pub(crate) fn knock(&self) {
        knock(self.0.words());
    }
}

impl Knocker {
    pub(crate) fn new(fd: OwnedFd) -> sys::Result<Self> {
        let words = SharedWords::attach_read_only(fd)?;
        let enough = words.words().len() >= WORDS;
        enough.then_some(Self(words)).ok_or_else(|| sys::Error {
            doing: "map the door of a message server".to_owned(),
            errno: rustix::io::Errno::INVAL,
        })
    }

    /// Wakes the lane if it sleeps. To be called after what it must not miss was written.
    pub(crate) fn knock(&self) {
        knock(self.0.words());
    }
}

fn knock(words: &Words) {
    fence(Ordering::SeqCst);
    let mut knocks = 0;
    while words[ASLEEP].load(Ordering::Relaxed) != 0 && sys::futex::wake(&words[BELL]) == 0 {
        knocks += 1;
        if knocks == KNOCKS_MAX {
            return;
        }
        if knocks % KNOCKS == 0 {
            sys::clock::sleep_until(sys::clock::mono_now() + PAUSE);
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn who_knocks_at_a_server_that_was_stopped_while_falling_asleep_gives_up() {
        let door = Door::new().unwrap();
        door.0.words()[ASLEEP].store(1, Ordering::Relaxed);
        Knocker::new(door.fd().try_clone_to_owned().unwrap()).unwrap().knock();
    }

    #[test]
    fn a_sleeping_lane_never_misses_a_knock_through_a_mapping_for_reading() {
        const ROUNDS: u64 = 2_000;
        let door = Door::new().unwrap();
        let knocker = Knocker::new(door.fd().try_clone_to_owned().unwrap()).unwrap();
        let (sent, heard) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
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
                    door.sleep(DurNs::from_secs(20), || sent.load(Ordering::Acquire) >= round);
                    assert!(sys::clock::mono_now() - began < DurNs::from_secs(20), "nobody woke it");
                }
                heard.store(round, Ordering::Release);
            }
        });
    }
}
