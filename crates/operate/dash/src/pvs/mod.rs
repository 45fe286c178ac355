//! The plant's tables and functions as PVs of PVAccess, read only, for control-room programs.
//!
//! A thread serves them. It copies the newest data from the [`Hub`], so clients cost the plant nothing. Functions are
//! executed by other threads ([`calls`]).

mod calls;
mod tables;

#[cfg(test)]
mod tests;

use crate::Options;
use crate::hub::{Hub, Topic};
use base::{DurNs, MonoNs, Stamp};
use calls::{Calls, Function};
use pva::codec::{Array, Mask, Status, Struct, Type, Value};
use pva::nt::Shape;
use pva::server::{
    Access, Call, Get, Opened, Options as Atomic, Peer, Put, Snapshot, Source, StructureGet, Token, Typed, Write,
};
use pvanet::server::PvAccess;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use sys::clock::{mono_now, wall_ns};
use sys::rounds::Rounds;
use tables::{Clock, TABLES};

/// Interval of checks for new data.
const EVERY: DurNs = DurNs::from_ms(250);

/// The server's loop hangs if it finishes no round within this time.
const HANGS_AFTER: DurNs = DurNs::from_secs(15);

/// The PV with the verdict.
const VERDICT: &str = "verdict";

/// Opens the sockets and starts the threads, which end with the process.
///
/// # Errors
/// A socket cannot be opened, or a thread cannot be started.
pub(crate) fn start(options: &Options, hub: Arc<Hub>) -> io::Result<()> {
    let (config, limits, complaints) = pvanet::config::server(|name| std::env::var(name).ok());
    let wall = wall_ns();
    let stamp = Stamp::from_unix(wall / 1_000_000_000, (wall % 1_000_000_000) as u32);
    let served = PvAccess::open(config, limits, mono_now(), stamp).map_err(|error| {
        let remedy = "set EPICS_PVAS_BROADCAST_PORT, or remove `pvaccess` of [dashboard] to serve without it";
        io::Error::new(error.kind(), format!("PVAccess: {error}\n  try: {remedy}"))
    })?;
    complaints.iter().chain(&served.net.complaints).for_each(|complaint| eprintln!("tahti dash: {}", complaint.0));
    let (done, answers) = channel();
    let pvs = Pvs::new(&options.plant, Calls::start(options, &done, &served.net.waker())?);
    println!("tahti dash: serves {}:{VERDICT} and others over PVAccess, port {}", options.plant, served.net.tcp_port);
    let rounds = Rounds::watch("dash-pvaccess", HANGS_AFTER);
    let thread = std::thread::Builder::new().name("dash-pvaccess".to_owned());
    thread.spawn(move || serve(served, pvs, &hub, &answers, &rounds)).map(drop)
}

/// Serves until the kernel reports an error. The dashboard then reports that the thread hangs.
fn serve(
    mut served: PvAccess,
    mut pvs: Pvs,
    hub: &Hub,
    answers: &Receiver<(Token, Result<Typed, Status>)>,
    rounds: &Rounds,
) {
    let mut next = mono_now();
    loop {
        rounds.count();
        let now = mono_now();
        if now >= next {
            next = now + EVERY;
            for (handle, snapshot) in pvs.refresh(hub, now, wall_ns().cast_signed()) {
                served.server.post_structure(handle, &snapshot);
            }
        }
        for (token, answer) in answers.try_iter() {
            served.server.answer_call(token, answer, &mut pvs);
        }
        if served.poll_timeout() <= now {
            served.run_due(now);
        }
        served.flush_again(now, &mut pvs);
        while served.flush_touched(now, &mut pvs) {}
        let until = if served.has_more() { now } else { served.poll_timeout().min(next) };
        let ready = match served.events(now, until) {
            Ok(ready) => ready,
            Err(error) => return eprintln!("tahti dash: PVAccess ends: epoll: {error}"),
        };
        let now = mono_now();
        ready.iter().for_each(|item| served.handle(now, *item, &mut pvs));
        served.recycle(ready);
    }
}

struct Pv {
    name: String,
    ty: Arc<Struct>,
    /// All leaves, and the newest value.
    snapshot: Snapshot,
    function: Option<Function>,
}

/// All PVs. The handle of a channel is its index.
struct Pvs {
    all: Vec<Pv>,
    calls: Calls,
    /// Versions of the data of [`TABLES`] and of the verdict.
    seen: Vec<u64>,
    clock: Clock,
}

impl Pvs {
    fn new(plant: &str, calls: Calls) -> Self {
        let pv = |suffix: &str, ty: Arc<Struct>, value: Value, function| Pv {
            name: format!("{plant}:{suffix}"),
            snapshot: Snapshot { marks: Mask::of([0]).leaves(&Type::Struct(ty.clone())), value: Arc::new(value) },
            ty,
            function,
        };
        let wall = wall_ns().cast_signed();
        let of_tables =
            TABLES.iter().map(|table| pv(table.suffix, table.ty(), table.value(None, Clock::default(), wall), None));
        let verdict = pv(VERDICT, tables::text_type(), tables::verdict_value(None, wall), None);
        let functions = Function::ALL.into_iter().map(|function| {
            let usage = tables::text_value(function.usage(), wall);
            pv(function.suffix(), tables::text_type(), usage, Some(function))
        });
        let all = of_tables.chain([verdict]).chain(functions).collect();
        Self { all, calls, seen: vec![0; TABLES.len() + 1], clock: Clock::default() }
    }

