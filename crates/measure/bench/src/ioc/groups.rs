//! `tahti bench ioc-scan`: scans of our IOC on separate threads and CPUs.
//!
//! Three questions. Do copies of a database scale with the CPUs that scan them? Does a 1 kHz scan on a separate CPU stay
//! punctual while clients load the other CPUs? Do connecting clients interrupt the scan's CPU (TLB shootdowns, function
//! calls)? The last has a negative control: a process with a thread on that CPU that frees memory must appear in the
//! same rows.

use super::database;
use super::host::{Ioc, Kind};
use super::kraimer::{RECORDS_PER_PASS, Reading, kraimer};
use super::wire::Circuit;
use crate::explained::{Explained, Ours};
use crate::failed::joined;
use crate::measure::Interrupt;
use crate::shielded::Shielded;
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::{CpuId, CpuSet, DurNs, Policy, Priority};
use ca::wire::command;
use clap::{ArgMatches, Args as _};
use keep::shield::ShieldGroup;
use proc::interrupts::Interrupts;
use report::{Figure, Good, Latency, Row, Table, Target};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::root::RootDir;
use sys::sched::Scheduling;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "ioc-scan",
    experiment: "Kraimer's benchmark database: scans on separate CPUs",
    arguments: Args::augment_args,
    run,
    target: "copies scale with the CPUs; p99 of a 1 kHz scan under load at most 1.5 times that without",
    quick: &["--for", "2500ms"],
    shields: false,
};

/// The IOC's scans on separate CPUs: scaling, punctuality under load, interruptions
///
/// The 1 kHz scan runs as FIFO 80 on one CPU, the clients on all others. --shield shields that CPU and the CPUs of --with;
/// the scan runs inside, the rest of the IOC outside. If the shield is a cgroup v2 partition, all threads of the IOC run
/// inside: add a second CPU for its network with --with.
#[derive(clap::Args)]
struct Args {
    /// CPU of the 1 kHz scan [default: the highest]
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Duration of each condition
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Shield the scan's CPU, and release the shield afterwards
    #[arg(long)]
    shield: bool,
    /// Additional shielded CPUs for the IOC's network
    #[arg(long, value_name = "LIST", requires = "shield")]
    with: Option<CpuSet>,
    #[command(flatten)]
    touched: Touched,
}

/// Copies of the benchmark database, distributed among CPUs.
const COPIES: usize = 1_000;
/// Their scan rate, and the duration.
const SHARED_OUT: &str = ".1 second";
const SCALING_PIECE: Duration = Duration::from_secs(2);
/// Pieces of each condition, alternating with the other.
const ROUNDS: u32 = 5;
/// Clients of a round that connect, read, subscribe and disconnect; and munmap calls of the control.
const CONNECTS: u32 = 1_000;
/// Channels written and read by the load.
const CHANNELS: usize = 100;
/// Alternating run and sleep time of the control's thread.
const CONTROL_RUNS: Duration = Duration::from_millis(2);
const CONTROL_RESTS: Duration = Duration::from_micros(200);
/// Size above the limit that the C library caches instead of freeing.
const CONTROL_BYTES: usize = 64 << 20;

const MENU: &str = "menu(menuScan) { choice(menuScanPassive, \"Passive\") choice(menuScanEvent, \"Event\") \
    choice(menuScanI_O_Intr, \"I/O Intr\") choice(menuScan1_second, \"1 second\") choice(menuScan_001_second, \".001 second\") }\n";

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let online = sys::sched::affinity(0)?;
    let cpu = args.cpu.or_else(|| online.iter().last()).ok_or(Failed::Needs("a CPU"))?;
    let mut own = args.with.unwrap_or_default();
    own.insert(cpu);
    if !own.is_subset(&online) || own == online {
        let expected = format!("CPUs that this process may use ({online}), but not all of them: clients need one");
        return Err(Failed::argument(format!("the scan's CPUs {own}"), expected));
    }
    progress.at(0, 3, "copies distributed among CPUs");
    let scaling = scaling(&online)?;
    // From here on a signal ends this between two pieces, after the release of the shield.
    let interrupt = Interrupt::watch()?;
    let shield = if args.shield { Some(Shielded::apply(&args.touched, &own)?) } else { None };
    let home = shield.as_ref().map(|shield| &shield.place);
    // With a shield of one CPU the IOC stays outside: its network has to run on another CPU.
    let place = home.filter(|_| own.count() > 1);
    let scan = Scan { cpu, others: online.minus(&own), home, place, menu: Menu::new()?, interrupt };
    let state = if shield.is_some() { "shielded" } else { "open" };
    let title = format!(
        "1 kHz scan (FIFO 80) of one copy of Kraimer's database on CPU {cpu}, {state}; clients on {}",
        scan.others
    );
    progress.at(1, 3, "a 1 kHz scan with and without load");
    let measured = scan.punctuality(title, args.for_).and_then(|late| {
        progress.at(2, 3, "interrupts of the scan's CPU");
        Ok([late, scan.interruptions()?])
    });
    drop(scan);
    shield.map_or(Ok(()), Shielded::release)?;
    Ok(BenchResult { tables: std::iter::once(scaling).chain(measured?).collect(), ..BenchResult::default() })
}

