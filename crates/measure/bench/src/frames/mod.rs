//! `tahti bench frames`: cost of frames, barriers and variables, compared with the machine's own cost.

mod chain;
mod pairs;
mod piece;

use crate::cyclictest;
use crate::explained::{Explained, Ours};
use crate::measure::TaskPlacement;
use crate::measure::installed;
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy, Priority};
use chain::{Figures, TEAM, quantile};
use clap::{ArgMatches, Args as _};
use frame::{Activity, Plan, Spec};
pub(crate) use piece::FRAME;
use report::{Figure, Good, Latency, Row, Table, Target};
use ring::{Number, VariableSpec};
use rt::Exports;
use sys::clock::thread_cpu;

const PRIORITY: Priority = Priority(60);
/// Length of the one minor.
const MINOR: DurNs = DurNs::from_ms(1);
/// Rounds in which all variants alternate, so that the machine's state affects them equally.
const ROUNDS: i64 = 5;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "frames",
    experiment: "SGI REACT: the frame-rate scheduler on a stock kernel",
    arguments: Args::augment_args,
    run,
    target: "a switch in at most 1.3 times the kernel's, the dispatcher's own work in at most 2 us, no minor lost",
    quick: &["--for", "2s"],
    shields: false,
};

/// Rounds of the barrier and of the cache-line transfer.
const BARRIER_ROUNDS: usize = 9;

/// Cost of frames, barriers and exported variables, compared with the machine's own
#[derive(clap::Args)]
struct Args {
    /// Duration of each part: the frame, cyclictest, the frame with bare threads
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Do not run cyclictest
    #[arg(long)]
    no_cyclictest: bool,
    /// Shield the CPU, and release the shield afterwards
    #[arg(long)]
    shield: bool,
    #[command(flatten)]
    touched: Touched,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let cpus: Vec<CpuId> = sys::sched::affinity(0)?.iter().collect();
    let cpu = *cpus.last().ok_or(Failed::Needs("a CPU"))?;
    let mut alone = Table::new("processor time")
        .row(
            Row::figure("planning 1,000 activities in 100 minors", "us", us(planning()?))
                .target(Target::at_most(50_000.0)),
        )
        .row(Row::figure("writing a variable", "ns", export()? as f64).target(Target::at_most(20.0)));
    let mut notes = Vec::new();
    match cpus.as_slice() {
        [one, two, ..] => {
            // Alternating: a hypervisor may move the CPUs closer or farther apart during the run.
            let round =
                || Ok::<_, Failed>([pairs::hand_over(*one, *two)?, pairs::barrier(*one, *two)?].map(|it| it.0 as f64));
            let mut rounds = (0..BARRIER_ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
            rounds.sort_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])));
            let ratio = |at: usize| rounds[at][1] / rounds[at][0];
            let [line, barrier] = rounds[BARRIER_ROUNDS / 2];
            let row =
                Row::figure("barrier of 2 threads, compared with a cache-line transfer", "ns", barrier).good(Good::Low);
            let row = row.against(Figure::once(line)).target(Target::ratio_at_most(3.0));
            let last = BARRIER_ROUNDS - 1;
            alone = alone.row(row.note(format!("{:.2} to {:.2} in {BARRIER_ROUNDS} rounds", ratio(0), ratio(last))));
        }
        _ => notes.push("barrier not measured: it needs two CPUs, this process has one".to_owned()),
    }
    let theirs = (!args.no_cyclictest).then(|| installed("cyclictest", "--help", "rt-tests"));
    let compared = matches!(theirs, Some(Ok(())));
    notes.extend(theirs.and_then(Result::err).map(|why| why.to_string()));
    let shielded = match args.shield {
        true => Some(Shielded::apply(&args.touched, &CpuSet::single(cpu))?),
        false => None,
    };
    let place = TaskPlacement { cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
    let measured = measure_rounds(args, &place, compared, progress);
    if let Some(shielded) = shielded {
        shielded.release()?;
        notes.push(format!("CPU {cpu} was shielded"));
    }
    let measured = measured?;
    notes.extend(measured.frame.missing.iter().cloned());
    notes.extend(measured.unexplained_because.iter().map(|why| format!("the host's share is unknown: {why}")));
    let mut tables = vec![alone];
    tables.extend(tables_of(&measured, compared)?);
    Ok(BenchResult { setup: Vec::new(), tables, notes })
}

fn us(time: DurNs) -> f64 {
    time.0 as f64 / 1e3
}

/// Results of all rounds.
#[derive(Default)]
struct Measured {
    /// A frame alone, and cyclictest.
    frame: Figures,
    cyclictest: Histogram,
    /// A frame and bare threads in the same minors; the first by the second, in the middle of each round.
    chained: Figures,
    bare: Histogram,
    ratios: Vec<f64>,
    /// Time of the ten in each round, in us.
    used: Vec<f64>,
    /// p99 of dispatcher and begin of minors of each round, in us.
    pieces: [Vec<f64>; 2],
    futex: Vec<DurNs>,
    waking: Histogram,
    /// Late begins of the frame and of cyclictest without the host's share.
    explained: Option<[Ours; 2]>,
    explained_pieces: Vec<f64>,
    unexplained_because: Option<String>,
}

