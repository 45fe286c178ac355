//! `tahti bench knobs`: the effect of each single knob of the shield on this machine.

use crate::looprun::WaitArg;
use crate::measure::{self, Interrupt, Measured, TaskPlacement, measured_cpu};
use crate::noise::{Load, Noise};
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Histogram, Policy, Quantile};
use clap::{ArgMatches, Args as _};
use host::knob;
use host::plan::{self, Profile, Want};
use keep::RunDir;
use keep::shield;
use keep::shield::machine::{Machine, RealMachine};
use report::{Latency, Row as Line, Table, Verdict};
use sys::root::RootDir;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "knobs",
    experiment: "own: effect of each single kernel setting",
    arguments: Args::augment_args,
    run,
    target: "no knob makes latency worse",
    quick: &["--knob", "vmstat", "--pairs", "8", "--piece", "100ms"],
    shields: true,
};

/// Measure the wake-up latency with and without each single knob
///
/// Pieces with and without the knob alternate, and so does their order. A knob makes a difference if its pairs of pieces
/// agree more often than chance does in one of twenty such runs. Otherwise the verdict is *no difference measurable*.
/// Every value is restored after its piece, as after a shield.
#[derive(clap::Args)]
struct Args {
    /// CPU to measure [default: the highest]
    #[arg(long)]
    cpu: Option<CpuId>,
    /// Measure only knobs whose name contains this
    #[arg(long, value_name = "PART", default_value = "")]
    knob: String,
    /// Profile of the values: control-loop or polling
    #[arg(long, default_value = "control-loop")]
    profile: Profile,
    /// Time between two wake-ups
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// Scheduling class of the loop
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:80")]
    policy: Policy,
    /// Waiting mode of the loop: sleep, spin, both or both:TIME
    #[arg(long, value_name = "HOW", default_value = "sleep")]
    wait: WaitArg,
    /// Load on the machine, not bound to CPUs
    #[arg(long, value_enum, default_value = "none")]
    load: Load,
    /// Pairs of pieces for each knob
    #[arg(long, default_value_t = 12)]
    pairs: u32,
    /// Duration of each piece
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    piece: DurNs,
    #[command(flatten)]
    touched: Touched,
}

/// One knob, and the results with and without it.
#[derive(Default)]
struct Row {
    name: &'static str,
    writes: usize,
    off: Measured,
    on: Measured,
    /// Pairs in which p99 was smaller with it, and pairs in which it was larger.
    better: u32,
    worse: u32,
    refused: Vec<String>,
}

/// Two-sided sign test: the probability of such an uneven result by chance.
fn chance(better: u32, worse: u32) -> f64 {
    let (pairs, few) = (better + worse, better.min(worse));
    let mut ways = 1.0;
    let mut sum = 0.0;
    for nth in 0..=few {
        sum += ways;
        ways = ways * f64::from(pairs - nth) / f64::from(nth + 1);
    }
    (2.0 * sum / 2f64.powi(pairs as i32)).min(1.0)
}

/// The verdict on one of `knobs` in one run, with Bonferroni's correction.
fn verdict(better: u32, worse: u32, knobs: usize) -> Verdict {
    match chance(better, worse) * knobs as f64 {
        chance if chance > 0.05 => Verdict::NoDifferenceMeasurable,
        _ if better > worse => Verdict::Better,
        _ => Verdict::Worse,
    }
}

