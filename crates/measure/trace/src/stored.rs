//! A piece of a recording as a file: with everything that is needed to read and explain it, on any machine.
//!
//! A line `tahti trace 1`, a line of JSON ([`Head`]), then the pages of the ring buffers as the kernel wrote them, each behind
//! its lane (4 bytes), CPU (2 bytes), two of zero, and length (4 bytes), little-endian.

use crate::decode::{Decoder, DecoderError, EVENTS, Lost, Row};
use crate::explain::{Clocks, Explainer, Facts};
use crate::merge::{Item, Merge};
use crate::symbols::Symbols;
use crate::{Late, What};
use base::{CpuId, CpuSet, DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The first line.
const FORM: &str = "tahti trace 1";
/// A longer head is refused.
const HEAD_BYTES_MAX: usize = 16 << 20;
/// No page of a ring buffer is longer.
const PAGE_BYTES_MAX: usize = 1 << 17;

/// What is known of a recording besides its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The kernel that wrote it.
    pub kernel: String,
    /// Whether it writes the low byte of a number first.
    pub little_endian: bool,
    /// Why this piece was kept.
    pub reason: String,
    /// The moment of that.
    pub at: MonoNs,
    /// From when events are wanted.
    pub from: MonoNs,
    /// Until when.
    pub to: MonoNs,
    /// CPUs of which everything was recorded.
    pub cpus: CpuSet,
    /// The threads that were watched.
    pub threads: Vec<Thread>,
    /// What is later than this is explained.
    pub above: DurNs,
    /// Cycles longer than this are, too.
    pub cycle_above: Option<DurNs>,
    /// Whether there is a host that can take CPUs away.
    pub hypervisor: bool,
    /// How long each idle state takes to leave, in nanoseconds.
    pub idle_exit_ns: Vec<u64>,
    /// The clocks.
    pub clocks: Clocks,
    /// The kernel's `events/header_page`.
    pub header_page: String,
    /// Its format files, by tracepoint.
    pub formats: BTreeMap<String, String>,
    /// The kernel's functions that its events name.
    pub functions: BTreeMap<u64, String>,
    /// What was lost since the recording began.
    pub lost: Lost,
}

/// A thread that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// Its name.
    pub name: String,
}

/// A page of a CPU's ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The way that it came on: pages of one lane are in order.
    pub lane: u32,
    /// Of which CPU.
    pub cpu: CpuId,
    /// As the kernel wrote it.
    pub bytes: &'a [u8],
}

/// Why bytes are no recording that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredError {
    /// They do not begin with the form's name.
    Form,
    /// The head is not understood.
    Head(String),
    /// A page ends before its length.
    Short {
        /// Where it begins in the file.
        at: usize,
    },
    /// It was written on a machine with the other order of bytes.
    Endianness,
    /// The format files in it are not understood.
    Formats(DecoderError),
}

impl std::fmt::Display for StoredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form => write!(f, "no recording: expected a file of `tahti trace dump`, which begins with {FORM:?}"),
            Self::Head(why) => write!(f, "the head of this recording is not understood: {why}"),
            Self::Short { at } => write!(f, "this recording is cut off: the page at byte {at} is shorter than it says"),
            Self::Endianness => {
                f.write_str("this recording is of a machine with the other order of bytes: read it on one of that kind")
            }
            Self::Formats(why) => write!(f, "the format files in this recording are not understood: {why}"),
        }
    }
}

impl std::error::Error for StoredError {}

/// A recording that was read.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// What is known of it.
    pub head: Head,
    pages: Vec<Page<'a>>,
}

/// A recording as the bytes of a file.
#[must_use]
pub fn write<'a>(head: &Head, pages: impl Iterator<Item = Page<'a>>) -> Vec<u8> {
    let mut bytes = format!("{FORM}\n").into_bytes();
    // Plain fields alone: it always has a text form.
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
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They are none of ours, or cut off.
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

    /// All events in order, with `None` where some were lost, from the first on that the pages hold.
    ///
    /// # Errors
    /// The format files in it are not understood.
    pub fn events(&self) -> Result<Vec<Item>, StoredError> {
        let formats = &self.head.formats;
        let mut decoder =
            Decoder::new(&self.head.header_page, |path| formats.get(path).cloned()).map_err(StoredError::Formats)?;
        let (mut merge, mut all) = (Merge::default(), Vec::new());
        for page in &self.pages {
            decoder.page(page.cpu, page.bytes, |at, event| merge.push(page.lane, (at, page.cpu, event)));
        }
        merge.drain(MonoNs(u64::MAX), |item| all.push(item));
        Ok(all)
    }

    /// What was late among `events`.
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
        head.threads.iter().for_each(|thread| explainer.watch(thread.tid, &thread.name));
        let mut lates = Vec::new();
        events.iter().for_each(|item| explainer.take(item, |late| lates.push(late.clone())));
        (explainer, lates)
    }

    /// Tracepoints that its kernel lacks.
    pub fn missing(&self) -> impl Iterator<Item = &'static Row> + '_ {
        EVENTS.iter().filter(|row| !self.head.formats.contains_key(row.path))
    }

    /// The names of the kernel's functions that stand in it.
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

/// The addresses of code that events name.
#[must_use]
pub fn addresses(events: impl Iterator<Item = What>) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for what in events {
        match what {
            What::TimerStart { function, .. } | What::TimerFire { function, .. } | What::WorkStart { function } => {
                all.insert(function);
            }
            What::Nmi { handler, .. } => _ = all.insert(handler),
            What::IpiSent { callback: function, .. } | What::CallQueued { function, .. } => _ = all.insert(function),
            What::Stack { callers } => all.extend(callers),
            _ => {}
        }
    }
    all
}
