//! Many clients with many monitors each, one of which never reads.

use super::Scale;
use super::database::counters;
use super::host::Ioc;
use super::wire::{Circuit, stamped};
use crate::Failed;
use ca::wire::command;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Monitors of each client.
const MONITORS: usize = 100;

pub(super) fn database(_: &Scale) -> String {
    counters(MONITORS)
}

/// Time limit to read the backlog before the measurement; with an overloaded server it never ends.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);

/// A client, with its last value of each counter.
struct Client {
    circuit: Circuit,
    last: Vec<f64>,
}

/// Server CPU per update (ns), share of received updates (%), updates lost by reading clients, server memory per client
/// (KiB), and the age of the newest value of the client that never reads when it finally reads (s).
pub(super) fn crowd(ioc: &mut Ioc, scale: &Scale, count: usize) -> Result<Vec<f64>, Failed> {
    let names: Vec<String> = (0..MONITORS).map(|n| format!("x{n}")).collect();
    let empty = ioc.resident();
    let mut clients = Vec::new();
    for _ in 0..=count {
        let mut circuit = Circuit::open(ioc.port)?;
        let sids = circuit.channels(&names)?;
        circuit.subscribe(&sids)?;
        clients.push(Client { circuit, last: vec![f64::NAN; MONITORS] });
    }
    let never = clients.pop();
    for client in &mut clients {
        client.circuit.impatient(None)?;
    }
    // The first clients' backlog from the time when the last ones connected is read before the measurement.
    let begin = Instant::now();
    loop {
        let newest = newest(&clients);
        read_all(&mut clients, Duration::from_millis(500), &newest)?;
        let late =
            |client: &Client| client.last.iter().zip(&newest).any(|(last, newest)| last.is_nan() || last < newest);
        if begin.elapsed() > CATCH_UP_MAX || !(newest[0].is_nan() || clients.iter().any(late)) {
            break;
        }
    }
    let before = newest(&clients);
    let mut came = Came::default();
    let (cpu, _) = ioc.measure(|| {
        came = read_all(&mut clients, scale.window * 2, &before)?;
        Ok(())
    })?;
    let counted: f64 = newest(&clients).iter().zip(&before).map(|(after, before)| after - before).sum();
    let posted = counted * count as f64;
    let grown = (ioc.resident() - empty) / 1024.0 / (count + 1) as f64;
    let mut behind = f64::NAN;
    if let Some(mut never) = never {
        behind = (newest(&clients)[0] - drained(&mut never)?).max(0.0) / 10.0;
    }
    Ok(vec![cpu / came.all as f64, 100.0 * came.new as f64 / posted, came.lost as f64, grown, behind])
}

/// The updates of some clients over a time.
#[derive(Default)]
struct Came {
    all: u64,
    /// Updates with counts newer than at the start.
    new: u64,
    /// Skipped counts.
    lost: u64,
}

/// The newest count of each counter at any client.
fn newest(clients: &[Client]) -> Vec<f64> {
    (0..MONITORS).map(|n| clients.iter().map(|client| client.last[n]).fold(f64::NAN, f64::max)).collect()
}

/// Reads the clients' updates for a time, beginning with these counts.
fn read_all(clients: &mut [Client], time: Duration, before: &[f64]) -> Result<Came, Failed> {
    let failed = |errno: rustix::io::Errno| Failed::Socket(errno.into());
    let poll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
    for (n, client) in clients.iter().enumerate() {
        epoll::add(&poll, &client.circuit.stream, EventData::new_u64(n as u64), EventFlags::IN).map_err(failed)?;
    }
    let begin = Instant::now();
    let mut came = Came::default();
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 256];
    let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while begin.elapsed() < time {
        let ready = match epoll::wait(&poll, &mut events[..], Some(&tick)) {
            Ok((ready, _)) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        for event in ready {
            if let Some(client) = clients.get_mut(event.data.u64() as usize) {
                client.circuit.fill()?;
                take(client, before, &mut came);
            }
        }
    }
    Ok(came)
}

fn take(client: &mut Client, before: &[f64], came: &mut Came) {
    while let Some((header, payload)) = client.circuit.message() {
        if header.command != command::EVENT_ADD {
            continue;
        }
        came.all += 1;
        let (_, value) = stamped(payload);
        let counter = header.p2 as usize;
        if let Some(last) = client.last.get_mut(counter) {
            came.new += u64::from(before.get(counter).is_some_and(|before| value > *before));
            if value > *last + 1.5 {
                came.lost += (value - *last - 1.0).round() as u64;
            }
            *last = value;
        }
    }
}

/// Reads the backlog; returns the newest value of the first counter.
fn drained(client: &mut Client) -> Result<f64, Failed> {
    let begin = Instant::now();
    client.circuit.impatient(None)?;
    while begin.elapsed() < Duration::from_millis(500) {
        if client.circuit.fill()? {
            take(client, &[], &mut Came::default());
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(client.last[0])
}
