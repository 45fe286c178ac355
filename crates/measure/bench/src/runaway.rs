//! `tahti bench runaway`: how long a FIFO loop that burns its budget keeps its CPU.
//!
//! Each trial starts a loop that sleeps a little, notes the time, burns, and notes when it finds itself
//! demoted; it gives up by itself after 900 ms, so that a failing guard hangs nothing.

use base::{CpuSet, DurNs, MonoNs, Policy};
use host::guard::{Budget, Rung, RungAction};
use keep::guard::{Guard, WatchSpec};
use keep::launch::{LaunchSpec, Terminal, hold};
use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};

/// A loop stops burning by itself after this long.
const BURN: DurNs = DurNs::from_ms(900);
/// What is wanted: budget and this.
const ALLOWED: DurNs = DurNs::from_ms(50);

/// Time from the first burnt nanosecond to the demotion of a runaway FIFO loop
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Trials
    #[arg(long, default_value_t = 100)]
    trials: u32,
    /// What the loop may burn
    #[arg(long, default_value = "80%/100ms")]
    rt_budget: Budget,
    /// CPU of the loop [default: the highest]
    #[arg(long)]
    cpus: Option<CpuSet>,
    /// Class of the loop
    #[arg(long, default_value = "fifo:50")]
    policy: Policy,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be the loop (used by the measurement itself)
    #[arg(long, hide = true)]
    burn_after_us: Option<u64>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    if let Some(pause) = args.burn_after_us {
        return burn(pause);
    }
    match measure(&args) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(why) => {
            eprintln!("tahti bench runaway: {why}");
            ExitCode::from(2)
        }
    }
}

/// The loop: tells when it began to burn, and when it found itself demoted (or gave up: 0).
fn burn(pause_us: u64) -> ExitCode {
    if pause_us > 0 {
        sleep_until(mono_now() + DurNs::from_us(pause_us as i64));
    }
    let begun = mono_now();
    let demoted = loop {
        let now = mono_now();
        if sys::sched::has_fixed_priority(0) != Some(true) {
            break now;
        }
        if now - begun > BURN {
            break MonoNs(0);
        }
    };
    let told = writeln!(std::io::stdout(), "{} {}", begun.0, demoted.0);
    if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(args: &Args) -> Result<bool, String> {
    let Budget::Share { percent, period } = args.rt_budget else {
        return Err("a loop without a budget is no runaway: give one such as 80%/100ms".to_owned());
    };
    let budget = DurNs(period.0 / 100 * i64::from(percent));
    let online = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let cpus = args.cpus.or_else(|| online.iter().last().map(CpuSet::single)).ok_or("no CPU")?;
    let (mut guard, shortfalls) = Guard::start(&cpus).map_err(|error| error.to_string())?;
    shortfalls.iter().for_each(|shortfall| eprintln!("tahti bench runaway: {shortfall}"));
    let mut beyond: Vec<DurNs> = Vec::new();
    let mut missed = 0;
    for trial in 0..args.trials {
        // Every other loop burns from its first instruction; the rest pause for up to 50 ms, spread so that
        // trials meet the guard's looks at every phase.
        let pause_us = u64::from(trial % 2) * (u64::from(trial) * 7_919 % 50_000);
        match one_trial(args.policy, cpus, args.rt_budget, pause_us, &mut guard)? {
            Some(span) => beyond.push(DurNs(span.0 - budget.0)),
            None => missed += 1,
        }
    }
    beyond.sort_unstable();
    let at = |share: usize| beyond.get((beyond.len() * share).div_ceil(100).max(1) - 1).copied();
    let (median, p99, max) = (at(50), at(99), beyond.last().copied());
    let good = missed == 0 && p99.is_some_and(|p99| p99 <= ALLOWED);
    let shown = |span: Option<DurNs>| span.map_or("-".to_owned(), |span| format!("{:.2}", span.0 as f64 / 1e6));
    if args.json {
        let value = serde_json::json!({
            "bench": "runaway", "trials": args.trials, "missed": missed, "policy": args.policy, "cpus": cpus,
            "budget_ns": budget.0, "guard_class": guard.class(),
            "beyond_budget_ns": {
                "min": beyond.first().map(|span| span.0), "median": median.map(|span| span.0),
                "p99": p99.map(|span| span.0), "max": max.map(|span| span.0),
            },
            "allowed_ns": ALLOWED.0, "good": good,
        });
        println!("{value}");
    } else {
        println!(
            "runaway {} loop on CPU {cpus}, budget {percent} % of {period} ({budget}), guard {}",
            args.policy,
            guard.class()
        );
        println!(
            "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10}",
            "trials", "missed", "min ms", "median ms", "p99 ms", "max ms"
        );
        println!(
            "{:>8} {missed:>8} {:>10} {:>10} {:>10} {:>10}   from the end of its budget to its demotion",
            args.trials,
            shown(beyond.first().copied()),
            shown(median),
            shown(p99),
            shown(max)
        );
        println!("wanted: p99 within {ALLOWED} of its budget: {}", if good { "yes" } else { "NO" });
    }
    Ok(good)
}

/// One loop, watched; how long it burnt until it was demoted, `None` if it never was.
fn one_trial(
    policy: Policy,
    cpus: CpuSet,
    budget: Budget,
    pause_us: u64,
    guard: &mut Guard,
) -> Result<Option<DurNs>, String> {
    let own = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let pause = pause_us.to_string();
    let words = [&*own.to_string_lossy(), "bench", "runaway", "--burn-after-us", &pause].map(str::to_owned);
    let mut spec = LaunchSpec::new("runaway", words);
    (spec.policy, spec.cpus, spec.require_rt, spec.terminal) = (Some(policy), Some(cpus), true, Terminal::Pipes);
    let held = hold(&spec).map_err(|error| error.to_string())?;
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
    let watch = guard.watch(watch).map_err(|error| error.to_string())?;
    let started = held.go().map_err(|error| error.to_string())?;
    let mut text = String::new();
    if let Some([output, _]) = started.pipes {
        let read = BufReader::new(std::fs::File::from(output)).read_line(&mut text);
        read.map_err(|error| format!("the loop's output: {error}"))?;
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
        _ => Err(format!("the loop said {text:?}")),
    }
}
