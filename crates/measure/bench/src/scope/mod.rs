//! `tahti bench scope`: cost of the oscilloscope to the sampled loop.

mod reader;

pub(crate) use reader::READER;

use crate::measure::measured_cpu;
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::{CpuId, DurNs, MonoNs, Policy, Priority, Quantile};
use clap::{ArgMatches, Args as _};
use reader::Reader;
use report::{Figure, Good, Row, Table, Target};
use rt::scope::{Condition, Mode, Oscilloscope, Request, Sampler, Timing};
use rt::{Exports, Flow, LoopSpec, Number, Rt, SharedPage, VariableSpec};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "scope",
    experiment: "own: StethoScope and SystemViewer read a running program; the cost to that program",
    arguments: Args::augment_args,
    run,
    target: "4 variables at 10 kHz change neither the p99 of their own loop nor that of a 1 kHz loop by more than 5 %; at most 30 ns per variable and cycle",
    quick: &["--rounds", "4", "--for", "300ms"],
    shields: false,
};

/// Cost of the oscilloscope to the loop: per variable and cycle, and wake-ups with and without it, alternating
#[derive(clap::Args)]
struct Args {
    /// Measurements of each figure
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "1s")]
    for_: DurNs,
    /// Period of the loop
    #[arg(long, value_name = "TIME", default_value = "100us")]
    period: DurNs,
    /// Scheduling class of the loop's thread [default: this program's]
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// CPU of the loop's thread [default: the highest]
    #[arg(long)]
    cpu: Option<CpuId>,
    /// Time between two reads; `tahti scope` uses 10 ms
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    every: DurNs,
}

/// Exported variables.
const VARIABLES: usize = 16;
/// Cycles of a round without a loop.
const CYCLES: u64 = 100_000;
/// Sampled variables of the loop.
const SAMPLED: usize = 4;
/// Period of the second, slower loop.
const SLOW: DurNs = DurNs::from_ms(1);

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    if args.rounds == 0 || args.period < DurNs::from_us(20) {
        let given = format!("--rounds {} --period {}", args.rounds, args.period);
        return Err(Failed::Argument { given, expected: "1 round or more, and 20us or more".into() });
    }
    Ok(BenchResult { tables: vec![cost(&args, progress)?, loops(&args, progress)?], ..BenchResult::default() })
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

/// A trigger condition that is checked in each cycle and never fulfilled.
fn request(channels: usize) -> Request {
    let timing = Timing { mode: Mode::Normal, pre: 300, length: 1000, every: 1, holdoff: 0, patience: 0, captures: 1 };
    let condition = Condition::Rising { level: 1e9, hysteresis: 0.0 };
    let channels = (0..channels).map(|index| format!("v{index}")).collect();
    Request { channels, timing, condition, on: Some("v0".into()), keep: 1, detached: false }
}

