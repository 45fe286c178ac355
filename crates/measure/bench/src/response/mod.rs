//! `tahti bench response`: from an event on another CPU, a timer's expiry or a device's interrupt until the waiting thread runs.

pub(crate) mod device;
mod events;
mod stages;

use crate::explained::{Explained, Ours};
use crate::ioc::interrupt::PostEvent;
use crate::measure::{self, Interrupt, TaskPlacement, usable};
use crate::noise::{Load, Noise};
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Histogram, Policy};
use clap::{ArgMatches, Args as _};
use device::Device;
pub(crate) use events::RESPONDER;
use host::plan::Placed;
use report::{Figure, Good, Latency, Row, Table, Target};
use rt::Wait;
use rt::device::RegisterWrite;
use stages::Stages;
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

/// Time from an event until the waiting real-time thread runs
///
/// The event comes from another CPU: a thread of the same class reads the clock and writes the time into a pipe. The real-time thread sleeps
/// until it can read the pipe, and reads the clock. The time includes the system call, an interrupt from CPU to CPU, and
/// the scheduler's switch. With `--timer` the event is the expiry of the thread's timer. With `--device` it is an interrupt of a device, which
/// a thread on another CPU raises by writing a register; the shield places the interrupt on the CPU of the waiting thread. The
/// recorder's events divide the time into stages: until the interrupt's handler is entered, until the
/// thread is woken, until it has the CPU, until it is in user space. Unloaded and loaded pieces alternate. The
/// kernel's events of all CPUs are recorded (`tahti explain`), which costs some microseconds per event. *ours* excludes
/// the host's share between the wake-up and the run of the thread.
#[derive(clap::Args)]
struct Args {
    /// CPUs of the waiting thread, one after the other [default: the highest]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Scheduling class of the waiting thread
    #[arg(long, visible_alias = "class", value_name = "CLASS", default_value = "fifo:80")]
    policy: Policy,
    /// Events in each condition
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(800..=50_000_000))]
    events: u32,
    /// Time between two events
    #[arg(long, value_name = "TIME", default_value = "250us")]
    period: DurNs,
    /// Measure the expiry of a timer instead of another CPU's event
    #[arg(long, conflicts_with = "device")]
    timer: bool,
    /// Measure the interrupt of a device instead: a UIO node, or the PCI address of a device bound to UIO or VFIO
    #[arg(long, value_name = "NODE|ADDRESS", requires = "raise")]
    device: Option<String>,
    /// Write to the device's first region that raises its interrupt (32 bits)
    #[arg(long, value_name = "OFFSET=VALUE", requires = "device")]
    raise: Option<RegisterWrite>,
    /// Write that silences the interrupt
    #[arg(long, value_name = "OFFSET=VALUE", requires = "device")]
    clear: Option<RegisterWrite>,
    /// Measure until the first and second record that the interrupt processes in an IOC (UIO, without load and shield): the device posts an
    /// event, and the scan has a thread of this class
    #[arg(long, requires = "device", conflicts_with_all = ["compare", "timer"])]
    ioc: bool,
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

/// Pieces of each condition, alternating with the others.
const ROUNDS: u32 = 8;

/// One condition.
struct Condition {
    cpu: CpuId,
    shielded: bool,
    loaded: bool,
    times: Histogram,
    pieces: Vec<f64>,
    explained: Option<(Ours, Vec<f64>)>,
    stages: Stages,
}

/// The measurement, with its source of events.
struct Measurement<'a> {
    args: &'a Args,
    device: Option<&'a Device>,
    online: CpuSet,
}

impl Measurement<'_> {
    /// CPUs of the thread that sends events to `cpu`.
    fn others(&self, cpu: CpuId) -> CpuSet {
        self.online.minus(&CpuSet::single(cpu))
    }

    fn title(&self) -> &'static str {
        match self.device {
            Some(_) => "from a device's interrupt until the waiting thread runs",
            None if self.args.timer => "from a timer's expiry until the waiting thread runs",
            None => "from an event on another CPU until the waiting thread runs",
        }
    }

    fn stages(&self) -> Stages {
        Stages::new(match self.device {
            Some(_) => stages::OF_DEVICE,
            None if self.args.timer => stages::OF_TIMER,
            None => stages::OF_EVENT,
        })
    }

    /// Records the kernel's events for one CPU.
    fn explained(&self, cpu: CpuId) -> Result<Explained, Failed> {
        match self.args.timer {
            true => Explained::start(cpu),
            false => Explained::of(cpu, Occasion::Event, self.device.and_then(Device::irq)),
        }
    }
}

