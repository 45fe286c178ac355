//! Creation, start and join of the lanes' threads.

use super::lane::{LaneStatus, LaneThread};
use super::queued::Queued;
use super::refusals::Refusals;
use super::{CHANGES, CONTROL_WORDS, Config, HANGS_AFTER, LOG_WORDS, Lanes, ROUND};
use crate::error::ServeError;
use crate::memory;
use crate::message_buffer::Packing;
use crate::wake_gate::WakeGate;
use base::DurNs;
use msg::{Band, Lane, Tables, TextBuffer};
use ring::Stream;
use rt::{LoopSpec, Rt};
use rtrb::RingBuffer;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::rounds::Rounds;

/// Name of the thread of a band.
pub(super) fn name(band: usize) -> String {
    format!("band-{band}")
}

/// Creates a lane's thread and the control thread's side of it.
pub(super) fn lane(
    config: &Config,
    band: Band,
    tables: &Tables,
    bell: &Arc<OwnedFd>,
    stop: &Arc<AtomicBool>,
) -> sys::Result<(LaneThread, Lanes)> {
    let both = |room| {
        let words = memory::inside(room);
        let first = Stream::format(words.clone()).expect("long enough");
        let second = Stream::attach(words).expect("just made");
        (first.writer(), second.reader())
    };
    let (changes, changes_in) = RingBuffer::new(CHANGES);
    let (returns, returns_in) = RingBuffer::new(CHANGES + config.limits.conns);
    let ((to_control, to_control_in), (from_control, from_control_in), (log, log_in)) =
        (both(CONTROL_WORDS), both(CONTROL_WORDS), both(LOG_WORDS));
    let (gate, seen) = (Arc::new(WakeGate::new()?), Arc::new(LaneStatus::default()));
    let thread = LaneThread {
        band,
        lane: Lane::new(config.limits, sys::handover::own_user(), Arc::new(tables.clone())),
        gate: gate.clone(),
        connections: (0..config.limits.conns).map(|_| None).collect(),
        used: 0,
        changes: changes_in,
        returns,
        to_control,
        queued: Queued::of_control(),
        from_control: from_control_in,
        log,
        refusals: Refusals::new(sys::handover::own_user()),
        logged: 0,
        control_bell: bell.clone(),
        seen: seen.clone(),
        stop: stop.clone(),
        rounds: Rounds::watch(&name(band.number().into()), HANGS_AFTER),
        line: TextBuffer::new(),
        packing: Packing::new(),
        is_bounded: !config.unbounded,
    };
    let seen_by_control = Lanes {
        band,
        gate,
        changes,
        returns: returns_in,
        back: Vec::new(),
        to_control: to_control_in,
        from_control,
        log: log_in,
        lost: 0,
        seen,
        sent: 0,
    };
    Ok((thread, seen_by_control))
}

/// The running lane threads: plain ones, or real-time ones if the configuration has a class or CPU for any band.
pub(super) enum Running {
    Plain(Vec<std::thread::JoinHandle<()>>),
    RealTime(Rt<rt::Armed>),
}

impl Running {
    pub(super) fn start(config: &Config, threads: Vec<LaneThread>, stop: &Arc<AtomicBool>) -> Result<Self, ServeError> {
        if config.bands.iter().all(|band| band.class.is_none() && band.cpu.is_none()) {
            let spawned = threads
                .into_iter()
                .enumerate()
                .map(|(at, thread)| std::thread::Builder::new().name(name(at)).spawn(move || thread.run()));
            let spawned: Result<Vec<_>, _> = spawned.collect();
            return spawned.map(Self::Plain).map_err(|error| {
                stop.store(true, Ordering::Relaxed);
                ServeError::Thread(error)
            });
        }
        let mut rt = Rt::new();
        for (at, thread) in threads.into_iter().enumerate() {
            let wanted = config.bands.iter().find(|wanted| usize::from(wanted.band.number()) == at);
            let spec = LoopSpec::new(name(at), ROUND);
            let (class, cpu) = wanted.map_or((None, None), |wanted| (wanted.class, wanted.cpu));
            let entry = wanted.and_then(|wanted| wanted.entry.clone());
            rt.add_task(LoopSpec { class, cpu, entry, ..spec }, move || thread.run());
        }
        let mut armed = rt.arm()?;
        armed.start(DurNs::ZERO);
        Ok(Self::RealTime(armed))
    }

    /// Real-time properties that were not obtained.
    pub(super) fn missing(&self) -> sys::Result<Vec<String>> {
        let Self::RealTime(armed) = self else { return Ok(Vec::new()) };
        let mut missing: Vec<String> = armed.missing().map(ToString::to_string).collect();
        if !memory::keeps_its_pages()? {
            missing.push(
                "not obtained: queues from which a client cannot take pages (Operation not permitted); a client can give bands page faults: run \
                 as root (CAP_LINUX_IMMUTABLE) on Linux 6.1 or later"
                    .to_owned(),
            );
        }
        Ok(missing)
    }

    pub(super) fn join(self) {
        match self {
            Self::Plain(threads) => threads.into_iter().for_each(|thread| {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }),
            Self::RealTime(mut armed) => armed.stop(),
        }
    }
}
