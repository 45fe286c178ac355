//! `tahti bench wakeup`: wake-up latency of a periodic loop, compared with `cyclictest` in the same run.

use crate::cyclictest;
use crate::explained::{Explained, Ours};
use crate::looprun::{WaitArg, wait_word};
use crate::measure::{self, Interrupt, Measured, TaskPlacement, installed, usable};
use crate::noise::{self, Load, Noise};
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::text::Counted;
use base::{CpuId, CpuSet, DurNs, Histogram, Policy};
use clap::{ArgMatches, Args as _};
use report::{Good, Latency, Row as Line, Table, Target};
use std::collections::BTreeSet;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "wakeup",
    experiment: "VxWorks: task response jitter; SGI REACT: interrupt response with and without the shield",
    arguments: Args::augment_args,
    run,
    target: "p99 with the shield at most a fifth of that without, and never above cyclictest's",
    quick: &["--for", "4s", "--load", "cpu"],
    shields: false,
};

/// Wake-up latency of a periodic loop that does nothing else
///
/// Loop and cyclictest alternate on the same CPU and in the same class, so that the machine affects both equally. The
/// kernel's events of that CPU are recorded (`tahti explain`), which costs some microseconds per wake-up of either. They
/// show the host's share of each delay, and the causes of the other delays. *ours* is the latency without the host's
/// share; shields are compared by it. The first figures are unfiltered. If the hypervisor took the CPU, a second line
/// excludes the cycles near that. If that excludes more than 1 % of the cycles, there is no verdict on the figures as
/// measured.
#[derive(clap::Args)]
struct Args {
    /// Time between two wake-ups
    #[arg(long, value_name = "TIME|RATE", default_value = "1ms", value_parser = measure::period)]
    period: DurNs,
    /// CPUs to measure, one after the other [default: the highest]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Load on the machine, not bound to CPUs
    #[arg(long, value_enum, default_value = "none")]
    load: Load,
    /// Scheduling class of the loop
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:80")]
    policy: Policy,
    /// Waiting mode of the loop: sleep, spin, both or both:TIME
    #[arg(long, value_name = "HOW", default_value = "sleep")]
    wait: WaitArg,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Shield the CPU, and release the shield afterwards
    #[arg(long)]
    shield: bool,
    /// Measure with and without the shield, alternating
    #[arg(long, conflicts_with = "shield")]
    compare: bool,
    #[command(flatten)]
    touched: Touched,
    /// Do not record the kernel's events: delays are then not explained
    #[arg(long)]
    no_explain: bool,
    /// Do not run cyclictest
    #[arg(long)]
    no_cyclictest: bool,
}

/// Alternating pieces of each figure: enough for a rank test of two runs.
const ROUNDS: i64 = 8;
/// Number of foreign threads that are listed; the rest is counted.
const FOREIGN_LISTED: usize = 4;
/// Maximum share of excluded cycles for a verdict, in percent.
const APART_MAX: f64 = 1.0;

/// Everything about one CPU under one condition.
struct Row {
    cpu: CpuId,
    shielded: bool,
    ours: Measured,
    /// p99 of each piece, in us; one beyond the histogram counts as the histogram's end.
    pieces: Vec<f64>,
    theirs: Option<Histogram>,
    /// The same without the host's share, with the causes.
    explained: Option<Sides>,
    /// Other processes' threads that may run on the CPU despite the shield.
    foreign_threads: BTreeSet<String>,
}

