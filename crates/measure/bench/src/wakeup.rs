//! `tahti bench wakeup`: how late a periodic loop wakes up, beside `cyclictest` in the same run.

use crate::cyclictest;
use crate::looprun::{WaitArg, wait_word};
use crate::measure::{self, Measured, Where};
use crate::noise::{Load, Noise};
use crate::shielded::Shielded;
use crate::{Bench, Found, Progress, Touched, read};
use base::text::Counted;
use base::{CpuId, CpuSet, DurNs, Histogram, Policy};
use clap::{ArgMatches, Args as _};
use report::{Latency, Published, Row as Line, Table, Wanted};
use std::collections::BTreeSet;
use sys::signal::{END_SIGNALS, SignalFd};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "wakeup",
    experiment: "VxWorks: task response jitter; SGI REACT: interrupt response with and without the shield",
    arguments: Args::augment_args,
    run,
    published: &[
        Published::new(
            "VxWorks 6.9, 4001 Hz, loaded, untuned",
            "about 2012",
            "Dell R910 / R710",
            "mean 0.419, max 15.993 us",
        ),
        Published::new(
            "VxWorks 6.9, 4001 Hz, loaded, tuned",
            "about 2012",
            "Dell R910 / R710",
            "mean 0.349, max 3.282 us",
        ),
        Published::new(
            "SGI REACT, highest of 5,000,000 interrupt responses, 4 loaded CPUs",
            "about 2007",
            "Itanium 2, SLES10",
            "556.95 us without the shield, 11.15 us with it",
        ),
    ],
    wanted: "p99 shielded at most a fifth of the open one, and never above cyclictest's",
    quick: &["--for", "4s", "--load", "cpu"],
    shields: false,
};

/// Wake-up latency of a periodic loop that does nothing else
///
/// Runs loop and cyclictest in turn, at the same CPU and class, so that both meet the same machine. The first
/// figures are unfiltered; where the hypervisor took the CPU, a second line leaves out the cycles near that. With
/// more than 1 % left out nothing can be concluded, and that is said.
#[derive(clap::Args)]
struct Args {
    /// Time between two wake-ups
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// CPUs to measure, one after the other; the highest if not given
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Noisy neighbour, free to run wherever the machine lets it
    #[arg(long, value_enum, default_value = "none")]
    load: Load,
    /// Class of the loop
    #[arg(long, value_name = "CLASS", default_value = "fifo:80")]
    policy: Policy,
    /// How the loop waits: sleep, spin, both or both:TIME
    #[arg(long, value_name = "HOW", default_value = "sleep")]
    wait: WaitArg,
    /// How long each figure is measured
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Put a shield round the CPU, and give the machine back afterwards
    #[arg(long)]
    shield: bool,
    /// Measure with and without the shield, in turn
    #[arg(long, conflicts_with = "shield")]
    compare: bool,
    #[command(flatten)]
    touched: Touched,
    /// Leave cyclictest out
    #[arg(long)]
    no_cyclictest: bool,
}

/// Each figure is measured in this many pieces, in turn with the others: enough for a test to tell two runs apart.
const ROUNDS: i64 = 8;
/// Strangers that are named; the rest is counted.
const STRANGERS_NAMED: usize = 4;
/// Share set apart above which nothing is concluded, in percent.
const APART_MAX: f64 = 1.0;