/// Time of a pass over all copies on one CPU, two, four, … (the slowest thread), and processor time per record, which
/// other programs do not affect. Alternating with the same number of processes, which share nothing: the maximum of the
/// machine.
fn scaling(online: &CpuSet) -> Result<Table, Failed> {
    let title = format!("{COPIES} copies of Kraimer's database, reading F, 10 Hz: medians");
    let mut table = Table::new(title).columns("threads", "processes");
    let mut alone = None;
    let mut count = 1;
    while count <= online.count() {
        let cpus: CpuSet = online.iter().take(count).collect();
        let each: Vec<CpuSet> = cpus.iter().map(CpuSet::single).collect();
        let mut found = [Passes::default(), Passes::default()];
        for _ in 0..ROUNDS {
            found[0].measure(&[cpus])?;
            if count > 1 {
                found[1].measure(&each)?;
            }
        }
        let [threads, processes] = found;
        let gain = |passes: &[f64]| {
            Figure::median(passes.to_vec()).map(|pass| alone.map_or(1.0, |alone: f64| alone / pass.value))
        };
        let (ours, theirs) = (gain(&threads.ms), gain(&processes.ms));
        let row = |name: &str, unit: &str, ours: Vec<f64>, theirs: Vec<f64>| {
            let row = Row::samples(format!("CPUs {count}: {name}"), unit, ours).good(Good::Low);
            row.against(Figure::median(theirs))
        };
        let pass = row("pass", "ms", threads.ms, processes.ms);
        let records = pass.ours.as_ref().map_or(0.0, |pass| COPIES as f64 * RECORDS_PER_PASS / pass.value / 1e3);
        alone = alone.or(pass.ours.as_ref().map(|pass| pass.value));
        table = table.row(pass.note(format!("{records:.2} records per us"))).row(row(
            "CPU per record",
            "ns",
            threads.cpu_ns,
            processes.cpu_ns,
        ));
        if let (true, Some(ours)) = (count > 1, ours) {
            let row = Row::figure(format!("CPUs {count}: gain"), "", ours).against(theirs.and_then(Figure::once));
            table = table.row(row.target(Target::at_least(count as f64)));
        }
        count *= 2;
    }
    Ok(table)
}

/// Results of passes over all copies.
#[derive(Default)]
struct Passes {
    /// The median of the slowest thread.
    ms: Vec<f64>,
    /// Processor time of all IOCs per record.
    cpu_ns: Vec<f64>,
}

impl Passes {
    /// Distributes the copies among IOCs, each with a scan group on separate CPUs, and measures their scans.
    fn measure(&mut self, processes: &[CpuSet]) -> Result<(), Failed> {
        let text = kraimer(COPIES / processes.len(), Reading::Forward, SHARED_OUT);
        let start = |cpus: &CpuSet| {
            let options = ["--scan".into(), format!("{SHARED_OUT}=other@{cpus}"), "--require-rt".into()];
            Ioc::start(Kind::Tahti, &text, "c0:main", &options)
        };
        let mut iocs = processes.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let before = work(&mut iocs)?;
        std::thread::sleep(SCALING_PIECE);
        let after = work(&mut iocs)?;
        self.ms.push(after.ms);
        self.cpu_ns.push((after.cpu_ns - before.cpu_ns) / (after.records - before.records));
        Ok(())
    }
}

/// Counters of the IOCs.
#[derive(Default)]
struct Work {
    /// The median pass of the slowest thread.
    ms: f64,
    cpu_ns: f64,
    records: f64,
}

