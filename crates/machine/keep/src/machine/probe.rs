//! Probes of the running machine: permissions, cost of reading the clock, clock discipline, SMIs.
//!
//! Every change to a thread is made on a temporary thread, so a probe has no lasting effect.

use base::{CpuSet, Deadline, DurNs, Policy, Priority};
use host::doctor::{ClockCost, Errno, Permissions, Probe, Probes, SkipReason, Timex, Trial};
use proc::chrony::Tracking;
use proc::ptp::CurrentDataSet;
use std::thread;
use sys::clock::{discipline, mono_now, mono_resolution};
use sys::mem::try_lock;
use sys::root::RootDir;
use sys::sched::{Scheduling, affinity, set_affinity, set_scheduling};
use sys::tool::ask;
use sys::{Error, Result};

/// Time limit for the answer of another program's tool.
const ANSWER_LIMIT: DurNs = DurNs::from_secs(2);

/// Runs all probes. `runs` returns whether a program of that name is running.
#[must_use]
pub fn all(root: &RootDir, runs: impl Fn(&str) -> bool) -> Probes {
    let asked = |daemon: &str, tool: &str, args: &[&str]| match runs(daemon) {
        true => ask(tool, args, ANSWER_LIMIT).map_err(|error| SkipReason(error.to_string())),
        false => Err(SkipReason(format!("{daemon} does not run"))),
    };
    let chrony = asked("chronyd", "chronyc", &["-n", "-c", "tracking"]);
    let ptp = asked("ptp4l", "pmc", &["-u", "-b", "0", "GET CURRENT_DATA_SET"]);
    Probes {
        clock: on_a_thread(clock_cost),
        timex: timex(),
        chrony: chrony.and_then(|text| Tracking::parse(&text).map_err(|why| SkipReason(format!("chronyc: {why}")))),
        ptp: ptp.and_then(|text| CurrentDataSet::parse(&text).map_err(|why| SkipReason(format!("pmc: {why}")))),
        permissions: permissions(),
        smi_count: smi_count(root),
    }
}

/// Scheduling permissions of this process. Each is tried on a separate thread.
///
/// # Errors
/// No thread could be started.
pub fn permissions() -> Probe<Permissions> {
    let class = |policy| move || trial(set_scheduling(0, Scheduling { policy, reset_on_fork: true }));
    let reservation =
        Deadline { runtime: DurNs::from_us(100), deadline: DurNs::from_ms(100), period: DurNs::from_ms(100) };
    Ok(Permissions {
        fifo_1: on_a_thread(class(Policy::Fifo(Priority(1))))?,
        fifo_80: on_a_thread(class(Policy::Fifo(Priority(80))))?,
        rr_1: on_a_thread(class(Policy::Rr(Priority(1))))?,
        deadline: on_a_thread(class(Policy::Deadline(reservation)))?,
        memory_lock: on_a_thread(|| trial(try_lock(1 << 20)))?,
        affinity: on_a_thread(|| {
            trial(affinity(0).and_then(|cpus| set_affinity(0, &cpus.lowest().map_or(CpuSet::EMPTY, CpuSet::single))))
        })?,
    })
}

/// Cost of reading `CLOCK_MONOTONIC`. Batches of reads make the cost of timing a batch negligible.
#[must_use]
pub fn clock_cost() -> ClockCost {
    const BATCHES: usize = 500;
    const READS: u32 = 50;
    let mut batches_ns: Vec<i64> = (0..BATCHES)
        .map(|_| {
            let start = mono_now();
            for _ in 1..READS {
                std::hint::black_box(mono_now());
            }
            (mono_now() - start).0
        })
        .collect();
    batches_ns.sort_unstable();
    let per_read = |ns: i64| u32::try_from(ns / i64::from(READS)).unwrap_or(u32::MAX);
    ClockCost {
        reads: BATCHES as u32 * READS,
        median_ns: per_read(batches_ns[BATCHES / 2]),
        p99_ns: per_read(batches_ns[BATCHES * 99 / 100]),
        resolution_ns: mono_resolution().0 as u64,
    }
}

/// The kernel's report of the discipline of `CLOCK_REALTIME`.
///
/// # Errors
/// The kernel refused the query.
pub fn timex() -> Probe<Timex> {
    let found = discipline().map_err(|error| SkipReason(error.to_string()))?;
    Ok(Timex {
        synchronised: found.synchronised,
        tai_offset_s: found.tai_offset_s,
        estimated_error_us: found.estimated_error_us,
        maximum_error_us: found.maximum_error_us,
        frequency_ppb: found.frequency_ppb,
    })
}

/// System management interrupts since power-on, counted by Intel processors.
///
/// # Errors
/// The counter does not exist or cannot be read.
pub fn smi_count(root: &RootDir) -> Probe<u64> {
    const MSR_SMI_COUNT: u64 = 0x34;
    read_msr(root, 0, MSR_SMI_COUNT).map_err(|error| SkipReason(error.to_string()))
}

/// Reads a model-specific register of `cpu` through `/dev/cpu/N/msr`.
fn read_msr(root: &RootDir, cpu: u16, register: u64) -> Result<u64> {
    let path = format!("/dev/cpu/{cpu}/msr");
    let refused = |errno| Error { doing: format!("read register {register:#x} from {path}"), errno };
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(root.path(&path), flags, rustix::fs::Mode::empty()).map_err(refused)?;
    let mut bytes = [0; 8];
    match rustix::io::pread(&file, &mut bytes, register).map_err(refused)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(refused(rustix::io::Errno::IO)),
    }
}

fn trial(result: Result<()>) -> Trial {
    result.map_err(|error| Errno(error.errno.raw_os_error()))
}

/// Runs `work` on a temporary thread.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Probe<T> {
    let started = thread::Builder::new().name("probe".into()).spawn(work);
    let handle = started.map_err(|error| SkipReason(format!("no thread to try it on: {error}")))?;
    handle.join().map_err(|_| SkipReason("the thread that tried it ended early".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::sched::scheduling;

    #[test]
    fn probing_leaves_the_calling_thread_unchanged() {
        let before = (scheduling(0), affinity(0));
        permissions().unwrap();
        assert_eq!((scheduling(0), affinity(0)), before);
    }

    #[test]
    fn reading_the_clock_costs_something() {
        let cost = clock_cost();
        assert!(cost.median_ns > 0 && cost.median_ns <= cost.p99_ns, "{cost:?}");
        assert!(cost.resolution_ns > 0);
    }
}
