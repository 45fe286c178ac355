//! Recording of kernel tracepoints: a separate tracing instance for selected CPUs, read as raw pages.
//!
//! Tracepoints are enabled once and disabled at the end, because switching one interrupts every CPU. tracefs is mounted for this
//! process only. Instances left by a killed recorder are removed by the next one. Other programs' instances are never changed.
#![forbid(unsafe_code)]

mod error;
mod facts;
mod flight;
mod objects;
pub mod request;
mod sampling;
pub mod status;

pub use error::RecordError;
pub use facts::{Conditions, facts, steal};
pub use flight::{Flight, Options};
pub use objects::Objects;
pub use sampling::{Sampler, SamplingError, sample_cost};

use base::{CpuId, CpuSet, MonoNs};
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use sys::root::RootDir;
use sys::tracing::{Instance, Pages, Tracing};
use trace::{Decoder, Item, LossCounters, Row, Scope};

/// Name of an existing thread.
#[must_use]
pub fn thread_name(tid: i32) -> Option<String> {
    RootDir::machine().read(&format!("/proc/{tid}/comm")).ok().map(|text| text.trim_end().to_owned())
}

/// Prefix of the recorder's instances, followed by process id and start time.
const PREFIX: &str = "tahti-recorder-";
/// Maximum size of a ring buffer page.
const PAGE_BYTES_MAX: usize = 1 << 16;
/// Maximum pages read from one CPU before the next CPU.
const PAGES_A_TURN: usize = 2048;
/// Buffer size in KiB for CPUs on which only events that affect other CPUs are recorded.
const BESIDE_KB: u32 = 512;

/// Maximum threads in a kernel filter: its text must fit into a page.
const FILTERED_MAX: usize = 128;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct RecorderSettings {
    /// CPUs to record completely.
    pub cpus: CpuSet,
    /// All CPUs. On the others, only events that affect `cpus` are recorded.
    pub online: CpuSet,
    /// Buffer size for each of `cpus`, in KiB.
    pub buffer_kb: u32,
    /// Threads whose page faults are recorded from the start; [`Recorder::watch`] changes them later.
    pub threads: Vec<i32>,
    /// Whether to record system calls. This slows down each system call on the machine a little.
    pub syscalls: bool,
}

/// Receives a page: number of the lane, CPU, start time, and the used part of the page.
pub type Keep<'a> = dyn FnMut(u32, CpuId, MonoNs, &[u8]) + 'a;

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    // Dropped in this order: readers, instances, the mount.
    lanes: Vec<Lane>,
    _own: Instance,
    _beside: Option<Instance>,
    tracing: Tracing,
    name: String,
    decoder: Decoder,
    header_page: String,
    formats: BTreeMap<String, String>,
    page: Vec<u8>,
    /// The trigger that is set.
    trigger: Option<String>,
    /// Thread that writes filters. The kernel may take a second for that, while buffers fill.
    filtering: Option<JoinHandle<sys::Result<()>>>,
    events: u64,
}

