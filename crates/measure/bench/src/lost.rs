//! `tahti bench noise`: what a busy loop on a CPU loses, and to whom.

use crate::explained::Explained;
use crate::measure::{Gate, Where, measured_cpu};
use crate::noise::{Load, Noise};
use crate::shielded::Shielded;
use crate::{Bench, Found, Part, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use report::{Culprit, Good, Latency, Row, Table};
use std::collections::BTreeMap;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::signal::{END_SIGNALS, SignalFd};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "noise",
    experiment: "VxWorks: interference with a task that computes; oslat's question, with names for the answer",
    arguments: Args::augment_args,
    run,
    published: &[],
    wanted: "to be looked at: what is named can be removed",
    quick: &["--rounds", "5", "--load", "cpu"],
    shields: false,
};

/// The busy loop.
pub(crate) const BUSY: Part =
    Part { name: "busy", arguments: BusyArgs::augment_args, run: |matches| busy(&read(matches)?) };

/// What a busy loop on a CPU loses, by culprit
///
/// A loop reads the clock as fast as it can, in pieces of 200 ms with as long a pause, and keeps each gap beyond a
/// microsecond. The kernel's events of that CPU say what ran in them; where this kernel has no event at
/// all, the time was the host's or the firmware's: user code is stopped by nobody else.
#[derive(clap::Args)]
struct Args {
    /// CPU to measure; the highest if not given
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Class of the loop
    #[arg(long, value_name = "CLASS", default_value = "fifo:50")]
    policy: Policy,
    /// Pieces
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Noisy neighbour, free to run wherever the machine lets it
    #[arg(long, value_enum, default_value = "none")]
    load: Load,
    /// Put a shield round the CPU, and give the machine back afterwards
    #[arg(long)]
    shield: bool,
    #[command(flatten)]
    touched: Touched,
}

/// The loop's own command line.
#[derive(clap::Args)]
struct BusyArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long)]
    class: Policy,
}

/// A piece: below what real-time throttling allows of each second.
const PIECE: DurNs = DurNs::from_ms(200);
/// Until the recording knows the loop and has seen it come to its CPU.
const SETTLE: DurNs = DurNs::from_ms(80);
/// A shorter gap is the loop's own.
const GAP: DurNs = DurNs(1_000);
/// More gaps in a piece are counted, not kept.
const GAPS_MAX: usize = 1 << 16;
/// Culprits that are named.
const NAMED_MAX: usize = 12;
/// What is left where nothing of this kernel ran.
const NOBODY: &str = "host or firmware (no event of this kernel within)";
/// What is left of a gap beside what ran in it.
const AROUND: &str = "ways into the kernel and out of it, and what no event tells";

/// What the pieces lost.
#[derive(Default)]
struct Lost {
    /// Share of each piece, in percent.
    shares: Vec<f64>,
    gaps_ns: Vec<u64>,
    all_ns: u64,
    culprits: BTreeMap<String, (u64, u64)>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, String> {
    let args: &Args = &read(matches)?;
    let signals = SignalFd::new(&END_SIGNALS).map_err(|error| error.to_string())?;
    let online = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let cpu = measured_cpu(args.cpu, &online)?;
    if matches!(args.policy, Policy::Deadline(_)) {
        return Err("--policy deadline: no CPU can be chosen for it; use fifo, rr or other".into());
    }
    let shielded = if args.shield { Some(Shielded::apply(&args.touched, &CpuSet::single(cpu))?) } else { None };
    let place = Where { cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
    let explained = Explained::start(cpu);
    let noise = Noise::start(args.load, None)?;
    let mut lost = Lost::default();
    for round in 0..args.rounds as usize {
        progress.at(round, args.rounds as usize, "a busy loop");
        lost.piece(&place, args.policy, explained.as_ref().ok())?;
        if signals.read().map_err(|error| error.to_string())?.is_some() {
            return Err("interrupted; the machine is as it was".into());
        }
        sleep_until(mono_now() + PIECE);
    }
    drop(noise);
    shielded.map_or(Ok(()), Shielded::release)?;
    let mut found = lost.found(args, cpu);
    found.notes.extend(explained.err().map(|why| format!("nobody can be named: {why}")));
    Ok(found)
}

impl Lost {
    fn piece(&mut self, place: &Where, policy: Policy, explained: Option<&Explained>) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
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
        let strange = || format!("the busy loop printed {output:?}");
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
        for [from, to] in gaps {
            let within = others.iter().map(|part| to.min(part.from.0 + part.ns).saturating_sub(from.max(part.from.0)));
            match within.sum::<u64>() {
                0 => self.blame(NOBODY.into(), to - from),
                named if named < to - from => self.blame(AROUND.into(), to - from - named),
                _ => {}
            }
        }
        Ok(())
    }

    fn blame(&mut self, culprit: String, ns: u64) {
        let entry = self.culprits.entry(culprit).or_default();
        *entry = (entry.0 + ns, entry.1 + 1);
    }

    fn found(mut self, args: &Args, cpu: CpuId) -> Found {
        let state = if args.shield { "shielded" } else { "open" };
        let title = format!("a busy loop, {}, on CPU {cpu} {state}, load {}", args.policy, args.load.word());
        let mut ranked: Vec<_> = std::mem::take(&mut self.culprits).into_iter().collect();
        ranked.sort_by_key(|(_, (ns, _))| std::cmp::Reverse(*ns));
        let blamed: u64 = ranked.iter().map(|(_, (ns, _))| ns).sum();
        let share = |ns: u64, of: u64| 100.0 * ns as f64 / of.max(1) as f64;
        let mut lost = Row::samples("time lost", "%", self.shares).good(Good::Low);
        let culprit = |(name, (ns, count)): &(String, (u64, u64))| Culprit {
            name: name.clone(),
            share_percent: share(*ns, blamed),
            count: *count,
        };
        lost.culprits = ranked.iter().take(NAMED_MAX).map(culprit).collect();
        let rate = self.gaps_ns.len() as f64 * 1e9 / self.all_ns.max(1) as f64;
        let mut table = Table::new(title)
            .row(lost.note(format!("of {:.1} s", self.all_ns as f64 / 1e9)))
            .row(Row::figure("gaps of more than 1 us in a second", "", rate).good(Good::Low))
            .row(Row::beside("gaps", Latency::of_times(&mut self.gaps_ns)));
        table.notes = ranked
            .iter()
            .take(NAMED_MAX)
            .map(|(name, (ns, count))| format!("{:.4} % of the time, {count} times: {name}", share(*ns, self.all_ns)))
            .collect();
        table.into()
    }
}

/// The loop itself: prints when it began and ended, and of each gap when it began and how long it was, in nanoseconds.
fn busy(args: &BusyArgs) -> Result<(), String> {
    set_affinity(0, &CpuSet::single(args.cpu)).map_err(|error| error.to_string())?;
    set_scheduling(0, Scheduling { policy: args.class, reset_on_fork: false }).map_err(|error| error.to_string())?;
    let mut gaps = Vec::with_capacity(GAPS_MAX);
    // Its pages are there before it counts.
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