fn work(iocs: &mut [Ioc]) -> Result<Work, Failed> {
    let mut all = Work::default();
    for ioc in iocs {
        let text = ioc.run_command("scanppl")?;
        all.cpu_ns += ioc.cpu()?.0 as f64;
        // A scan that has not run has no durations.
        let medians = figures(&text, SHARED_OUT, "duration p50 ").unwrap_or_default();
        all.ms = medians.into_iter().fold(all.ms, f64::max);
        let processed = text
            .lines()
            .filter_map(|line| line.split_once(" records processed")?.0.rsplit(' ').next()?.parse::<f64>().ok());
        all.records += processed.sum::<f64>();
    }
    Ok(all)
}

/// The figures in milliseconds that follow `word` in the lines of `scanppl` about a scan, one for each owner.
fn figures(text: &str, scan: &str, word: &str) -> Result<Vec<f64>, Failed> {
    let head = format!("scan '{scan}'");
    let lines = text.lines().filter(|line| line.starts_with(&head));
    let found: Option<Vec<f64>> = lines
        .map(|line| {
            let (_, rest) = line.split_once(word)?;
            let time: DurNs = rest.split_whitespace().next()?.parse().ok()?;
            Some(time.0 as f64 / 1e6)
        })
        .collect();
    found
        .filter(|found| !found.is_empty())
        .ok_or_else(|| Failed::answer("scanppl", format!("{word:?} of scan {scan}"), text))
}

/// Rows of the scan's lateness without the host's share: unloaded, loaded, and both compared.
fn ours_of([(unloaded, one), (loaded, other)]: &[(Ours, Vec<f64>); 2]) -> Vec<Row> {
    let p99 = |ours: &Ours| Latency::from(&ours.ours).p99();
    let line =
        Row { name: "p99 of ours, loaded / unloaded".into(), unit: "us".into(), ours: p99(loaded), ..Row::default() };
    let line = line.against(p99(unloaded)).target(Target::ratio_at_most(1.5));
    let rows = unloaded.rows("unloaded", one.clone()).into_iter().chain(loaded.rows("loaded", other.clone()));
    rows.chain([line]).collect()
}

/// The measured 1 kHz scan.
struct Scan<'a> {
    cpu: CpuId,
    /// CPUs of the clients.
    others: CpuSet,
    /// The shield's group, and the group of the whole IOC.
    home: Option<&'a ShieldGroup>,
    place: Option<&'a ShieldGroup>,
    menu: Menu,
    interrupt: Interrupt,
}