#[derive(Debug)]
struct Lane {
    cpu: CpuId,
    pages: Pages,
}

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// If the user lacks the privilege, there is no tracefs, or the kernel's format files are not supported. The error contains
    /// the remedy.
    pub fn start(wanted: &RecorderSettings) -> Result<Self, RecordError> {
        let tracing = Tracing::mount().map_err(|error| match error.errno {
            sys::Errno::PERM => RecordError::Forbidden(error),
            sys::Errno::NODEV => RecordError::NoTracing(error),
            _ => RecordError::Kernel(error),
        })?;
        let (place, files) = (tracing.place(), tracing.files());
        sweep(&place, &files);
        let header = files.read("events/header_page")?;
        let mut formats = BTreeMap::new();
        let decoder = Decoder::new(&header, |path| {
            let text = files.read(&format!("events/{path}/format")).ok()?;
            formats.insert(path.to_owned(), text.clone());
            Some(text)
        })?;
        let name = format!("{PREFIX}{}", identity(std::process::id()).unwrap_or_default());
        let rows: Vec<&Row> = decoder.present().collect();
        let is_wanted =
            |row: &&&Row| row.scope != Scope::Apart || (wanted.syscalls && row.path.starts_with("raw_syscalls/"));
        let own: Vec<&Row> = rows.iter().filter(is_wanted).copied().collect();
        let own = make(&place, &name, &wanted.cpus, (wanted.buffer_kb, &wanted.threads), &own)?;
        let others = wanted.online.minus(&wanted.cpus);
        let everywhere: Vec<&Row> = rows.iter().filter(|row| row.scope == Scope::Everywhere).copied().collect();
        let beside = match others.is_empty() {
            true => None,
            false => Some(make(&place, &format!("{name}-beside"), &others, (BESIDE_KB, &[]), &everywhere)?),
        };
        let mut lanes = Vec::new();
        for (cpus, name) in [(wanted.cpus, name.clone()), (others, format!("{name}-beside"))] {
            for cpu in cpus.iter() {
                let path = format!("{place}/instances/{name}/per_cpu/cpu{cpu}/trace_pipe_raw");
                lanes.push(Lane { cpu, pages: Pages::open(&path)? });
            }
        }
        let page = vec![0; PAGE_BYTES_MAX];
        Ok(Self {
            lanes,
            _own: own,
            _beside: beside,
            tracing,
            name,
            decoder,
            header_page: header,
            formats,
            page,
            trigger: None,
            filtering: None,
            events: 0,
        })
    }

    /// Reads the recorded events. Passes each to `each` with the number of its lane; those of a lane are in order. Returns a time
    /// before which all lanes have been read completely.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn poll(&mut self, each: impl FnMut(u32, Item)) -> Result<MonoNs, RecordError> {
        self.poll_pages(&mut |_, _, _, _| {}, each)
    }

    /// As [`Self::poll`]; also passes the used part of each page to `keep`, with its lane, CPU and start time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn poll_pages(&mut self, keep: &mut Keep<'_>, mut each: impl FnMut(u32, Item)) -> Result<MonoNs, RecordError> {
        let mut until = sys::clock::mono_now();
        for (index, lane) in self.lanes.iter().enumerate() {
            let mut last = None;
            for turn in 1.. {
                let page = lane.pages.read(&mut self.page)?;
                let Some(page) = page else { break };
                if let Some((begin, used)) = self.decoder.used(page) {
                    keep(index as u32, lane.cpu, begin, used);
                }
                self.decoder.page(lane.cpu, page, |at, event| {
                    self.events += u64::from(event.is_some());
                    last = Some(at);
                    each(index as u32, (at, lane.cpu, event));
                });
                if turn == PAGES_A_TURN {
                    until = until.min(last.unwrap_or(until));
                    break;
                }
            }
        }
        Ok(until)
    }

    /// Sets the watched threads: page faults of the first 128 are recorded from now on. With `stacks`, the kernel stack at each
    /// wake-up is recorded too, which takes about 10 us each time. Takes effect within seconds.
    ///
    /// # Errors
    /// The error of the previous call: the kernel lacks such a filter or trigger.
    pub fn watch(&mut self, tids: &[i32], stacks: bool) -> Result<(), RecordError> {
        const TRIGGER: &str = "events/sched/sched_waking/trigger";
        let of = |field: &str| any_of(field, tids);
        let filters = self.decoder.present().filter(|row| row.scope == Scope::Threads);
        let mut writes: Vec<_> = filters.map(|row| (format!("events/{}/filter", row.path), of("common_pid"))).collect();
        if stacks {
            let trigger = format!("stacktrace if {}", of("pid"));
            writes.extend(self.trigger.take().map(|before| (TRIGGER.to_owned(), format!("!{before}"))));
            writes.push((TRIGGER.to_owned(), trigger.clone()));
            self.trigger = Some(trigger);
        }
        self.filtered()?;
        let folder = RootDir::at(format!("{}/instances/{}", self.tracing.place(), self.name));
        let write = move || writes.iter().try_for_each(|(file, value)| folder.write(file, value));
        self.filtering = Some(std::thread::spawn(write));
        Ok(())
    }

    /// Whether the previous [`Self::watch`] is complete; otherwise a new call would block until it is.
    #[must_use]
    pub fn may_watch(&self) -> bool {
        self.filtering.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the previous [`Self::watch`] to complete.
    fn filtered(&mut self) -> Result<(), RecordError> {
        match self.filtering.take().map(JoinHandle::join) {
            Some(Ok(written)) => Ok(written?),
            _ => Ok(()),
        }
    }

    /// Tracepoints that this kernel lacks.
    #[must_use]
    pub fn missing(&self) -> &[&'static Row] {
        self.decoder.missing()
    }

    /// The kernel's description of a page header.
    #[must_use]
    pub fn header_page(&self) -> &str {
        &self.header_page
    }

    /// This kernel's format files, by tracepoint.
    #[must_use]
    pub fn formats(&self) -> &BTreeMap<String, String> {
        &self.formats
    }

    /// Losses so far.
    #[must_use]
    pub fn lost(&self) -> LossCounters {
        self.decoder.lost()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // An instance with an open file cannot be removed.
        let _ = self.filtered();
    }
}

