//! `tahti bench ioc`: our IOC compared with C's `softIoc`, with the same databases and the same client, alternating.
//!
//! Processor time is that of all threads of the server, and valid on a shared machine. `TAHTI_EPICS` is the folder with C
//! EPICS (`cargo xtask bench ioc` sets it); without it only ours is measured, with a note.

mod channel;
mod crowd;
pub(super) mod database;
mod event;
pub(super) mod groups;
pub(super) mod host;
pub(super) mod interrupt;
#[path = "../../../../ioc/db/examples/kraimer/database.rs"]
mod kraimer;
pub(super) mod scan;
pub(super) mod wire;

use crate::{Bench, BenchResult, Failed, Progress, papers, read};
use clap::{ArgMatches, Args as _};
use host::{Ioc, Kind};
use kraimer::{Reading, kraimer};
use report::{Good, Row, Table, Target};
use std::time::Duration;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "ioc",
    experiment: "KEK: the IOC's database and Channel Access; Kraimer's benchmark database",
    arguments: Args::augment_args,
    run,
    target: "a fifth of C's processor time per record, a quarter per update, half per put or get",
    quick: &["--quick", "--only", "transfer"],
    shields: false,
};

/// The IOC compared with EPICS' softIoc: database, Channel Access, loading, many clients, events
///
/// Alternates between C's IOC and ours, with the same database and the same client. A figure is the median of its
/// measurements. The ratio is the median of the ratios of consecutive measurements, ours divided by C's.
#[derive(clap::Args)]
struct Args {
    /// Do a tenth of the work in one round: not for publication
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The amount of work.
pub(super) struct Scale {
    quick: bool,
    /// Duration of a measurement.
    window: Duration,
}

impl Scale {
    /// A number of things, or a tenth of it.
    fn of(&self, count: usize) -> usize {
        if self.quick { (count / 10).max(1) } else { count }
    }
}

/// One figure of a case.
struct Figure {
    name: &'static str,
    unit: &'static str,
    /// Target: maximum ratio to C's.
    target: Option<f64>,
}

impl Figure {
    /// Loads, traffic and shares are neither good nor bad.
    fn good(&self) -> Good {
        match self.unit {
            "%" | "Mbit/s" => Good::Neither,
            _ => Good::Low,
        }
    }
}

const fn figure(name: &'static str, unit: &'static str) -> Figure {
    Figure { name, unit, target: None }
}

const fn target(name: &'static str, unit: &'static str, most: f64) -> Figure {
    Figure { name, unit, target: Some(most) }
}

/// One measurement.
struct Case {
    name: &'static str,
    what: &'static str,
    /// The key of the published experiment, if it repeats one.
    experiment: &'static str,
    /// A record to check that the IOC is up.
    probe: &'static str,
    database: fn(&Scale) -> String,
    run: fn(&mut Ioc, &Scale) -> Result<Vec<f64>, Failed>,
    rounds: usize,
    /// Measurements of each IOC in a round. With more than one, all IOCs run, and measurements alternate: on a machine with
    /// shared cores the speed changes from second to second, for both alike.
    turns: usize,
    /// The measured IOCs.
    kinds: &'static [Kind],
    figures: &'static [Figure],
}

/// Turns of short measurements.
const TURNS: usize = 21;

/// C's and ours.
const BOTH: &[Kind] = &[Kind::C, Kind::Tahti];
/// C's, ours, and ours with a stamp per record.
const ALL: &[Kind] = &[Kind::C, Kind::Tahti, Kind::Stamped];

impl Case {
    /// The IOCs compared with C's.
    fn ours(&self) -> Kind {
        if self.kinds.contains(&Kind::Tahti) { Kind::Tahti } else { Kind::Stamped }
    }

