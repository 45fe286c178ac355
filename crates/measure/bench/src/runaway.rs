//! `tahti bench runaway`: how long a runaway FIFO loop keeps its CPU.
//!
//! Each trial starts a loop that sleeps briefly, reads the clock, busy-waits, and reads the clock again when it is
//! demoted. It stops after 900 ms, so that a failing guard does not hang the machine.

use crate::classes::shell;
use crate::failed::joined;
use crate::measure::own_program;
use crate::{Bench, BenchResult, Failed, Helper, Progress, read};
use base::{CpuSet, DurNs, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use host::guard::{Budget, Rung, RungAction};
use keep::guard::{Guard, WatchId, WatchSpec};
use keep::launch::{LaunchSpec, Terminal, hold};
use report::{Good, Latency, Row, Table, Target};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};

/// Maximum time that a loop busy-waits.
const BURNS_FOR: DurNs = DurNs::from_ms(900);
/// The target is the budget plus this.
const ALLOWED: DurNs = DurNs::from_ms(50);

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "runaway",
    experiment: "SPring-8: a real-time loop that does not yield, on one CPU or on all of them, and the guard that demotes it",
    arguments: Args::augment_args,
    run: measure,
    target: "p99 within 50 ms of the budget's end, none missed",
    quick: &["--trials", "20"],
    shields: false,
};

/// The loop.
pub(crate) const BURN: Helper = Helper {
    name: "burn",
    arguments: BurnArgs::augment_args,
    run: |matches| read(matches).and_then(|args: BurnArgs| burn(args.after_us)),
};

/// Time from the start of a runaway FIFO loop to its demotion
///
/// With `--every-cpu` a loop starts on each CPU at the same time. No time-sharing task runs until the guard demotes them: the recovery time is the
/// longest time in which no shell starts, runs and ends. The kernel's real-time throttling remains as it is, and each loop ends after 0.9 s.
#[derive(clap::Args)]
struct Args {
    /// Number of trials
    #[arg(long, default_value_t = 100)]
    trials: u32,
    /// CPU budget of the loop
    #[arg(long, default_value = "80%/100ms")]
    rt_budget: Budget,
    /// CPU of the loop [default: the highest]
    #[arg(long)]
    cpus: Option<CpuSet>,
    /// Scheduling class of the loop
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:50")]
    policy: Policy,
    /// A loop on every CPU at the same time: the machine stops meanwhile
    #[arg(long, conflicts_with = "cpus")]
    every_cpu: bool,
}

#[derive(clap::Args)]
struct BurnArgs {
    #[arg(long)]
    after_us: u64,
}

/// The loop: prints when it started, and when it was demoted (0 if it never was).
fn burn(pause_us: u64) -> Result<(), Failed> {
    if pause_us > 0 {
        sleep_until(mono_now() + DurNs::from_us(pause_us as i64));
    }
    let begun = mono_now();
    let demoted = loop {
        let now = mono_now();
        if sys::sched::has_fixed_priority(0) != Some(true) {
            break now;
        }
        if now - begun > BURNS_FOR {
            break MonoNs(0);
        }
    };
    writeln!(std::io::stdout(), "{} {}", begun.0, demoted.0).map_err(Failed::process("burn"))
}

fn measure(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let Budget::Share { percent, period } = args.rt_budget else {
        return Err(Failed::argument(
            "--rt-budget none",
            "a budget such as 80%/100ms: without a budget the guard demotes no loop",
        ));
    };
    let budget = DurNs(period.0 / 100 * i64::from(percent));
    let online = sys::sched::affinity(0)?;
    let of_loop: Vec<CpuSet> = match (args.every_cpu, args.cpus) {
        (true, _) => online.iter().map(CpuSet::single).collect(),
        (false, Some(cpus)) => vec![cpus],
        (false, None) => online.iter().last().map(CpuSet::single).into_iter().collect(),
    };
    let cpus = of_loop.iter().copied().reduce(|one, other| one.or(&other)).ok_or(Failed::Needs("a CPU"))?;
    let (mut guard, shortfalls) = Guard::start(&cpus)?;
    let shortfalls: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
    let (mut burnt, mut missed, mut shells_ms) = (Vec::new(), 0, Vec::new());
    for trial in 0..args.trials {
        progress.at(trial as usize, args.trials as usize, "a runaway loop");
        // Every other loop busy-waits from its first instruction; the rest pause for up to 50 ms, spread over the
        // phases of the guard's checks.
        let pause_us = match args.every_cpu {
            // All loops have started before the first of them busy-waits.
            true => 100_000,
            false => u64::from(trial % 2) * (u64::from(trial) * 7_919 % 50_000),
        };
        let (ends, shell_ms) = one_trial(&args, &of_loop, pause_us, &mut guard)?;
        // The loops count together: until the last of them is demoted.
        match ends.into_iter().collect::<Option<Vec<DurNs>>>().and_then(|spans| spans.into_iter().max()) {
            Some(span) => burnt.push(span.0.max(0) as u64),
            None => missed += 1,
        }
        shells_ms.extend(shell_ms);
    }
    let samples = burnt.iter().map(|ns| *ns as f64 / 1e3).collect();
    let (who, until) = match args.every_cpu {
        true => ("loops on every CPU,", "from the start of a loop to its demotion, the longest"),
        false => ("loop on CPU", "from the start of the loop to its demotion"),
    };
    let title = format!(
        "runaway {} {who} {cpus}, budget {percent} % of {period} ({budget}), guard {}",
        args.policy,
        guard.class()
    );
    let late = Row::latency(until, Latency::of_times(&mut burnt), samples);
    let mut table = Table::new(title).row(late.target(Target::at_most((budget.0 + ALLOWED.0) as f64 / 1e3))).row(
        Row::figure(format!("never demoted, of {} trials", args.trials), "", f64::from(missed))
            .target(Target::at_most(0.0)),
    );
    if args.every_cpu {
        let most = shells_ms.iter().copied().fold(0.0, f64::max);
        let row = Row::samples("recovery: longest time in which no shell starts, runs and ends", "ms", shells_ms);
        table = table.row(row.good(Good::Low).note(format!("maximum {most:.1}")));
    }
    Ok(BenchResult { notes: shortfalls, ..table.into() })
}

