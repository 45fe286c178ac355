//! Export to Perfetto's format (`perfetto.protos.Trace`), for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! Switches, wake-ups and idle states are exported as kernel events, so that scheduling is drawn as usual. Interrupts, work items
//! and delays have separate tracks.

use super::protobuf::Message;
use super::{Picture, Span, Track};
use crate::event::{Event, EventKind};
use crate::stored::{Stored, StoredError};
use base::{CpuId, MonoNs};
use std::collections::{BTreeMap, BTreeSet};

/// Field numbers of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Maximum events of one CPU per packet.
const BUNDLE_EVENTS: usize = 4096;
/// All packets belong to one sequence.
const SEQUENCE: u64 = 1;
/// Flag: the sequence's state is reset.
const CLEARED: u64 = 1;
/// Parent tracks of delays, and of interrupts and work items.
const LATE: u64 = 1;
const INSIDE: u64 = 2;

/// Converts a recording.
///
/// # Errors
/// If the recording's format files are not supported.
pub fn perfetto(stored: &Stored<'_>) -> Result<Vec<u8>, StoredError> {
    let picture = Picture::of(stored)?;
    let mut out = Writer { trace: Message::default(), boot: stored.head.clocks.boot };
    out.clocks(stored);
    out.threads(stored);
    out.scheduling(&picture);
    out.tracks(&picture.spans());
    Ok(out.trace.into_bytes())
}

struct Writer {
    trace: Message,
    /// Offset of Perfetto's clock from the monotonic clock, in nanoseconds.
    boot: i64,
}

impl Writer {
    fn packet(&mut self, packet: Message) {
        self.trace = std::mem::take(&mut self.trace).message(1, &packet.number(packet::SEQUENCE, SEQUENCE));
    }

    fn time(&self, at: MonoNs) -> u64 {
        at.0.saturating_add_signed(self.boot)
    }

    /// Writes the clocks at the time for which the window was kept.
    fn clocks(&mut self, stored: &Stored<'_>) {
        let [realtime, monotonic, boottime] = [1, 3, 6];
        let (at, clocks) = (stored.head.at, stored.head.clocks);
        let clock = |id, time| Message::default().number(1, id).number(2, time);
        let snapshot = Message::default()
            .message(1, &clock(realtime, at.0.saturating_add_signed(clocks.wall)))
            .message(1, &clock(monotonic, at.0))
            .message(1, &clock(boottime, self.time(at)));
        let packet = Message::default().number(packet::TIMESTAMP, self.time(at));
        let packet = packet.message(packet::CLOCK_SNAPSHOT, &snapshot).number(packet::SEQUENCE_FLAGS, CLEARED);
        self.packet(packet);
    }

    /// Writes the watched threads with their processes.
    fn threads(&mut self, stored: &Stored<'_>) {
        let mut tree = Message::default();
        let processes: BTreeSet<i32> = stored.head.threads.iter().map(|thread| thread.pid).collect();
        for pid in processes.into_iter().filter(|pid| *pid > 0) {
            let name = stored.head.threads.iter().find(|thread| thread.tid == pid || thread.pid == pid);
            let process = Message::default().number(1, pid as u64).number(2, 0);
            tree = tree.message(1, &process.text(3, name.map_or("", |thread| &thread.name)));
        }
        for thread in &stored.head.threads {
            let message = Message::default().number(1, thread.tid as u64).text(2, &thread.name);
            tree = tree.message(2, &message.number(3, thread.pid.max(0) as u64));
        }
        let at = self.time(stored.head.from);
        self.packet(Message::default().number(packet::TIMESTAMP, at).message(packet::PROCESS_TREE, &tree));
    }

    /// Writes the kernel's events, bundled by CPU.
    fn scheduling(&mut self, picture: &Picture) {
        let mut bundles: BTreeMap<CpuId, (Message, usize)> = BTreeMap::new();
        for (_, cpu, event) in &picture.events {
            let Some(message) = event.as_ref().and_then(|event| self.event(event)) else { continue };
            let (bundle, count) =
                bundles.entry(*cpu).or_insert_with(|| (Message::default().number(1, (*cpu).into()), 0));
            *bundle = std::mem::take(bundle).message(2, &message);
            *count += 1;
            if *count == BUNDLE_EVENTS
                && let Some((bundle, _)) = bundles.remove(cpu)
            {
                self.packet(Message::default().message(packet::FTRACE_EVENTS, &bundle));
            }
        }
        for (bundle, _) in bundles.into_values() {
            self.packet(Message::default().message(packet::FTRACE_EVENTS, &bundle));
        }
    }

