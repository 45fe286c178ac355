//! `tahti bench interference`: what a task that computes loses to others that compute, and to a stream over a network; and what
//! the stream loses to them.

mod iperf3;
mod link;

use crate::failed::joined;
use crate::measure::Interrupt;
use crate::measure::measured_cpu;
use crate::{Bench, Failed, Found, Progress, read};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy, Priority};
use clap::{ArgMatches, Args as _};
pub(crate) use link::STREAM;
use report::{Figure, Good, Published, Row, Table, Wanted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "interference",
    experiment: "OPEN-NEXT: a prime task beside 0, 70 and 100 % interference; a network stream beside computation",
    arguments: Args::augment_args,
    run,
    published: &[
        Published::of(
            "S3.1",
            "HiPeRT Lab, OPEN-NEXT: a prime task beside two of low priority that compute",
            "about 2018",
            "Core i7-4770T, 4 cores",
            "up to 200 times the time, power management being one cause",
        ),
        Published::of(
            "S3.2",
            "HiPeRT Lab, OPEN-NEXT: iperf3 of high priority beside prime95",
            "about 2018",
            "Core i7-4770T, 4 cores",
            "20 runs of about 820 to 950 Mbit/s (an axis of a damaged slide)",
        ),
    ],
    wanted: "the real-time task takes no longer beside full interference, the stream loses nothing",
    quick: &["--rounds", "8"],
    shields: false,
};

/// What a computing task and a network stream lose to others
///
/// The prime task counts primes on one CPU for some 10 ms, in a real-time class and in time sharing, while two threads
/// of time sharing compute pi there for none of the time, 70 % of it, or all. The stream goes over a link of 100 Mbit/s
/// between two network namespaces of its own (root, `ip` and `tc`), alone and beside computing threads of nice 19, one a CPU;
/// where iperf3 is installed, it sends over the same link in turn with it.
#[derive(clap::Args)]
struct Args {
    /// CPU of the prime task; the highest if not given
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Runs of each condition
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    /// Leave the network out
    #[arg(long)]
    no_network: bool,
}

/// The prime task's class where it is real time.
const REAL_TIME: Policy = Policy::Fifo(Priority(50));
/// How long it is to take, about.
const TAKES: DurNs = DurNs::from_ms(10);
/// Shares of the time that the interference computes, in percent.
const LEVELS: [u32; 3] = [0, 70, 100];
/// Over this the shares hold.
const PERIOD: DurNs = DurNs::from_ms(10);
/// Tasks that interfere.
const TASKS: i64 = 2;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, Failed> {
    let args: Args = read(matches)?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    let below = calibrated(cpu)?;
    let parts = args.rounds as usize * 2;
    let mut times: [[Vec<f64>; LEVELS.len()]; 2] = Default::default();
    for round in 0..args.rounds as usize {
        progress.at(round, parts, "primes beside interference");
        for (class, times) in [REAL_TIME, Policy::OTHER].into_iter().zip(&mut times) {
            for (level, times) in LEVELS.into_iter().zip(times) {
                let _beside = Computing::start(level, TASKS, &CpuSet::single(cpu), 0);
                times.push(primes_take(cpu, class, below)?);
                interrupt.check()?;
            }
        }
    }
    let mut found = Found { tables: vec![cpu_table(times)], ..Found::default() };
    found.setup.push(format!("the prime task counts the primes below {below} on CPU {cpu}"));
    if args.no_network {
        return Ok(found);
    }
    match link::measure(args.rounds, (cpu, below), &online, |round| {
        progress.at(args.rounds as usize + round, parts, "a stream beside computation");
        interrupt.check()
    }) {
        Ok((tables, without)) => {
            found.tables.extend(tables);
            found.notes.extend(without.map(|why| why.to_string()));
        }
        Err(why) => found.notes.push(format!("the network was not measured: {why}")),
    }
    Ok(found)
}