/// Everything about one CPU under one condition.
struct Row {
    cpu: CpuId,
    shielded: bool,
    ours: Measured,
    /// p99 of each piece, in us; one beyond the histogram counts as its end, above all others.
    pieces: Vec<f64>,
    theirs: Option<Histogram>,
    /// Threads of others that might run there although it was shielded.
    strangers: BTreeSet<String>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, String> {
    let args: &Args = &read(matches)?;
    check(args)?;
    // An interrupt ends this between two pieces, after the shield was given back; the pieces themselves are short.
    let signals = SignalFd::new(&END_SIGNALS).map_err(|error| error.to_string())?;
    let online = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let cpus = args.cpus.unwrap_or_else(|| online.iter().last().map(CpuSet::single).unwrap_or_default());
    if cpus.is_empty() || !cpus.is_subset(&online) {
        return Err(format!("--cpus {cpus}: expected CPUs that this process may use ({online})"));
    }
    let mut notes = Vec::new();
    let with_theirs = !args.no_cyclictest
        && match cyclictest::probe() {
            Ok(()) => true,
            Err(why) => {
                notes.push(why);
                false
            }
        };
    if matches!(args.policy, Policy::Fifo(_) | Policy::Rr(_)) && args.wait.0 == rt::Wait::Spin {
        notes.push("a real-time loop that spins is stopped by real-time throttling for 5 % of the time".into());
    }
    let conditions: &[bool] = match (args.shield, args.compare) {
        (true, _) => &[true],
        (_, true) => &[false, true],
        _ => &[false],
    };
    let noise = Noise::start(args.load, None)?;
    let (mut rows, mut done) = (Vec::new(), 0);
    for cpu in cpus.iter() {
        let mut of_cpu: Vec<Row> = conditions.iter().map(|&shielded| Row::new(cpu, shielded, with_theirs)).collect();
        for _ in 0..ROUNDS {
            for row in &mut of_cpu {
                progress.at(done, cpus.count() * conditions.len() * ROUNDS as usize, &row.name());
                done += 1;
                row.measure(args, &mut notes)?;
                if signals.read().map_err(|error| error.to_string())?.is_some() {
                    return Err("interrupted; the machine is as it was".into());
                }
            }
        }
        rows.extend(of_cpu);
    }
    drop(noise);
    Ok(found(args, &rows, notes))
}

fn check(args: &Args) -> Result<(), String> {
    if args.period < DurNs::from_us(50) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 50us to 1s", args.period));
    }
    if args.for_ < DurNs(args.period.0 * 10 * ROUNDS) {
        return Err(format!("--for {}: expected at least {} periods", args.for_, 10 * ROUNDS));
    }
    if matches!(args.policy, Policy::Deadline(_)) {
        return Err("--policy deadline: no CPU can be chosen for it; use fifo, rr or other".into());
    }
    Ok(())
}

impl Row {
    fn new(cpu: CpuId, shielded: bool, with_theirs: bool) -> Self {
        let theirs = with_theirs.then(Histogram::new);
        Self { cpu, shielded, ours: Measured::default(), pieces: Vec::new(), theirs, strangers: BTreeSet::new() }
    }