/// Watched loops, one on each set of CPUs. Returns the time of each until its demotion, `None` if it was not demoted; and, if the loops are
/// on every CPU, the recovery time in ms.
fn one_trial(
    args: &Args,
    of_loop: &[CpuSet],
    pause_us: u64,
    guard: &mut Guard,
) -> Result<(Vec<Option<DurNs>>, Option<f64>), Failed> {
    let mut all = Vec::new();
    for cpus in of_loop {
        all.push(start(args, *cpus, pause_us, guard)?);
    }
    let over = AtomicBool::new(false);
    let (spans, shells) = std::thread::scope(|scope| {
        let shells = args.every_cpu.then(|| scope.spawn(|| longest_without_a_shell(&over)));
        let spans: Result<Vec<_>, Failed> = all.iter_mut().map(Running::end).collect();
        over.store(true, Relaxed);
        (spans, shells.map(|shells| joined(shells.join())).transpose())
    });
    all.into_iter().for_each(|running| guard.unwatch(running.watch));
    while guard.next_event().is_some() {}
    Ok((spans?, shells?))
}

/// Longest time between the ends of two shells, one started after the other, in ms: what a login has to wait.
fn longest_without_a_shell(over: &AtomicBool) -> Result<f64, Failed> {
    let (mut last, mut longest) = (mono_now(), DurNs::ZERO);
    while !over.load(Relaxed) {
        shell()?;
        let now = mono_now();
        longest = longest.max(now - last);
        last = now;
    }
    Ok(longest.0 as f64 / 1e6)
}

/// A loop that runs.
struct Running {
    pid: i32,
    watch: WatchId,
    output: Option<OwnedFd>,
}

fn start(args: &Args, cpus: CpuSet, pause_us: u64, guard: &mut Guard) -> Result<Running, Failed> {
    let own = own_program()?;
    let pause = pause_us.to_string();
    let words = [&*own.to_string_lossy(), "bench", "burn", "--after-us", &pause].map(str::to_owned);
    let mut spec = LaunchSpec::new("runaway", words);
    (spec.policy, spec.cpus, spec.require_rt, spec.terminal) = (Some(args.policy), Some(cpus), true, Terminal::Pipes);
    let held = hold(&spec)?;
    let child = held.child();
    let demote = Rung { action: RungAction::Demote, wait: DurNs::from_secs(5) };
    let watch = WatchSpec {
        child,
        ancestor: child.pid,
        budget: args.rt_budget,
        ladder: vec![demote],
        heartbeat: None,
        freezer: None,
        starved_after: DurNs::from_secs(60),
    };
    let watch = guard.watch(watch)?;
    let output = held.go()?.pipes.map(|[output, _]| output);
    Ok(Running { pid: child.pid, watch, output })
}

impl Running {
    /// Waits for its end. Returns its time until the demotion, `None` if it was not demoted.
    fn end(&mut self) -> Result<Option<DurNs>, Failed> {
        let mut text = String::new();
        if let Some(output) = self.output.take() {
            let read = BufReader::new(std::fs::File::from(output)).read_line(&mut text);
            read.map_err(Failed::process("tahti bench burn"))?;
        }
        while matches!(sys::child::look(self.pid, false), Ok(sys::child::Waited::Nothing)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let times: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match times[..] {
            [_, 0] => Ok(None),
            [begun, demoted] => Ok(Some(MonoNs(demoted) - MonoNs(begun))),
            _ => Err(Failed::answer("the loop", "two times", text)),
        }
    }
}
