//! `tahti bench pva`: PVAccess of our IOC compared with QSRV2 and with our Channel Access, alternating.
//!
//! Processor time is that of all threads of the server. `TAHTI_QSRV2` is a Python with pvxslibs (`cargo xtask bench pva` sets
//! it); without it QSRV2 is not measured, with a note.

mod wire;

use crate::ioc::database::{counters, outputs};
use crate::ioc::host::{self, Ioc, Kind, PVACCESS};
use crate::ioc::{Measured, scan, spread, tables, wire as ca_wire};
use crate::{Bench, BenchResult, Failed, Progress, read};
use ::ca::wire::{Header, command as ca_command};
use ::pva::wire::command;
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Target};
use std::time::{Duration, Instant};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "pva",
    experiment: "QSRV2 of pvxs: updates, puts, gets, connections and arrays over PVAccess",
    arguments: Args::augment_args,
    run,
    target: "a quarter of QSRV2's processor time per update and put; at most 1.2 times our own Channel Access per update",
    quick: &["--quick", "--only", "transfer"],
    shields: false,
};

/// PVAccess compared with QSRV2 and with our own Channel Access: updates, puts, gets, connections, arrays
///
/// Alternates between QSRV2, our PVAccess and our Channel Access, with the same database. A figure is the median of its
/// measurements. A ratio is the median of the ratios of consecutive measurements.
#[derive(clap::Args)]
struct Args {
    /// Do a tenth of the work in one round: not for publication
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A server with its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Qsrv2,
    Pva,
    Ca,
}

const SERVERS: [Server; 3] = [Server::Qsrv2, Server::Pva, Server::Ca];

/// The amount of work.
struct Scale {
    quick: bool,
    window: Duration,
}

impl Scale {
    fn of(&self, count: usize) -> usize {
        if self.quick { (count / 10).max(1) } else { count }
    }
}

/// One figure of a case, with the maximum ratios to QSRV2 and to our Channel Access, or a limit of its own.
struct Figure {
    name: &'static str,
    unit: &'static str,
    to_qsrv2: Option<f64>,
    to_ca: Option<f64>,
    limit: Option<Target>,
}

const fn figure(name: &'static str, unit: &'static str, to_qsrv2: Option<f64>, to_ca: Option<f64>) -> Figure {
    Figure { name, unit, to_qsrv2, to_ca, limit: None }
}

const fn limited(name: &'static str, unit: &'static str, limit: f64) -> Figure {
    Figure { name, unit, to_qsrv2: None, to_ca: None, limit: Some(Target::at_most(limit)) }
}

/// One measurement.
struct Case {
    name: &'static str,
    what: &'static str,
    database: fn(&Scale) -> String,
    run: fn(&mut Ioc, Server, &Scale) -> Result<Vec<f64>, Failed>,
    turns: usize,
    /// The servers are started again for each measurement.
    restart: bool,
    figures: &'static [Figure],
}

const CASES: &[Case] = &[
    Case {
        name: "monitors",
        what: "1000 records at 10 Hz, all monitored by one client",
        database: |scale| counters(scale.of(1_000)),
        run: monitors,
        turns: 3,
        restart: false,
        figures: &[
            figure("server CPU per update, without that of scans", "ns", Some(0.25), Some(1.2)),
            figure("received updates", "%", None, None),
        ],
    },
    Case {
        name: "fan-out",
        what: "100 records at 10 Hz, each monitored by 20 clients",
        database: |_| counters(100),
        run: fan_out,
        turns: 3,
        restart: false,
        figures: &[
            figure("server CPU per update, without that of scans", "ns", Some(0.25), Some(1.2)),
            figure("received updates", "%", None, None),
        ],
    },
    Case {
        name: "transfer",
        what: "puts and gets on 100 ao records, 100 at once; each put is answered",
        database: |_| outputs(CHANNELS),
        run: transfer,
        turns: 11,
        restart: false,
        figures: &[
            figure("put: server CPU", "us", Some(0.25), None),
            figure("get on an open operation: server CPU", "us", Some(0.25), None),
            figure("one get at a time: median", "us", None, Some(1.3)),
            figure("one get at a time: p99", "us", None, None),
        ],
    },
    Case {
        name: "connect",
        what: "search of 10,000 different names, connection, then a monitor of each",
        database: |scale| outputs(scale.of(10_000)),
        run: connect,
        turns: 3,
        restart: true,
        figures: &[
            limited("search and connect: time", "s", 0.2),
            figure("search and connect: server CPU per channel", "us", None, None),
            limited("server memory per channel", "B", 2_000.0),
            limited("server memory per channel with a monitor", "B", 3_000.0),
            limited("answer to a further operation", "B", 20.0),
        ],
    },
    Case {
        name: "array",
        what: "reads of an array of 1 MB",
        database: |_| format!("record(waveform,\"x0\"){{field(FTVL,\"DOUBLE\")field(NELM,\"{ELEMENTS}\")}}\n"),
        run: array,
        turns: 5,
        restart: false,
        figures: &[
            Figure { limit: Some(Target::at_least(2.0)), ..figure("rate", "GB/s", None, None) },
            figure("server CPU of a read", "us", None, None),
        ],
    },
];