    /// One piece: the loop, then cyclictest, then the loop's turn again in the next round.
    fn measure(&mut self, args: &Args, notes: &mut Vec<String>) -> Result<(), String> {
        let shielded =
            if self.shielded { Some(Shielded::apply(&args.touched, &CpuSet::single(self.cpu))?) } else { None };
        let place = Where { cpu: self.cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
        let piece = DurNs(args.for_.0 / ROUNDS);
        let found = measure::run(&place, args.period, args.policy, args.wait.0, piece)?;
        self.pieces.extend(Latency::from(&found.wake).p99().map(|p99| p99.value));
        self.ours.merge(&found);
        if let Some(hist) = &mut self.theirs {
            hist.merge(&cyclictest::run(&place, args.period, args.policy, piece)?);
        }
        if let Some(shielded) = &shielded {
            self.strangers.extend(shielded.strangers()?);
        }
        if let Some(shielded) = shielded
            && let Err(why) = shielded.release()
            && !notes.contains(&why)
        {
            notes.push(why);
        }
        Ok(())
    }

    /// Who else might run on the shielded CPU: what a shield is worth cannot be told then.
    fn shared_with(&self) -> Option<String> {
        if self.strangers.is_empty() {
            return None;
        }
        let some: Vec<&str> = self.strangers.iter().take(STRANGERS_NAMED).map(String::as_str).collect();
        Some(format!(
            "CPU {}: {} of others might run there although it was shielded ({}{}): no verdict on the shield; spare fewer (--spare), or \
             --whole-machine",
            self.cpu,
            Counted(self.strangers.len(), "thread"),
            some.join(", "),
            if self.strangers.len() > STRANGERS_NAMED { ", ..." } else { "" }
        ))
    }

    fn name(&self) -> String {
        format!("CPU {} {}", self.cpu, if self.shielded { "shielded" } else { "open" })
    }
}

/// Rows of what can be concluded, and lines on what cannot.
fn conclusions(rows: &[Row]) -> (Vec<Line>, Vec<String>) {
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    let disturbed = |row: &Row| row.ours.apart_percent() > APART_MAX;
    let p99 = |hist: &Histogram| Latency::from(hist).p99();
    for row in rows {
        if disturbed(row) {
            let share = row.ours.apart_percent();
            notes.push(format!(
                "{}: not measurable here: the hypervisor was near {share:.1} % of the cycles",
                row.name()
            ));
        } else if let Some(theirs) = &row.theirs {
            let line = Line { ours: p99(&row.ours.wake), unit: "us".into(), ..Line::default() };
            let line = Line { name: format!("{}: p99, by cyclictest's", row.name()), ..line }.against(p99(theirs));
            lines.push(if row.shielded { line.wanted(Wanted::ratio_at_most(1.0)) } else { line });
        }
    }
    for pair in rows.chunks(2) {
        if let [open, shielded] = pair
            && open.cpu == shielded.cpu
            && shielded.shielded
            && !disturbed(open)
            && !disturbed(shielded)
            && shielded.strangers.is_empty()
        {
            let line = Line { ours: p99(&shielded.ours.wake), unit: "us".into(), ..Line::default() };
            let line = Line { name: format!("CPU {}: p99 shielded, by open", open.cpu), ..line };
            lines.push(line.against(p99(&open.ours.wake)).wanted(Wanted::ratio_at_most(0.2)));
        }
    }
    (lines, notes)
}

fn found(args: &Args, rows: &[Row], notes: Vec<String>) -> Found {
    let mut setup = vec![format!(
        "loop: every {}, {}, wait {}, load {}, {} each in {ROUNDS} pieces in turn",
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
            let note = format!("{:.2} % set apart", ours.apart_percent());
            table =
                table.row(Line::beside(format!("{}, without steal", row.name()), Latency::from(&ours.calm)).note(note));
        }
        if let Some(hist) = &row.theirs {
            table = table.row(Line::beside(format!("{}, cyclictest", row.name()), Latency::from(hist)));
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
    let (lines, mut said) = conclusions(rows);
    let mut tables = vec![table];
    if !lines.is_empty() {
        tables.push(Table { rows: lines, ..Table::new("p99 beside").columns("ours", "the other's") });
    }
    said.extend(notes);
    Found { setup, tables, notes: said }
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
    fn a_ratio_is_drawn_only_from_what_was_measurable() {
        let calm = [row(false, 0..1000, 10), row(true, 0..100, 0)];
        let (lines, notes) = conclusions(&calm);
        assert_eq!((lines.len(), lines[0].name.as_str()), (1, "CPU 1: p99 shielded, by open"));
        assert_eq!(lines[0].verdict, Some(report::Verdict::Reached));
        assert!(notes.is_empty() && lines[0].ratio.is_some_and(|ratio| (0.09..0.11).contains(&ratio)));
        let disturbed = [row(false, 0..1000, 11), row(true, 0..100, 0)];
        let (lines, notes) = conclusions(&disturbed);
        assert_eq!(notes, ["CPU 1 open: not measurable here: the hypervisor was near 1.1 % of the cycles"]);
        assert!(lines.is_empty());
    }

    #[test]
    fn no_verdict_on_a_shield_that_others_could_run_on() {
        let mut rows = [row(false, 0..1000, 0), row(true, 0..100, 0)];
        rows[1].strangers = ["17 cc1", "18 ld"].map(str::to_owned).into();
        assert!(conclusions(&rows).0.is_empty());
        let said = rows[1].shared_with().unwrap();
        assert!(
            said.starts_with("CPU 1: 2 threads of others might run there although it was shielded (17 cc1, 18 ld)")
        );
        assert_eq!(rows[0].shared_with(), None);
    }
}