fn measure_rounds(
    args: &Args,
    place: &TaskPlacement,
    compared: bool,
    progress: &mut Progress,
) -> Result<Measured, Failed> {
    let mut all = Measured::default();
    // The reader of the recording stays outside of a shield: the measured parts are separate processes.
    let explained = Explained::start(place.cpu);
    all.unexplained_because = explained.as_ref().err().map(ToString::to_string);
    let explained = explained.ok();
    let piece = DurNs(args.for_.0 / ROUNDS);
    for round in 0..ROUNDS as usize {
        progress.at(round, ROUNDS as usize, "cyclictest, a frame, a frame with bare threads");
        if compared {
            let explained = explained.as_ref();
            all.cyclictest.merge(&cyclictest::run(place, (MINOR, Policy::Fifo(PRIORITY)), piece, explained)?);
            if let Some(explained) = explained {
                all.explained.get_or_insert_default()[1].merge(&explained.take()?);
            }
        }
        let frame = piece::measure(place, piece, false, explained.as_ref())?.figures;
        if let Some(explained) = &explained {
            let piece = explained.take()?;
            all.explained_pieces.extend(Latency::from(&piece.ours).p99().map(|p99| p99.value));
            all.explained.get_or_insert_default()[0].merge(&piece);
        }
        for (pieces, hist) in all.pieces.iter_mut().zip([&frame.dispatch, &frame.late]) {
            pieces.extend(Latency::from(hist).p99().map(|p99| p99.value));
        }
        all.frame.merge(&frame);
        let chained = piece::measure(place, piece, true, None)?;
        let bare = chained.bare.ok_or_else(|| Failed::answer("the frame", "times of bare threads", "none"))?;
        let chained = chained.figures;
        all.used.push(us(used(&chained)?));
        all.ratios.push(ratio(used(&chained)?, quantile(&bare.threads, 1, 2)?));
        all.chained.merge(&chained);
        all.bare.merge(&bare.threads);
        all.futex.push(bare.futex);
        all.waking.merge(&bare.waking);
    }
    all.ratios.sort_by(f64::total_cmp);
    all.futex.sort();
    Ok(all)
}

/// Time of the ten after the dispatcher's own work.
fn used(figures: &Figures) -> Result<DurNs, Failed> {
    Ok(DurNs(quantile(&figures.whole, 1, 2)?.0 - quantile(&figures.dispatch, 1, 2)?.0))
}

fn tables_of(all: &Measured, compared: bool) -> Result<Vec<Table>, Failed> {
    let (frame, rounds) = (&all.frame, all.ratios.len());
    let [dispatch, late] = all.pieces.clone();
    let futex = all.futex[rounds / 2];
    let spread = format!("{:.2} to {:.2} in {rounds} rounds", all.ratios[0], all.ratios[rounds - 1]);
    let switches = Table::new(format!("{TEAM} consecutive threads, every 1 ms"))
        .columns("activities", "bare")
        .row(Row::reference("activities, including the dispatcher's work", Latency::from(&all.chained.whole)))
        .row(Row::reference("bare, half a minor later", Latency::from(&all.bare)))
        .row(
            Row::samples(format!("{TEAM} activities in one minor, compared with bare threads"), "us", all.used.clone())
                .against(Figure::once(us(quantile(&all.bare, 1, 2)?)))
                .ratio(Some(all.ratios[rounds / 2]))
                .target(Target::ratio_at_most(1.3))
                .note(spread),
        )
        .row(
            Row::figure(
                format!("{TEAM} activities, compared with {} consecutive futex round trips", TEAM / 2),
                "us",
                us(used(&all.chained)?),
            )
            .against(Figure::once(us(DurNs(futex.0 * TEAM as i64 / 2)))),
        );
    let lost = Row::figure("minors lost", "", frame.lost as f64);
    let dispatcher = Table::new("the dispatcher's work at a minor's border")
        .row(Row::latency("own work", Latency::from(&frame.dispatch), dispatch))
        .row(Row::reference("the kernel, waking two threads", Latency::from(&all.waking)))
        .row(Row::figure("own work, median", "us", us(quantile(&frame.dispatch, 1, 2)?)).target(Target::at_most(2.0)))
        .row(lost.good(Good::Low).note(format!("of {}; {}", frame.minors, frame.accounts())));
    let mut begin = Table::new("begin of minors of 1 ms: lateness");
    if compared {
        begin = begin.row(Row::reference("cyclictest, in whole us", Latency::from(&all.cyclictest)));
    }
    begin = begin.row(Row::latency("frame", Latency::from(&frame.late), late));
    if let Some([ours, theirs]) = &all.explained {
        begin.rows.extend(ours.rows("frame", all.explained_pieces.clone()));
        if compared {
            let [_, theirs] = theirs.rows("cyclictest", Vec::new());
            begin.rows.push(Row { good: Good::Neither, ..theirs });
        }
    }
    Ok(vec![switches, dispatcher, begin])
}

fn ratio(one: DurNs, other: DurNs) -> f64 {
    one.0 as f64 / other.0.max(1) as f64
}

fn planning() -> Result<DurNs, Failed> {
    let activities = (0..1000).map(|n| Activity::new(&format!("a{n}"), Some(DurNs::from_us(1)), 0..100)).collect();
    let spec = Spec::new("large", vec![DurNs::from_ms(1); 100], activities);
    let begun = thread_cpu();
    let plan = Plan::admit(&spec)
        .map_err(|refused| Failed::answer("a frame of 1,000 activities", "admission", &refused[0]))?;
    let took = DurNs(thread_cpu().0 - begun.0);
    std::hint::black_box(plan);
    Ok(took)
}

fn export() -> Result<i64, Failed> {
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