    /// Default values of a case.
    const USUAL: Self = Self {
        name: "",
        what: "",
        experiment: "",
        probe: "x0",
        database: |_| String::new(),
        run: |_, _| Ok(Vec::new()),
        rounds: 1,
        turns: 1,
        kinds: BOTH,
        figures: &[],
    };
}

const RECORD: &[Figure] = &[target("CPU per record", "ns", 0.2)];
const MONITORED: &[Figure] = &[
    target("CPU per record, updates included", "ns", 0.2),
    target("CPU per update, without that of records", "ns", 0.25),
    figure("received updates", "%"),
];
const CROWD: &[Figure] = &[
    target("server CPU per update", "ns", 0.25),
    figure("received updates", "%"),
    figure("updates lost by reading clients", ""),
    figure("server memory per client", "KiB"),
    figure("the client that never reads: age of its newest value", "s"),
];
const LOADED: &[Figure] = &[
    target("start to first answer", "s", 1.0),
    figure("CPU until the first answer", "s"),
    target("memory per record", "B", 0.28),
];

const CASES: &[Case] = &[
    Case {
        name: "database-f",
        what: "Kraimer's database, reading F, one copy, each pass started by a put",
        probe: "c0:main",
        database: |scale| scan::put_database(Reading::Forward, scale),
        run: scan::put,
        turns: TURNS,
        kinds: ALL,
        figures: RECORD,
        ..Case::USUAL
    },
    Case {
        name: "database-p",
        what: "the same, reading P",
        probe: "c0:main",
        database: |scale| scan::put_database(Reading::Passive, scale),
        run: scan::put,
        turns: TURNS,
        kinds: ALL,
        figures: RECORD,
        ..Case::USUAL
    },
    Case {
        name: "periodic-f",
        what: "Kraimer's database, reading F, 1000 copies at 10 Hz",
        probe: "passes",
        database: |scale| scan::periodic_database(Reading::Forward, scale),
        run: scan::periodic,
        rounds: 2,
        kinds: ALL,
        figures: RECORD,
        ..Case::USUAL
    },
    Case {
        name: "periodic-p",
        what: "the same, reading P",
        probe: "passes",
        database: |scale| scan::periodic_database(Reading::Passive, scale),
        run: scan::periodic,
        rounds: 2,
        kinds: ALL,
        figures: RECORD,
        ..Case::USUAL
    },
    Case {
        name: "monitors-f",
        what: "Kraimer's database, reading F, 100 copies at 10 Hz with all 10,000 calc and ai monitored",
        probe: "passes",
        database: |scale| scan::monitored_database(Reading::Forward, scale),
        run: scan::monitors,
        rounds: 2,
        kinds: ALL,
        figures: MONITORED,
        ..Case::USUAL
    },
    Case {
        name: "monitors-p",
        what: "the same, reading P",
        probe: "passes",
        database: |scale| scan::monitored_database(Reading::Passive, scale),
        run: scan::monitors,
        rounds: 2,
        figures: MONITORED,
        ..Case::USUAL
    },
    Case {
        name: "periods",
        what: "table II: load of one CPU by one copy of the database, its 100 calc and ai monitored",
        experiment: "kek/scan-load",
        probe: "c0:main",
        database: |_| kraimer(1, Reading::Forward, "Passive"),
        run: scan::load_by_period,
        figures: &[
            figure("1 second", "%"),
            figure(".5 second", "%"),
            figure(".2 second", "%"),
            target(".1 second", "%", 0.25),
        ],
        ..Case::USUAL
    },
    Case {
        name: "connect",
        what: "tables III and IV: search of 10,000 different names, then connection",
        experiment: "kek/search",
        database: channel::connect_database,
        run: channel::connect,
        rounds: 3,
        figures: &[
            figure("search: server CPU per name", "us"),
            figure("search: time per name", "us"),
            figure("search: CPU load", "%"),
            figure("search: traffic", "Mbit/s"),
            figure("connect: server CPU per channel", "us"),
            figure("connect: time per channel", "us"),
            target("search and connect: server CPU per channel", "us", 0.5),
            target("search and connect: time per channel", "us", 1.0),
        ],
        ..Case::USUAL
    },
    Case {
        name: "transfer",
        what: "tables III and IV: put and get, batches of 1000 on 100 ao records",
        experiment: "kek/transfer",
        database: channel::transfer_database,
        run: channel::transfer,
        turns: TURNS,
        figures: &[
            target("put: server CPU", "us", 0.5),
            figure("put: time", "us"),
            figure("put: CPU load", "%"),
            figure("put: traffic", "Mbit/s"),
            target("get: server CPU", "us", 0.5),
            figure("get: time", "us"),
            figure("get: CPU load", "%"),
            figure("get: traffic", "Mbit/s"),
            target("put and get alternating: server CPU", "us", 0.5),
            figure("put and get alternating: time", "us"),
            figure("put and get alternating: CPU load", "%"),
            figure("put and get alternating: traffic", "Mbit/s"),
            figure("one get at a time: median", "us"),
            figure("one get at a time: p99", "us"),
            figure("one get at a time: max", "us"),
        ],
        ..Case::USUAL
    },
    Case {
        name: "kinds",
        what: "gets as text, 16-bit number and double of 100 ao records, in batches of 1000 and one at a time",
        database: channel::transfer_database,
        run: channel::kinds,
        turns: TURNS,
        figures: &[
            target("text: server CPU", "us", 0.8),
            figure("text: time", "us"),
            target("16-bit number: server CPU", "us", 0.8),
            figure("16-bit number: time", "us"),
            target("double: server CPU", "us", 0.8),
            figure("double: time", "us"),
            target("one get at a time, text: median", "us", 1.0),
            target("one get at a time, 16-bit number: median", "us", 1.0),
            target("one get at a time, double: median", "us", 1.0),
        ],
        ..Case::USUAL
    },
    Case {
        name: "array",
        what: "an array of 30 MB, written once and read ten times",
        database: channel::array_database,
        run: channel::array,
        turns: 5,
        figures: &[target("server CPU of a read", "ms", 0.8), target("time of a read", "ms", 1.0)],
        ..Case::USUAL
    },
    Case {
        name: "event",
        what: "from the time stamp of the record that posts an event to those of the two records that it processes, no interrupt \
               involved",
        probe: "second",
        database: event::event_database,
        run: event::event,
        // Without a stamp per record all records of a pass have the same time.
        kinds: &[Kind::C, Kind::Stamped],
        figures: event::FIGURES,
        ..Case::USUAL
    },
    Case {
        name: "clients-100",
        what: "100 clients with 100 monitors each at 10 Hz, and one that never reads",
        database: crowd::database,
        run: |ioc, scale| crowd::crowd(ioc, scale, 100),
        figures: CROWD,
        ..Case::USUAL
    },
    Case {
        name: "clients-2000",
        what: "2,000 clients with 100 monitors each at 10 Hz, and one that never reads (softIoc would need ten CPUs)",
        database: crowd::database,
        run: |ioc, scale| crowd::crowd(ioc, scale, scale.of(2_000)),
        kinds: &[Kind::Tahti],
        figures: CROWD,
        ..Case::USUAL
    },
    Case {
        name: "load-100k",
        what: "loading 100,000 ai records with five fields each",
        database: |_| channel::load_database(100_000),
        run: |ioc, _| channel::load(ioc, 100_000),
        rounds: 2,
        figures: LOADED,
        ..Case::USUAL
    },
    Case {
        name: "load-1m",
        what: "loading 1,000,000 ai records (skipped with --quick: softIoc's hash of names has 512 buckets)",
        database: |_| channel::load_database(1_000_000),
        run: |ioc, _| channel::load(ioc, 1_000_000),
        figures: LOADED,
        ..Case::USUAL
    },
];

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    // Two thousand clients have as many sockets.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wide = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let raised = rustix::process::setrlimit(rustix::process::Resource::Nofile, wide);
    raised.map_err(|errno| sys::Error { doing: "raise the limit of open files".into(), errno })?;
    let window = Duration::from_secs(if args.quick { 1 } else { 3 });
    let scale = Scale { quick: args.quick, window };
    let with_c = host::epics().is_some();
    let mut found = BenchResult::default();
    if !with_c {
        found.setup.push("C EPICS not found (TAHTI_EPICS): only tahti is measured".into());
    }
    let named = |case: &&Case| args.only.as_deref().is_none_or(|text| case.name.contains(text));
    let cases: Vec<&Case> = CASES.iter().filter(named).filter(|case| !(args.quick && case.name == "load-1m")).collect();
    let each = |case: &Case| Ok(table(case, &measure(case, &scale, with_c)?));
    found.tables = tables(&cases, |case| case.name, progress, each)?;
    Ok(found)
}