fn cpu_table([real_time, ordinary]: [[Vec<f64>; LEVELS.len()]; 2]) -> Table {
    let mut table = Table::new("time of the prime task").columns("beside", "alone");
    for (word, times, most) in [("real time", real_time, Some(1.05)), ("time sharing", ordinary, None)] {
        let alone = Figure::median(times[0].clone());
        for (level, times) in LEVELS.into_iter().zip(times) {
            let [least, most_of_all] =
                [f64::min, f64::max].map(|of| times.iter().copied().reduce(of).unwrap_or(f64::NAN));
            let note = format!("from {least:.2} to {most_of_all:.2}: {:.2} times", most_of_all / least);
            let row = Row::samples(format!("{word}, interference {level} %"), "ms", times).good(Good::Low).note(note);
            table = table.row(match most.filter(|_| level > 0) {
                Some(most) => row.against(alone.clone()).wanted(Wanted::ratio_at_most(most)),
                None if level > 0 => row.against(alone.clone()),
                None => row,
            });
        }
    }
    table
}

/// Threads that compute pi for a share of the time; end with this.
struct Computing(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Computing {
    /// So many tasks together take `percent` of each of `cpus` in time sharing.
    fn start(percent: u32, tasks: i64, cpus: &CpuSet, nice: i8) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let count = if percent == 0 { 0 } else { tasks };
        let busy = DurNs(PERIOD.0 * i64::from(percent) / 100 / tasks);
        let one = |_| {
            let (stop, cpus) = (stop.clone(), *cpus);
            std::thread::spawn(move || {
                let _ = set_affinity(0, &cpus);
                let _ = set_scheduling(0, Scheduling { policy: Policy::Other { nice }, reset_on_fork: false });
                while !stop.load(Ordering::Relaxed) {
                    let begun = mono_now();
                    pi(begun + if percent == 100 { PERIOD } else { busy });
                    if percent < 100 {
                        sleep_until(begun + PERIOD);
                    }
                }
            })
        };
        let threads = (0..count).map(one).collect();
        Self(stop, threads)
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Computes pi by Leibniz' series until `end`.
fn pi(end: MonoNs) -> f64 {
    let (mut sum, mut term) = (0.0f64, 0u32);
    while mono_now() < end {
        for _ in 0..1000 {
            let sign = if term.is_multiple_of(2) { 4.0 } else { -4.0 };
            sum += sign / f64::from(2 * term + 1);
            term = (term + 1) % (u32::MAX / 4);
        }
        std::hint::black_box(sum);
    }
    sum
}

/// How many primes lie below a number, by division.
fn primes(below: u32) -> u32 {
    let is_prime = |number: &u32| (2..).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    (2..below).filter(|number| is_prime(std::hint::black_box(number))).count() as u32
}

/// How long the prime task takes on a thread of its own, in ms.
fn primes_take(cpu: CpuId, class: Policy, below: u32) -> Result<f64, Failed> {
    let task = std::thread::spawn(move || {
        set_affinity(0, &CpuSet::single(cpu))?;
        set_scheduling(0, Scheduling { policy: class, reset_on_fork: false })?;
        let begun = mono_now();
        std::hint::black_box(primes(below));
        Ok((mono_now() - begun).0 as f64 / 1e6)
    });
    joined(task.join())
}

/// Below which number the primes take about [`TAKES`] here.
fn calibrated(cpu: CpuId) -> Result<u32, Failed> {
    let mut below = 1000;
    while primes_take(cpu, REAL_TIME, below)? < TAKES.0 as f64 / 1e6 && below < 1 << 24 {
        below = below * 5 / 4;
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_counted_and_pi_is_pi() {
        assert_eq!((primes(2), primes(10), primes(1000)), (0, 4, 168));
        assert!((pi(mono_now() + DurNs::from_ms(20)) - std::f64::consts::PI).abs() < 0.01);
    }
}
