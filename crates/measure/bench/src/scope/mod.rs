//! `tahti bench scope`: what the oscilloscope costs the loop that it looks at.

use crate::{Bench, Failed, Found, Progress, read};
use base::{CpuId, DurNs, MonoNs, Policy, Quantile};
use clap::{ArgMatches, Args as _};
use report::{Figure, Good, Row, Table, Wanted};
use rt::scope::{Condition, Mode, Oscilloscope, Request, Sampler, Timing};
use rt::{Exports, Flow, LoopSpec, Number, Rt, SharedPage, VariableSpec};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "scope",
    experiment: "own: StethoScope and SystemViewer look at a running program; what being looked at costs it",
    arguments: Args::augment_args,
    run,
    published: &[],
    wanted: "4 variables at 10 kHz without a shift of the loop's p99; at most 30 ns a variable and cycle",
    quick: &["--rounds", "4", "--for", "300ms"],
    shields: false,
};

/// What the oscilloscope costs the loop: for each variable and cycle, and the loop's wake-ups with and without, in turn
#[derive(clap::Args)]
struct Args {
    /// How often each is measured
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// How long the loop runs each time
    #[arg(long = "for", value_name = "TIME", default_value = "1s")]
    for_: DurNs,
    /// Time between two pulses of the loop
    #[arg(long, value_name = "TIME", default_value = "100us")]
    period: DurNs,
    /// Class of the loop's thread; as this program's if not given
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// CPU to bind the loop's thread to
    #[arg(long)]
    cpu: Option<CpuId>,
}

/// Variables that are exported.
const VARIABLES: usize = 16;
/// Cycles of a round without a loop.
const CYCLES: u64 = 100_000;
/// Variables that are looked at in the loop.
const LOOKED_AT: usize = 4;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, Failed> {
    let args: Args = read(matches)?;
    if args.rounds == 0 || args.period < DurNs::from_us(20) {
        let given = format!("--rounds {} --period {}", args.rounds, args.period);
        return Err(Failed::Argument { given, expected: "1 round or more, and 20us or more".into() });
    }
    Ok(Found { tables: vec![cost(&args, progress)?, loops(&args, progress)?], ..Found::default() })
}

fn exported() -> Result<(String, Exports), Failed> {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    let name = format!("bench-scope-{}-{number}", std::process::id());
    let exports = Exports::open(&name, VARIABLES)?;
    (0..VARIABLES).try_for_each(|index| {
        let name = format!("v{index}");
        exports.add(&VariableSpec { name: &name, unit: "", first: Number::Float(0.0), safe: None }).map(drop)
    })?;
    Ok((name, exports))
}

/// A trigger that is looked for in each cycle and never comes.
fn request(channels: usize) -> Request {
    let timing = Timing { mode: Mode::Normal, pre: 300, length: 1000, every: 1, holdoff: 0, patience: 0, captures: 1 };
    let condition = Condition::Rising { level: 1e9, hysteresis: 0.0 };
    let channels = (0..channels).map(|index| format!("v{index}")).collect();
    Request { channels, timing, condition, on: Some("v0".into()), keep: 1, detached: false }
}

/// What sampling costs a cycle, one call after the other.
fn cost(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let (name, exports) = exported()?;
    let mut sampler = exports.sampler()?;
    progress.at(0, 4, "the cost of a cycle");
    let nobody = each_cycle(&mut sampler, args.rounds);
    let scope = Oscilloscope::open(&name)?;
    let mut rows = vec![("nobody has ever looked", nobody)];
    let [mut one, mut all] = [0.0; 2];
    for (name, channels) in [("1 variable", 1), ("4 variables", LOOKED_AT), ("16 variables", VARIABLES)] {
        scope.set_up(&request(channels))?;
        let found = each_cycle(&mut sampler, args.rounds);
        let median = Figure::median(found.clone()).map_or(0.0, |figure| figure.value);
        one = if channels == 1 { median } else { one };
        all = median;
        rows.push((name, found));
    }
    let table =
        Table::new(format!("Sampling with an edge trigger armed, {CYCLES} cycles in each of {} rounds", args.rounds));
    let table = rows.into_iter().fold(table, |table, (name, found)| {
        table.row(Row::samples(format!("a cycle, {name}"), "ns", found).good(Good::Low))
    });
    let each = (all - one) / (VARIABLES - 1) as f64;
    Ok(table.row(Row::figure("a variable more", "ns", each).good(Good::Low).wanted(Wanted::at_most(30.0))))
}