/// The tables of cases.
pub(crate) fn tables<C>(
    cases: &[&C],
    name: impl Fn(&C) -> &'static str,
    progress: &mut Progress,
    table: impl Fn(&C) -> Result<Table, Failed>,
) -> Result<Vec<Table>, Failed> {
    let each = |(nth, case): (usize, &&C)| {
        progress.at(nth, cases.len(), name(case));
        table(case).map_err(|why| Failed::Part { part: name(case).into(), source: Box::new(why) })
    };
    cases.iter().enumerate().map(each).collect()
}

/// Results of a case: figures of each measurement, by server.
pub(crate) struct Measured(pub(crate) [Vec<Vec<f64>>; 3]);

impl Measured {
    /// All measurements of one figure.
    pub(crate) fn column(&self, server: usize, figure: usize) -> Vec<f64> {
        self.0[server].iter().filter_map(|one| one.get(figure).copied()).collect()
    }

    /// Our figure divided by theirs: the median over pairs of consecutive measurements.
    pub(crate) fn ratio(&self, theirs: usize, ours: usize, figure: usize) -> Option<f64> {
        let (theirs, ours) = (self.column(theirs, figure), self.column(ours, figure));
        let mut ratios: Vec<f64> =
            theirs.iter().zip(ours).filter(|(one, _)| **one > 0.0).map(|(one, ours)| ours / one).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    fn row(&self, kind: Kind, figure: usize, of: &Figure) -> Row {
        let (theirs, ours) = (Kind::C as usize, kind as usize);
        let row = Row::samples(of.name, of.unit, self.column(ours, figure)).good(of.good());
        let theirs_alone = report::Figure::median(self.column(theirs, figure));
        let row = row.against(theirs_alone).ratio(self.ratio(theirs, ours, figure));
        match of.target {
            Some(most) => row.target(Target::ratio_at_most(most)),
            None => row,
        }
    }
}

fn table(case: &Case, measured: &Measured) -> Table {
    let ours = case.ours();
    let name = if ours == Kind::Stamped { "stamp each" } else { "tahti" };
    let mut table = Table::new(format!("{}: {}", case.name, case.what)).columns(name, "softIoc");
    if !case.experiment.is_empty() {
        table.published = papers::published(case.experiment).to_vec();
    }
    for (n, figure) in case.figures.iter().enumerate() {
        table = table.row(measured.row(ours, n, figure));
        if ours != Kind::Stamped && case.kinds.contains(&Kind::Stamped) {
            let row = measured.row(Kind::Stamped, n, &Figure { target: None, ..*figure });
            table = table.row(Row { name: format!("{}, with a stamp per record", figure.name), ..row });
        }
    }
    table
}

fn measure(case: &Case, scale: &Scale, with_c: bool) -> Result<Measured, Failed> {
    let database = (case.database)(scale);
    let kinds: Vec<Kind> = case.kinds.iter().copied().filter(|kind| with_c || *kind != Kind::C).collect();
    let at_once = if case.turns > 1 { kinds.len() } else { 1 };
    let mut all: [Vec<Vec<f64>>; 3] = Default::default();
    for _ in 0..if scale.quick { 1 } else { case.rounds } {
        for kinds in kinds.chunks(at_once.max(1)) {
            let start = |kind: &Kind| Ioc::start(*kind, &database, case.probe, &[]).map(|ioc| (*kind, ioc));
            let mut iocs = kinds.iter().map(start).collect::<Result<Vec<_>, Failed>>()?;
            for _ in 0..case.turns {
                for (kind, ioc) in &mut iocs {
                    all[*kind as usize].push((case.run)(ioc, scale)?);
                }
            }
        }
    }
    Ok(Measured(all))
}

/// Median, 99th percentile and maximum.
pub(super) fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN);
    [at(values.len() / 2), at(values.len() * 99 / 100), at(values.len())]
}
