//! Measurement of the time worth spinning before sleeping.

use base::DurNs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::mono_now;
use sys::futex;

/// Number of rounds of the measurement.
const ROUNDS: usize = 101;

/// Measures the cost of sleeping and being woken by another thread on this machine (the median of 101 rounds). The result is
/// the spin time for [`Wait::Both`](ring::Wait::Both), [`Barrier::wait`](crate::Barrier::wait) and
/// [`await_interrupt`](crate::device::await_interrupt). A thread that spins for this time before it sleeps never pays more
/// than twice the cost of the best possible choice.
///
/// Takes some milliseconds, and a thread in the caller's class on its CPUs. Call it during start-up.
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
                // Counted from the wake-up call, or from the start of the sleep if the call came first.
                *cost = woken.0 as i64 - (rung_at.load(Ordering::Acquire).max(from.0)) as i64;
            }
            costs
        });
        for _ in 0..ROUNDS {
            while !asleep.swap(false, Ordering::Acquire) {
                std::thread::yield_now();
            }
            // Time for the other thread to fall asleep.
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