/// Both sides of a condition, explained: the loop and cyclictest.
#[derive(Default)]
struct Sides {
    loops: Ours,
    /// p99 of *ours* of each piece, in us.
    pieces: Vec<f64>,
    theirs: Ours,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    check(args)?;
    // A signal ends this between two pieces, after the release of the shield; pieces are short.
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpus = args.cpus.unwrap_or_else(|| online.iter().last().map(CpuSet::single).unwrap_or_default());
    usable(&cpus, &format!("--cpus {cpus}"))?;
    let mut notes = Vec::new();
    let theirs = (!args.no_cyclictest).then(|| installed("cyclictest", "--help", "rt-tests"));
    let with_theirs = matches!(theirs, Some(Ok(())));
    notes.extend(theirs.and_then(Result::err).map(|why| why.to_string()));
    if matches!(args.policy, Policy::Fifo(_) | Policy::Rr(_)) && args.wait.0 == rt::Wait::Spin {
        notes.push("real-time throttling stops a spinning real-time loop for 5 % of the time".into());
    }
    let conditions: &[bool] = match (args.shield, args.compare) {
        (true, _) => &[true],
        (_, true) => &[false, true],
        _ => &[false],
    };
    let noise = Noise::start(args.load, None)?;
    let traffic = noise::Loopback::read();
    let (mut rows, mut done) = (Vec::new(), 0);
    for cpu in cpus.iter() {
        let explained = if args.no_explain { None } else { explained(cpu, &mut notes) };
        let mut of_cpu: Vec<Row> = conditions.iter().map(|&shielded| Row::new(cpu, shielded, with_theirs)).collect();
        for _ in 0..ROUNDS {
            for row in &mut of_cpu {
                progress.at(done, cpus.count() * conditions.len() * ROUNDS as usize, &row.name());
                done += 1;
                row.measure(args, explained.as_ref(), &mut notes)?;
                interrupt.check()?;
            }
        }
        rows.extend(of_cpu);
    }
    let traffic = traffic.mbit_since().filter(|_| args.load.is_on_network());
    drop(noise);
    notes.extend(traffic.map(|mbit| format!("network traffic over the loopback meanwhile: {mbit:.0} Mbit/s")));
    Ok(found(args, &rows, notes))
}

/// The recording of a CPU, or a note if this machine does not support it.
fn explained(cpu: CpuId, notes: &mut Vec<String>) -> Option<Explained> {
    let started = Explained::start(cpu);
    notes.extend(started.as_ref().err().map(|why| format!("the host's share is unknown: {why}")));
    started.ok()
}

fn check(args: &Args) -> Result<(), Failed> {
    if args.period < DurNs::from_us(50) || args.period > DurNs::from_secs(1) {
        return Err(Failed::argument(format!("--period {}", args.period), "50us to 1s"));
    }
    if args.for_ < DurNs(args.period.0 * 10 * ROUNDS) {
        return Err(Failed::argument(format!("--for {}", args.for_), format!("at least {} periods", 10 * ROUNDS)));
    }
    if matches!(args.policy, Policy::Deadline(_)) {
        return Err(Failed::argument("--policy deadline", "fifo, rr or other: no CPU can be chosen for deadline"));
    }
    Ok(())
}

impl Row {
    fn new(cpu: CpuId, shielded: bool, with_theirs: bool) -> Self {
        let theirs = with_theirs.then(Histogram::new);
        let (ours, pieces) = (Measured::default(), Vec::new());
        Self { cpu, shielded, ours, pieces, theirs, explained: None, foreign_threads: BTreeSet::new() }
    }

