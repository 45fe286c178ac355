//! `tahti bench archive`: cost of logging a sample, its size, and the time to read it back.

use crate::{Bench, BenchResult, Failed, Progress, read};
use base::DurNs;
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Target};
use segment::Sample;
use segment::rows::About;
use std::path::{Path, PathBuf};
use store::{Archive, Bins, Config, Folder, Logger, due, pack};
use sys::clock::{mono_now, thread_cpu};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "archive",
    experiment: "polled data to memory and to a database (MADOCA's data acquisition); the archiver's bytes and retrieval times",
    arguments: Args::augment_args,
    run,
    target: "1,000,000 samples/s on one CPU; 30 ns per sample for the logged loop; 20 bytes per sample in segments, 10 in packs; a day at 10 Hz as 2,000 points in 50 ms, a year at 1 Hz in 1 s",
    quick: &["--rounds", "4", "--without-year"],
    shields: false,
};

/// Cost of logging a sample, bytes per sample, time to read a day and a year
#[derive(clap::Args)]
struct Args {
    /// Measurements of each figure
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Skip the year of a 1 Hz signal, which takes a minute to log
    #[arg(long)]
    without_year: bool,
    /// Folder of the archives, which are removed afterwards [default: the folder for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// The stamp of the first sample.
const T0: i64 = 1_795_000_000_000_000_000;
const POINTS: usize = 2_000;

/// A folder, removed at the end of the measurement.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    if args.rounds == 0 {
        return Err(Failed::argument("--rounds 0", "1 or more"));
    }
    let above = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let place = TemporaryFolder(above.join(format!("tahti-bench-archive-{}", std::process::id())));
    let logging = Table::new("Logging: CPU time including writing and syncing, one thread");
    let logging = loads().iter().enumerate().try_fold(logging, |table, (index, load)| {
        progress.at(index, 5, load.name);
        load.measure(&place.0.join(format!("load-{index}")), args.rounds, table)
    })?;
    let finding =
        Table::new(format!("Reading as {POINTS} points with minimum, mean and maximum, opening the archive included"));
    let logging = producer(args.rounds, logging)?;
    progress.at(3, 5, "a day at 10 Hz");
    let mut finding = find(&place.0.join("day"), "a day at 10 Hz", 864_000, 100_000_000, 50.0, args.rounds, finding)?;
    if !args.without_year {
        progress.at(4, 5, "a year at 1 Hz");
        let (count, step) = (31_536_000, 1_000_000_000);
        finding = find(&place.0.join("year"), "a year at 1 Hz", count, step, 1_000.0, args.rounds, finding)?;
    }
    Ok(BenchResult { tables: vec![logging, finding], ..BenchResult::default() })
}

/// The samples of a round.
struct Load {
    name: &'static str,
    signals: u64,
    samples: u64,
    step: i64,
    /// Samples of each signal between two syncs.
    sync: u64,
    /// Maximum deviation of stamps from their period.
    late: u64,
    /// A value of a signal.
    value: fn(u64, &mut Noise) -> f64,
}

/// Random digits: they cannot be compressed.
fn random(signal: u64, noise: &mut Noise) -> f64 {
    100.0 + signal as f64 / 7.0 + 1e-4 * noise.share()
}

/// Readings of a 16-bit converter for 10 V, with noise of eight steps.
fn converted(signal: u64, noise: &mut Noise) -> f64 {
    let step = 10.0 / 32_768.0;
    (20_000 + signal % 1_000 + noise.next() % 8) as f64 * step
}

/// A hundred seconds of many slow signals, as many as become a pack at first; three seconds of a few fast ones.
const fn loads() -> [Load; 3] {
    let slow = Load {
        name: "10,000 signals at 10 Hz, random values",
        signals: 10_000,
        samples: 1_000,
        step: 100_000_000,
        sync: 2,
        late: 200_000,
        value: random,
    };
    let read = Load { name: "10,000 signals at 10 Hz, from 16-bit converters", value: converted, ..slow };
    let fast = Load {
        name: "10 signals at 100 kHz",
        signals: 10,
        samples: 300_000,
        step: 10_000,
        sync: 20_000,
        late: 1,
        value: random,
    };
    [slow, read, fast]
}

/// A random generator with a fixed seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 31) as f64
    }
}