/// Nanoseconds of a cycle, round by round.
fn each_cycle(sampler: &mut Sampler, rounds: usize) -> Vec<f64> {
    let mut round = || {
        // The thread's own time: what others take from it meanwhile is not the sampler's.
        let begun = thread_cpu();
        (0..CYCLES).for_each(|pulse| sampler.cycle(std::hint::black_box(pulse), MonoNs(pulse), 0));
        (thread_cpu().0 - begun.0) as f64 / CYCLES as f64
    };
    (0..rounds).map(|_| round()).collect()
}

/// What a loop's page said.
struct Seen {
    p99_us: f64,
    compute_us: f64,
}

/// The loop with and without somebody who looks, in turn.
fn loops(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "a loop, looked at and not, in turn");
        // Whoever comes second finds the machine as the first one left it: each is it in turn.
        for looked_at in [round % 2 == 0, round % 2 != 0] {
            let side = if looked_at { &mut with } else { &mut without };
            side.push(turn(args, looked_at)?);
        }
    }
    let column = |side: &[Seen], pick: fn(&Seen) -> f64| side.iter().map(pick).collect::<Vec<_>>();
    let row = |name, pick: fn(&Seen) -> f64| {
        let row = Row::samples(name, "us", column(&with, pick)).good(Good::Low);
        row.against(Figure::median(column(&without, pick)))
    };
    let title = format!("A loop of {} that writes {VARIABLES} variables, {LOOKED_AT} of them looked at", args.period);
    let table = Table::new(title).columns("looked at", "not looked at");
    Ok(table
        .row(row("wake-up, 99 %", |seen| seen.p99_us))
        .row(row("the cycle's own time, mean", |seen| seen.compute_us)))
}

/// Runs the loop once; while it is looked at, its newest rows are copied all the time.
fn turn(args: &Args, looked_at: bool) -> Result<Seen, Failed> {
    let (name, exports) = exported()?;
    let (page, shown) = (SharedPage::own("bench-scope")?, exports.clone());
    let mut rt = Rt::new();
    let spec = LoopSpec {
        class: args.class,
        cpu: args.cpu,
        exports: Some(exports),
        ..LoopSpec::new("bench-scope", args.period)
    };
    rt.add_loop(spec, page.clone(), move |pulse| {
        for index in 0..VARIABLES {
            let value = (pulse.number % 1000) as f64 + index as f64;
            shown.set(index, Number::Float(value), pulse.number, pulse.woke);
        }
        Flow::Continue
    });
    let mut armed = rt.arm()?;
    let scope = looked_at.then(|| Oscilloscope::open(&name)).transpose()?;
    scope.iter().try_for_each(|scope| scope.set_up(&request(LOOKED_AT)).map(drop))?;
    armed.start(DurNs::from_ms(10));
    let until = mono_now() + args.for_;
    while mono_now() < until {
        sleep_until(mono_now() + DurNs::from_ms(5));
        std::hint::black_box(scope.as_ref().and_then(|scope| scope.latest(1000)));
    }
    armed.stop();
    let read = page.read();
    let micros = |time: DurNs| time.0 as f64 / 1e3;
    let p99_us = match read.wake().quantile(99, 100) {
        Quantile::At(time) | Quantile::Beyond(time) => micros(time),
        Quantile::Empty => f64::NAN,
    };
    Ok(Seen { p99_us, compute_us: read.compute().mean().map_or(f64::NAN, micros) })
}