    /// Takes new data from the hub. Returns the changed PVs with their changed fields.
    fn refresh(&mut self, hub: &Hub, now: MonoNs, wall_ns: i64) -> Vec<(u64, Snapshot)> {
        self.clock.update(now, wall_ns);
        let mut changes = Vec::new();
        for (index, pv) in self.all.iter_mut().enumerate().take(TABLES.len() + 1) {
            let topic = TABLES.get(index).map_or(Topic::Plant, |table| table.topic);
            let Some((number, source)) = hub.newer_source(topic, self.seen[index]) else { continue };
            self.seen[index] = number;
            let value = match TABLES.get(index) {
                Some(table) => table.value(source.as_deref(), self.clock, wall_ns),
                None => tables::verdict_value(source.as_deref(), wall_ns),
            };
            let mut marks = Mask::default();
            let is_news = pv.changes(&value, &mut marks);
            pv.snapshot.value = Arc::new(value);
            if is_news {
                changes.push((index as u64, Snapshot { marks, value: pv.snapshot.value.clone() }));
            }
        }
        changes
    }

    fn get(&self, handle: u64) -> Option<&Pv> {
        self.all.get(usize::try_from(handle).ok()?)
    }
}

impl Pv {
    /// Marks the fields in which `value` differs from the present one. Returns whether any but the time stamp does.
    fn changes(&self, value: &Value, marks: &mut Mask) -> bool {
        let ty = Type::Struct(self.ty.clone());
        mark_changes(&ty, (&self.snapshot.value, value), 0, marks);
        let stamp = self.ty.field("timeStamp").map_or(0..0, |(_, bit, ty)| bit..bit + ty.nodes());
        (0..ty.nodes()).any(|bit| marks.has(bit) && !stamp.contains(&bit))
    }
}

/// Marks the fields in which two values differ. `bit` is that of the type.
fn mark_changes(ty: &Type, (old, new): (&Value, &Value), bit: u32, marks: &mut Mask) {
    if let (Some(fields), Value::Struct(old), Value::Struct(new)) = (ty.fields(), old, new) {
        let mut bit = bit + 1;
        for ((_, ty), pair) in fields.fields().iter().zip(old.iter().zip(new)) {
            mark_changes(ty, pair, bit, marks);
            bit += ty.nodes();
        }
    } else if !is_same(old, new) {
        marks.set(bit);
    }
}

/// Whether two leaves are equal. A value that is not a number is equal to itself.
fn is_same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(Array::F64(old)), Value::Array(Array::F64(new))) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.to_bits() == new.to_bits())
        }
        _ => old == new,
    }
}

const READ_ONLY: Access = Access { read: true, write: false };

impl Source for Pvs {
    fn exists(&mut self, name: &[u8]) -> bool {
        self.all.iter().any(|pv| pv.name.as_bytes() == name)
    }

    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        let handle = self.all.iter().position(|pv| pv.name.as_bytes() == name)? as u64;
        Some(Opened { handle, watch: handle, shape: Shape::Structure, access: READ_ONLY })
    }

    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        READ_ONLY
    }

    fn close(&mut self, _: u64) {}

    fn read(&mut self, _: u64, _: bool, _: Option<Token>) -> Get<'_> {
        Get::Failed
    }

    fn structure(&self, handle: u64) -> Option<Arc<Struct>> {
        self.get(handle).map(|pv| pv.ty.clone())
    }

    fn read_structure(&mut self, handle: u64, _: Atomic, _: Token) -> StructureGet {
        match self.get(handle) {
            Some(pv) => StructureGet::Done(pv.snapshot.clone()),
            None => StructureGet::Failed(Status::error("no such channel")),
        }
    }

    fn is_function(&self, handle: u64) -> bool {
        self.get(handle).is_some_and(|pv| pv.function.is_some())
    }

    fn call(&mut self, handle: u64, _: Peer<'_>, argument: Option<Typed>, token: Token) -> Call {
        match self.get(handle).and_then(|pv| pv.function) {
            Some(function) => self.calls.give(function, argument, token),
            None => Call::Failed(Status::error("the channel is no function")),
        }
    }

    fn write(&mut self, _: u64, _: Peer<'_>, _: Write, _: Token, _: bool) -> Put {
        Put::Failed("the channel is read only".into())
    }

    fn forget(&mut self, _: Token) {}

    fn watch(&mut self, _: u64) {}

    fn unwatch(&mut self, _: u64) {}

    fn names(&self) -> Vec<String> {
        self.all.iter().map(|pv| pv.name.clone()).collect()
    }
}