/// Channels that are written and read alternately.
const CHANNELS: usize = 100;
/// Requests of a batch, one per channel at a time, as clients do.
const BATCH: usize = 500;
/// Batches in a turn.
const BATCHES: usize = 20;
/// Gets in a turn, each after the answer to the last.
const SINGLE: usize = 500;
/// Doubles of 1 MB.
const ELEMENTS: usize = 131_072;
/// Reads of the array in a turn.
const READS: usize = 100;
/// Clients of a record.
const CLIENTS: usize = 20;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let scale = Scale { quick: args.quick, window: Duration::from_secs(if args.quick { 1 } else { 3 }) };
    let mut found = BenchResult::default();
    let with_qsrv2 = host::qsrv2().is_some();
    if !with_qsrv2 {
        found.setup.push("QSRV2 not found (TAHTI_QSRV2): only tahti is measured".into());
    }
    let named = |case: &&Case| args.only.as_deref().is_none_or(|text| case.name.contains(text));
    let cases: Vec<&Case> = CASES.iter().filter(named).collect();
    let each = |case: &Case| Ok(table(case, &measure(case, &scale, with_qsrv2)?));
    found.tables = tables(&cases, |case| case.name, progress, each)?;
    Ok(found)
}

/// Ours over PVAccess compared with another server.
fn row(measured: &Measured, figure: &Figure, n: usize, to: Server, name: String, most: Option<f64>) -> Row {
    let good = match figure.unit {
        "%" => Good::Neither,
        "GB/s" => Good::High,
        _ => Good::Low,
    };
    let (theirs, ours) = (to as usize, Server::Pva as usize);
    let row = Row::samples(name, figure.unit, measured.column(ours, n)).good(good);
    let row = row.against(report::Figure::median(measured.column(theirs, n))).ratio(measured.ratio(theirs, ours, n));
    match most {
        Some(most) => row.target(Target::ratio_at_most(most)),
        None => row,
    }
}

fn table(case: &Case, measured: &Measured) -> Table {
    let mut table = Table::new(format!("{}: {}", case.name, case.what)).columns("tahti", "other");
    for (n, figure) in case.figures.iter().enumerate() {
        let mut to_qsrv2 = row(measured, figure, n, Server::Qsrv2, format!("{}, QSRV2", figure.name), figure.to_qsrv2);
        if let Some(limit) = &figure.limit {
            to_qsrv2 = to_qsrv2.target(*limit);
        }
        table = table.row(to_qsrv2);
        let name = format!("{}, our Channel Access", figure.name);
        table = table.row(row(measured, figure, n, Server::Ca, name, figure.to_ca));
    }
    table
}

fn measure(case: &Case, scale: &Scale, with_qsrv2: bool) -> Result<Measured, Failed> {
    let database = (case.database)(scale);
    let servers: Vec<Server> = SERVERS.into_iter().filter(|server| with_qsrv2 || *server != Server::Qsrv2).collect();
    let kind = |server: Server| if server == Server::Qsrv2 { Kind::Qsrv2 } else { Kind::Tahti };
    let start = |server: Server| Ioc::start(kind(server), &database, "x0", &[]);
    let mut all: [Vec<Vec<f64>>; 3] = Default::default();
    let mut running: Vec<(Server, Ioc)> = Vec::new();
    for _ in 0..if scale.quick { 1 } else { case.turns } {
        if running.is_empty() && !case.restart {
            running =
                servers.iter().map(|server| start(*server).map(|ioc| (*server, ioc))).collect::<Result<_, Failed>>()?;
        }
        for (n, server) in servers.iter().enumerate() {
            let figures = match running.get_mut(n) {
                Some((server, ioc)) => (case.run)(ioc, *server, scale)?,
                None => (case.run)(&mut start(*server)?, *server, scale)?,
            };
            all[*server as usize].push(figures);
        }
    }
    Ok(Measured(all))
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("x{n}")).collect()
}

/// CPU time of a server that only scans, in ns.
fn scans_alone(ioc: &Ioc, time: Duration) -> Result<f64, Failed> {
    let (cpu, wall) = ioc.measure(|| {
        std::thread::sleep(time);
        Ok(())
    })?;
    Ok(cpu / wall)
}

/// A client with monitors.
enum Display {
    Pva(wire::Circuit),
    Ca(ca_wire::Circuit),
}

