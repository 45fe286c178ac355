//! `tahti bench quiet`: what a thread that wants its CPU to itself really loses.

use base::{CpuId, CpuSet, DurNs, Policy};
use rt::{Quiet, QuietReport};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// A quiet section on one CPU: what remains there, every gap above a threshold, and what the kernel counted meanwhile
///
/// Changes nothing but its own thread. Ticks stop only where the kernel was booted with nohz_full=; what could not be had
/// is said first. A gap is the time between two looks at the clock.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The CPU; the highest if not given
    #[arg(long)]
    cpu: Option<CpuId>,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "1s")]
    for_: DurNs,
    /// Shorter gaps do not count
    #[arg(long, value_name = "TIME", default_value = "5us")]
    threshold: DurNs,
    /// Class of the thread
    #[arg(long, value_name = "CLASS", default_value = "fifo:50")]
    policy: Policy,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mine = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let cpu = args.cpu.or(mine.iter().last()).ok_or("this process has no CPU")?;
    let (for_, threshold, policy) = (args.for_, args.threshold, args.policy);
    let section = std::thread::spawn(move || -> Result<(), String> {
        set_affinity(0, &CpuSet::single(cpu)).map_err(|error| error.to_string())?;
        if let Err(error) = set_scheduling(0, Scheduling { policy, reset_on_fork: true }) {
            println!("{error}; run as root, or raise RLIMIT_RTPRIO");
        }
        let section = Quiet::prepare()?;
        println!("CPU {cpu}, {for_}, gaps above {threshold}");
        section.obtained().iter().for_each(|item| println!("  {item}"));
        let report = section.measure(for_, threshold)?;
        show(&report);
        Ok(())
    });
    section.join().map_err(|_| "the section's thread panicked")?
}

fn show(report: &QuietReport) {
    let Some(gaps) = &report.gaps else { return };
    let share = 100.0 * gaps.lost.0 as f64 / report.lasted.0.max(1) as f64;
    println!("{} looks at the clock, the quickest two {} apart", gaps.looks, gaps.quickest);
    println!("{} gaps, {} lost: {share:.4} %", gaps.count, rounded(gaps.lost));
    for gap in gaps.longest().take(5) {
        println!("  {:>10} at {}", rounded(gap.length).to_string(), rounded(gap.at));
    }
    println!("counted meanwhile on this CPU:");
    report.interrupts.iter().for_each(|(what, count)| println!("{count:>8}  {what}"));
    report.broken.iter().for_each(|item| println!("  {item}"));
    let usage = &report.usage;
    println!("{:>8}  times that the thread was put aside", usage.involuntary);
    println!("{:>8}  page faults", usage.minor_faults + usage.major_faults);
    let steal = report.steal_ticks.map_or("does not tell".to_owned(), |ticks| format!("took {ticks} ticks of 10 ms"));
    if let Some(unexplained) = report.unexplained() {
        println!("gaps beyond all of these: {unexplained}; the hypervisor {steal}");
    }
}

/// To a tenth of a microsecond.
fn rounded(time: DurNs) -> DurNs {
    DurNs((time.0 + 50) / 100 * 100)
}
