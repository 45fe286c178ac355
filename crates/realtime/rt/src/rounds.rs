//! Progress of the threads of a service, for its report to the supervisor: a thread that hangs is named.

use base::{DurNs, MonoNs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// If no check was made for this time, the whole process was stopped, and so were its threads.
const CHECKED_WITHIN: DurNs = DurNs::from_secs(1);

/// Number of rounds of one thread's loop. Counting is one atomic addition, which a real-time thread may make.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Arc<AtomicU64>);

impl Rounds {
    /// Counts a round. Call it in every round of the loop.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads whose loops must go round.
#[derive(Debug)]
pub struct Threads {
    all: Vec<Thread>,
    within: DurNs,
    checked: MonoNs,
}

#[derive(Debug)]
struct Thread {
    name: String,
    rounds: Rounds,
    /// Number of rounds at the last change, and the time at which a check found it.
    last: (u64, MonoNs),
}

impl Threads {
    /// No threads yet. A loop must finish each round `within` this time.
    #[must_use]
    pub fn new(within: DurNs) -> Self {
        Self { all: Vec::new(), within, checked: MonoNs(0) }
    }

    /// Whether there are no threads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a thread, and returns the counter for its loop.
    pub fn add(&mut self, name: &str, now: MonoNs) -> Rounds {
        let rounds = Rounds::default();
        self.all.push(Thread { name: name.to_owned(), rounds: rounds.clone(), last: (0, now) });
        rounds
    }

    /// A description of the threads that hang; `None` if there are none.
    pub fn hanging(&mut self, now: MonoNs) -> Option<String> {
        let was_stopped = now - std::mem::replace(&mut self.checked, now) > CHECKED_WITHIN;
        let mut found = Vec::new();
        for thread in &mut self.all {
            let rounds = thread.rounds.0.load(Ordering::Relaxed);
            if was_stopped || rounds != thread.last.0 {
                thread.last = (rounds, now);
            } else if now - thread.last.1 > self.within {
                found.push(thread.name.as_str());
            }
        }
        let threads = if found.len() == 1 { "thread" } else { "threads" };
        (!found.is_empty())
            .then(|| format!("{threads} {} hung: no round of the loop for more than {}", found.join(", "), self.within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000)
    }

    #[test]
    fn a_thread_whose_loop_stands_still_is_named_until_it_goes_round_again() {
        let mut threads = Threads::new(DurNs::from_secs(4));
        let (first, second) = (threads.add("band-0", ms(0)), threads.add("band-1", ms(0)));
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
        let mut threads = Threads::new(DurNs::from_secs(4));
        threads.add("band-0", ms(0));
        for at in (100..=3900).step_by(100) {
            assert_eq!(threads.hanging(ms(at)), None);
        }
        assert_eq!(threads.hanging(ms(60_000)), None);
        assert_eq!(threads.hanging(ms(60_500)), None);
    }
}
