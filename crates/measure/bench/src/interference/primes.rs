//! The measured task: it repeatedly counts primes, and records the gaps in which it did not run.

use super::Times;
use crate::explained::Explained;
use crate::failed::joined;
use crate::measure::{Gate, TaskPlacement, own_program};
use crate::{Failed, Helper, read};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy};
use clap::Args as _;
use std::fmt::Write as _;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The process.
pub(crate) const PRIMES: Helper =
    Helper { name: "primes", arguments: PrimesArgs::augment_args, run: |matches| task(&read(matches)?) };

/// Its command line.
#[derive(clap::Args)]
struct PrimesArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long)]
    class: Policy,
    #[arg(long)]
    below: u32,
    #[arg(long)]
    runs: usize,
}

/// Approximate time of a run.
const TAKES: DurNs = DurNs::from_ms(1);
/// Runs of a piece: together below the limit of real-time throttling per second.
pub(super) const RUNS: usize = 250;
/// Time for the recording to find the task.
const SETTLE: DurNs = DurNs::from_ms(80);
/// Numbers between two clock readings.
const NUMBERS: u32 = 16;
/// Minimum length of a gap; shorter ones are computation.
const GAP: DurNs = DurNs::from_us(30);
/// Rest of a gap without events that is not evidence for the host, in nanoseconds.
const AROUND: u64 = 20_000;
/// Maximum number of recorded gaps of a piece.
const GAPS_MAX: usize = 1 << 14;

/// Counts primes below a number by division, and calls `check` after every few of them.
fn primes(below: u32, mut check: impl FnMut()) -> u32 {
    let is_prime = |number: u32| (2..).take_while(|by| by * by <= number).all(|by| !number.is_multiple_of(by));
    let mut count = 0;
    for number in 2..below {
        count += u32::from(is_prime(std::hint::black_box(number)));
        if number.is_multiple_of(NUMBERS) {
            check();
        }
    }
    count
}

/// Time of one run on a separate thread, in ms.
pub(super) fn take(cpu: CpuId, class: Policy, below: u32) -> Result<f64, Failed> {
    let task = std::thread::spawn(move || {
        set_affinity(0, &CpuSet::single(cpu))?;
        set_scheduling(0, Scheduling { policy: class, reset_on_fork: false })?;
        let begun = mono_now();
        std::hint::black_box(primes(below, || {
            std::hint::black_box(mono_now());
        }));
        Ok((mono_now() - begun).0 as f64 / 1e6)
    });
    joined(task.join())
}

/// The limit for which a run takes about [`TAKES`] here.
pub(super) fn calibrated(cpu: CpuId) -> Result<u32, Failed> {
    let mut below = 1000;
    loop {
        // The minimum of several, to exclude interference.
        let runs: Result<Vec<f64>, Failed> = (0..5).map(|_| take(cpu, Policy::OTHER, below)).collect();
        if runs?.into_iter().fold(f64::INFINITY, f64::min) >= TAKES.0 as f64 / 1e6 || below >= 1 << 24 {
            return Ok(below);
        }
        below = below * 9 / 8;
    }
}

/// One piece: [`RUNS`] runs, each with the host's share.
pub(super) fn piece(
    place: &TaskPlacement,
    class: Policy,
    below: u32,
    explained: Option<&Explained>,
) -> Result<Times, Failed> {
    let words = [
        own_program()?.display().to_string(),
        "bench".into(),
        "primes".into(),
        format!("--cpu={}", place.cpu),
        format!("--class={class}"),
        format!("--below={below}"),
        format!("--runs={RUNS}"),
    ];
    let gate = Gate::start(&words, place, None)?;
    let tid = gate.pid();
    explained.inspect(|explained| explained.watch(tid, class, "tahti"));
    let output = gate.output()?;
    let read =
        |word: &str| spans(&output, word).ok_or_else(|| Failed::answer("the prime task", "times in ns", &output));
    let (runs, gaps) = (read("run")?, read("gap")?);
    let mut times = Times::default();
    for [from, to] in runs {
        let took = to.saturating_sub(from);
        times.raw.push(took);
        let Some(explained) = explained else { continue };
        let gaps: Vec<[u64; 2]> = gaps.iter().copied().filter(|gap| gap[0] >= from && gap[1] <= to).collect();
        let host = match gaps.is_empty() {
            true => 0,
            false => hosts(&explained.within(tid, [MonoNs(from), MonoNs(to)])?, &gaps),
        };
        times.ours.push(took.saturating_sub(host));
    }
    if let Some(explained) = explained {
        explained.take()?;
    }
    Ok(times)
}

