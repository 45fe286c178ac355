//! `tahti bench runaway`: how long a runaway FIFO loop keeps its CPU.
//!
//! Each trial starts a loop that sleeps briefly, reads the clock, busy-waits, and reads the clock again when it is
//! demoted. It stops after 900 ms, so that a failing guard does not hang the machine.

use crate::measure::own_program;
use crate::{Bench, BenchResult, Failed, Helper, Progress, read};
use base::{CpuSet, DurNs, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use host::guard::{Budget, Rung, RungAction};
use keep::guard::{Guard, WatchSpec};
use keep::launch::{LaunchSpec, Terminal, hold};
use report::{Latency, Row, Table, Target};
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};

/// Maximum time that a loop busy-waits.
const BURNS_FOR: DurNs = DurNs::from_ms(900);
/// The target is the budget plus this.
const ALLOWED: DurNs = DurNs::from_ms(50);

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "runaway",
    experiment: "own: a real-time loop that does not yield, and the guard that demotes it",
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
    #[arg(long, default_value = "fifo:50")]
    policy: Policy,
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
    let cpus = args.cpus.or_else(|| online.iter().last().map(CpuSet::single)).ok_or(Failed::Needs("a CPU"))?;
    let (mut guard, shortfalls) = Guard::start(&cpus)?;
    let shortfalls: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
    let (mut burnt, mut missed) = (Vec::new(), 0);
    for trial in 0..args.trials {
        progress.at(trial as usize, args.trials as usize, "a runaway loop");
        // Every other loop busy-waits from its first instruction; the rest pause for up to 50 ms, spread over the
        // phases of the guard's checks.
        let pause_us = u64::from(trial % 2) * (u64::from(trial) * 7_919 % 50_000);
        match one_trial(args.policy, cpus, args.rt_budget, pause_us, &mut guard)? {
            Some(span) => burnt.push(span.0.max(0) as u64),
            None => missed += 1,
        }
    }
    let samples = burnt.iter().map(|ns| *ns as f64 / 1e3).collect();
    let late = Row::latency("from the start of the loop to its demotion", Latency::of_times(&mut burnt), samples);
    let title = format!(
        "runaway {} loop on CPU {cpus}, budget {percent} % of {period} ({budget}), guard {}",
        args.policy,
        guard.class()
    );
    let table = Table::new(title).row(late.target(Target::at_most((budget.0 + ALLOWED.0) as f64 / 1e3))).row(
        Row::figure(format!("never demoted, of {} trials", args.trials), "", f64::from(missed))
            .target(Target::at_most(0.0)),
    );
    Ok(BenchResult { notes: shortfalls, ..table.into() })
}

/// One watched loop; returns its time until the demotion, `None` if it was not demoted.
fn one_trial(
    policy: Policy,
    cpus: CpuSet,
    budget: Budget,
    pause_us: u64,
    guard: &mut Guard,
) -> Result<Option<DurNs>, Failed> {
    let own = own_program()?;
    let pause = pause_us.to_string();
    let words = [&*own.to_string_lossy(), "bench", "burn", "--after-us", &pause].map(str::to_owned);
    let mut spec = LaunchSpec::new("runaway", words);
    (spec.policy, spec.cpus, spec.require_rt, spec.terminal) = (Some(policy), Some(cpus), true, Terminal::Pipes);
    let held = hold(&spec)?;
    let child = held.child();
    let demote = Rung { action: RungAction::Demote, wait: DurNs::from_secs(5) };
    let watch = WatchSpec {
        child,
        ancestor: child.pid,
        budget,
        ladder: vec![demote],
        heartbeat: None,
        freezer: None,
        starved_after: DurNs::from_secs(60),
    };
    let watch = guard.watch(watch)?;
    let started = held.go()?;
    let mut text = String::new();
    if let Some([output, _]) = started.pipes {
        let read = BufReader::new(std::fs::File::from(output)).read_line(&mut text);
        read.map_err(Failed::process("tahti bench burn"))?;
    }
    while matches!(sys::child::look(child.pid, false), Ok(sys::child::Waited::Nothing)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    guard.unwatch(watch);
    while guard.next_event().is_some() {}
    let times: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match times[..] {
        [_, 0] => Ok(None),
        [begun, demoted] => Ok(Some(MonoNs(demoted) - MonoNs(begun))),
        _ => Err(Failed::answer("the loop", "two times", text)),
    }
}
