//! `tahti bench quiet`: time that a thread with a CPU to itself loses.

use crate::failed::joined;
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use recorder::{Recorder, RecorderSettings};
use report::{Good, Row, Table};
use rt::{Quiet, QuietReport};
use sys::clock::mono_now;
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use trace::{EventKind, Item, Vector};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "quiet",
    experiment: "SGI REACT: timer interrupts switched off for a critical stretch; own: remaining interruptions of a thread with a CPU to itself",
    arguments: Args::augment_args,
    run,
    target: "every gap has a cause that the kernel counted",
    quick: &["--for", "700ms"],
    shields: false,
};

/// A quiet section on one CPU: remaining interruptions, gaps above a threshold, and the kernel's counters
///
/// Changes only its own thread. Ticks stop only if the kernel was booted with nohz_full=. Reports first what is
/// unavailable. A gap is the time between two readings of the clock. The recorder's events show the longest stretch without an interrupt of
/// the timer, which should reach 500 ms.
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
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:50")]
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
        let recorder = recorder(cpu);
        let begun = mono_now();
        let report = section.measure(for_, threshold)?;
        let mut found = BenchResult { setup, ..found(&report) };
        let span = [begun, begun + report.lasted];
        match recorder.and_then(|recorder| timer_interrupts(recorder, span)) {
            Ok(times) => {
                found.tables.push(stretch(&times, span));
                let missing = section.obtained().iter().filter(|item| item.missing.is_some());
                let mut reasons: Vec<String> = missing.chain(&report.broken).map(ToString::to_string).collect();
                // The others are in the setup.
                reasons.retain(|reason| reason.contains("the tick stops"));
                found.notes.extend(too_short(&times, span, &reasons));
            }
            Err(why) => found.notes.push(format!("stretches without the timer are unknown: {why}")),
        }
        Ok(found)
    });
    joined(section.join())
}

/// Length of a stretch without the timer that is enough for a critical computation.
const STRETCH: DurNs = DurNs::from_ms(500);
/// The kernel's buffer: it is read after the section.
const BUFFER_KB: u32 = 8192;

/// Records the kernel's events of one CPU.
fn recorder(cpu: CpuId) -> Result<Recorder, Failed> {
    let online = sys::kernel::online(&RootDir::machine())
        .ok_or(Failed::Needs("the list of CPUs that are online (/sys/devices/system/cpu/online)"))?;
    let cpus = CpuSet::single(cpu);
    let settings = RecorderSettings { cpus, online, buffer_kb: BUFFER_KB, threads: Vec::new(), syscalls: false };
    Ok(Recorder::start(&settings)?)
}

/// Times of the timer's interrupts in a span, in order.
fn timer_interrupts(mut recorder: Recorder, [from, to]: [MonoNs; 2]) -> Result<Vec<MonoNs>, Failed> {
    let mut times = Vec::new();
    recorder.poll(|_, item| times.extend(by_timer(&item).filter(|at| (from..=to).contains(at))))?;
    match recorder.lost().times {
        0 => Ok(times),
        lost => Err(Failed::answer("the recorder", "every event", format!("{lost} events lost"))),
    }
}

/// The time of an interrupt or callback of the timer. An architecture may have only the latter.
fn by_timer((at, _, event): &Item) -> Option<MonoNs> {
    let is =
        |what: &EventKind| matches!(what, EventKind::VectorEntry(Vector::LocalTimer) | EventKind::TimerFire { .. });
    event.as_ref().filter(|event| is(&event.what)).map(|_| *at)
}

/// The longest time between two of the timer's interrupts, or between one and an end of the span.
fn longest(times: &[MonoNs], [from, to]: [MonoNs; 2]) -> DurNs {
    let ends: Vec<MonoNs> = std::iter::once(from).chain(times.iter().copied()).chain([to]).collect();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(DurNs::ZERO)
}

fn stretch(times: &[MonoNs], span: [MonoNs; 2]) -> Table {
    Table::new("the timer's interrupts, by the recorder")
        .row(Row::figure("interrupts and callbacks", "", times.len() as f64).good(Good::Low))
        .row(Row::figure("longest stretch without one", "ms", longest(times, span).0 as f64 / 1e6).good(Good::High))
}

/// The reason if no stretch without the timer is long enough.
fn too_short(times: &[MonoNs], span: [MonoNs; 2], reasons: &[String]) -> Option<String> {
    let most = longest(times, span);
    let why = match reasons {
        [] if span[1] - span[0] < STRETCH => "the section is shorter".to_owned(),
        [] => "other timers expire".to_owned(),
        reasons => reasons.join("; "),
    };
    (most < STRETCH).then(|| format!("no stretch of {STRETCH} without the timer: {why}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Event;

    #[test]
    fn the_longest_stretch_without_the_timer_is_found_and_a_short_one_has_its_reason() {
        let ms = |ms: u64| MonoNs(ms * 1_000_000);
        let span = [ms(1000), ms(2000)];
        let times = [ms(1010), ms(1600), ms(1900)];
        assert_eq!(longest(&times, span), DurNs::from_ms(590));
        assert_eq!(longest(&[], span), DurNs::from_secs(1));
        assert_eq!(stretch(&times, span).rows[1].ours.as_ref().map(|ours| ours.value), Some(590.0));
        assert_eq!(too_short(&times, span, &["no nohz_full=".into()]), None);
        let ticks: Vec<MonoNs> = (1000..2000).step_by(4).map(ms).collect();
        let note = too_short(&ticks, span, &["no nohz_full=".into()]);
        assert_eq!(note.as_deref(), Some("no stretch of 500ms without the timer: no nohz_full="));
        let note = too_short(&[], [ms(0), ms(400)], &[]);
        assert_eq!(note.as_deref(), Some("no stretch of 500ms without the timer: the section is shorter"));
    }

    #[test]
    fn interrupts_and_callbacks_of_the_timer_count_and_others_do_not() {
        let item = |what| (MonoNs(7), 1, Some(Event { at: MonoNs(7), cpu: 1, tid: 3, interrupt: true, what }));
        assert_eq!(by_timer(&item(EventKind::VectorEntry(Vector::LocalTimer))), Some(MonoNs(7)));
        assert_eq!(by_timer(&item(EventKind::TimerFire { timer: 1, function: 2 })), Some(MonoNs(7)));
        assert_eq!(by_timer(&item(EventKind::VectorEntry(Vector::Reschedule))), None);
        assert_eq!(by_timer(&(MonoNs(7), 1, None)), None);
    }
}