/// The host's share of the gaps: by evidence, or because no event of this kernel occurred. The task makes no system call, and nothing else
/// stops user code; kernel entry and exit take at most [`AROUND`].
fn hosts(parts: &[trace::DelayPart], gaps: &[[u64; 2]]) -> u64 {
    if parts.is_empty() {
        // The task was not recorded: its gaps cannot be explained.
        return 0;
    }
    let others: Vec<_> = parts.iter().filter(|part| !matches!(part.culprit, trace::Culprit::Own { .. })).collect();
    let one = |[from, to]: &[u64; 2]| {
        let within =
            |part: &trace::DelayPart| (*to).min(part.from.0 + part.ns).saturating_sub((*from).max(part.from.0));
        let named: u64 = others.iter().map(|part| within(part)).sum();
        let evident: u64 = others.iter().filter(|part| part.culprit.is_host()).map(|part| within(part)).sum();
        let rest = (to - from).saturating_sub(named);
        evident + if rest > AROUND { rest } else { 0 }
    };
    gaps.iter().map(one).sum()
}

/// Start and end of each item of this word.
fn spans(text: &str, word: &str) -> Option<Vec<[u64; 2]>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let span = |line: &str| {
        let (from, to) = line.split_once(' ')?;
        let [from, to] = [from.parse().ok()?, to.parse().ok()?];
        (from <= to).then_some([from, to])
    };
    lines.map(span).collect()
}

/// The task.
fn task(args: &PrimesArgs) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(args.cpu))?;
    set_scheduling(0, Scheduling { policy: args.class, reset_on_fork: false })?;
    // Pages are touched before the measurement.
    let (mut runs, mut gaps) = (vec![[1u64; 2]; args.runs], vec![[1u64; 2]; GAPS_MAX]);
    runs.clear();
    gaps.clear();
    sleep_until(mono_now() + SETTLE);
    std::hint::black_box(primes(args.below, || ()));
    for _ in 0..args.runs {
        let begun = mono_now();
        let mut last = begun;
        let mut check = || {
            let now = mono_now();
            if now - last > GAP && gaps.len() < GAPS_MAX {
                gaps.push([last.0, now.0]);
            }
            last = now;
        };
        std::hint::black_box(primes(args.below, &mut check));
        check();
        runs.push([begun.0, last.0]);
    }
    let mut text = String::new();
    for (word, spans) in [("run", &runs), ("gap", &gaps)] {
        for [from, to] in spans {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word} {from} {to}");
        }
    }
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Culprit, DelayPart};

    #[test]
    fn primes_are_counted_with_checks_between() {
        let mut checks = 0;
        assert_eq!((primes(2, || ()), primes(10, || ()), primes(1000, || checks += 1)), (0, 4, 168));
        assert_eq!(checks, 62);
    }

    #[test]
    fn gaps_without_kernel_events_are_the_hosts() {
        let part = |from_us: u64, us: u64, culprit| DelayPart { from: MonoNs(from_us * 1000), ns: us * 1000, culprit };
        let parts = [
            part(0, 5, Culprit::Timer),
            part(1000, 5000, Culprit::Host { evidence: "idle" }),
            part(9000, 4000, Culprit::Timer),
            part(20_000, 50, Culprit::Own { faulting: false }),
        ];
        let us = |gap: [u64; 2]| hosts(&parts, &[gap.map(|us| us * 1000)]) / 1000;
        assert_eq!(us([7000, 8000]), 1000, "no part ran");
        assert_eq!(us([500, 2000]), 1500, "half of it by evidence");
        assert_eq!(us([8990, 13_000]), 0, "the kernel's own time, with entry and exit");
        assert_eq!(us([9000, 14_000]), 1000, "the host kept the CPU before the interrupt was over");
        assert_eq!(us([19_000, 21_000]), 2000, "its own code is no interference");
        assert_eq!(hosts(&[], &[[0, 5_000_000]]), 0, "unrecorded time is not the host's");
    }

    #[test]
    fn only_the_output_of_the_task_is_parsed() {
        assert_eq!(spans("run 1 2\ngap 1 2\nrun 3 5\n", "run"), Some(vec![[1, 2], [3, 5]]));
        for broken in ["run 1", "run 5 3", "run x 2"] {
            assert_eq!(spans(broken, "run"), None, "{broken}");
        }
    }
}