impl Condition {
    fn new(with: &Measurement<'_>, cpu: CpuId, [shielded, loaded]: [bool; 2]) -> Self {
        let (times, pieces, stages) = (Histogram::new(), Vec::new(), with.stages());
        Self { cpu, shielded, loaded, times, pieces, explained: None, stages }
    }

    fn name(&self) -> String {
        let load = if self.loaded { "loaded" } else { "unloaded" };
        format!("CPU {} {load}, {}", self.cpu, if self.shielded { "shielded" } else { "open" })
    }
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let online = sys::sched::affinity(0)?;
    let cpus = args.cpus.or_else(|| online.iter().last().map(CpuSet::single)).ok_or(Failed::Needs("a CPU"))?;
    usable(&cpus, &format!("--cpus {cpus}"))?;
    if online.count() < 2 {
        return Err(Failed::Needs("two CPUs: one for the event, one for the waiting thread"));
    }
    if args.period < DurNs::from_us(50) || args.period > DurNs::from_secs(1) {
        return Err(Failed::argument(format!("--period {}", args.period), "50us to 1s"));
    }
    let device = match (&args.device, args.raise) {
        (Some(name), Some(raise)) => Some(Device::open(name, raise, args.clear)?),
        _ => None,
    };
    if let Some(device) = device.as_ref().filter(|_| args.ioc) {
        let cpu = cpus.iter().last().ok_or(Failed::Needs("a CPU"))?;
        let clear = args.clear.map_or(String::new(), |clear| format!("clear={clear}"));
        let (policy, events, period) = (args.policy, args.events as usize, args.period);
        return PostEvent { device, clear, policy, cpu, events, period }.measure(progress);
    }
    let interrupt = Interrupt::watch()?;
    let with = &Measurement { args, device: device.as_ref(), online };
    let shields: &[bool] = if args.compare { &[false, true] } else { &[false] };
    let conditions =
        |cpu| shields.iter().flat_map(move |shielded| [false, true].map(|loaded| (cpu, [*shielded, loaded])));
    let (mut all, mut notes, mut done) = (Vec::new(), Vec::new(), 0);
    for cpu in cpus.iter() {
        let explained = (!args.no_explain).then(|| with.explained(cpu)).transpose();
        let explained = explained.unwrap_or_else(|why| {
            notes.push(format!("CPU {cpu}: the host's share is unknown: {why}"));
            None
        });
        let mut of_cpu: Vec<_> = conditions(cpu).map(|(cpu, which)| Condition::new(with, cpu, which)).collect();
        for _ in 0..ROUNDS {
            for condition in &mut of_cpu {
                progress.at(done, cpus.count() * 2 * shields.len() * ROUNDS as usize, &condition.name());
                done += 1;
                condition.measure(with, explained.as_ref())?;
                interrupt.check()?;
            }
        }
        all.extend(of_cpu);
    }
    Ok(BenchResult { notes, ..found(with, &all) })
}

impl Condition {
    fn measure(&mut self, with: &Measurement<'_>, explained: Option<&Explained>) -> Result<(), Failed> {
        let irqs = with.device.map(|device| Placed { words: device.words.clone(), cpu: self.cpu });
        let shielded = match self.shielded {
            true => {
                Some(Shielded::with_irqs(&with.args.touched, &CpuSet::single(self.cpu), irqs.into_iter().collect())?)
            }
            false => None,
        };
        let place = TaskPlacement { cpu: self.cpu, place: shielded.as_ref().map(|shielded| shielded.place.clone()) };
        let noise = if self.loaded { Some(Noise::start(with.args.load, None)?) } else { None };
        let mut piece = Histogram::new();
        let events = match with.args.timer {
            true => {
                let (period, policy) = (with.args.period, with.args.policy);
                let span = DurNs(period.0 * i64::from(with.args.events / ROUNDS));
                piece = measure::run(&place, (period, policy, Wait::Sleep), span, explained)?.wake;
                Vec::new()
            }
            false => events::piece(with, &place, (with.args.events / ROUNDS) as usize, explained)?,
        };
        drop(noise);
        if let Some(explained) = explained {
            let (piece, (ours, pieces)) = (explained.take()?, self.explained.get_or_insert_default());
            match with.args.timer {
                true => self.stages.divide_timer(&piece.steps),
                false => self.stages.divide(&events, &piece.steps),
            }
            pieces.extend(Latency::from(&piece.ours).p99().map(|p99| p99.value));
            ours.merge(&piece);
        }
        shielded.map_or(Ok(()), Shielded::release)?;
        events.iter().for_each(|event| piece.record(DurNs(event.late_ns as i64)));
        self.pieces.extend(Latency::from(&piece).p99().map(|p99| p99.value));
        self.times.merge(&piece);
        Ok(())
    }
}

