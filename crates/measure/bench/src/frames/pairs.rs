//! Pairs of threads: cache-line transfer, barrier, futex round trip.

use super::{MINOR, PRIORITY};
use crate::Failed;
use crate::failed::joined;
use base::{CpuId, CpuSet, DurNs, Histogram, Policy, Priority};
use rt::Barrier;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until};
use sys::futex;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

const ROUNDS: u64 = 20_000;

/// Makes the calling thread real time on a CPU.
fn place(cpu: CpuId) -> Result<(), Failed> {
    place_at(cpu, PRIORITY)
}

pub(super) fn place_at(cpu: CpuId, priority: Priority) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(cpu))?;
    Ok(set_scheduling(0, Scheduling { policy: Policy::Fifo(priority), reset_on_fork: true })?)
}

/// Runs both on separate threads; returns the time of one round of `mine`.
fn pair(
    cpus: [CpuId; 2],
    mine: impl FnOnce() + Send + 'static,
    theirs: impl FnOnce() + Send + 'static,
) -> Result<DurNs, Failed> {
    let both = Arc::new(AtomicU64::new(0));
    let meet = move |both: &AtomicU64| {
        both.fetch_add(1, Ordering::AcqRel);
        while both.load(Ordering::Acquire) < 2 {
            // On one CPU the other thread must get to run; it has no priority before it is placed.
            if cpus[0] == cpus[1] {
                sleep_until(mono_now() + DurNs::from_us(100));
            }
        }
    };
    let other = both.clone();
    let they = std::thread::spawn(move || {
        let placed = place(cpus[1]);
        meet(&other);
        theirs();
        placed
    });
    let me = std::thread::spawn(move || {
        let placed = place(cpus[0]);
        meet(&both);
        let begun = mono_now();
        mine();
        placed.map(|()| DurNs((mono_now() - begun).0 / ROUNDS as i64))
    });
    joined(they.join())?;
    joined(me.join())
}

/// One way of a cache line from CPU to CPU.
pub(super) fn hand_over(one: CpuId, two: CpuId) -> Result<DurNs, Failed> {
    let line = Arc::new(AtomicU64::new(0));
    let follow = |line: Arc<AtomicU64>, odd: u64| {
        move || {
            for round in 0..ROUNDS {
                while line.load(Ordering::Acquire) != round * 2 + odd {
                    spin_loop();
                }
                line.store(round * 2 + odd + 1, Ordering::Release);
            }
        }
    };
    Ok(DurNs(pair([one, two], follow(line.clone(), 0), follow(line, 1))?.0 / 2))
}

pub(super) fn barrier(one: CpuId, two: CpuId) -> Result<DurNs, Failed> {
    let barrier = Barrier::new(2)?;
    let wait = |barrier: Barrier| move || (0..ROUNDS).for_each(|_| _ = barrier.wait(DurNs::from_ms(10), None));
    pair([one, two], wait(barrier.clone()), wait(barrier))
}

/// Two threads on one CPU that alternately wake each other.
pub(super) fn futex_round_trip(cpu: CpuId) -> Result<DurNs, Failed> {
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let turn = |words: Arc<[AtomicU64; 2]>, mine: usize, first: bool| {
        move || {
            for round in 1..=ROUNDS {
                if first {
                    futex::count_up(&words[1 - mine], 1);
                }
                loop {
                    let seen = words[mine].load(Ordering::Acquire);
                    if seen >= round {
                        break;
                    }
                    futex::wait(&words[mine], seen, None);
                }
                if !first {
                    futex::count_up(&words[1 - mine], 1);
                }
            }
        }
    };
    pair([cpu, cpu], turn(words.clone(), 0, true), turn(words, 1, false))
}

/// The kernel's part at a border: a thread that wakes each millisecond and wakes two of lower priority, as a
/// dispatcher does.
pub(super) fn border(cpu: CpuId) -> Result<Histogram, Failed> {
    const BORDERS: u64 = 2000;
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let stop = Arc::new(AtomicBool::new(false));
    let sleepers: Vec<_> = (0..2)
        .map(|mine: usize| {
            let (words, stop) = (words.clone(), stop.clone());
            std::thread::spawn(move || {
                place_at(cpu, Priority(PRIORITY.0 - 1 - mine as u8))?;
                while !stop.load(Ordering::Relaxed) {
                    words[mine].store(0, Ordering::SeqCst);
                    futex::wait(&words[mine], 0, None);
                }
                Ok::<_, Failed>(())
            })
        })
        .collect();
    let timing = std::thread::spawn({
        let words = words.clone();
        move || {
            place_at(cpu, PRIORITY)?;
            let (mut took, begun) = (Histogram::new(), mono_now());
            for border in 1..=BORDERS {
                sleep_until(begun + DurNs(MINOR.0 * border as i64));
                let woke = mono_now();
                words[0].store(1, Ordering::SeqCst);
                futex::wake_both(&words[0], &words[1]);
                took.record(mono_now() - woke);
            }
            Ok::<_, Failed>(took)
        }
    });
    let took = joined(timing.join());
    stop.store(true, Ordering::Relaxed);
    for (sleeper, word) in sleepers.into_iter().zip(words.iter()) {
        while !sleeper.is_finished() {
            word.store(1, Ordering::SeqCst);
            futex::wake(word);
            std::thread::yield_now();
        }
        joined(sleeper.join())?;
    }
    took
}
