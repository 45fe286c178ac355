//! Throughput: the most urgent band under bulk load, large bodies, pairs per second.

use super::parts::{BEGIN, BODY_BYTES, TOP, part};
use super::zmq::Zmq;
use super::{BULK_CLIENTS, LIBZMQ, SLICES, Stage, Times, round_trip, timed};
use crate::Failed;
use base::DurNs;
use broker::{Client, ClientError, Received, Room, Sending};
use msg::{Code, write_lines};
use report::{Good, Row, Target};
use std::sync::Arc;
use sys::clock::mono_now;

/// Outstanding requests for pairs per second, and batches.
const WINDOW: usize = 128;
const BATCHES: usize = 4;
/// Commands of a batch.
const BATCH: usize = 256;
/// Outstanding large bodies, and their total number.
const BODIES: usize = 4;
const BODIES_SENT: usize = 2_000;

/// Round trips on the most urgent band and through libzmq, with bulk clients if `loaded`.
pub(super) fn urgent(stage: &Stage, rounds: usize, loaded: bool, peer: Option<&Zmq>) -> Result<Vec<Times>, Failed> {
    let clients = if loaded { BULK_CLIENTS } else { 0 };
    let mut client = stage.client(TOP)?;
    let mut table = ["message, band 7", LIBZMQ].map(Times::new).to_vec();
    let rounds = rounds.div_ceil(SLICES);
    for _ in 0..SLICES {
        let words = ["bench", "rtt-part", "bulk", &stage.name];
        let bulk: Result<Vec<_>, Failed> = (0..clients).map(|_| part(&words)).collect();
        let bulk = bulk?;
        sys::clock::sleep_until(mono_now() + DurNs::from_ms(500));
        timed(&mut table[0], rounds, || round_trip(&mut client))?;
        drop(bulk);
        if let Some(peer) = peer {
            peer.rounds(rounds, clients, &mut table[1].ns)?;
        }
    }
    table.truncate(if peer.is_some() { 2 } else { 1 });
    Ok(table)
}

/// Large bodies, copied once by the manager.
pub(super) fn bodies(stage: &Stage) -> Result<Row, Failed> {
    let mut client = stage.client(super::BULK)?;
    let mut rooms = Vec::new();
    for _ in 0..BODIES {
        let mut room = client.room(BODY_BYTES as u64)?;
        room.words().iter().for_each(|word| word.store(1, std::sync::atomic::Ordering::Relaxed));
        room.filled(BODY_BYTES);
        rooms.push(room);
    }
    let sending = Sending { limit: BEGIN, ..Sending::default() };
    let (began, mut got) = (mono_now(), 0);
    while got < BODIES_SENT {
        while let Some(mut room) = rooms.pop() {
            room.filled(BODY_BYTES);
            client.send_room("put/bench_image/now", &sending, room)?;
        }
        rooms.extend(reply(&mut client)?.room.and_then(Arc::<Room>::into_inner));
        got += 1;
    }
    let wall = (mono_now() - began).0 as f64 / 1e9;
    let name = format!("bodies of {} MiB, one copy", BODY_BYTES >> 20);
    Ok(Row::figure(name, "GB/s", got as f64 * BODY_BYTES as f64 / wall / 1e9).target(Target::at_least(3.0)))
}

fn reply(client: &mut Client) -> Result<Received, Failed> {
    match client.next(BEGIN)? {
        Some(reply) if reply.code == Code::Ok => Ok(reply),
        Some(reply) => Err(ClientError::Refused(format!("{}: {}", reply.code, reply.text)).into()),
        None => Err(Failed::answer("the message server", format!("a reply within {BEGIN}"), "none")),
    }
}

/// Pairs with many outstanding, and commands in batches; processor time of the server for one.
pub(super) fn throughput(stage: &Stage, pairs: usize) -> Result<Vec<Row>, Failed> {
    if pairs == 0 {
        return Ok(Vec::new());
    }
    // Writes: checked against rules and locks, and logged.
    let singly = flood(stage, pairs, WINDOW, "put/bench_value/1A", &[])?;
    let mut body = Vec::new();
    write_lines((0..BATCH).map(|_| "put/bench_value/1A"), &mut body);
    let batched = flood(stage, pairs.div_ceil(BATCH) * 8, BATCHES, "batch/bench", &body)?;
    let rows = [(format!("with {WINDOW} outstanding"), singly, 1), (format!("in batches of {BATCH}"), batched, BATCH)];
    Ok(rows.into_iter().flat_map(|(name, flow, each)| flow.rows(&name, each as f64)).collect())
}

/// Target: pairs per second of the server's processor time.
const PAIRS_TARGET: f64 = 2e6;

/// Results of many messages.
struct Flow {
    per_s: f64,
    per_server_cpu_s: f64,
    unlogged: u64,
}

impl Flow {
    fn rows(&self, name: &str, each: f64) -> [Row; 3] {
        [
            Row::figure(format!("{name}: pairs per second"), "", self.per_s * each).good(Good::High),
            Row::figure(format!("{name}: pairs per second of the server's CPU time"), "", self.per_server_cpu_s * each)
                .target(Target::at_least(PAIRS_TARGET)),
            Row::figure(format!("{name}: log records lost"), "", self.unlogged as f64).good(Good::Low),
        ]
    }
}

fn flood(stage: &Stage, messages: usize, window: usize, line: &str, body: &[u8]) -> Result<Flow, Failed> {
    let mut client = stage.client(msg::Band::DEFAULT.number())?;
    let sending = Sending { limit: DurNs::from_secs(60), body, ..Sending::default() };
    let server = stage.server.0.id() as i32;
    let cpu = || sys::clock::process_cpu(server);
    let lost = |client: &mut Client| -> Result<u64, Failed> {
        let status = client.ask("describe/server", &Sending::default())?.text;
        let count = status.split(' ').find_map(|word| word.strip_prefix("unlogged="));
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| Failed::answer("the message server", "unlogged=NUMBER", &status))
    };
    let lost_before = lost(&mut client)?;
    let (began, cpu_before, mut sent, mut got) = (mono_now(), cpu()?, 0, 0);
    while got < messages {
        while sent < messages && client.outstanding() < window {
            client.send(line, &sending)?;
            sent += 1;
        }
        reply(&mut client)?;
        got += 1;
        while client.outstanding() > window / 2 {
            reply(&mut client)?;
            got += 1;
        }
    }
    let (wall, used) = ((mono_now() - began).0 as f64 / 1e9, (cpu()?.0 - cpu_before.0) as f64 / 1e9);
    Ok(Flow {
        per_s: got as f64 / wall,
        per_server_cpu_s: got as f64 / used,
        unlogged: lost(&mut client)? - lost_before,
    })
}