    /// One piece: the loop, then cyclictest.
    fn measure(&mut self, args: &Args, explained: Option<&Explained>, notes: &mut Vec<String>) -> Result<(), Failed> {
        let shielded =
            if self.shielded { Some(Shielded::apply(&args.touched, &CpuSet::single(self.cpu))?) } else { None };
        let place = TaskPlacement { cpu: self.cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
        let piece = DurNs(args.for_.0 / ROUNDS);
        let found = measure::run(&place, (args.period, args.policy, args.wait.0), piece, explained)?;
        if let Some(explained) = explained {
            let (sides, piece) = (self.explained.get_or_insert_default(), explained.take()?);
            sides.pieces.extend(Latency::from(&piece.ours).p99().map(|p99| p99.value));
            sides.loops.merge(&piece);
        }
        self.pieces.extend(Latency::from(&found.wake).p99().map(|p99| p99.value));
        self.ours.merge(&found);
        if let Some(hist) = &mut self.theirs {
            hist.merge(&cyclictest::run(&place, (args.period, args.policy), piece, explained)?);
            if let Some(explained) = explained {
                self.explained.get_or_insert_default().theirs.merge(&explained.take()?);
            }
        }
        if let Some(shielded) = &shielded {
            self.foreign_threads.extend(shielded.foreign_threads()?);
        }
        if let Some(shielded) = shielded
            && let Err(why) = shielded.release().map_err(|why| why.to_string())
            && !notes.contains(&why)
        {
            notes.push(why);
        }
        Ok(())
    }

    /// Other threads that may run on the shielded CPU, which prevent a verdict on the shield.
    fn shared_with(&self) -> Option<String> {
        if self.foreign_threads.is_empty() {
            return None;
        }
        let some: Vec<&str> = self.foreign_threads.iter().take(FOREIGN_LISTED).map(String::as_str).collect();
        Some(format!(
            "CPU {}: {} of other processes may run there despite the shield ({}{}): no verdict on the shield; spare fewer \
             processes (--spare), or use --whole-machine",
            self.cpu,
            Counted(self.foreign_threads.len(), "thread"),
            some.join(", "),
            if self.foreign_threads.len() > FOREIGN_LISTED { ", ..." } else { "" }
        ))
    }

    fn name(&self) -> String {
        format!("CPU {} {}", self.cpu, if self.shielded { "shielded" } else { "open" })
    }
}

/// Rows with the conclusions, and notes on missing ones. *ours* has the target if the host's share is known, otherwise the latency
/// as measured.
fn conclusions(rows: &[Row]) -> (Vec<Line>, Vec<String>) {
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    let disturbed = |row: &Row| row.ours.apart_percent() > APART_MAX;
    for row in rows {
        if let Some(sides) = row.explained.as_ref().filter(|sides| sides.theirs.ours.count() > 0) {
            let line =
                p99_row(format!("{}: p99 of ours / cyclictest's", row.name()), &sides.loops.ours, &sides.theirs.ours);
            lines.push(if row.shielded { line.target(Target::ratio_at_most(1.0)) } else { line });
        }
        if disturbed(row) {
            let share = row.ours.apart_percent();
            notes.push(format!(
                "{}: not comparable as measured: the hypervisor took the CPU near {share:.1} % of the cycles",
                row.name()
            ));
        } else if let Some(theirs) = &row.theirs {
            let line = p99_row(format!("{}: p99 / cyclictest's", row.name()), &row.ours.wake, theirs);
            let has_target = row.shielded && row.explained.is_none();
            lines.push(if has_target { line.target(Target::ratio_at_most(1.0)) } else { line });
        }
    }
    for pair in rows.chunks(2) {
        if let [open, shielded] = pair
            && open.cpu == shielded.cpu
            && shielded.shielded
            && shielded.foreign_threads.is_empty()
        {
            let explained = open.explained.as_ref().zip(shielded.explained.as_ref());
            if let Some((open_sides, sides)) = explained {
                let name = format!("CPU {}: p99 of ours shielded / open", open.cpu);
                lines.push(p99_row(name, &sides.loops.ours, &open_sides.loops.ours).target(Target::ratio_at_most(0.2)));
            }
            if !disturbed(open) && !disturbed(shielded) {
                let name = format!("CPU {}: p99 shielded / open", open.cpu);
                let line = p99_row(name, &shielded.ours.wake, &open.ours.wake);
                lines.push(if explained.is_none() { line.target(Target::ratio_at_most(0.2)) } else { line });
            }
        }
    }
    (lines, notes)
}

/// A row with the 99th percentiles of two histograms.
fn p99_row(name: String, one: &Histogram, other: &Histogram) -> Line {
    let p99 = |hist: &Histogram| Latency::from(hist).p99();
    Line { name, ours: p99(one), unit: "us".into(), ..Line::default() }.against(p99(other))
}

/// Jitter, which VxWorks' test reports: latency above its minimum.
fn jitter(rows: &[Row]) -> Table {
    let mut table = Table::new("jitter: wake-up latency above its minimum");
    for row in rows {
        let wake = &row.ours.wake;
        let above = |time: Option<DurNs>| Some((time?.0 - wake.min()?.0) as f64 / 1e3);
        for (name, value) in [("mean", above(wake.mean())), ("maximum", above(wake.max()))] {
            let line = value.map(|us| Line::figure(format!("{}: {name}", row.name()), "us", us).good(Good::Low));
            table.rows.extend(line);
        }
    }
    table
}

/// Maximum share of skipped cycles of a stable loop, in percent.
const STABLE_MAX: f64 = 0.1;

/// Whether the loop keeps its period: the share of cycles that it skipped because it was late.
fn stability(rows: &[Row]) -> Table {
    let mut table = Table::new(format!("stability: cycles skipped, stable up to {STABLE_MAX} %"));
    for row in rows {
        let (ran, skipped) = (row.ours.wake.count(), row.ours.overruns);
        let share = skipped as f64 * 100.0 / (ran + skipped).max(1) as f64;
        let note = if share <= STABLE_MAX { "stable" } else { "unstable" };
        let line = Line::figure(row.name(), "%", share).good(Good::Low).note(format!("{note}, {skipped} skipped"));
        table = table.row(if row.shielded { line.target(Target::at_most(STABLE_MAX)) } else { line });
    }
    table
}

fn found(args: &Args, rows: &[Row], notes: Vec<String>) -> BenchResult {
    let mut setup = vec![format!(
        "loop: every {}, {}, wait {}, load {}, {} each in {ROUNDS} alternating pieces",
        args.period,
        args.policy,
        wait_word(args.wait.0),
        args.load.word(),
        args.for_
    )];
    setup.extend(rows.iter().filter_map(Row::shared_with));
    let mut table = Table::new("wake-up latency");
    for row in rows {
        let ours = &row.ours;
        table = table.row(Line::latency(row.name(), Latency::from(&ours.wake), row.pieces.clone()));
        if ours.set_apart > 0 {
            let note = format!("{:.2} % excluded", ours.apart_percent());
            table = table
                .row(Line::reference(format!("{}, without steal", row.name()), Latency::from(&ours.calm)).note(note));
        }
        if let Some(hist) = &row.theirs {
            table = table.row(Line::reference(format!("{}, cyclictest", row.name()), Latency::from(hist)));
        }
        if let Some(sides) = &row.explained {
            table.rows.extend(sides.loops.rows(&row.name(), sides.pieces.clone()));
            if sides.theirs.whole.count() > 0 {
                let [_, theirs] = sides.theirs.rows(&format!("{}, cyclictest", row.name()), Vec::new());
                table.rows.push(Line { good: Good::Neither, ..theirs });
            }
        }
        table.notes.push(format!(
            "{}: overruns {}, allocations {}, page faults {}, involuntary switches {}",
            row.name(),
            ours.overruns,
            ours.allocations,
            ours.faults,
            ours.involuntary
        ));
        table.notes.extend(ours.preempted.iter().chain(&ours.missing).map(|line| format!("  {line}")));
    }
    let (lines, mut missing) = conclusions(rows);
    let mut tables = vec![table, jitter(rows), stability(rows)];
    if !lines.is_empty() {
        tables.push(Table { rows: lines, ..Table::new("p99 compared").columns("measured", "compared with") });
    }
    missing.extend(notes);
    BenchResult { setup, tables, notes: missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(shielded: bool, latencies_us: impl Iterator<Item = i64>, set_apart: u64) -> Row {
        let mut row = Row::new(1, shielded, false);
        latencies_us.for_each(|us| row.ours.wake.record(DurNs::from_us(us)));
        (row.ours.watched, row.ours.set_apart) = (1000, set_apart);
        row
    }

    #[test]
    fn only_undisturbed_rows_give_a_ratio() {
        let calm = [row(false, 0..1000, 10), row(true, 0..100, 0)];
        let (lines, notes) = conclusions(&calm);
        assert_eq!((lines.len(), lines[0].name.as_str()), (1, "CPU 1: p99 shielded / open"));
        assert_eq!(lines[0].verdict, Some(report::Verdict::Reached));
        assert!(notes.is_empty() && lines[0].ratio.is_some_and(|ratio| (0.09..0.11).contains(&ratio)));
        let disturbed = [row(false, 0..1000, 11), row(true, 0..100, 0)];
        let (lines, notes) = conclusions(&disturbed);
        assert_eq!(
            notes,
            ["CPU 1 open: not comparable as measured: the hypervisor took the CPU near 1.1 % of the cycles"]
        );
        assert!(lines.is_empty());
    }

    #[test]
    fn jitter_is_latency_above_its_minimum_and_skipped_cycles_decide_on_stability() {
        let mut rows = [row(false, 10..=30, 0), row(true, 10..=10, 0)];
        rows[0].ours.overruns = 1;
        let jitter = jitter(&rows);
        let values: Vec<_> = jitter.rows.iter().map(|row| row.ours.as_ref().unwrap().value).collect();
        assert_eq!(values, [10.0, 20.0, 0.0, 0.0]);
        let stability = stability(&rows);
        let notes: Vec<_> = stability.rows.iter().map(|row| (row.note.as_str(), row.verdict)).collect();
        assert_eq!(notes, [("unstable, 1 skipped", None), ("stable, 0 skipped", Some(report::Verdict::Reached))]);
    }

    #[test]
    fn no_verdict_on_a_shield_with_foreign_threads() {
        let mut rows = [row(false, 0..1000, 0), row(true, 0..100, 0)];
        rows[1].foreign_threads = ["17 cc1", "18 ld"].map(str::to_owned).into();
        assert!(conclusions(&rows).0.is_empty());
        let note = rows[1].shared_with().unwrap();
        assert!(
            note.starts_with("CPU 1: 2 threads of other processes may run there despite the shield (17 cc1, 18 ld)")
        );
        assert_eq!(rows[0].shared_with(), None);
    }
}
