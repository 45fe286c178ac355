//! `tahti bench quiet`: time that a thread with a CPU to itself loses.

use crate::failed::joined;
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::{CpuId, CpuSet, DurNs, Policy};
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table};
use rt::{Quiet, QuietReport};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "quiet",
    experiment: "own: remaining interruptions of a thread with a CPU to itself",
    arguments: Args::augment_args,
    run,
    target: "every gap has a cause that the kernel counted",
    quick: &["--for", "500ms"],
    shields: false,
};

/// A quiet section on one CPU: remaining interruptions, gaps above a threshold, and the kernel's counters
///
/// Changes only its own thread. Ticks stop only if the kernel was booted with nohz_full=. Reports first what is
/// unavailable. A gap is the time between two readings of the clock.
#[derive(clap::Args)]
struct Args {
    /// CPU to measure [default: the highest]
    #[arg(long)]
    cpu: Option<CpuId>,
    /// Duration
    #[arg(long = "for", value_name = "TIME", default_value = "1s")]
    for_: DurNs,
    /// Ignore shorter gaps
    #[arg(long, value_name = "TIME", default_value = "5us")]
    threshold: DurNs,
    /// Scheduling class of the thread
    #[arg(long, value_name = "CLASS", default_value = "fifo:50")]
    policy: Policy,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let mine = sys::sched::affinity(0)?;
    let cpu = args.cpu.or(mine.iter().last()).ok_or(Failed::Needs("a CPU"))?;
    let (for_, threshold, policy) = (args.for_, args.threshold, args.policy);
    progress.at(0, 1, &format!("CPU {cpu} for {for_}"));
    let section = std::thread::spawn(move || -> Result<BenchResult, Failed> {
        set_affinity(0, &CpuSet::single(cpu))?;
        let mut setup = vec![format!("CPU {cpu}, {for_}, gaps above {threshold}")];
        if let Err(error) = set_scheduling(0, Scheduling { policy, reset_on_fork: true }) {
            setup.push(format!("{error}; run as root, or raise RLIMIT_RTPRIO"));
        }
        let section = Quiet::prepare()?;
        setup.extend(section.obtained().iter().map(|item| format!("  {item}")));
        let report = section.measure(for_, threshold)?;
        Ok(BenchResult { setup, ..found(&report) })
    });
    joined(section.join())
}

fn found(report: &QuietReport) -> BenchResult {
    let Some(gaps) = &report.gaps else { return BenchResult::default() };
    let us = |time: DurNs| time.0 as f64 / 1e3;
    let share = 100.0 * gaps.lost.0 as f64 / report.lasted.0.max(1) as f64;
    let mut table = Table::new("clock readings")
        .row(Row::figure("readings", "", gaps.looks as f64))
        .row(Row::figure("minimum distance of two readings", "ns", gaps.quickest.0 as f64))
        .row(Row::figure("gaps", "", gaps.count as f64).good(Good::Low))
        .row(Row::figure("lost in gaps", "us", us(gaps.lost)).good(Good::Low).note(format!("{share:.4} %")));
    for gap in gaps.longest().take(5) {
        table = table.row(Row::figure(format!("gap at {}", rounded(gap.at)), "us", us(gap.length)));
    }
    let mut counted = Table::new("the kernel's counters of this CPU");
    for (what, count) in &report.interrupts {
        counted = counted.row(Row::figure(what.to_string(), "", *count as f64));
    }
    let usage = &report.usage;
    counted = counted
        .row(Row::figure("involuntary switches of the thread", "", usage.involuntary as f64))
        .row(Row::figure("page faults", "", (usage.minor_faults + usage.major_faults) as f64));
    let mut notes: Vec<String> = report.broken.iter().map(ToString::to_string).collect();
    let steal = report
        .steal_ticks
        .map_or("does not report its share".to_owned(), |ticks| format!("took {ticks} ticks of 10 ms"));
    if let Some(unexplained) = report.unexplained() {
        notes.push(format!("gaps not explained by these: {unexplained}; the hypervisor {steal}"));
    }
    BenchResult { setup: Vec::new(), tables: vec![table, counted], notes }
}

/// To a tenth of a microsecond.
fn rounded(time: DurNs) -> DurNs {
    DurNs((time.0 + 50) / 100 * 100)
}
