//! `tahti bench scope`: what the oscilloscope costs the loop that it looks at.

mod looker;

pub(crate) use looker::LOOK;

use crate::measure::measured_cpu;
use crate::{Bench, Failed, Found, Progress, read};
use base::{CpuId, DurNs, MonoNs, Policy, Priority, Quantile};
use clap::{ArgMatches, Args as _};
use looker::Other;
use report::{Figure, Good, Row, Table, Target};
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
    target: "4 variables at 10 kHz without a shift of a 1 kHz loop's p99, nor of their own loop's; at most 30 ns a variable and cycle",
    quick: &["--rounds", "4", "--for", "300ms"],
    shields: false,
};

/// What the oscilloscope costs the loop: for each variable and cycle, and the loop's wake-ups with and without, in turn
#[derive(clap::Args)]
struct Args {
    /// How often each is measured
    #[arg(long, default_value_t = 12)]
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
    /// CPU to bind the loop's thread to; the highest if not given
    #[arg(long)]
    cpu: Option<CpuId>,
    /// Time between two looks; `tahti scope` takes 10 ms
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    every: DurNs,
}

/// Variables that are exported.
const VARIABLES: usize = 16;
/// Cycles of a round without a loop.
const CYCLES: u64 = 100_000;
/// Variables that are looked at in the loop.
const LOOKED_AT: usize = 4;
/// Period of the loop behind the one that is looked at.
const SLOW: DurNs = DurNs::from_ms(1);

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
    Ok(table.row(Row::figure("a variable more", "ns", each).good(Good::Low).target(Target::at_most(30.0))))
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

/// What the pages of the two loops said.
struct Seen {
    p99_us: f64,
    slow_p99_us: f64,
    compute_us: f64,
}

/// A figure of a turn.
type Pick = fn(&Seen) -> f64;

/// What is measured in turn; the first two tell what chance is.
const TURNS: [(&str, Other); 6] = [
    ("nobody looks", Other::Nobody),
    ("nobody looks, again", Other::Nobody),
    ("as much is read elsewhere", Other::Elsewhere),
    ("sampled, not read", Other::Holds),
    ("looked at", Other::Looks),
    ("looked at on the loop's CPU", Other::LooksThere),
];

/// The loop with and without somebody who looks, in turn.
fn loops(args: &Args, progress: &mut Progress) -> Result<Table, Failed> {
    let cpu = measured_cpu(args.cpu, &sys::sched::affinity(0)?)?;
    let mut found: [Vec<Seen>; TURNS.len()] = Default::default();
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "a loop, looked at and not, in turn");
        // Whoever comes second finds the machine as the first one left it: each is it in turn.
        for step in 0..TURNS.len() {
            let which = (step + round) % TURNS.len();
            found[which].push(turn(args, cpu, TURNS[which].1)?);
        }
    }
    let column = |which: usize, pick: Pick| found[which].iter().map(pick).collect::<Vec<_>>();
    let title = format!(
        "A loop of {} on CPU {cpu} that writes {VARIABLES} variables, {LOOKED_AT} of them looked at each {}; behind it one of {SLOW}",
        args.period, args.every
    );
    let mut table = Table::new(title).columns("measured", "nobody looks");
    let picks: [(String, Pick); 3] = [
        (format!("wake-up of {}, 99 %", args.period), |seen| seen.p99_us),
        (format!("wake-up of {SLOW}, 99 %"), |seen| seen.slow_p99_us),
        ("cycle's own time, mean".into(), |seen| seen.compute_us),
    ];
    for (name, pick) in picks {
        for (which, (how, _)) in TURNS.iter().enumerate().skip(1) {
            let row = Row::samples(format!("{name}: {how}"), "us", column(which, pick)).good(Good::Low);
            let row = row.against(Figure::median(column(0, pick)));
            let has_target = TURNS[which].1 == Other::Looks && name.starts_with("wake-up");
            table = table.row(if has_target { row.target(Target::ratio_at_most(1.05)) } else { row });
        }
    }
    Ok(table)
}

/// Runs the loops once, with somebody else or not.
fn turn(args: &Args, cpu: CpuId, other: Other) -> Result<Seen, Failed> {
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
    let other = other.start(&name, cpu, args.every)?;
    armed.start(DurNs::from_ms(10));
    sleep_until(mono_now() + args.for_);
    armed.stop();
    drop(other);
    let micros = |time: DurNs| time.0 as f64 / 1e3;
    let p99 = |page: &SharedPage| match page.read().wake().quantile(99, 100) {
        Quantile::At(time) | Quantile::Beyond(time) => micros(time),
        Quantile::Empty => f64::NAN,
    };
    let compute_us = page.read().compute().mean().map_or(f64::NAN, micros);
    Ok(Seen { p99_us: p99(&page), slow_p99_us: p99(&slow), compute_us })
}

/// The class of the slow loop: never before the fast one.
fn below(class: Policy) -> Policy {
    let less = |priority: Priority| Priority(if priority.0 > 1 { priority.0 - 1 } else { 1 });
    match class {
        Policy::Fifo(priority) => Policy::Fifo(less(priority)),
        Policy::Rr(priority) => Policy::Rr(less(priority)),
        class => class,
    }
}
