//! File format of a recorded window, with everything needed to decode and explain it on any machine.
//!
//! A line `tahti trace 1`, a line of JSON ([`Head`]), then the ring buffer pages as the kernel wrote them. Each page is preceded
//! by its lane (4 bytes), CPU (2 bytes), two zero bytes, and length (4 bytes), little-endian.

use crate::decode::{Decoder, DecoderError, EVENTS, LossCounters, Row};
use crate::explain::{Clocks, Explainer, Facts};
use crate::merge::{Item, Merge};
use crate::symbols::Symbols;
use crate::{EventKind, Late, ProgramEvent};
use base::{CpuId, CpuSet, DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The first line.
const FORM: &str = "tahti trace 1";
/// Maximum size of the head.
const HEAD_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a page.
const PAGE_BYTES_MAX: usize = 1 << 17;
/// Lane of the events that threads themselves reported.
pub const PROGRAM_LANE: u32 = u32::MAX;

/// Description of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the kernel.
    pub kernel: String,
    /// Whether the machine is little-endian.
    pub little_endian: bool,
    /// Reason why this window was kept.
    pub reason: String,
    /// Time of the cause.
    pub at: MonoNs,
    /// Start of the window.
    pub from: MonoNs,
    /// End of the window.
    pub to: MonoNs,
    /// CPUs whose events were recorded completely.
    pub cpus: CpuSet,
    /// The threads that were watched.
    pub threads: Vec<Thread>,
    /// Name of the plant's process of each of its threads.
    #[serde(default)]
    pub processes: BTreeMap<i32, String>,
    /// Selected threads that the recorder did not find, with the remedy.
    #[serde(default)]
    pub shortfall: Option<String>,
    /// Wake-ups later than this are explained.
    pub above: DurNs,
    /// Cycles longer than this are explained, if set.
    pub cycle_above: Option<DurNs>,
    /// Whether a hypervisor may take CPUs away.
    pub hypervisor: bool,
    /// Exit latency of each idle state in nanoseconds.
    pub idle_exit_ns: Vec<u64>,
    /// The clocks.
    pub clocks: Clocks,
    /// The kernel's `events/header_page`.
    pub header_page: String,
    /// Its format files, by tracepoint.
    pub formats: BTreeMap<String, String>,
    /// The kernel functions that occur in its events, by address.
    pub functions: BTreeMap<u64, String>,
    /// Losses since the recording started.
    pub lost: LossCounters,
    /// Events that the watched threads themselves reported.
    #[serde(default)]
    pub program_events: Vec<ProgramEvent>,
}

/// A watched thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its process id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Whether its delays count in a time-sharing class too.
    #[serde(default)]
    pub every_class: bool,
}

impl Thread {
    /// Has `explainer` watch this thread.
    pub fn watched_by(&self, explainer: &mut Explainer) {
        explainer.watch(self.tid, &self.name);
        explainer.count_in_every_class(self.tid, self.every_class);
    }
}

/// A page of a CPU's ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The lane it was read from. Pages of a lane are in order.
    pub lane: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// Its bytes as the kernel wrote them.
    pub bytes: &'a [u8],
}

/// Reason why bytes are not a readable recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredError {
    /// They do not start with the format's name.
    Form,
    /// The head cannot be parsed.
    Head(String),
    /// The file ends within a page.
    Short {
        /// Offset of the page in the file.
        at: usize,
    },
    /// Written on a machine with the other byte order.
    Endianness,
    /// The format files in it are not supported.
    Formats(DecoderError),
}

impl std::fmt::Display for StoredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form => write!(f, "no recording: expected a file of `tahti trace dump`, which begins with {FORM:?}"),
            Self::Head(why) => write!(f, "the head of this recording is not understood: {why}"),
            Self::Short { at } => {
                write!(f, "this recording is cut off: the page at byte {at} is shorter than its header states")
            }
            Self::Endianness => {
                f.write_str("this recording is of a machine with the other order of bytes: read it on one of that kind")
            }
            Self::Formats(why) => write!(f, "the format files in this recording are not understood: {why}"),
        }
    }
}

impl std::error::Error for StoredError {}

/// A parsed recording.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// Its description.
    pub head: Head,
    pages: Vec<Page<'a>>,
}