/// Cost of sampling per cycle, in consecutive calls.
fn cost(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let (name, exports) = exported()?;
    let mut sampler = exports.sampler()?;
    progress.at(0, 4, "the cost of a cycle");
    let unused = each_cycle(&mut sampler, args.rounds);
    let scope = Oscilloscope::open(&name)?;
    let mut rows = vec![("never sampled", unused)];
    let [mut one, mut all] = [0.0; 2];
    for (name, channels) in [("1 variable", 1), ("4 variables", SAMPLED), ("16 variables", VARIABLES)] {
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
    Ok(table.row(Row::figure("an additional variable", "ns", each).good(Good::Low).target(Target::at_most(30.0))))
}

/// Nanoseconds of a cycle, round by round.
fn each_cycle(sampler: &mut Sampler, rounds: usize) -> Vec<f64> {
    let mut round = || {
        // The thread's CPU time: preemption by other tasks does not count.
        let begun = thread_cpu();
        (0..CYCLES).for_each(|pulse| sampler.cycle(std::hint::black_box(pulse), MonoNs(pulse), 0));
        (thread_cpu().0 - begun.0) as f64 / CYCLES as f64
    };
    (0..rounds).map(|_| round()).collect()
}

/// Figures from the pages of the two loops.
struct LoopFigures {
    p99_us: f64,
    slow_p99_us: f64,
    compute_us: f64,
}

/// Selects a figure.
type Pick = fn(&LoopFigures) -> f64;

/// The alternating cases; the difference of the first two is chance.
const CASES: [(&str, Reader); 6] = [
    ("no reader", Reader::None),
    ("no reader, again", Reader::None),
    ("the same amount read elsewhere", Reader::Elsewhere),
    ("sampled, not read", Reader::SamplesOnly),
    ("sampled and read", Reader::Reads),
    ("sampled and read on the loop's CPU", Reader::ReadsOnLoopCpu),
];

/// The loop with and without a reader, alternating.
fn loops(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let cpu = measured_cpu(args.cpu, &sys::sched::affinity(0)?)?;
    let mut found: [Vec<LoopFigures>; CASES.len()] = Default::default();
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "a loop with and without a reader");
        // The previous case affects the next one, so the order rotates.
        for step in 0..CASES.len() {
            let which = (step + round) % CASES.len();
            found[which].push(turn(args, cpu, CASES[which].1)?);
        }
    }
    let column = |which: usize, pick: Pick| found[which].iter().map(pick).collect::<Vec<_>>();
    let title = format!(
        "A loop of {} on CPU {cpu} that writes {VARIABLES} variables, {SAMPLED} of them read every {}; second loop of {SLOW}",
        args.period, args.every
    );
    let mut table = Table::new(title).columns("measured", "no reader");
    let picks: [(String, Pick); 3] = [
        (format!("wake-up of {}, p99", args.period), |seen| seen.p99_us),
        (format!("wake-up of {SLOW}, p99"), |seen| seen.slow_p99_us),
        ("cycle's own time, mean".into(), |seen| seen.compute_us),
    ];
    for (name, pick) in picks {
        for (which, (how, _)) in CASES.iter().enumerate().skip(1) {
            let row = Row::samples(format!("{name}: {how}"), "us", column(which, pick)).good(Good::Low);
            let row = row.against(Figure::median(column(0, pick)));
            let has_target = CASES[which].1 == Reader::Reads && name.starts_with("wake-up");
            table = table.row(if has_target { row.target(Target::ratio_at_most(1.05)) } else { row });
        }
    }
    Ok(table)
}

/// Runs the loops once, with a reader or without.
fn turn(args: &Args, cpu: CpuId, reader: Reader) -> Result<LoopFigures, Failed> {
    let (name, exports) = exported()?;
    let (page, slow, shown) = (SharedPage::own("bench-scope")?, SharedPage::own("bench-slow")?, exports.clone());
    let mut rt = Rt::new();
    let spec = LoopSpec {
        class: args.class,
        cpu: Some(cpu),
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
    let spec = LoopSpec { class: args.class.map(below), cpu: Some(cpu), ..LoopSpec::new("bench-slow", SLOW) };
    rt.add_loop(spec, slow.clone(), |_| Flow::Continue);
    let mut armed = rt.arm()?;
    let reader = reader.start(&name, cpu, args.every)?;
    armed.start(DurNs::from_ms(10));
    sleep_until(mono_now() + args.for_);
    armed.stop();
    drop(reader);
    let micros = |time: DurNs| time.0 as f64 / 1e3;
    let p99 = |page: &SharedPage| match page.read().wake().quantile(99, 100) {
        Quantile::At(time) | Quantile::Beyond(time) => micros(time),
        Quantile::Empty => f64::NAN,
    };
    let compute_us = page.read().compute().mean().map_or(f64::NAN, micros);
    Ok(LoopFigures { p99_us: p99(&page), slow_p99_us: p99(&slow), compute_us })
}

/// The class of the slow loop: below that of the fast one.
fn below(class: Policy) -> Policy {
    let less = |priority: Priority| Priority(if priority.0 > 1 { priority.0 - 1 } else { 1 });
    match class {
        Policy::Fifo(priority) => Policy::Fifo(less(priority)),
        Policy::Rr(priority) => Policy::Rr(less(priority)),
        class => class,
    }
}
