//! `tahti bench response`: from an event on another CPU until the waiting thread runs.

use crate::explained::{Explained, Ours};
use crate::failed::joined;
use crate::measure::{Gate, Interrupt, TaskPlacement, measured_cpu, own_program};
use crate::noise::{Load, Noise};
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Helper, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use report::{Figure, Good, Latency, Row, Table, Target};
use std::io::{Read as _, Write as _};
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use trace::Occasion;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "response",
    experiment: "SGI REACT: interrupt response with and without the shield, unloaded and loaded; KEK: interrupt latency",
    arguments: Args::augment_args,
    run,
    target: "p99 under load at most twice that without load; with the shield at most a fifth of that without",
    quick: &["--events", "4000"],
    shields: false,
};

/// The waiting thread.
pub(crate) const RESPONDER: Helper =
    Helper { name: "responder", arguments: ResponderArgs::augment_args, run: |matches| responder(&read(matches)?) };

/// Time from an event on another CPU until the waiting real-time thread runs
///
/// A thread of the same class on another CPU reads the clock and writes the time into a pipe. The real-time thread sleeps
/// until it can read the pipe, and reads the clock. The time includes the system call, an interrupt from CPU to CPU, and
/// the scheduler's switch: the path of a driver's interrupt without the device. The recorder's events divide it into stages: until the
/// thread is woken, until it has the CPU, until it is in user space. Unloaded and loaded pieces alternate. The
/// kernel's events of all CPUs are recorded (`tahti explain`), which costs some microseconds per event. *ours* excludes
/// the host's share between the wake-up and the run of the thread.
#[derive(clap::Args)]
struct Args {
    /// CPU of the waiting thread [default: the highest]
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Scheduling class of the waiting thread
    #[arg(long, value_name = "CLASS", default_value = "fifo:80")]
    policy: Policy,
    /// Events in each condition
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(800..=50_000_000))]
    events: u32,
    /// Time between two events
    #[arg(long, value_name = "TIME", default_value = "250us")]
    period: DurNs,
    /// Load of the loaded pieces
    #[arg(long, value_enum, default_value = "all")]
    load: Load,
    /// Measure with and without the shield, alternating
    #[arg(long)]
    compare: bool,
    /// Do not record the kernel's events: delays are then not explained
    #[arg(long)]
    no_explain: bool,
    #[command(flatten)]
    touched: Touched,
}

/// The waiting process's command line.
#[derive(clap::Args)]
struct ResponderArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long)]
    class: Policy,
    #[arg(long)]
    events: usize,
}

/// Pieces of each condition, alternating with the others.
const ROUNDS: u32 = 8;

/// One condition.
struct Condition {
    shielded: bool,
    loaded: bool,
    times_ns: Vec<u64>,
    pieces: Vec<f64>,
    /// Results of all pieces, after the measurement.
    p99: Option<Figure>,
    explained: Option<(Ours, Vec<f64>)>,
    stages: [Histogram; 3],
}

/// Stages of a response, as REACT divides it: a device's handler would wake the thread where here the other CPU's system call does.
const STAGES: [&str; 3] =
    ["event until the thread is woken", "woken until it has the CPU", "has the CPU until it is in user space"];

/// An event: when it was read, and how long after it was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    read: MonoNs,
    late_ns: u64,
}

impl Condition {
    fn name(&self) -> String {
        let load = if self.loaded { "loaded" } else { "unloaded" };
        format!("{load}, {}", if self.shielded { "shielded" } else { "open" })
    }
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    let others = online.minus(&CpuSet::single(cpu));
    if others.is_empty() {
        return Err(Failed::Needs("two CPUs: one for the event, one for the waiting thread"));
    }
    if args.period < DurNs::from_us(50) || args.period > DurNs::from_secs(1) {
        return Err(Failed::argument(format!("--period {}", args.period), "50us to 1s"));
    }
    let shields: &[bool] = if args.compare { &[false, true] } else { &[false] };
    let both = |shielded: &bool| [false, true].map(|loaded| (*shielded, loaded));
    let mut all: Vec<Condition> = shields
        .iter()
        .flat_map(both)
        .map(|(shielded, loaded)| Condition {
            shielded,
            loaded,
            times_ns: Vec::new(),
            pieces: Vec::new(),
            p99: None,
            explained: None,
            stages: [Histogram::new(), Histogram::new(), Histogram::new()],
        })
        .collect();
    let explained = (!args.no_explain).then(|| Explained::of(cpu, Occasion::Event));
    let (explained, why) = match explained.transpose() {
        Ok(explained) => (explained, None),
        Err(why) => (None, Some(format!("the host's share is unknown: {why}"))),
    };
    let parts = all.len() * ROUNDS as usize;
    for round in 0..ROUNDS as usize {
        for (nth, condition) in all.iter_mut().enumerate() {
            progress.at(round * parts / ROUNDS as usize + nth, parts, &condition.name());
            condition.measure(args, cpu, &others, explained.as_ref())?;
            interrupt.check()?;
        }
    }
    Ok(BenchResult { notes: why.into_iter().collect(), ..found(args, cpu, all) })
}