impl Scan<'_> {
    fn start(&self) -> Result<Ioc, Failed> {
        self.go_on()?;
        let text = format!("{}{}", kraimer(1, Reading::Forward, ".001 second"), database::outputs(CHANNELS));
        let group = format!(".001 second=fifo:80@{}", self.cpu);
        let options = ["-D".into(), self.menu.0.display().to_string(), "--require-rt".into(), "--scan".into(), group];
        Ioc::start_in(Kind::Tahti, &text, "x0", &options, self.place)
    }

    /// Fails if a termination signal arrived.
    fn go_on(&self) -> Result<(), Failed> {
        self.interrupt.check()
    }

    /// Lateness without and with load, alternating.
    fn punctuality(&self, title: String, time: DurNs) -> Result<Table, Failed> {
        let piece = Duration::from_nanos(time.0.max(0) as u64) / ROUNDS;
        let mut found: [[Vec<f64>; 3]; 2] = Default::default();
        let mut served = 0;
        let explained = Explained::start(self.cpu);
        let mut sides = [(Ours::default(), Vec::new()), (Ours::default(), Vec::new())];
        for _ in 0..ROUNDS {
            for ((loaded, found), (ours, pieces)) in [false, true].into_iter().zip(&mut found).zip(&mut sides) {
                let mut ioc = self.start()?;
                explained.iter().for_each(|explained| explained.watch(ioc.pid(), Policy::Fifo(Priority(80)), "scan"));
                served += if loaded { self.load(ioc.port, piece)? } else { idle(piece) };
                if let Ok(explained) = &explained {
                    let piece = explained.take()?;
                    pieces.extend(Latency::from(&piece.ours).p99().map(|p99| p99.value));
                    ours.merge(&piece);
                }
                let text = ioc.run_command("scanppl")?;
                for (word, found) in ["lateness p50 ", "p99 ", "max "].into_iter().zip(found) {
                    found.extend(figures(&text, ".001 second", word)?);
                }
            }
        }
        let seconds = piece.as_secs_f64() * f64::from(ROUNDS);
        let mut table = Table::new(title).columns("loaded", "unloaded");
        let [unloaded, loaded] =
            found.map(|found| found.map(|ms| ms.into_iter().map(|ms| ms * 1e3).collect::<Vec<_>>()));
        for ((name, unloaded), loaded) in ["median", "p99", "longest"].into_iter().zip(unloaded).zip(loaded) {
            let row = match name {
                // The largest of the maxima, not their median.
                "longest" => {
                    let [ours, other] = [loaded, unloaded].map(|us| us.into_iter().fold(0.0, f64::max));
                    Row::figure("lateness, maximum of all", "us", ours).against(Figure::once(other))
                }
                _ => {
                    let row = Row::samples(format!("lateness, {name}"), "us", loaded).good(Good::Low);
                    row.against(Figure::median(unloaded))
                }
            };
            // *ours* has the target if the host's share is known.
            let has_target = name == "p99" && explained.is_err();
            table = table.row(if has_target { row.target(Target::ratio_at_most(1.5)) } else { row });
        }
        match explained {
            Ok(_) => table.rows.extend(ours_of(&sides)),
            Err(why) => table.notes.push(format!("the host's share is unknown: {why}")),
        }
        table
            .notes
            .push(format!("medians of {ROUNDS} pieces; {:.0} requests/s served under load", served as f64 / seconds));
        Ok(table)
    }

    /// Full load: puts and gets as fast as possible, a monitor on the scan, clients that connect and disconnect. Returns
    /// the number of answered requests.
    fn load(&self, port: u16, time: Duration) -> Result<u64, Failed> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let transfers: Vec<_> = (0..self.others.count())
                .map(|_| {
                    scope.spawn(|| {
                        self.move_away()?;
                        transfer(port, &stop)
                    })
                })
                .collect();
            let watcher = scope.spawn(|| {
                self.move_away()?;
                watch(port, &stop)
            });
            let visitor = scope.spawn(|| {
                self.move_away()?;
                while !stop.load(Ordering::Relaxed) {
                    visit(port)?;
                }
                Ok::<_, Failed>(())
            });
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            let mut served = 0;
            for thread in transfers {
                served += joined(thread.join())?;
            }
            joined(watcher.join())?;
            joined(visitor.join())?;
            Ok(served)
        })
    }

    /// Moves the calling thread away from the scan's CPU.
    fn move_away(&self) -> Result<(), Failed> {
        Ok(sys::sched::set_affinity(0, &self.others)?)
    }

    /// Interruptions of the scan's CPU by other CPUs' memory changes and calls: with connecting clients, without, and the control.
    fn interruptions(&self) -> Result<Table, Failed> {
        let ioc = self.start()?;
        let mut grew: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            self.go_on()?;
            let begin = Instant::now();
            grew[0].push(self.growth(|| {
                std::thread::scope(|scope| {
                    let visitor = scope.spawn(|| {
                        self.move_away()?;
                        (0..CONNECTS).try_for_each(|_| visit(ioc.port))
                    });
                    joined(visitor.join())
                })
            })?);
            let took = begin.elapsed();
            grew[1].push(self.growth(|| {
                idle(took);
                Ok(())
            })?);
            if !matches!(self.home, Some(ShieldGroup::CgroupV2 { .. })) {
                grew[2].push(self.growth(|| self.control())?);
            }
        }
        let mut table = Table::new(format!(
            "TLB shootdowns and function calls on CPU {}, minimum of {ROUNDS} rounds (other tasks on the CPU only add)",
            self.cpu
        ));
        let names = [
            format!("{CONNECTS} clients connect, read, subscribe, disconnect"),
            "the same time without clients".into(),
            format!("control: {CONNECTS} munmap in a process with a thread on the CPU"),
        ];
        for (name, grew) in names.into_iter().zip(grew) {
            table = table.row(match grew.into_iter().reduce(f64::min) {
                Some(least) => Row::figure(name, "", least),
                None => {
                    Row::figure(name, "", f64::NAN).note("not possible: a cgroup v2 partition accepts no single thread")
                }
            });
        }
        Ok(table)
    }

    fn growth(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
        let before = interruptions(self.cpu)?;
        work()?;
        Ok((interruptions(self.cpu)? - before) as f64)
    }

    /// This process runs a thread on the scan's CPU and frees memory on another CPU. The thread has a real-time class:
    /// otherwise other tasks on the CPU could keep it from running and being interrupted. It sleeps in between.
    fn control(&self) -> Result<(), Failed> {
        let stop = AtomicBool::new(false);
        let cpus = CpuSet::single(self.cpu);
        let entry = self.home.and_then(ShieldGroup::thread_entry);
        let there_is = Barrier::new(2);
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let entered = entry.map_or(Ok(()), |entry| RootDir::machine().write(&entry, "0"));
                let class = Scheduling { policy: Policy::Fifo(Priority(1)), reset_on_fork: true };
                let ready = entered
                    .and_then(|()| sys::sched::set_affinity(0, &cpus))
                    .and_then(|()| sys::sched::set_scheduling(0, class));
                there_is.wait();
                ready?;
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    while begin.elapsed() < CONTROL_RUNS && !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    std::thread::sleep(CONTROL_RESTS);
                }
                Ok(())
            });
            let here = scope.spawn(|| {
                let moved = self.move_away();
                there_is.wait();
                for _ in 0..CONNECTS {
                    let mut memory: Vec<u8> = Vec::with_capacity(CONTROL_BYTES);
                    memory.push(1);
                    std::hint::black_box(&memory);
                }
                stop.store(true, Ordering::Relaxed);
                moved
            });
            joined(here.join())?;
            joined(there.join())
        })
    }
}

