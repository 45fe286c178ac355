//! `tahti bench wakeup`: how late a periodic loop wakes up, beside `cyclictest` in the same run.

use super::Touched;
use super::cyclictest;
use super::fingerprint::Fingerprint;
use super::measure::{self, Measured, Where};
use super::shielded::Shielded;
use super::vxworks;
use crate::looprun::{self, WaitArg, wait_word};
use crate::noise::{Load, Noise};
use base::text::Counted;
use base::{CpuId, CpuSet, DurNs, Histogram, Policy, Quantile};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use sys::signal::{END_SIGNALS, SignalFd};

/// Wake-up latency of a periodic loop that does nothing else
///
/// Runs loop and cyclictest in turn, at the same CPU and class, so that both meet the same machine. The first
/// figures are unfiltered; where the hypervisor took the CPU, a second line leaves out the cycles near that. With
/// more than 1 % left out nothing can be concluded, and that is said.
#[derive(clap::Args)]
pub(crate) struct Args {
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
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How to print the histograms
    #[arg(long, value_enum, default_value = "table")]
    view: View,
}

/// How histograms are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    Table,
    Vxworks,
}

/// Each figure is measured in this many pieces, in turn with the others.
const ROUNDS: i64 = 5;
/// Strangers that are named; the rest is counted.
const STRANGERS_NAMED: usize = 4;
/// Share set apart above which nothing is concluded, in percent.
const APART_MAX: f64 = 1.0;

/// Everything about one CPU under one condition.
struct Row {
    cpu: CpuId,
    shielded: bool,
    ours: Measured,
    theirs: Option<(Histogram, u64)>,
    /// Threads of others that might run there although it was shielded.
    strangers: BTreeSet<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
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
    let fingerprint = Fingerprint::take();
    let conditions: &[bool] = match (args.shield, args.compare) {
        (true, _) => &[true],
        (_, true) => &[false, true],
        _ => &[false],
    };
    let noise = Noise::start(args.load, None)?;
    let mut rows = Vec::new();
    for cpu in cpus.iter() {
        let mut of_cpu: Vec<Row> = conditions.iter().map(|&shielded| Row::new(cpu, shielded, with_theirs)).collect();
        for _ in 0..ROUNDS {
            for row in &mut of_cpu {
                row.measure(args, &mut notes)?;
                if signals.read().map_err(|error| error.to_string())?.is_some() {
                    return Err("interrupted; the machine is as it was".into());
                }
            }
        }
        rows.extend(of_cpu);
    }
    drop(noise);
    if args.json {
        let text = serde_json::to_string_pretty(&report(args, &fingerprint, &rows, &notes));
        println!("{}", text.map_err(|error| error.to_string())?);
    } else {
        print(args, &fingerprint, &rows, &notes);
    }
    Ok(())
}

fn check(args: &Args) -> Result<(), String> {
    if args.period < DurNs::from_us(50) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 50us to 1s", args.period));
    }
    if args.for_ < DurNs(args.period.0 * 10 * ROUNDS) {
        return Err(format!("--for {}: expected at least 50 periods", args.for_));
    }
    if matches!(args.policy, Policy::Deadline(_)) {
        return Err("--policy deadline: no CPU can be chosen for it; use fifo, rr or other".into());
    }
    Ok(())
}

impl Row {
    fn new(cpu: CpuId, shielded: bool, with_theirs: bool) -> Self {
        let theirs = with_theirs.then(|| (Histogram::new(), 0));
        Self { cpu, shielded, ours: Measured::default(), theirs, strangers: BTreeSet::new() }
    }

