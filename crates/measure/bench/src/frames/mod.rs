//! `tahti bench frames`: what frames, barriers and variables cost, beside what the machine itself costs.

mod chain;
mod pairs;

use super::Touched;
use super::cyclictest;
use super::measure::Where;
use super::shielded::Shielded;
use crate::looprun::{figure_heads, figures, micros};
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy, Priority};
use chain::{Figures, TEAM, quantile};
use frame::{Activity, Plan, Spec};
use ring::{Number, VariableSpec};
use rt::Exports;
use sys::clock::thread_cpu;
use sys::root::RootDir;

const PRIORITY: Priority = Priority(60);
/// Length of the one minor.
const MINOR: DurNs = DurNs::from_ms(1);
/// Everything runs in turn, so often, so that all meets the same machine.
const TURNS: i64 = 5;

/// Frames, barriers and exported variables: their cost beside the machine's own
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each runs: the frame, cyclictest, the frame beside bare threads
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Leave cyclictest out
    #[arg(long)]
    no_cyclictest: bool,
    /// Put a shield round the CPU, and give the machine back afterwards
    #[arg(long)]
    shield: bool,
    #[command(flatten)]
    touched: Touched,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let cpus: Vec<CpuId> = sys::sched::affinity(0).map_err(|error| error.to_string())?.iter().collect();
    let cpu = *cpus.last().ok_or("no CPU to run on")?;
    println!("1,000 activities in 100 minors planned in {} us of processor time (aim: 50000)", micros(planning()?));
    println!("a variable written in {} ns of it (aim: 20)", export()?);
    match cpus.as_slice() {
        [one, two, ..] => {
            let (line, barrier) = (pairs::hand_over(*one, *two)?, pairs::barrier(*one, *two)?);
            println!(
                "a cache line handed over in {} ns; barrier of 2 threads {} ns: {:.2} x (aim: 3)",
                line.0,
                barrier.0,
                ratio(barrier, line)
            );
        }
        _ => println!("barrier not measured: it needs two CPUs, this process has one"),
    }
    let compared = !args.no_cyclictest;
    if compared {
        cyclictest::probe()?;
    }
    let shielded = match args.shield {
        true => Some(Shielded::apply(&args.touched, &CpuSet::single(cpu))?),
        false => None,
    };
    let place = Where { cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
    let measured = in_turn(args, &place, compared);
    if let Some(shielded) = shielded {
        shielded.release()?;
    }
    show(&measured?, &place, compared)
}

/// What the turns found.
#[derive(Default)]
struct Measured {
    /// A frame alone, and cyclictest.
    frame: Figures,
    cyclictest: Histogram,
    /// A frame and bare threads in the same minors; the first by the second, in the middle of each turn.
    chained: Figures,
    bare: Histogram,
    ratios: Vec<f64>,
    futex: Vec<DurNs>,
    waking: Histogram,
}

fn in_turn(args: &Args, place: &Where, compared: bool) -> Result<Measured, String> {
    if let Some(place) = &place.place {
        place.enter(&RootDir::machine(), std::process::id() as i32).map_err(|error| error.to_string())?;
    }
    let mut all = Measured::default();
    let (cpu, piece) = (place.cpu, DurNs(args.for_.0 / TURNS));
    for _ in 0..TURNS {
        if compared {
            all.cyclictest.merge(&cyclictest::run(place, MINOR, Policy::Fifo(PRIORITY), piece)?.hist);
        }
        all.frame.merge(&chain::frame(cpu, piece, None)?);
        let mut bare = Histogram::new();
        let chained = chain::frame(cpu, piece, Some(&mut bare))?;
        all.ratios.push(ratio(used(&chained)?, quantile(&bare, 1, 2)?));
        all.chained.merge(&chained);
        all.bare.merge(&bare);
        all.futex.push(pairs::futex_round_trip(cpu)?);
        all.waking.merge(&pairs::border(cpu)?);
    }
    all.ratios.sort_by(f64::total_cmp);
    all.futex.sort();
    Ok(all)
}

/// How long the ten took once the dispatcher had done its own work.
fn used(figures: &Figures) -> Result<DurNs, String> {
    Ok(DurNs(quantile(&figures.whole, 1, 2)?.0 - quantile(&figures.dispatch, 1, 2)?.0))
}

fn show(all: &Measured, place: &Where, compared: bool) -> Result<(), String> {
    let (frame, turns) = (&all.frame, all.ratios.len());
    println!("{TEAM} threads in turn, each 1 ms [us]{:>3} {}", "", figure_heads());
    println!("{:<34} {}", "activities, dispatcher's work too", figures(&all.chained.whole));
    println!("{:<34} {}", "bare, half a minor later", figures(&all.bare));
    println!(
        "{TEAM} activities in one minor take {} us: {:.2} x the bare threads (aim: 1.3), {:.2} to {:.2} in {turns} turns",
        micros(used(&all.chained)?),
        all.ratios[turns / 2],
        all.ratios[0],
        all.ratios[turns - 1]
    );
    let futex = all.futex[turns / 2];
    println!(
        "back to back, a pair makes a futex round trip in {} us: {:.2} x what {} of those take",
        micros(futex),
        ratio(used(&all.chained)?, DurNs(futex.0 * TEAM as i64 / 2)),
        TEAM / 2
    );
    println!("the dispatcher works at a border [us]{:>1} {}", "", figure_heads());
    println!("{:<34} {}", "its own work (aim: 2)", figures(&frame.dispatch));
    println!("{:<34} {}", "the kernel, to wake two threads", figures(&all.waking));
    println!("of {} minors {} were lost; {}", frame.minors, frame.lost, frame.accounts());
    println!("begin of minors of 1 ms, late [us]{:>1} {}", "", figure_heads());
    if compared {
        println!("{:<34} {}", "cyclictest, in whole us", figures(&all.cyclictest));
    }
    println!("{:<34} {}", "frame", figures(&frame.late));
    frame.missing.iter().for_each(|what| println!("{what}"));
    if place.place.is_some() {
        println!("CPU {} was shielded meanwhile", place.cpu);
    }
    Ok(())
}

fn ratio(one: DurNs, other: DurNs) -> f64 {
    one.0 as f64 / other.0.max(1) as f64
}

fn planning() -> Result<DurNs, String> {
    let activities = (0..1000).map(|n| Activity::new(&format!("a{n}"), Some(DurNs::from_us(1)), 0..100)).collect();
    let spec = Spec::new("large", vec![DurNs::from_ms(1); 100], activities);
    let begun = thread_cpu();
    let plan = Plan::admit(&spec).map_err(|refused| refused[0].to_string())?;
    let took = DurNs(thread_cpu().0 - begun.0);
    std::hint::black_box(plan);
    Ok(took)
}

fn export() -> Result<i64, String> {
    let exports = Exports::open(&format!("bench-{}", std::process::id()), 1)?;
    let spec = VariableSpec { name: "x", unit: "", first: Number::Float(0.0), safe: None };
    let index = exports.add(&spec)?;
    let rounds = 1_000_000;
    let begun = thread_cpu();
    for round in 0..rounds {
        std::hint::black_box(exports.set(index, Number::Float(round as f64), round, MonoNs(round)));
    }
    Ok((thread_cpu().0 - begun.0) / rounds as i64)
}