/// Minimum number of pairs for a verdict if all agree.
fn pairs_min(knobs: usize) -> u32 {
    (1..64).find(|&pairs| verdict(pairs, 0, knobs) == Verdict::Better).unwrap_or(64)
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let spare = args.touched.spare()?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    if args.piece < DurNs(args.period.0 * 20) {
        return Err(Failed::argument(format!("--piece {}", args.piece), "at least 20 periods"));
    }
    let want = |name: &str| Want {
        cpus: CpuSet::single(cpu),
        profile: args.profile,
        spare: spare.clone(),
        own: shield::own_processes(),
        irqs: Vec::new(),
        only: Some(name.to_owned()),
        parts: plan::ShieldParts::default(),
    };
    let root = RootDir::machine();
    let snapshot = RealMachine::at(&root).snapshot(&CpuSet::single(cpu))?;
    let (mut rows, mut idle) = (Vec::new(), Vec::new());
    for knob in knob::ALL.iter().filter(|knob| knob.name().contains(&args.knob)) {
        let writes = plan::plan(&snapshot, &want(knob.name()))?.steps.len();
        match writes {
            0 => idle.push(knob.name()),
            _ => rows.push(Row { name: knob.name(), writes, ..Row::default() }),
        }
    }
    let least = pairs_min(rows.len());
    if args.pairs < least {
        let expected = format!("at least {least} for {} knobs in one run", rows.len());
        return Err(Failed::argument(format!("--pairs {}", args.pairs), expected));
    }
    let noise = Noise::start(args.load, None)?;
    for pair in 0..args.pairs {
        let of = args.pairs as usize * rows.len();
        for (nth, row) in rows.iter_mut().enumerate() {
            progress.at(pair as usize * (of / args.pairs as usize) + nth, of, row.name);
            let mut p99 = [None; 2];
            for with in if pair % 2 == 0 { [false, true] } else { [true, false] } {
                let found = piece(args, cpu, with.then(|| want(row.name)), &mut row.refused)?;
                p99[usize::from(with)] = at(&found.wake, 99, 100);
                if with { &mut row.on } else { &mut row.off }.merge(&found);
                interrupt.check()?;
            }
            if let [Some(off), Some(on)] = p99 {
                row.better += u32::from(on < off);
                row.worse += u32::from(on > off);
            }
        }
    }
    drop(noise);
    Ok(found(args, cpu, &rows, &idle))
}

/// One piece, with a knob or without any.
fn piece(args: &Args, cpu: CpuId, want: Option<Want>, refused: &mut Vec<String>) -> Result<Measured, Failed> {
    let (root, dir) = (RootDir::machine(), RunDir::from_env());
    let turned = want.is_some();
    if let Some(want) = want {
        for one in shield::apply(&root, &want, &dir)?.refused {
            if !refused.contains(&one.answer) {
                refused.push(one.answer);
            }
        }
    }
    let place = TaskPlacement { cpu, place: None };
    let found = measure::run(&place, (args.period, args.policy, args.wait.0), args.piece, None);
    if turned && !shield::release(&root, &dir, false)?.is_whole() {
        return Err(Failed::NotReleased);
    }
    found
}

/// A quantile in nanoseconds, if it is known.
fn at(hist: &Histogram, num: u64, den: u64) -> Option<i64> {
    match hist.quantile(num, den) {
        Quantile::At(time) => Some(time.0),
        Quantile::Beyond(_) | Quantile::Empty => None,
    }
}

fn found(args: &Args, cpu: CpuId, rows: &[Row], idle: &[&str]) -> BenchResult {
    let setup = format!(
        "loop on CPU {cpu}: every {}, {}, load {}, profile {}; {} pairs of {} for each knob",
        args.period,
        args.policy,
        args.load.word(),
        args.profile,
        args.pairs,
        args.piece
    );
    let mut table = Table::new("p99 of the wake-up latency with and without each knob").columns("on", "off");
    for row in rows {
        let max = |found: &Measured| found.wake.max().map_or("-".into(), report::micros);
        let p99 = |found: &Measured| Latency::from(&found.wake).p99();
        let note = format!(
            "pairs {}/{}, max {} → {}; {} writes",
            row.better,
            row.worse,
            max(&row.off),
            max(&row.on),
            row.writes
        );
        let line = Line { name: row.name.into(), unit: "us".into(), ours: p99(&row.on), ..Line::default() };
        let line = line.note(note).against(p99(&row.off));
        table.rows.push(Line { verdict: Some(verdict(row.better, row.worse, rows.len())), ..line });
        table.notes.extend(row.refused.iter().map(|why| format!("{}: {why}", row.name)));
    }
    table.notes.push(
        "pairs: with smaller p99 with the knob / with larger; error rate of the verdicts: at most one run in twenty"
            .into(),
    );
    if !idle.is_empty() {
        table.notes.push(format!("not measured (missing, or set already): {}", idle.join(", ")));
    }
    BenchResult { setup: vec![setup], ..table.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_result_gives_no_verdict() {
        assert!((chance(5, 5) - 1.0).abs() < 1e-12);
        assert!((chance(6, 0) - 2.0 / 64.0).abs() < 1e-12);
        assert!((chance(1, 7) - 18.0 / 256.0).abs() < 1e-12);
        assert_eq!(verdict(6, 0, 1), Verdict::Better);
        assert_eq!(verdict(0, 6, 1), Verdict::Worse);
        assert_eq!(verdict(6, 0, 20), Verdict::NoDifferenceMeasurable);
        assert_eq!(verdict(0, 0, 1), Verdict::NoDifferenceMeasurable);
        assert_eq!((pairs_min(1), pairs_min(20)), (6, 10));
    }
}
