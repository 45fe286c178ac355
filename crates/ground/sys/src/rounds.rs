//! Progress of the threads of this process, for its report to the supervisor: a thread that hangs is named.

use crate::clock::mono_now;
use base::{DurNs, MonoNs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum time that a watched loop may wait for its next event, so that it goes round.
pub const ROUND_EVERY: DurNs = DurNs::from_secs(1);

/// The same for channels and conditions.
pub const ROUND: Duration = Duration::from_nanos(ROUND_EVERY.0 as u64);

/// If no check was made for this time, the whole process was stopped, and so were its threads.
const CHECKED_WITHIN: DurNs = DurNs::from_ms(2500);
/// Maximum number of threads that are named.
const NAMED_MAX: usize = 4;
/// Number of rounds of a thread that has ended.
const ENDED: u64 = u64::MAX;

/// The watched threads of this process.
static WATCHED: Mutex<Threads> = Mutex::new(Threads::new());

/// Number of rounds of one thread's loop. Dropping it ends the watch. A thread that panics stays watched, and hangs.
#[derive(Debug, Default)]
pub struct Rounds(Option<Arc<AtomicU64>>);

impl Rounds {
    /// Watches a thread. Its loop must finish each round `within` this time, and wait at most [`ROUND_EVERY`] for an event.
    /// [`Supervisor::works`](crate::notify::Supervisor::works) reports a thread that does not.
    #[must_use]
    pub fn watch(name: &str, within: DurNs) -> Self {
        watched().add(name, within, mono_now())
    }

    /// Counts a round. Call it in every round of the loop.
    ///
    /// Real-time: one atomic addition.
    pub fn count(&self) {
        if let Some(rounds) = &self.0 {
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if let Some(rounds) = self.0.as_ref().filter(|_| !std::thread::panicking()) {
            rounds.store(ENDED, Ordering::Relaxed);
        }
    }
}

/// A description of the threads of this process that hang; `None` if there are none.
pub fn hanging(now: MonoNs) -> Option<String> {
    watched().hanging(now)
}

/// A panic while the lock is held cannot leave the threads inconsistent.
fn watched() -> MutexGuard<'static, Threads> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads whose loops must go round.
#[derive(Debug)]
struct Threads {
    all: Vec<Thread>,
    checked: MonoNs,
}

#[derive(Debug)]
struct Thread {
    name: String,
    rounds: Arc<AtomicU64>,
    within: DurNs,
    /// Number of rounds at the last change, and the time at which a check found it.
    last: (u64, MonoNs),
}

impl Threads {
    const fn new() -> Self {
        Self { all: Vec::new(), checked: MonoNs(0) }
    }

    fn add(&mut self, name: &str, within: DurNs, now: MonoNs) -> Rounds {
        let rounds = Arc::<AtomicU64>::default();
        self.all.push(Thread { name: name.to_owned(), rounds: rounds.clone(), within, last: (0, now) });
        Rounds(Some(rounds))
    }

    fn hanging(&mut self, now: MonoNs) -> Option<String> {
        let was_stopped = now - std::mem::replace(&mut self.checked, now) > CHECKED_WITHIN;
        self.all.retain(|thread| thread.rounds.load(Ordering::Relaxed) != ENDED);
        let (mut names, mut within) = (Vec::new(), None);
        for thread in &mut self.all {
            let rounds = thread.rounds.load(Ordering::Relaxed);
            if was_stopped || rounds != thread.last.0 {
                thread.last = (rounds, now);
            } else if now - thread.last.1 > thread.within {
                names.push(thread.name.as_str());
                within = [within, Some(thread.within)].into_iter().flatten().min();
            }
        }
        let within = within?;
        let threads = if names.len() == 1 { "thread" } else { "threads" };
        let more = names.len().saturating_sub(NAMED_MAX);
        names.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("{threads} {}{more} hung: no round of the loop for more than {within}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: DurNs = DurNs::from_secs(4);

    fn ms(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000)
    }

    #[test]
    fn a_thread_whose_loop_stands_still_is_named_until_it_goes_round_again() {
        let mut threads = Threads::new();
        let [first, second] = ["band-0", "band-1"].map(|name| threads.add(name, WITHIN, ms(0)));
        for at in (100..=5000).step_by(100) {
            second.count();
            let expected = (at > 4000).then(|| "thread band-0 hung: no round of the loop for more than 4s".to_owned());
            assert_eq!(threads.hanging(ms(at)), expected, "at {at} ms");
        }
        first.count();
        assert_eq!(threads.hanging(ms(5100)), None);
        for at in (5200..=9500).step_by(100) {
            let found = threads.hanging(ms(at));
            assert!(at < 9500 || found.is_some_and(|text| text.starts_with("threads band-0, band-1 hung")));
        }
    }

    #[test]
    fn the_time_in_which_the_whole_process_was_stopped_does_not_count() {
        let mut threads = Threads::new();
        let _rounds = threads.add("band-0", WITHIN, ms(0));
        for at in (100..=3900).step_by(100) {
            assert_eq!(threads.hanging(ms(at)), None);
        }
        assert_eq!(threads.hanging(ms(60_000)), None);
        assert_eq!(threads.hanging(ms(60_500)), None);
    }

    #[test]
    fn a_thread_that_has_ended_does_not_hang_and_one_that_panicked_does() {
        let mut threads = Threads::new();
        let [ended, panics] = ["ended", "panics"].map(|name| threads.add(name, WITHIN, ms(0)));
        drop(ended);
        let thread = std::thread::spawn(move || {
            panics.count();
            panic!("as a fault of the program would");
        });
        thread.join().unwrap_err();
        let found = (0..=50).find_map(|second| threads.hanging(ms(second * 500)));
        assert_eq!(found.as_deref(), Some("thread panics hung: no round of the loop for more than 4s"));
    }

    #[test]
    fn each_thread_has_its_own_limit_and_only_the_first_are_named() {
        let mut threads = Threads::new();
        let slow = threads.add("slow", DurNs::from_secs(15), ms(0));
        let many: Vec<Rounds> = (0..6).map(|number| threads.add(&format!("band-{number}"), WITHIN, ms(0))).collect();
        let found = (1..=10).find_map(|half| threads.hanging(ms(half * 500))).unwrap();
        let expected = "threads band-0, band-1, band-2, band-3 and 2 more hung: no round of the loop for more than 4s";
        assert_eq!(found, expected);
        drop(many);
        let found = (11..=40).find_map(|half| threads.hanging(ms(half * 500))).unwrap();
        assert_eq!(found, "thread slow hung: no round of the loop for more than 15s");
        slow.count();
        assert_eq!(threads.hanging(ms(20_500)), None);
    }
}