impl Condition {
    fn measure(
        &mut self,
        args: &Args,
        cpu: CpuId,
        others: &CpuSet,
        explained: Option<&Explained>,
    ) -> Result<(), Failed> {
        let shielded = if self.shielded { Some(Shielded::apply(&args.touched, &CpuSet::single(cpu))?) } else { None };
        let place = TaskPlacement { cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
        let noise = if self.loaded { Some(Noise::start(args.load, None)?) } else { None };
        let events = events(args, &place, others, explained)?;
        drop(noise);
        if let Some(explained) = explained {
            let (piece, (ours, pieces)) = (explained.take()?, self.explained.get_or_insert_default());
            divide(&events, &piece.woken, &mut self.stages);
            pieces.extend(Latency::from(&piece.ours).p99().map(|p99| p99.value));
            ours.merge(&piece);
        }
        shielded.map_or(Ok(()), Shielded::release)?;
        let mut times: Vec<u64> = events.iter().map(|event| event.late_ns).collect();
        self.pieces.extend(Latency::of_times(&mut times).p99().map(|p99| p99.value));
        self.times_ns.extend(times);
        Ok(())
    }
}

/// Adds the stages of each event whose wake-up was recorded: when the thread was woken, and when it had the CPU.
fn divide(events: &[Event], woken: &[[MonoNs; 2]], stages: &mut [Histogram; 3]) {
    let mut woken = woken.iter().peekable();
    for event in events {
        let sent = MonoNs(event.read.0.saturating_sub(event.late_ns));
        while woken.next_if(|[due, _]| *due < sent).is_some() {}
        // The event was lost if the next one belongs to a later event.
        let Some([due, ran]) = woken.next_if(|[_, ran]| *ran <= event.read) else { continue };
        for (stage, span) in stages.iter_mut().zip([*due - sent, *ran - *due, event.read - *ran]) {
            stage.record(span);
        }
    }
}

/// One piece: its events.
fn events(
    args: &Args,
    place: &TaskPlacement,
    others: &CpuSet,
    explained: Option<&Explained>,
) -> Result<Vec<Event>, Failed> {
    let program = own_program()?;
    let count = (args.events / ROUNDS) as usize;
    let words = [
        program.display().to_string(),
        "bench".into(),
        "responder".into(),
        format!("--cpu={}", place.cpu),
        format!("--class={}", args.policy),
        format!("--events={count}"),
    ];
    let mut gate = Gate::start(&words, place, None)?;
    explained.inspect(|explained| explained.watch(gate.pid(), args.policy, "tahti"));
    gate.ready()?;
    let mut input = gate.input().ok_or_else(|| Failed::answer("the waiting thread", "a pipe", "none"))?;
    let (others, period, policy) = (*others, args.period, args.policy);
    let sender = std::thread::spawn(move || {
        set_affinity(0, &others)?;
        // Otherwise delays of the sender between clock and write would count.
        set_scheduling(0, Scheduling { policy, reset_on_fork: true })?;
        let mut next = mono_now() + DurNs::from_ms(50);
        for _ in 0..count {
            sleep_until(next);
            // A late event delays the next: each finds the thread waiting.
            next = mono_now() + period;
            input.write_all(&mono_now().0.to_le_bytes()).map_err(Failed::process("tahti bench responder"))?;
        }
        Ok::<_, Failed>(())
    });
    let output = gate.output()?;
    joined(sender.join())?;
    let times: Option<Vec<u64>> = output.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let times = times
        .filter(|times| times.len() == 2 * count)
        .ok_or_else(|| Failed::answer("the waiting thread", format!("{count} pairs of times"), &output))?;
    Ok(times.chunks_exact(2).map(|pair| Event { read: MonoNs(pair[0]), late_ns: pair[1] }).collect())
}

fn found(args: &Args, cpu: CpuId, mut all: Vec<Condition>) -> BenchResult {
    let setup = vec![format!(
        "events on other CPUs, every {}, {} of them in each condition in {ROUNDS} alternating pieces; {} waits on CPU {cpu}; load {}",
        args.period,
        args.events / ROUNDS * ROUNDS,
        args.policy,
        args.load.word()
    )];
    let mut table = Table::new("from an event on another CPU until the waiting thread runs");
    for condition in &mut all {
        let latency = Latency::of_times(&mut condition.times_ns);
        condition.p99 = latency.p99();
        table = table.row(Row::latency(condition.name(), latency, std::mem::take(&mut condition.pieces)));
        if let Some((ours, pieces)) = &condition.explained {
            table.rows.extend(ours.rows(&condition.name(), pieces.clone()));
        }
    }
    let mut rows = Vec::new();
    for shielded in [false, true].into_iter().filter(|shielded| args.compare || !shielded) {
        let name = format!("loaded / unloaded, {}", if shielded { "shielded" } else { "open" });
        rows.extend(compared(&all, &name, [(shielded, true), (shielded, false)], 2.0));
    }
    if args.compare {
        rows.extend(compared(&all, "loaded, shielded / open", [(true, true), (false, true)], 0.2));
    }
    let mut stages = Table::new("stages of the response");
    for condition in &all {
        let recorded = STAGES.iter().zip(&condition.stages).filter(|(_, stage)| stage.count() > 0);
        let row = |(name, stage): (&&str, &Histogram)| {
            Row::reference(format!("{}: {name}", condition.name()), Latency::from(stage))
        };
        stages.rows.extend(recorded.map(row));
    }
    let compared = Table { rows, ..Table::new("p99 compared").columns("measured", "compared with") };
    let tables = [table, stages, compared].into_iter().filter(|table| !table.rows.is_empty()).collect();
    BenchResult { setup, tables, notes: Vec::new() }
}

/// The 99th percentiles of two conditions: as measured, and of *ours* if the host's share is known. The latter then has the target.
fn compared(all: &[Condition], name: &str, [one, other]: [(bool, bool); 2], most: f64) -> Vec<Row> {
    let find = |which| all.iter().find(|condition| (condition.shielded, condition.loaded) == which);
    let (Some(one), Some(other)) = (find(one), find(other)) else { return Vec::new() };
    let row = |name: String, of: &dyn Fn(&Condition) -> Option<Figure>| {
        let ours = of(one);
        Row { name, unit: "us".into(), ours, good: Good::Low, ..Row::default() }.against(of(other))
    };
    let ours =
        |condition: &Condition| condition.explained.as_ref().and_then(|(ours, _)| Latency::from(&ours.ours).p99());
    let target = Target::ratio_at_most(most);
    let measured = row(format!("p99 {name}"), &|condition| condition.p99.clone());
    match one.explained.is_some() && other.explained.is_some() {
        true => vec![row(format!("p99 of ours {name}"), &ours).target(target), measured],
        false => vec![measured.target(target)],
    }
}

/// Prints that it is ready, waits for each event, and prints its time in nanoseconds.
fn responder(args: &ResponderArgs) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(args.cpu))?;
    set_scheduling(0, Scheduling { policy: args.class, reset_on_fork: false })?;
    let mut times = vec![[1u64; 2]; args.events];
    let mut input = std::io::stdin().lock();
    println!("ready");
    for time in &mut times {
        let mut sent = [0; 8];
        input.read_exact(&mut sent).map_err(Failed::process("events"))?;
        let now = mono_now();
        *time = [now.0, (now - MonoNs(u64::from_le_bytes(sent))).0.max(0) as u64];
    }
    let times: Vec<String> = times.iter().flatten().map(ToString::to_string).collect();
    println!("{}", times.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_an_event_add_up_to_its_response_and_lost_wake_ups_are_skipped() {
        let event = |read, late_ns| Event { read: MonoNs(read), late_ns };
        let woken = |due, ran| [MonoNs(due), MonoNs(ran)];
        let mut stages = [Histogram::new(), Histogram::new(), Histogram::new()];
        // The wake-up of the second event was not recorded; the first recorded one is from before the events.
        let events = [event(1_100, 100), event(2_100, 100), event(3_200, 200)];
        divide(&events, &[woken(10, 20), woken(1_010, 1_040), woken(3_020, 3_120)], &mut stages);
        let ends = stages.each_ref().map(|stage| [stage.min(), stage.max()].map(|time| time.unwrap().0));
        assert_eq!(ends, [[10, 20], [30, 100], [60, 80]]);
        assert!(stages.iter().all(|stage| stage.count() == 2));
    }
}
