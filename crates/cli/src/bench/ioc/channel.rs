//! What Channel Access costs: search, connect, put and get (S2.4), loading many records.

use super::database::{inputs, outputs};
use super::host::Ioc;
use super::wire::{Circuit, search};
use super::{Scale, spread};
use ca::wire::command;
use std::time::Instant;

/// Requests sent before their answers are awaited.
const BATCH: usize = 1_000;
/// Batches of each kind in a turn.
const BATCHES: usize = 50;
/// Gets in a turn that each wait for their answer.
const SINGLE: usize = 500;
/// Channels that are written and read in turn.
const CHANNELS: usize = 100;

pub(super) fn transfer_database(_: &Scale) -> String {
    outputs(CHANNELS)
}

/// What is sent in a batch.
#[derive(Clone, Copy)]
enum What {
    Put,
    Get,
    Both,
}

/// For put, get, and both in turn: server CPU and time per operation (us), share of a CPU (%), traffic (Mbit/s); then
/// the time of a single get that waits for its answer: median, 99th percentile, largest (us).
pub(super) fn transfer(ioc: &mut Ioc, _: &Scale) -> Result<Vec<f64>, String> {
    let mut circuit = Circuit::open(ioc.port)?;
    let names: Vec<String> = (0..CHANNELS).map(|n| format!("x{n}")).collect();
    let sids = circuit.channels(&names)?;
    let mut figures = Vec::new();
    for what in [What::Put, What::Get, What::Both] {
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

fn batch(circuit: &mut Circuit, sids: &[u32], what: What) -> Result<(), String> {
    let mut gets = 0;
    for n in 0..BATCH {
        let sid = sids[n % sids.len()];
        let is_put = matches!(what, What::Put) || (matches!(what, What::Both) && n % 2 == 0);
        if is_put {
            circuit.put(sid, n as f64);
        } else {
            circuit.ask_value(sid);
            gets += 1;
        }
    }
    if gets == 0 {
        // The answer to the last one tells that all are done.
        circuit.ask_value(sids[0]);
        gets = 1;
    }
    circuit.flush()?;
    circuit.expect(command::READ_NOTIFY, gets, |_, _| ())
}

pub(super) fn connect_database(scale: &Scale) -> String {
    outputs(scale.of(10_000))
}

/// Search of different names, then connection: server CPU and time per channel of each (us), share of a CPU (%) and
/// traffic (Mbit/s) of the search.
pub(super) fn connect(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, String> {
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
pub(super) fn load(ioc: &mut Ioc, count: usize) -> Result<Vec<f64>, String> {
    Circuit::open(ioc.port)?.channel(&format!("x{}", count - 1))?;
    Ok(vec![ioc.took.as_secs_f64(), ioc.cpu()?.0 as f64 / 1e9, ioc.resident() / count as f64])
}