/// Encodes a recording as a file.
#[must_use]
pub fn write<'a>(head: &Head, pages: impl Iterator<Item = Page<'a>>) -> Vec<u8> {
    let mut bytes = format!("{FORM}\n").into_bytes();
    // `Head` has only plain fields, so this cannot fail.
    bytes.extend(serde_json::to_vec(head).unwrap_or_default());
    bytes.push(b'\n');
    for page in pages {
        bytes.extend(page.lane.to_le_bytes());
        bytes.extend(page.cpu.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend((page.bytes.len() as u32).to_le_bytes());
        bytes.extend(page.bytes);
    }
    bytes
}

impl<'a> Stored<'a> {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// If they are not a recording, or truncated.
    pub fn read(bytes: &'a [u8]) -> Result<Self, StoredError> {
        let rest = bytes.strip_prefix(FORM.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n"));
        let rest = rest.ok_or(StoredError::Form)?;
        let end = rest.iter().take(HEAD_BYTES_MAX).position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| StoredError::Head("it does not end".into()))?;
        let head: Head = serde_json::from_slice(&rest[..end]).map_err(|error| StoredError::Head(error.to_string()))?;
        if head.little_endian != cfg!(target_endian = "little") {
            return Err(StoredError::Endianness);
        }
        let (mut pages, mut rest) = (Vec::new(), &rest[end + 1..]);
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (page, behind) = page(rest).ok_or(StoredError::Short { at })?;
            pages.push(page);
            rest = behind;
        }
        Ok(Self { head, pages })
    }

    /// All events in order, with `None` where some were lost. Includes events of the pages from before the window.
    ///
    /// # Errors
    /// If the format files in it are not supported.
    pub fn events(&self) -> Result<Vec<Item>, StoredError> {
        let formats = &self.head.formats;
        let mut decoder =
            Decoder::new(&self.head.header_page, |path| formats.get(path).cloned()).map_err(StoredError::Formats)?;
        let (mut merge, mut all) = (Merge::default(), Vec::new());
        for page in &self.pages {
            decoder.page(page.cpu, page.bytes, |at, event| merge.push(page.lane, (at, page.cpu, event)));
        }
        for event in &self.head.program_events {
            merge.push(PROGRAM_LANE, (event.at, event.cpu, Some(event.into())));
        }
        merge.drain(MonoNs(u64::MAX), |item| all.push(item));
        Ok(all)
    }

    /// Explains the delays among `events`.
    #[must_use]
    pub fn explain(&self, events: &[Item], worst_max: usize) -> (Explainer, Vec<Late>) {
        let head = &self.head;
        let facts = Facts {
            hypervisor: head.hypervisor,
            idle_exit_ns: head.idle_exit_ns.clone(),
            clocks: head.clocks,
            symbols: self.symbols(),
        };
        let mut explainer = Explainer::new(facts, head.above, head.cycle_above, worst_max);
        explainer.name_processes(head.processes.clone());
        for thread in &head.threads {
            thread.watched_by(&mut explainer);
        }
        let mut lates = Vec::new();
        events.iter().for_each(|item| explainer.take(item, |late| lates.push(late.clone())));
        (explainer, lates)
    }

    /// Tracepoints that the recording's kernel lacks.
    pub fn missing(&self) -> impl Iterator<Item = &'static Row> + '_ {
        EVENTS.iter().filter(|row| !self.head.formats.contains_key(row.path))
    }

    /// Names of the kernel functions in the recording.
    #[must_use]
    pub fn symbols(&self) -> Symbols {
        Symbols::exact(self.head.functions.iter().map(|(address, name)| (*address, name.as_str())))
    }
}

fn page(bytes: &[u8]) -> Option<(Page<'_>, &[u8])> {
    let (&[a, b, c, d, e, f, _, _, i, j, k, l], rest) = bytes.split_first_chunk::<12>()?;
    let length = u32::from_le_bytes([i, j, k, l]) as usize;
    let (bytes, rest) = rest.split_at_checked(length).filter(|_| length <= PAGE_BYTES_MAX)?;
    Some((Page { lane: u32::from_le_bytes([a, b, c, d]), cpu: CpuId::from_le_bytes([e, f]), bytes }, rest))
}

/// Code addresses that occur in events.
#[must_use]
pub fn addresses(events: impl Iterator<Item = EventKind>) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for what in events {
        match what {
            EventKind::TimerStart { function, .. }
            | EventKind::TimerFire { function, .. }
            | EventKind::WorkStart { function } => {
                all.insert(function);
            }
            EventKind::Nmi { handler, .. } => _ = all.insert(handler),
            EventKind::IpiSent { callback: function, .. } | EventKind::CallQueued { function, .. } => {
                _ = all.insert(function)
            }
            EventKind::Stack { callers } => all.extend(callers),
            _ => {}
        }
    }
    all
}