impl Load {
    fn measure(&self, place: &Path, rounds: usize, table: Table) -> Result<Table, Failed> {
        let (mut rates, mut bytes, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let round_place = TemporaryFolder(place.join(round.to_string()));
            let folder = Folder::make(&round_place.0).map_err(Failed::file(place))?;
            let mut logger = Logger::open(folder.clone(), Config::default(), 0)?;
            let name = |number: u64| format!("SR:MAG:PS_{number}:CURRENT");
            let ids = (0..self.signals).map(|number| logger.signal(&name(number), About::default(), T0));
            let ids: Vec<_> = ids.collect::<Result<_, _>>()?;
            let mut noise = Noise(1);
            let begun = thread_cpu();
            for k in 0..self.samples {
                for (number, id) in ids.iter().enumerate() {
                    let at = T0 + k as i64 * self.step + (noise.next() % self.late) as i64;
                    logger.push(*id, &Sample::new(at, (self.value)(number as u64, &mut noise)));
                }
                if (k + 1) % self.sync == 0 {
                    logger.sync(k as i64);
                }
            }
            let took = (thread_cpu().0 - begun.0) as f64;
            let account = logger.account();
            if account.safe != self.signals * self.samples {
                return Err(Failed::answer(
                    "the logger",
                    format!("{} safe samples", self.signals * self.samples),
                    account.safe,
                ));
            }
            rates.push(account.safe as f64 / took * 1e3);
            bytes.push(account.bytes as f64 / account.safe as f64);
            let open = logger.open_from() + 1;
            drop(logger);
            // Each round writes the same bytes.
            if round == 0 {
                packed.push(pack_all(&folder, open)?);
            }
        }
        let cpu: Vec<f64> = rates.iter().map(|rate| 0.1 / rate * 100.0).collect();
        let rate = Row::samples(format!("{}: samples per second of CPU time", self.name), "M/s", rates);
        let table = table.row(rate.target(Target::at_least(1.0)));
        let share = Row::samples(format!("{}: share of one CPU at 100,000 samples/s", self.name), "%", cpu);
        let table = table.row(share.target(Target::at_most(5.0)));
        let segment = Row::samples(format!("{}: sample size in segments", self.name), "B", bytes);
        let table = table.row(segment.target(Target::at_most(20.0)));
        let pack = Row::samples(format!("{}: sample size in packs", self.name), "B", packed);
        Ok(table.row(pack.target(Target::at_most(10.0))))
    }
}

/// Cost of a logged sample to the loop: variables with the last 256 samples, written one after the other.
fn producer(rounds: usize, table: Table) -> Result<Table, Failed> {
    const VARIABLES: usize = 10;
    const CYCLES: u64 = 400_000;
    let exports = rt::Exports::open(&format!("bench-archive-{}", std::process::id()), VARIABLES)?;
    let add = |number: usize| {
        let name = format!("v{number}");
        exports.add(&rt::VariableSpec { name: &name, unit: "V", first: rt::Number::Float(0.0), safe: None })
    };
    let variables: Vec<usize> = (0..VARIABLES).map(add).collect::<Result<_, _>>()?;
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let begun = thread_cpu();
        for pulse in 1..=CYCLES {
            for variable in &variables {
                exports.set(*variable, rt::Number::Float(pulse as f64), pulse, base::MonoNs(pulse));
            }
        }
        costs.push((thread_cpu().0 - begun.0) as f64 / (CYCLES as f64 * VARIABLES as f64));
    }
    let row = Row::samples("cost to the loop of a sample of an exported variable", "ns", costs);
    Ok(table.row(row.good(Good::Low).target(Target::at_most(30.0))))
}

/// Packs everything after the logger has ended; returns bytes per sample.
fn pack_all(folder: &Folder, open_from: u64) -> Result<f64, Failed> {
    let (mut bytes, mut samples) = (0, 0);
    while let Some((first, last)) = due(folder, open_from, true)? {
        let packed = pack(folder, first, last)?;
        bytes += packed.after;
        samples += packed.samples;
    }
    Ok(bytes as f64 / samples.max(1) as f64)
}

/// Logs a long range of a signal, packing as `serve` does, and reads it back.
fn find(
    place: &Path,
    name: &str,
    count: i64,
    step: i64,
    target: f64,
    rounds: usize,
    table: Table,
) -> Result<Table, Failed> {
    let folder = Folder::make(place).map_err(Failed::file(place))?;
    let mut logger = Logger::open(folder.clone(), Config::default(), 0)?;
    let signal = logger.signal("A", About::default(), T0)?;
    let mut noise = Noise(1);
    for k in 0..count {
        let late = (noise.next() % 200_000) as i64;
        logger.push(signal, &Sample::new(T0 + k * step + late, (k as f64 / 1_000.0).sin() + 1e-3 * noise.share()));
        if k % 10_000 == 0 {
            logger.sync(k);
            if let Some((first, last)) = due(&folder, logger.open_from(), false)? {
                pack(&folder, first, last)?;
            }
        }
    }
    logger.sync(count);
    let as_logged = times(&folder, count * step, rounds)?;
    let open = logger.open_from() + 1;
    drop(logger);
    pack_all(&folder, open)?;
    let packed = times(&folder, count * step, rounds)?;
    let row = |what: &str, times| {
        Row::samples(format!("{name}, {what}"), "ms", times).good(Good::Low).target(Target::at_most(target))
    };
    Ok(table.row(row("as logged", as_logged)).row(row("packed", packed)))
}

fn times(folder: &Folder, span: i64, rounds: usize) -> Result<Vec<f64>, Failed> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = mono_now();
        let archive = Archive::open(folder.clone())?;
        let bins = archive.bins("A", Bins::count(T0, T0 + span, POINTS))?;
        let took: DurNs = mono_now() - begun;
        if bins.len() != POINTS {
            return Err(Failed::answer("the archive", format!("{POINTS} points"), bins.len()));
        }
        times.push(took.0 as f64 / 1e6);
    }
    Ok(times)
}
