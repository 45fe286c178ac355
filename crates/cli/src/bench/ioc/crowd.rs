//! Many clients with many monitors each, one of which never reads.

use super::Scale;
use super::database::counters;
use super::host::Ioc;
use super::wire::{Circuit, stamped};
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

/// One of the clients, and what it last got of each counter.
struct Client {
    circuit: Circuit,
    last: Vec<f64>,
}

/// Server CPU per update (ns), share of the updates that came (%), updates lost by those who read, server memory per
/// client (KiB), and how far behind the newest value the one who never reads is when it reads at last (s).
pub(super) fn crowd(ioc: &mut Ioc, scale: &Scale, count: usize) -> Result<Vec<f64>, String> {
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
    let mut lost = 0;
    read_all(&mut clients, Duration::from_secs(1), &mut lost)?;
    lost = 0;
    let (mut came, begin) = (0, Instant::now());
    let (cpu, _) = ioc.measure(|| {
        came = read_all(&mut clients, scale.window * 2, &mut lost)?;
        Ok(())
    })?;
    let posted = begin.elapsed().as_secs_f64() * 10.0 * (count * MONITORS) as f64;
    let grown = (ioc.resident() - empty) / 1024.0 / (count + 1) as f64;
    let mut behind = f64::NAN;
    if let Some(mut never) = never {
        let newest = clients.iter().filter_map(|client| client.last.first()).fold(f64::NAN, |a, b| a.max(*b));
        behind = (newest - drained(&mut never)?).max(0.0) / 10.0;
    }
    Ok(vec![cpu / came as f64, 100.0 * came as f64 / posted, lost as f64, grown, behind])
}

/// Reads what the clients get for a while; counts the updates, and the gaps in what each counter told.
fn read_all(clients: &mut [Client], time: Duration, lost: &mut u64) -> Result<u64, String> {
    let text = |error: rustix::io::Errno| format!("epoll: {error}");
    let poll = epoll::create(CreateFlags::CLOEXEC).map_err(text)?;
    for (n, client) in clients.iter().enumerate() {
        epoll::add(&poll, &client.circuit.stream, EventData::new_u64(n as u64), EventFlags::IN).map_err(text)?;
    }
    let begin = Instant::now();
    let mut count = 0;
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 256];
    let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while begin.elapsed() < time {
        let ready = match epoll::wait(&poll, &mut events[..], Some(&tick)) {
            Ok((ready, _)) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(text(error)),
        };
        for event in ready {
            if let Some(client) = clients.get_mut(event.data.u64() as usize) {
                client.circuit.fill()?;
                count += take(client, lost);
            }
        }
    }
    Ok(count)
}

fn take(client: &mut Client, lost: &mut u64) -> u64 {
    let mut count = 0;
    while let Some((header, payload)) = client.circuit.message() {
        if header.command != command::EVENT_ADD {
            continue;
        }
        count += 1;
        let (_, value) = stamped(payload);
        if let Some(last) = client.last.get_mut(header.p2 as usize) {
            if value > *last + 1.5 {
                *lost += (value - *last - 1.0).round() as u64;
            }
            *last = value;
        }
    }
    count
}

/// Reads everything that waits; the newest value of the first counter.
fn drained(client: &mut Client) -> Result<f64, String> {
    let begin = Instant::now();
    let mut lost = 0;
    client.circuit.impatient(None)?;
    while begin.elapsed() < Duration::from_millis(500) {
        if client.circuit.fill()? {
            take(client, &mut lost);
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(client.last[0])
}