/// A filter that passes these threads, at most the first 128; an empty list passes none.
fn any_of(field: &str, tids: &[i32]) -> String {
    let all: Vec<String> = tids.iter().take(FILTERED_MAX).map(|tid| format!("{field} == {tid}")).collect();
    if all.is_empty() { format!("{field} == -1") } else { all.join(" || ") }
}

/// Creates an instance that records `rows` on `cpus`.
fn make(
    place: &str,
    name: &str,
    cpus: &CpuSet,
    (buffer_kb, threads): (u32, &[i32]),
    rows: &[&Row],
) -> Result<Instance, RecordError> {
    let instance = Instance::make(place, name)?;
    let set = |file: &str, value: &str| instance.set(file, value);
    set("tracing_on", "0")?;
    set("trace_clock", "mono")?;
    let mut mask = String::new();
    // Writing to a String cannot fail.
    let _ = cpus.write_mask(&mut mask);
    set("tracing_cpumask", &mask)?;
    // Set the minimum for all CPUs, then the required size for those recorded.
    set("buffer_size_kb", "8")?;
    for cpu in cpus.iter() {
        set(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), &buffer_kb.to_string())?;
    }
    for row in rows {
        if row.scope == Scope::Threads {
            set(&format!("events/{}/filter", row.path), &any_of("common_pid", threads))?;
        }
        set(&format!("events/{}/enable", row.path), "1")?;
    }
    set("tracing_on", "1")?;
    Ok(instance)
}

/// Removes instances of recorders whose process has been killed. The kernel refuses to remove instances that are being read.
fn sweep(place: &str, files: &RootDir) {
    for name in files.list("instances").unwrap_or_default() {
        let Some(maker) = name.strip_prefix(PREFIX) else { continue };
        let maker = maker.strip_suffix("-beside").unwrap_or(maker);
        let pid = maker.split('-').next().and_then(|pid| pid.parse().ok());
        if pid.and_then(identity).as_deref() != Some(maker) {
            // Another process may have removed it already.
            let _ = Instance::remove(place, &name);
        }
    }
}

/// Identifies a process uniquely since boot: its id and start time.
fn identity(pid: u32) -> Option<String> {
    let stat = RootDir::machine().read(&format!("/proc/{pid}/stat")).ok()?;
    // The fields after the name, which may contain any character.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // A zombie counts as ended.
    let _state = words.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    let started = words.nth(18)?;
    Some(format!("{pid}-{started}"))
}
