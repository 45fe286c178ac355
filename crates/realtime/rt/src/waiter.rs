//! How long it pays to spin before sleeping.

use base::DurNs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::mono_now;
use sys::futex;

/// Rounds of the measurement.
const ROUNDS: usize = 101;

/// Measures what it costs here to be put to sleep and woken by another thread (the median of 101): the window for
/// [`Wait::Both`](ring::Wait::Both), [`Barrier::wait`](crate::Barrier::wait) and [`await_interrupt`](crate::device::await_interrupt).
/// Who spins that long before sleeping never waits more than twice as expensively as who knew the future.
///
/// Takes some milliseconds and a thread in the caller's class, on its CPUs: for the start-up.
#[must_use]
pub fn spin_window() -> DurNs {
    let (word, asleep, rung_at) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let mut costs = [0i64; ROUNDS];
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut costs = [0i64; ROUNDS];
            for (round, cost) in costs.iter_mut().enumerate() {
                let round = round as u64;
                asleep.store(true, Ordering::Release);
                let from = mono_now();
                while word.load(Ordering::Acquire) == round {
                    futex::wait(&word, round, None);
                }
                let woken = mono_now();
                // From the ring, or from the beginning of a sleep that came to nothing.
                *cost = woken.0 as i64 - (rung_at.load(Ordering::Acquire).max(from.0)) as i64;
            }
            costs
        });
        for _ in 0..ROUNDS {
            while !asleep.swap(false, Ordering::Acquire) {
                std::thread::yield_now();
            }
            // Time to fall asleep.
            sys::clock::sleep_until(mono_now() + DurNs::from_us(50));
            rung_at.store(mono_now().0, Ordering::Release);
            futex::count_up(&word, 1);
        }
        if let Ok(measured) = sleeper.join() {
            costs = measured;
        }
    });
    costs.sort_unstable();
    DurNs(costs[ROUNDS / 2].max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_woken_costs_something() {
        assert!(spin_window() > DurNs::ZERO);
    }
}
