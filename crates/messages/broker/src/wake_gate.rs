//! Sleep and wake-up of a lane of the server. Many clients can wake it, and none of them can prevent a wake-up.
//!
//! Clients map the page read-only; `futex(2)` also wakes through such a mapping. So a client can forge neither the mark
//! that shows whether a wake-up is needed, nor the word that the lane sleeps on ([`GateWords`]). The kernel refuses any
//! other mapping.

use base::{DurNs, MonoNs};
use ring::{GateWords, Words};
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use sys::shm::{ReadWords, SharedWords};

/// Number of unanswered wake-ups after which the client yields, because the lane may wait for this CPU, and after which
/// it sleeps, so that lower priorities can run too.
const YIELD_AFTER: u32 = 4;
const SLEEP_AFTER: u32 = 32;
const PAUSE: DurNs = DurNs::from_us(20);
/// Number of unanswered wake-ups after which the client stops trying. A lane that sets the mark falls asleep in much
/// less time, unless the server was stopped at that point. A lane that was missed wakes when its maximum sleep is over.
const GIVE_UP_AFTER: u32 = 288;

/// Maximum sleep of a lane after a missed wake-up, and the time for which this limit applies.
const WARY: DurNs = DurNs::from_ms(1);
const WARY_FOR: DurNs = DurNs::from_secs(10);

/// The lane's side.
pub(crate) struct WakeGate(SharedWords);

/// Sleep state of a lane.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    naps: u64,
    /// End of the shortened sleeps. A process that moves the lane to another futex makes wake-ups miss it.
    wary_until: MonoNs,
}

/// The client's side.
pub(crate) struct LaneWaker {
    words: ReadWords,
    woken: Cell<u64>,
}

impl WakeGate {
    pub(crate) fn new() -> sys::Result<Self> {
        SharedWords::create_for_readers("tahti-gate", GateWords::WORDS).map(Self)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Sleeps until a wake-up, at most for `limit` from `now`. Returns at once if there is work.
    pub(crate) fn sleep(&self, sleeper: &mut Sleeper, now: MonoNs, limit: DurNs, has_work: impl Fn() -> bool) {
        let gate = gate_words(self.0.words());
        let limit = if now < sleeper.wary_until { limit.min(WARY) } else { limit };
        let mut missed = false;
        gate.nap(&mut sleeper.naps, &has_work, || missed = !sys::futex::wait(gate.bell(), 0, Some(limit)));
        if missed && has_work() {
            sleeper.wary_until = now + limit + WARY_FOR;
        }
    }

    /// Wakes the lane from another thread of the server.
    pub(crate) fn wake(&self) {
        wake(self.0.words(), &mut 0);
    }
}

impl LaneWaker {
    pub(crate) fn new(fd: OwnedFd) -> sys::Result<Self> {
        let words = SharedWords::attach_read_only(fd)?;
        let enough = words.words().len() >= GateWords::WORDS;
        enough.then_some(Self { words, woken: Cell::new(0) }).ok_or_else(|| sys::Error {
            doing: "map the gate of a message server".to_owned(),
            errno: rustix::io::Errno::INVAL,
        })
    }

    /// Wakes the lane if it sleeps. Call it after writing the data that the lane must see.
    pub(crate) fn wake(&self) {
        let mut woken = self.woken.get();
        wake(self.words.words(), &mut woken);
        self.woken.set(woken);
    }
}

fn gate_words(words: &Words) -> GateWords<'_> {
    GateWords::attach(words).expect("its length was checked when it was mapped")
}

fn wake(words: &Words, woken: &mut u64) {
    let gate = gate_words(words);
    let wake = || sys::futex::wake(gate.bell()) > 0;
    gate.wake(woken, wake, |unheard| {
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
    fn a_client_that_wakes_a_server_stopped_before_its_sleep_does_not_hang() {
        let gate = WakeGate::new().unwrap();
        let waker = LaneWaker::new(gate.fd().try_clone_to_owned().unwrap()).unwrap();
        gate_words(gate.0.words()).nap(&mut 0, || false, || waker.wake());
    }

    #[test]
    fn a_lane_polls_after_a_missed_wake_up() {
        let (gate, mut sleeper) = (WakeGate::new().unwrap(), Sleeper::default());
        let looks = Cell::new(0);
        // Work arrives during the sleep, without a wake-up.
        let comes = || looks.replace(looks.get() + 1) > 0;
        let began = sys::clock::mono_now();
        gate.sleep(&mut sleeper, began, DurNs::from_ms(2), comes);
        assert!(sleeper.wary_until > began);
        looks.set(0);
        let again = sys::clock::mono_now();
        gate.sleep(&mut sleeper, again, DurNs::from_secs(20), || false);
        assert!(sys::clock::mono_now() - again < DurNs::from_secs(20), "it wakes at its own limit");
    }

    #[test]
    fn a_sleeping_lane_never_misses_a_wake_up_through_a_mapping_for_reading() {
        const ROUNDS: u64 = 2_000;
        let gate = WakeGate::new().unwrap();
        let waker = LaneWaker::new(gate.fd().try_clone_to_owned().unwrap()).unwrap();
        let (sent, heard) = (AtomicU64::new(0), AtomicU64::new(0));
        let (sent, heard, mut sleeper) = (&sent, &heard, Sleeper::default());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    sent.store(round, Ordering::Release);
                    waker.wake();
                    while heard.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                while sent.load(Ordering::Acquire) < round {
                    let began = sys::clock::mono_now();
                    gate.sleep(&mut sleeper, began, DurNs::from_secs(20), || sent.load(Ordering::Acquire) >= round);
                    assert!(sys::clock::mono_now() - began < DurNs::from_secs(20), "no call woke it");
                }
                heard.store(round, Ordering::Release);
            }
        });
    }
}
