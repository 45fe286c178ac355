//! `tahti bench noise`: time that a busy loop on a CPU loses, by cause.

use crate::explained::Explained;
use crate::measure::{Gate, Interrupt, TaskPlacement, installed, measured_cpu, own_program};
use crate::noise::{Load, Noise};
use crate::oslat;
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Helper, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use report::{Culprit, Figure, Good, Latency, Row, Spike, Table};
use std::collections::BTreeMap;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "noise",
    experiment: "VxWorks: interference with a computing task; like oslat, with the cause of each gap",
    arguments: Args::augment_args,
    run,
    target: "none; the named causes can be removed",
    quick: &["--rounds", "5", "--load", "cpu"],
    shields: false,
};

/// The busy loop.
pub(crate) const BUSY: Helper =
    Helper { name: "busy", arguments: BusyArgs::augment_args, run: |matches| busy(&read(matches)?) };

/// Time that a busy loop on a CPU loses, by culprit
///
/// A loop reads the clock as fast as possible, in pieces of 200 ms with pauses of the same length, and records each gap above
/// 1 us. The kernel's events of that CPU show the cause. If a gap contains no event, the host or the firmware took the
/// time: nothing else stops user code. If oslat is installed, it alternates with the loop on the same CPU, for a second
/// each. A second is long enough for real-time throttling to stop oslat.
#[derive(clap::Args)]
struct Args {
    /// CPU to measure [default: the highest]
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Scheduling class of the loop
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:50")]
    policy: Policy,
    /// Number of pieces
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Load on the machine, not bound to CPUs
    #[arg(long, value_enum, default_value = "none")]
    load: Load,
    /// Shield the CPU, and release the shield afterwards
    #[arg(long)]
    shield: bool,
    #[command(flatten)]
    touched: Touched,
    /// Do not run oslat
    #[arg(long)]
    no_oslat: bool,
}

/// The loop's command line.
#[derive(clap::Args)]
struct BusyArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long)]
    class: Policy,
}

/// Length of a piece: below the limit of real-time throttling per second.
const PIECE: DurNs = DurNs::from_ms(200);
/// Time for the recording to find the loop and its move to the CPU.
const SETTLE: DurNs = DurNs::from_ms(80);
/// Minimum length of a gap.
const GAP: DurNs = DurNs(1_000);
/// Maximum number of recorded gaps of a piece; more are only counted.
const GAPS_MAX: usize = 1 << 16;
/// Number of culprits in the table.
const NAMED_MAX: usize = 12;
/// Number of gaps listed one by one, the longest.
const SPIKES_MAX: usize = 40;
/// Runs of oslat.
const PEER_RUNS: usize = 4;
/// Cause of a gap without any event.
const NO_EVENT: &str = "host or firmware (no kernel event)";
/// Cause of the rest of a gap.
const AROUND: &str = "kernel entry and exit, and time without events";