impl Display {
    fn open(ioc: &Ioc, server: Server, names: &[String]) -> Result<Self, Failed> {
        if server == Server::Ca {
            let mut circuit = ca_wire::Circuit::open(ioc.port)?;
            let sids = circuit.channels(names)?;
            circuit.subscribe(&sids)?;
            return Ok(Self::Ca(circuit));
        }
        let mut circuit = wire::Circuit::open(ioc.port + PVACCESS)?;
        let sids = circuit.channels(names)?;
        circuit.create(command::MONITOR, &sids, "field(value,alarm,timeStamp)")?;
        circuit.start(&sids)?;
        Ok(Self::Pva(circuit))
    }

    fn count(&mut self, time: Duration) -> Result<u64, Failed> {
        match self {
            Self::Pva(circuit) => circuit.count_updates(time),
            Self::Ca(circuit) => scan::count_updates(circuit, time),
        }
    }
}

/// CPU per update (ns) without that of scans, and the share of received updates.
fn updates(
    ioc: &mut Ioc,
    server: Server,
    names: &[String],
    clients: usize,
    window: Duration,
) -> Result<Vec<f64>, Failed> {
    let alone = scans_alone(ioc, window)?;
    let mut displays: Vec<Display> =
        (0..clients).map(|_| Display::open(ioc, server, names)).collect::<Result<_, _>>()?;
    let each = |displays: &mut Vec<Display>, time: Duration| {
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = displays.iter_mut().map(|display| scope.spawn(move || display.count(time))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).collect::<Vec<_>>()
        });
        counts.into_iter().sum::<Result<u64, Failed>>()
    };
    each(&mut displays, Duration::from_millis(500))?;
    let mut came = 0;
    let (cpu, wall) = ioc.measure(|| {
        came = each(&mut displays, window)?;
        Ok(())
    })?;
    let posted = wall / 1e9 * 10.0 * (names.len() * clients) as f64;
    Ok(vec![(cpu - alone * wall) / came.max(1) as f64, 100.0 * came as f64 / posted])
}

fn monitors(ioc: &mut Ioc, server: Server, scale: &Scale) -> Result<Vec<f64>, Failed> {
    updates(ioc, server, &names(scale.of(1_000)), 1, scale.window)
}

fn fan_out(ioc: &mut Ioc, server: Server, scale: &Scale) -> Result<Vec<f64>, Failed> {
    updates(ioc, server, &names(100), CLIENTS, scale.window)
}

/// Server CPU of a put and a get in batches (us), then median and 99th percentile of single gets (us).
fn transfer(ioc: &mut Ioc, server: Server, _: &Scale) -> Result<Vec<f64>, Failed> {
    let names = names(CHANNELS);
    if server == Server::Ca {
        return transfer_ca(ioc, &names);
    }
    let mut circuit = wire::Circuit::open(ioc.port + PVACCESS)?;
    let mut writer = wire::Circuit::open(ioc.port + PVACCESS)?;
    let (sids, written) = (circuit.channels(&names)?, writer.channels(&names)?);
    circuit.create(command::GET, &sids, "field(value,alarm,timeStamp)")?;
    writer.create(command::PUT, &written, "field(value)")?;
    let mut puts = || {
        for round in 0..BATCH / CHANNELS {
            (0..CHANNELS).for_each(|n| writer.put(written[n], n as u32, (round + n) as f64));
            writer.flush()?;
            writer.expect(command::PUT, CHANNELS, |_| ())?;
        }
        Ok(())
    };
    let mut gets = || {
        for _ in 0..BATCH / CHANNELS {
            (0..CHANNELS).for_each(|n| circuit.request(command::GET, sids[n], n as u32, 0, |_| ()));
            circuit.flush()?;
            circuit.expect(command::GET, CHANNELS, |_| ())?;
        }
        Ok(())
    };
    puts()?;
    gets()?;
    let operations = (BATCHES * BATCH) as f64 * 1e3;
    let (put, _) = ioc.measure(|| (0..BATCHES).try_for_each(|_| puts()))?;
    let (get, _) = ioc.measure(|| (0..BATCHES).try_for_each(|_| gets()))?;
    let mut times = Vec::new();
    for n in 0..SINGLE {
        let begin = Instant::now();
        circuit.request(command::GET, sids[n % CHANNELS], (n % CHANNELS) as u32, 0, |_| ());
        circuit.flush()?;
        circuit.expect(command::GET, 1, |_| ())?;
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
    }
    let [median, late, _] = spread(times);
    Ok(vec![put / operations, get / operations, median, late])
}