    fn event(&self, event: &Event) -> Option<Message> {
        let [print, switch, idle, waking] = [3, 4, 13, 20];
        let signed = |number: i32| i64::from(number) as u64;
        let (field, message) = match &event.what {
            EventKind::Switch { from, state, to } => {
                let message = Message::default().text(1, &from.name.to_string()).number(2, signed(from.tid));
                let message = message.number(3, signed(from.prio)).number(4, *state);
                let message = message.text(5, &to.name.to_string()).number(6, signed(to.tid));
                (switch, message.number(7, signed(to.prio)))
            }
            EventKind::Waking { task, cpu } => {
                let message = Message::default().text(1, &task.name.to_string()).number(2, signed(task.tid));
                (waking, message.number(3, signed(task.prio)).number(4, 1).number(5, (*cpu).into()))
            }
            EventKind::Idle { state } => {
                let state = state.map_or(u64::from(u32::MAX), u64::from);
                (idle, Message::default().number(1, state).number(2, event.cpu.into()))
            }
            // As programs on Android mark an instant: Perfetto draws it on the track of the thread.
            EventKind::Program { name, value } => {
                (print, Message::default().text(2, &format!("I|{}|{name} {value}", event.tid)))
            }
            _ => return None,
        };
        let head = Message::default().number(1, self.time(event.at)).number(2, signed(event.tid));
        Some(head.message(field, &message))
    }

    /// Writes interrupts, work items and delays.
    fn tracks(&mut self, spans: &[Span]) {
        self.track(LATE, None, "late wake-ups");
        self.track(INSIDE, None, "interrupts and work items");
        let mut named = BTreeSet::new();
        let mut open: Vec<(u64, MonoNs)> = Vec::new();
        for span in spans.iter().filter(|span| !matches!(span.track, Track::Cpu(_))) {
            let (id, parent, name) = place(span);
            if named.insert(id) {
                self.close(&mut open, MonoNs(u64::MAX));
                self.track(id, Some(parent), &name);
            }
            self.close(&mut open, span.from);
            let mut event = Message::default().number(9, 1).number(11, id).text(22, "tahti").text(23, &span.name);
            for (name, value) in &span.details {
                event = event.message(4, &Message::default().text(10, name).text(6, value));
            }
            self.track_event(span.from, &event);
            open.push((id, span.to));
        }
        self.close(&mut open, MonoNs(u64::MAX));
    }

    /// Ends the spans that end by `at`, innermost first.
    fn close(&mut self, open: &mut Vec<(u64, MonoNs)>, at: MonoNs) {
        while let Some((id, end)) = open.pop_if(|(_, end)| *end <= at) {
            self.track_event(end, &Message::default().number(9, 2).number(11, id));
        }
    }

    fn track_event(&mut self, at: MonoNs, event: &Message) {
        let packet = Message::default().number(packet::TIMESTAMP, self.time(at));
        self.packet(packet.message(packet::TRACK_EVENT, event));
    }

    fn track(&mut self, id: u64, parent: Option<u64>, name: &str) {
        let track = Message::default().number(1, id).text(2, name);
        let track = parent.map_or(track.clone(), |parent| track.number(5, parent));
        self.packet(Message::default().message(packet::TRACK_DESCRIPTOR, &track));
    }
}

/// Track of a span: id, id of the parent track, name.
fn place(span: &Span) -> (u64, u64, String) {
    match span.track {
        Track::Cpu(cpu) | Track::Inside(cpu) => (1 << 32 | u64::from(cpu), INSIDE, format!("CPU {cpu}")),
        Track::Late(tid, lane) => {
            let name = span.details.iter().find(|(name, _)| *name == "thread").map(|(_, value)| value.clone());
            let id = 2 << 32 | (lane as u64) << 24 << 32 | u64::from(tid.unsigned_abs());
            (id, LATE, name.unwrap_or_else(|| format!("thread {tid}")))
        }
    }
}