    /// One piece: the loop, then cyclictest, then the loop's turn again in the next round.
    fn measure(&mut self, args: &Args, notes: &mut Vec<String>) -> Result<(), String> {
        let shielded =
            if self.shielded { Some(Shielded::apply(&args.touched, &CpuSet::single(self.cpu))?) } else { None };
        let place = Where { cpu: self.cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
        let piece = DurNs(args.for_.0 / ROUNDS);
        self.ours.merge(&measure::run(&place, args.period, args.policy, args.wait.0, piece)?);
        if let Some((hist, max_us)) = &mut self.theirs {
            let found = cyclictest::run(&place, args.period, args.policy, piece)?;
            hist.merge(&found.hist);
            *max_us = (*max_us).max(found.max_us);
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

/// p99 in nanoseconds, if it is known.
fn p99(hist: &Histogram) -> Option<i64> {
    match hist.quantile(99, 100) {
        Quantile::At(time) => Some(time.0),
        Quantile::Beyond(_) | Quantile::Empty => None,
    }
}

/// `a / b`, if both are known.
fn ratio(a: Option<i64>, b: Option<i64>) -> Option<f64> {
    let (a, b) = (a?, b?);
    (b > 0).then(|| a as f64 / b as f64)
}

/// What can be concluded, in lines.
fn conclusions(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let disturbed = |row: &Row| row.ours.apart_percent() > APART_MAX;
    for row in rows {
        if disturbed(row) {
            let share = row.ours.apart_percent();
            lines.push(format!(
                "{}: not measurable here: the hypervisor was near {share:.1} % of the cycles",
                row.name()
            ));
        } else if let Some((theirs, _)) = &row.theirs
            && let Some(ratio) = ratio(p99(&row.ours.wake), p99(theirs))
        {
            lines.push(format!("{}: p99 is {ratio:.2} of cyclictest's", row.name()));
        }
    }
    for pair in rows.chunks(2) {
        if let [open, shielded] = pair
            && open.cpu == shielded.cpu
            && shielded.shielded
            && !disturbed(open)
            && !disturbed(shielded)
            && shielded.strangers.is_empty()
            && let Some(ratio) = ratio(p99(&shielded.ours.wake), p99(&open.ours.wake))
        {
            lines.push(format!("CPU {}: p99 shielded is {ratio:.2} of p99 open", open.cpu));
        }
    }
    lines
}

fn print(args: &Args, fingerprint: &Fingerprint, rows: &[Row], notes: &[String]) {
    for line in fingerprint.lines() {
        println!("{line}");
    }
    println!(
        "loop: every {}, {}, wait {}, load {}, {} each in {ROUNDS} pieces in turn\n",
        args.period,
        args.policy,
        wait_word(args.wait.0),
        args.load.word(),
        args.for_
    );
    let shared: Vec<String> = rows.iter().filter_map(Row::shared_with).collect();
    if !shared.is_empty() {
        println!("{}\n", shared.join("\n"));
    }
    println!("{:<28} {}", "wake-up latency [us]", looprun::figure_heads());
    for row in rows {
        println!("{:<28} {}", row.name(), looprun::figures(&row.ours.wake));
        if row.ours.set_apart > 0 {
            println!("{:<28} {}", "  without steal", looprun::figures(&row.ours.calm));
        }
        if let Some((hist, _)) = &row.theirs {
            println!("{:<28} {}", "  cyclictest", looprun::figures(hist));
        }
    }
    println!();
    for row in rows {
        let ours = &row.ours;
        println!(
            "{}: overruns {}, allocations {}, page faults {}, involuntary switches {}",
            row.name(),
            ours.overruns,
            ours.allocations,
            ours.faults,
            ours.involuntary
        );
        ours.preempted.iter().chain(&ours.missing).for_each(|line| println!("  {line}"));
    }
    conclusions(rows).iter().chain(notes).for_each(|line| println!("{line}"));
    if args.view == View::Vxworks {
        for row in rows {
            println!("\n{}\n{}", row.name(), vxworks::report(&row.ours.wake));
        }
    }
}

fn report(args: &Args, fingerprint: &Fingerprint, rows: &[Row], notes: &[String]) -> Value {
    json!({
        "measurement": "wakeup",
        "machine": fingerprint,
        "period_ns": args.period.0,
        "policy": args.policy.to_string(),
        "wait": wait_word(args.wait.0),
        "load": args.load.word(),
        "for_ns": args.for_.0,
        "rounds": ROUNDS,
        "rows": rows.iter().map(|row| json!({
            "cpu": row.cpu,
            "shielded": row.shielded,
            "wake": histogram(&row.ours.wake),
            "without_steal": histogram(&row.ours.calm),
            "set_apart_percent": row.ours.apart_percent(),
            "overruns": row.ours.overruns,
            "allocations": row.ours.allocations,
            "page_faults": row.ours.faults,
            "involuntary_switches": row.ours.involuntary,
            "preempted_by": row.ours.preempted,
            "not_obtained": row.ours.missing,
            "others_on_the_shield": row.strangers,
            "cyclictest": row.theirs.as_ref().map(|(hist, max_us)| json!({ "wake": histogram(hist), "max_us": max_us })),
        })).collect::<Vec<_>>(),
        "conclusions": conclusions(rows),
        "notes": notes,
    })
}

/// A histogram with its percentiles; one that is not known is null.
fn histogram(hist: &Histogram) -> Value {
    let at = |num, den| match hist.quantile(num, den) {
        Quantile::At(time) => json!(time.0),
        Quantile::Beyond(_) | Quantile::Empty => Value::Null,
    };
    json!({
        "count": hist.count(),
        "early": hist.early(),
        "overflow": hist.overflow(),
        "min_ns": hist.min().map(|time| time.0),
        "mean_ns": hist.mean().map(|time| time.0),
        "max_ns": hist.max().map(|time| time.0),
        "p50_ns": at(50, 100),
        "p90_ns": at(90, 100),
        "p99_ns": at(99, 100),
        "p99_9_ns": at(999, 1000),
        "p99_99_ns": at(9999, 10_000),
        "buckets": hist.buckets().map(|(low, high, count)| json!([low.0, high.0, count])).collect::<Vec<_>>(),
    })
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
        assert_eq!(conclusions(&calm), ["CPU 1: p99 shielded is 0.10 of p99 open"]);
        let disturbed = [row(false, 0..1000, 11), row(true, 0..100, 0)];
        let text = conclusions(&disturbed);
        assert_eq!(text, ["CPU 1 open: not measurable here: the hypervisor was near 1.1 % of the cycles"]);
    }

    #[test]
    fn no_verdict_on_a_shield_that_others_could_run_on() {
        let mut rows = [row(false, 0..1000, 0), row(true, 0..100, 0)];
        rows[1].strangers = ["17 cc1", "18 ld"].map(str::to_owned).into();
        assert!(conclusions(&rows).is_empty());
        let said = rows[1].shared_with().unwrap();
        assert!(
            said.starts_with("CPU 1: 2 threads of others might run there although it was shielded (17 cc1, 18 ld)")
        );
        assert_eq!(rows[0].shared_with(), None);
    }

    #[test]
    fn a_percentile_beyond_the_histogram_is_no_number_in_the_report() {
        let mut hist = Histogram::new();
        hist.record(DurNs::from_secs(100));
        let value = histogram(&hist);
        assert!(value["p99_ns"].is_null() && value["overflow"] == 1);
        assert_eq!(ratio(p99(&hist), Some(1)), None);
    }
}