/// The same over Channel Access. Puts are answered too.
fn transfer_ca(ioc: &mut Ioc, names: &[String]) -> Result<Vec<f64>, Failed> {
    let mut circuit = ca_wire::Circuit::open(ioc.port)?;
    let sids = circuit.channels(names)?;
    let mut batch = |is_put: bool| {
        let answer = if is_put { ca_command::WRITE_NOTIFY } else { ca_command::READ_NOTIFY };
        for round in 0..BATCH / CHANNELS {
            for (n, sid) in sids.iter().enumerate() {
                if is_put {
                    let header = Header::bare(ca_command::WRITE_NOTIFY, ca_wire::DOUBLE, 1, *sid, n as u32);
                    circuit.queue(header, &((round + n) as f64).to_be_bytes());
                } else {
                    circuit.queue_get_as(*sid, ca_wire::TIME_DOUBLE, 1);
                }
            }
            circuit.flush()?;
            circuit.expect(answer, CHANNELS, |_, _| ())?;
        }
        Ok(())
    };
    batch(true)?;
    batch(false)?;
    let operations = (BATCHES * BATCH) as f64 * 1e3;
    let (put, _) = ioc.measure(|| (0..BATCHES).try_for_each(|_| batch(true)))?;
    let (get, _) = ioc.measure(|| (0..BATCHES).try_for_each(|_| batch(false)))?;
    let mut times = Vec::new();
    for n in 0..SINGLE {
        let begin = Instant::now();
        circuit.stamp(sids[n % CHANNELS])?;
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
    }
    let [median, late, _] = spread(times);
    Ok(vec![put / operations, get / operations, median, late])
}

/// Time (s) and server CPU per channel (us) of search and connection, memory per channel without and with a monitor, and
/// bytes of the answer to the last operation.
fn connect(ioc: &mut Ioc, server: Server, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let names = names(scale.of(10_000));
    let count = names.len() as f64;
    let before = ioc.resident();
    if server == Server::Ca {
        let mut opened = None;
        let (cpu, wall) = ioc.measure(|| {
            ca_wire::search(ioc.port, &names)?;
            let mut circuit = ca_wire::Circuit::open(ioc.port)?;
            opened = Some((circuit.channels(&names)?, circuit));
            Ok(())
        })?;
        let connected = ioc.resident();
        if let Some((sids, mut circuit)) = opened {
            circuit.subscribe(&sids)?;
        }
        let [channel, monitored] = [connected, ioc.resident()].map(|bytes| (bytes - before) / count);
        return Ok(vec![wall / 1e9, cpu / count / 1e3, channel, monitored, f64::NAN]);
    }
    let mut opened = None;
    let (cpu, wall) = ioc.measure(|| {
        wire::search(ioc.port + PVACCESS + 1, &names)?;
        let mut circuit = wire::Circuit::open(ioc.port + PVACCESS)?;
        opened = Some((circuit.channels(&names)?, circuit));
        Ok(())
    })?;
    let connected = ioc.resident();
    let mut bytes = 0;
    if let Some((sids, mut circuit)) = opened {
        bytes = circuit.create(command::MONITOR, &sids, "field()")?;
        circuit.start(&sids)?;
    }
    let [channel, monitored] = [connected, ioc.resident()].map(|bytes| (bytes - before) / count);
    Ok(vec![wall / 1e9, cpu / count / 1e3, channel, monitored, bytes as f64])
}

/// Rate (GB/s) of reads of an array, and server CPU of a read (us).
fn array(ioc: &mut Ioc, server: Server, _: &Scale) -> Result<Vec<f64>, Failed> {
    let mut ca = ca_wire::Circuit::open(ioc.port)?;
    let sid = ca.channel("x0")?;
    let payload: Vec<u8> = (0..ELEMENTS).flat_map(|n| (n as f64).to_be_bytes()).collect();
    ca.queue(Header::bare(ca_command::WRITE, ca_wire::DOUBLE, ELEMENTS as u32, sid, 0), &payload);
    ca.get(sid)?;
    let (cpu, wall) = if server == Server::Ca {
        let mut read = || {
            ca.queue_get_as(sid, ca_wire::DOUBLE, ELEMENTS as u32);
            ca.flush()?;
            ca.expect(ca_command::READ_NOTIFY, 1, |_, _| ())
        };
        read()?;
        ioc.measure(|| (0..READS).try_for_each(|_| read()))?
    } else {
        let mut circuit = wire::Circuit::open(ioc.port + PVACCESS)?;
        let sids = circuit.channels(&names(1))?;
        circuit.create(command::GET, &sids, "field(value)")?;
        let mut read = || {
            circuit.request(command::GET, sids[0], 0, 0, |_| ());
            circuit.flush()?;
            let mut whole = false;
            circuit.expect(command::GET, 1, |message| whole = message.payload.len() > ELEMENTS * 8)?;
            if whole { Ok(()) } else { Err(Failed::answer("the IOC", "the whole array", "a shorter one")) }
        };
        read()?;
        ioc.measure(|| (0..READS).try_for_each(|_| read()))?
    };
    Ok(vec![(READS * ELEMENTS * 8) as f64 / wall, cpu / READS as f64 / 1e3])
}