/// Sleeps; serves nothing.
fn idle(time: Duration) -> u64 {
    std::thread::sleep(time);
    0
}

/// Puts and gets in batches; returns their number.
fn transfer(port: u16, stop: &AtomicBool) -> Result<u64, Failed> {
    let mut circuit = Circuit::open(port)?;
    let names: Vec<String> = (0..CHANNELS).map(|n| format!("x{n}")).collect();
    let sids = circuit.channels(&names)?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        for (n, sid) in sids.iter().enumerate() {
            circuit.put(*sid, n as f64);
        }
        for sid in &sids {
            circuit.queue_get(*sid);
        }
        circuit.flush()?;
        circuit.expect(command::READ_NOTIFY, sids.len(), |_, _| ())?;
        count += 2 * sids.len() as u64;
    }
    Ok(count)
}

/// Monitors a record of the scan; returns the number of updates.
fn watch(port: u16, stop: &AtomicBool) -> Result<u64, Failed> {
    let mut circuit = Circuit::open(port)?;
    let sid = circuit.channel("c0:cA1_9")?;
    circuit.subscribe(&[sid])?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        circuit.expect(command::EVENT_ADD, 1, |_, _| ())?;
        count += 1;
    }
    Ok(count)
}

/// A client that connects, reads, subscribes and disconnects.
fn visit(port: u16) -> Result<(), Failed> {
    let mut circuit = Circuit::open(port)?;
    let sid = circuit.channel("c0:cA1_9")?;
    circuit.get(sid)?;
    circuit.subscribe(&[sid])
}

/// TLB shootdowns and function calls of a CPU since boot.
fn interruptions(cpu: CpuId) -> Result<u64, Failed> {
    let path = "/proc/interrupts";
    let text = std::fs::read_to_string(path).map_err(Failed::file(path.as_ref()))?;
    let table = Interrupts::parse(&text).map_err(|error| Failed::answer(path, "a table of interrupts", error))?;
    ["TLB", "CAL"].into_iter().try_fold(0, |sum, name| {
        let row = table.row(name).ok_or_else(|| Failed::answer(path, format!("a row {name}"), "none"))?;
        Ok(sum + table.count(row, cpu))
    })
}

/// The menu of scan rates as a file, removed on drop.
struct Menu(PathBuf);

impl Menu {
    fn new() -> Result<Self, Failed> {
        let path = std::env::temp_dir().join(format!("tahti-bench-{}.dbd", std::process::id()));
        std::fs::write(&path, MENU).map_err(Failed::file(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Menu {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_from_scanppl_for_each_owner() {
        let text = "scan '1 second' of a: lateness p50 1us p99 2us max 3us duration p50 9us p99 9us max 9us\n\
                    scan '.1 second' of b@0: lateness p50 4us p99 5us max 6us duration p50 20ms p99 9ms max 9ms\n\
                    scan '.1 second' of b@1: lateness p50 7us p99 8us max 9us duration p50 21.5ms p99 9ms max 9ms\n";
        assert_eq!(figures(text, ".1 second", "duration p50 ").unwrap(), [20.0, 21.5]);
        assert_eq!(figures(text, "1 second", "p99 ").unwrap(), [0.002]);
        assert!(figures(text, ".5 second", "p99 ").is_err());
    }
}