/// Losses of all pieces.
#[derive(Default)]
struct LossTotals {
    /// Share of each piece, in percent.
    shares: Vec<f64>,
    gaps_ns: Vec<u64>,
    all_ns: u64,
    culprits: BTreeMap<String, (u64, u64)>,
    /// The longest gaps, and the start of the first piece.
    spikes: Vec<Spike>,
    begun: Option<u64>,
    /// Results of oslat, if it ran.
    theirs: Option<(Histogram, f64)>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    if matches!(args.policy, Policy::Deadline(_)) {
        return Err(Failed::argument("--policy deadline", "fifo, rr or other: no CPU can be chosen for deadline"));
    }
    let shielded = if args.shield { Some(Shielded::apply(&args.touched, &CpuSet::single(cpu))?) } else { None };
    let place = TaskPlacement { cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
    let explained = Explained::start(cpu);
    let noise = Noise::start(args.load, None)?;
    let (mut lost, with_theirs) = (LossTotals::default(), with_oslat(args, &place));
    for round in 0..args.rounds as usize {
        progress.at(round, args.rounds as usize, "a busy loop");
        lost.piece(&place, args.policy, explained.as_ref().ok())?;
        if matches!(with_theirs, Ok(true)) && round.is_multiple_of((args.rounds as usize).div_ceil(PEER_RUNS)) {
            let found = oslat::run(&place, args.policy)?;
            let (gaps, span_s) = lost.theirs.get_or_insert_with(|| (Histogram::new(), 0.0));
            gaps.merge(&found.gaps);
            *span_s += found.span_s;
        }
        interrupt.check()?;
        sleep_until(mono_now() + PIECE);
    }
    drop(noise);
    shielded.map_or(Ok(()), Shielded::release)?;
    let mut found = lost.found(args, cpu);
    found.notes.extend(explained.err().map(|why| format!("culprits are unknown: {why}")));
    found.notes.extend(with_theirs.err().map(|why| why.to_string()));
    Ok(found)
}

/// Whether to run oslat, or why it cannot run.
fn with_oslat(args: &Args, place: &TaskPlacement) -> Result<bool, Failed> {
    match (args.no_oslat, &place.place, args.policy) {
        (true, ..) => Ok(false),
        (_, Some(_), _) => {
            Err(Failed::UselessPeer { program: "oslat", why: "its main thread needs a CPU outside the shield" })
        }
        (.., Policy::Fifo(_) | Policy::Other { .. }) => installed("oslat", "--version", "rt-tests").map(|()| true),
        _ => Err(Failed::UselessPeer { program: "oslat", why: "it supports fifo and time sharing only" }),
    }
}

impl LossTotals {
    fn piece(&mut self, place: &TaskPlacement, policy: Policy, explained: Option<&Explained>) -> Result<(), Failed> {
        let program = own_program()?;
        let words = [
            program.display().to_string(),
            "bench".into(),
            "busy".into(),
            format!("--cpu={}", place.cpu),
            format!("--class={policy}"),
        ];
        let gate = Gate::start(&words, place, None)?;
        let tid = gate.pid();
        explained.inspect(|explained| explained.watch(tid, policy, "tahti"));
        let output = gate.output()?;
        let strange = || Failed::answer("the busy loop", "times in ns", &output);
        let numbers: Option<Vec<u64>> = output.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.ok_or_else(strange)?;
        let [from, to, ref gaps @ ..] = numbers[..] else { return Err(strange()) };
        let gaps: Vec<[u64; 2]> = gaps.chunks_exact(2).map(|gap| [gap[0], gap[0].saturating_add(gap[1])]).collect();
        let (all, lost) = (to.saturating_sub(from), gaps.iter().map(|[from, to]| to - from).sum::<u64>());
        self.shares.push(100.0 * lost as f64 / all.max(1) as f64);
        self.gaps_ns.extend(gaps.iter().map(|[from, to]| to - from));
        self.all_ns += all;
        let Some(explained) = explained else { return Ok(()) };
        let parts = explained.within(tid, [MonoNs(from), MonoNs(to)])?;
        explained.take()?;
        let others: Vec<_> =
            parts.into_iter().filter(|part| !matches!(part.culprit, trace::Culprit::Own { .. })).collect();
        others.iter().for_each(|part| self.blame(part.culprit.to_string(), part.ns));
        let begun = *self.begun.get_or_insert(from);
        for [from, to] in gaps {
            let within = |part: &trace::DelayPart| to.min(part.from.0 + part.ns).saturating_sub(from.max(part.from.0));
            let named = others.iter().map(within).sum::<u64>();
            if self.spikes.len() < SPIKES_MAX || self.spikes.last().is_some_and(|last| last.late_ns < to - from) {
                let parts = others.iter().map(|part| (part.culprit.to_string(), within(part)));
                self.longest(spike(from.saturating_sub(begun), to - from, parts));
            }
            match named {
                0 => self.blame(NO_EVENT.into(), to - from),
                named if named < to - from => self.blame(AROUND.into(), to - from - named),
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps a gap among the longest.
    fn longest(&mut self, spike: Spike) {
        let at = self.spikes.partition_point(|other| other.late_ns >= spike.late_ns);
        self.spikes.insert(at, spike);
        self.spikes.truncate(SPIKES_MAX);
    }

    fn blame(&mut self, culprit: String, ns: u64) {
        let entry = self.culprits.entry(culprit).or_default();
        *entry = (entry.0 + ns, entry.1 + 1);
    }

    fn found(mut self, args: &Args, cpu: CpuId) -> BenchResult {
        let state = if args.shield { "shielded" } else { "open" };
        let title = format!("a busy loop, {}, on CPU {cpu} {state}, load {}", args.policy, args.load.word());
        let mut ranked: Vec<_> = std::mem::take(&mut self.culprits).into_iter().collect();
        ranked.sort_by_key(|(_, (ns, _))| std::cmp::Reverse(*ns));
        let blamed: u64 = ranked.iter().map(|(_, (ns, _))| ns).sum();
        self.spikes.sort_by_key(|spike| spike.at_ns);
        let share = |ns: u64, of: u64| 100.0 * ns as f64 / of.max(1) as f64;
        let mut lost = Row::samples("time lost", "%", self.shares).good(Good::Low);
        let culprit = |(name, (ns, count)): &(String, (u64, u64))| Culprit {
            name: name.clone(),
            share_percent: share(*ns, blamed),
            count: *count,
        };
        lost.culprits = ranked.iter().take(NAMED_MAX).map(culprit).collect();
        let rate = self.gaps_ns.len() as f64 * 1e9 / self.all_ns.max(1) as f64;
        let mut table =
            Table::new(title)
                .row(lost.note(format!("of {:.1} s", self.all_ns as f64 / 1e9)))
                .columns("measured", if self.theirs.is_some() { "oslat" } else { "" })
                .row(Row::figure("gaps above 1 us per second", "", rate).good(Good::Low).against(
                    self.theirs.as_ref().and_then(|(gaps, span_s)| Figure::once(gaps.count() as f64 / span_s)),
                ))
                .row(Row { spikes: self.spikes, ..Row::reference("gaps", Latency::of_times(&mut self.gaps_ns)) });
        if let Some((gaps, _)) = &self.theirs {
            table = table.row(Row::reference("gaps, oslat, in whole us", Latency::from(gaps)));
        }
        table.notes = ranked
            .iter()
            .take(NAMED_MAX)
            .map(|(name, (ns, count))| format!("{:.4} % of the time, {count} times: {name}", share(*ns, self.all_ns)))
            .collect();
        table.into()
    }
}

/// A gap with its causes, the largest first; the rest is time without events.
fn spike(at_ns: u64, gap_ns: u64, parts: impl Iterator<Item = (String, u64)>) -> Spike {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    parts.filter(|(_, ns)| *ns > 0).for_each(|(culprit, ns)| *sums.entry(culprit).or_default() += ns);
    let named: u64 = sums.values().sum();
    if named < gap_ns {
        let rest = if named == 0 { NO_EVENT } else { AROUND };
        *sums.entry(rest.to_owned()).or_default() += gap_ns - named;
    }
    let mut parts: Vec<(String, u64)> = sums.into_iter().collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    Spike { at_ns, late_ns: gap_ns, parts }
}

/// The loop: prints its start and end, and start and length of each gap, in nanoseconds.
fn busy(args: &BusyArgs) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(args.cpu))?;
    set_scheduling(0, Scheduling { policy: args.class, reset_on_fork: false })?;
    let mut gaps = Vec::with_capacity(GAPS_MAX);
    // Pages are touched before the measurement.
    gaps.resize(GAPS_MAX, [1u64; 2]);
    gaps.clear();
    sleep_until(mono_now() + SETTLE);
    let from = mono_now();
    let (end, mut last) = (from + PIECE, from);
    while last < end {
        let now = mono_now();
        let gap = now - last;
        if gap > GAP && gaps.len() < GAPS_MAX {
            gaps.push([last.0, gap.0.unsigned_abs()]);
        }
        last = now;
    }
    let numbers: Vec<String> = [from.0, last.0].iter().chain(gaps.iter().flatten()).map(ToString::to_string).collect();
    println!("{}", numbers.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_longest_gaps_add_up() {
        let mut lost = LossTotals::default();
        for nth in 0..100u64 {
            let parts = [("softirq RCU".to_owned(), 300), ("softirq RCU".to_owned(), 200)];
            lost.longest(spike(nth, 1_000 + nth, parts.into_iter().take(if nth == 99 { 0 } else { 2 })));
        }
        assert_eq!((lost.spikes.len(), lost.spikes[0].late_ns), (SPIKES_MAX, 1_099));
        assert_eq!(lost.spikes[0].parts, [(NO_EVENT.to_owned(), 1_099)]);
        assert_eq!(lost.spikes[1].parts, [(AROUND.to_owned(), 598), ("softirq RCU".to_owned(), 500)]);
    }
}
