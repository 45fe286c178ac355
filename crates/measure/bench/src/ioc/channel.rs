//! Cost of Channel Access: search, connect, put and get, loading many records.

use super::database::{inputs, outputs};
use super::host::Ioc;
use super::wire::{Circuit, DOUBLE, SHORT, STRING, search};
use super::{Scale, spread};
use crate::Failed;
use ca::wire::{Header, command};
use std::time::Instant;

/// Requests of a batch, sent before waiting for the answers.
const BATCH: usize = 1_000;
/// Batches of each kind in a turn.
const BATCHES: usize = 50;
/// Gets in a turn, each after the answer to the last.
const SINGLE: usize = 500;
/// Channels that are written and read alternately.
const CHANNELS: usize = 100;
/// Doubles of a large array: 30 MB.
const ELEMENTS: usize = 3_750_000;
/// Number of reads of the large array.
const READS: usize = 10;

pub(super) fn transfer_database(_: &Scale) -> String {
    outputs(CHANNELS)
}

/// The requests of a batch.
#[derive(Clone, Copy)]
enum BatchKind {
    Put,
    Get,
    Both,
}

/// For put, get, and both alternating: server CPU and time per operation (us), share of a CPU (%), traffic (Mbit/s); then
/// the time of single gets: median, 99th percentile, maximum (us).
pub(super) fn transfer(ioc: &mut Ioc, _: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let names: Vec<String> = (0..CHANNELS).map(|n| format!("x{n}")).collect();
    let sids = circuit.channels(&names)?;
    let mut figures = Vec::new();
    for what in [BatchKind::Put, BatchKind::Get, BatchKind::Both] {
        batch(&mut circuit, &sids, what)?;
        let before = circuit.bytes;
        let (cpu, wall) = ioc.measure(|| (0..BATCHES).try_for_each(|_| batch(&mut circuit, &sids, what)))?;
        let operations = (BATCHES * BATCH) as f64;
        let bits = (circuit.bytes - before) as f64 * 8.0;
        figures.extend([cpu / operations / 1e3, wall / operations / 1e3, 100.0 * cpu / wall, bits / wall * 1e3]);
    }
    let mut times = Vec::new();
    for n in 0..SINGLE {
        let begin = Instant::now();
        circuit.get(sids[n % CHANNELS])?;
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
    }
    figures.extend(spread(times));
    Ok(figures)
}

fn batch(circuit: &mut Circuit, sids: &[u32], what: BatchKind) -> Result<(), Failed> {
    let mut gets = 0;
    for n in 0..BATCH {
        let sid = sids[n % sids.len()];
        let is_put = matches!(what, BatchKind::Put) || (matches!(what, BatchKind::Both) && n % 2 == 0);
        if is_put {
            circuit.put(sid, n as f64);
        } else {
            circuit.queue_get(sid);
            gets += 1;
        }
    }
    if gets == 0 {
        // The answer to the last request shows that all are done.
        circuit.queue_get(sids[0]);
        gets = 1;
    }
    circuit.flush()?;
    circuit.expect(command::READ_NOTIFY, gets, |_, _| ())
}

/// For text, 16-bit number and double: server CPU and time per get in batches (us); then the median time of one get at a
/// time (us) of each.
pub(super) fn kinds(ioc: &mut Ioc, _: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let names: Vec<String> = (0..CHANNELS).map(|n| format!("x{n}")).collect();
    let sids = circuit.channels(&names)?;
    // Values with many digits.
    sids.iter().enumerate().for_each(|(n, sid)| circuit.put(*sid, n as f64 * 1.618));
    let mut figures = Vec::new();
    for kind in [STRING, SHORT, DOUBLE] {
        let mut all = || {
            for n in 0..BATCH {
                circuit.queue_get_as(sids[n % CHANNELS], kind, 1);
            }
            circuit.flush()?;
            circuit.expect(command::READ_NOTIFY, BATCH, |_, _| ())
        };
        all()?;
        let (cpu, wall) = ioc.measure(|| (0..BATCHES).try_for_each(|_| all()))?;
        let operations = (BATCHES * BATCH) as f64 * 1e3;
        figures.extend([cpu / operations, wall / operations]);
    }
    for kind in [STRING, SHORT, DOUBLE] {
        let mut times = Vec::new();
        for n in 0..SINGLE {
            let begin = Instant::now();
            circuit.queue_get_as(sids[n % CHANNELS], kind, 1);
            circuit.flush()?;
            circuit.expect(command::READ_NOTIFY, 1, |_, _| ())?;
            times.push(begin.elapsed().as_nanos() as f64 / 1e3);
        }
        figures.push(spread(times)[0]);
    }
    Ok(figures)
}

pub(super) fn array_database(_: &Scale) -> String {
    format!("record(waveform,\"x0\"){{field(FTVL,\"DOUBLE\")field(NELM,\"{ELEMENTS}\")}}\n")
}

/// An array of 30 MB, written once and read: server CPU and time of a read (ms). A truncated array is an error.
pub(super) fn array(ioc: &mut Ioc, _: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let sid = circuit.channel("x0")?;
    let payload: Vec<u8> = (0..ELEMENTS).flat_map(|n| (n as f64).to_be_bytes()).collect();
    circuit.queue(Header::bare(command::WRITE, DOUBLE, ELEMENTS as u32, sid, 0), &payload);
    let mut read = || {
        circuit.queue_get_as(sid, DOUBLE, ELEMENTS as u32);
        circuit.flush()?;
        let mut whole = false;
        circuit.expect(command::READ_NOTIFY, 1, |_, got| whole = got == payload)?;
        if whole { Ok(()) } else { Err(Failed::answer("the IOC", "the array that was written", "another")) }
    };
    read()?;
    let (cpu, wall) = ioc.measure(|| (0..READS).try_for_each(|_| read()))?;
    Ok([cpu, wall].map(|time| time / READS as f64 / 1e6).to_vec())
}

pub(super) fn connect_database(scale: &Scale) -> String {
    outputs(scale.of(10_000))
}

/// Search of different names, then connection: server CPU and time per channel of each (us), share of a CPU (%) and
/// traffic (Mbit/s) of the search.
pub(super) fn connect(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let names: Vec<String> = (0..scale.of(10_000)).map(|n| format!("x{n}")).collect();
    let mut bytes = 0;
    let (search_cpu, search_wall) = ioc.measure(|| {
        bytes = search(ioc.port, &names)?;
        Ok(())
    })?;
    let (cpu, wall) = ioc.measure(|| Circuit::open(ioc.port)?.channels(&names).map(|_| ()))?;
    let channels = names.len() as f64 * 1e3;
    Ok(vec![
        search_cpu / channels,
        search_wall / channels,
        100.0 * search_cpu / search_wall,
        bytes as f64 * 8.0 / search_wall * 1e3,
        cpu / channels,
        wall / channels,
        (search_cpu + cpu) / channels,
        (search_wall + wall) / channels,
    ])
}

pub(super) fn load_database(count: usize) -> String {
    inputs(count)
}

/// Seconds from the start of the process to its first answer, and resident bytes per record.
pub(super) fn load(ioc: &mut Ioc, count: usize) -> Result<Vec<f64>, Failed> {
    Circuit::open(ioc.port)?.channel(&format!("x{}", count - 1))?;
    Ok(vec![ioc.took.as_secs_f64(), ioc.cpu()?.0 as f64 / 1e9, ioc.resident() / count as f64])
}