fn found(with: &Measurement<'_>, all: &[Condition]) -> BenchResult {
    let args = with.args;
    let setup = vec![format!(
        "events every {}, at least {} of them in each condition in {ROUNDS} alternating pieces; {} waits; load {}",
        args.period,
        args.events / ROUNDS * ROUNDS,
        args.policy,
        args.load.word()
    )];
    let mut table = Table::new(with.title());
    let mut stages = Table::new("stages of the response");
    for condition in all {
        table = table.row(Row::latency(condition.name(), Latency::from(&condition.times), condition.pieces.clone()));
        if let Some((ours, pieces)) = &condition.explained {
            table.rows.extend(ours.rows(&condition.name(), pieces.clone()));
        }
        stages.rows.extend(condition.stages.rows(&condition.name()));
    }
    let mut rows = Vec::new();
    for of_cpu in all.chunk_by(|one, other| one.cpu == other.cpu) {
        for shielded in [false, true] {
            let name = format!("loaded / unloaded, {}", if shielded { "shielded" } else { "open" });
            rows.extend(compared(of_cpu, &name, [(shielded, true), (shielded, false)], 2.0));
        }
        rows.extend(compared(of_cpu, "loaded, shielded / open", [(true, true), (false, true)], 0.2));
    }
    let compared = Table { rows, ..Table::new("p99 compared").columns("measured", "compared with") };
    let tables = [table, stages, compared].into_iter().filter(|table| !table.rows.is_empty()).collect();
    BenchResult { setup, tables, notes: Vec::new() }
}

/// The 99th percentiles of two conditions of a CPU: as measured, and of *ours* if the host's share is known. The latter then has the target.
fn compared(all: &[Condition], name: &str, [one, other]: [(bool, bool); 2], most: f64) -> Vec<Row> {
    let find = |which| all.iter().find(|condition| (condition.shielded, condition.loaded) == which);
    let (Some(one), Some(other)) = (find(one), find(other)) else { return Vec::new() };
    let row = |what: &str, of: &dyn Fn(&Condition) -> Option<Figure>| {
        let (name, ours) = (format!("CPU {}: {what} {name}", one.cpu), of(one));
        Row { name, unit: "us".into(), ours, good: Good::Low, ..Row::default() }.against(of(other))
    };
    let ours =
        |condition: &Condition| condition.explained.as_ref().and_then(|(ours, _)| Latency::from(&ours.ours).p99());
    let target = Target::ratio_at_most(most);
    let measured = row("p99", &|condition| Latency::from(&condition.times).p99());
    match one.explained.is_some() && other.explained.is_some() {
        true => vec![row("p99 of ours", &ours).target(target), measured],
        false => vec![measured.target(target)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_rows_and_is_compared_with_itself() {
        let words = ["response", "--cpus", "1-2", "--compare", "--timer"];
        let args: Args = read(&BENCH.command().get_matches_from(words)).unwrap();
        let with = Measurement { args: &args, device: None, online: CpuSet::single(0) };
        let mut all = Vec::new();
        for cpu in [1, 2] {
            for which in [[false, false], [false, true], [true, false], [true, true]] {
                let mut condition = Condition::new(&with, cpu, which);
                let us = i64::from(cpu) * 10 + i64::from(which[1]) * 5;
                (0..1000).for_each(|_| condition.times.record(DurNs::from_us(us)));
                all.push(condition);
            }
        }
        let tables = found(&with, &all).tables;
        assert_eq!(tables[0].title, "from a timer's expiry until the waiting thread runs");
        let highest = |row: &Row| (row.name.clone(), row.latency.as_ref().unwrap().max_ns);
        let rows: Vec<_> = tables[0].rows.iter().map(highest).collect();
        assert_eq!(rows[1], ("CPU 1 loaded, open".into(), Some(15_000)));
        assert_eq!(rows[6], ("CPU 2 unloaded, shielded".into(), Some(20_000)));
        let ratios: Vec<_> = tables[1].rows.iter().map(|row| (row.name.as_str(), row.ratio.unwrap())).collect();
        assert_eq!((ratios[0].0, ratios.len()), ("CPU 1: p99 loaded / unloaded, open", 6));
        assert!((1.4..1.6).contains(&ratios[0].1) && (1.2..1.3).contains(&ratios[3].1), "{ratios:?}");
    }
}
