//! Listens to the kernel's tracepoints: an instance of its own, for chosen CPUs, read in raw pages.
//!
//! Attached once and removed at the end: switching a tracepoint interrupts every CPU. tracefs is mounted for this process
//! alone. What a killed recorder left is removed by the next one; instances of others are never touched.
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
use trace::{Decoder, Item, Lost, Row, Scope};

/// The name of a thread that exists.
#[must_use]
pub fn thread_name(tid: i32) -> Option<String> {
    RootDir::machine().read(&format!("/proc/{tid}/comm")).ok().map(|text| text.trim_end().to_owned())
}

/// Our instances; process id and the time of its start follow.
const PREFIX: &str = "tahti-recorder-";
/// A page of the ring buffer is no larger.
const PAGE_BYTES_MAX: usize = 1 << 16;
/// Pages taken of one CPU before the next has its turn.
const PAGES_A_TURN: usize = 2048;
/// The buffer of a CPU where only what concerns others is listened to.
const BESIDE_KB: u32 = 512;

/// Threads that a filter of the kernel names at most: its text must fit into a page.
const FILTERED_MAX: usize = 128;

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// CPUs of which everything is wanted.
    pub cpus: CpuSet,
    /// All CPUs: of the others, only what concerns those.
    pub online: CpuSet,
    /// The buffer of each of `cpus`, in KiB.
    pub buffer_kb: u32,
    /// Threads whose page faults are wanted from the beginning; [`Recorder::watch`] names others later.
    pub threads: Vec<i32>,
    /// System calls too: they slow every call on the machine down a little.
    pub syscalls: bool,
}

/// Takes a page of a lane: the lane's number, its CPU, when the page begins, and what of it is used.
pub type Keep<'a> = dyn FnMut(u32, CpuId, MonoNs, &[u8]) + 'a;

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    // In the order in which they must go: readers, instances, the mount.
    lanes: Vec<Lane>,
    _own: Instance,
    _beside: Option<Instance>,
    tracing: Tracing,
    name: String,
    decoder: Decoder,
    header_page: String,
    formats: BTreeMap<String, String>,
    page: Vec<u8>,
    /// The trigger that stands.
    trigger: Option<String>,
    /// Writes filters: the kernel may take a second for that, while buffers fill.
    filtering: Option<JoinHandle<sys::Result<()>>>,
    events: u64,
}

#[derive(Debug)]
struct Lane {
    cpu: CpuId,
    pages: Pages,
}

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// No privilege, no tracefs, a kernel whose files are not understood: with what to do.
    pub fn start(wanted: &Wanted) -> Result<Self, RecordError> {
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

    /// Takes what has been recorded. Each event goes to `each`, with the number of its lane; those of one lane come in order.
    /// Returns a moment before which every lane has been read to its end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll(&mut self, each: impl FnMut(u32, Item)) -> Result<MonoNs, RecordError> {
        self.poll_pages(&mut |_, _, _, _| {}, each)
    }

    /// As [`Self::poll`]; each page goes to `keep`, too, with its lane, CPU and beginning, and without what of it is empty.
    ///
    /// # Errors
    /// The kernel's.
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

    /// Names the threads that are watched: page faults of the first 128 are recorded from now on, and with `stacks` the kernel's stack
    /// at each waking, which takes about 10 us every time. It takes effect within seconds.
    ///
    /// # Errors
    /// Those of the time before: the kernel has no such filter or trigger.
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

    /// Whether the kernel is done with what [`Self::watch`] asked for before: asking again would wait for it.
    #[must_use]
    pub fn may_watch(&self) -> bool {
        self.filtering.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until what [`Self::watch`] asked for is done.
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

    /// How this kernel's pages begin.
    #[must_use]
    pub fn header_page(&self) -> &str {
        &self.header_page
    }

    /// This kernel's format files, by tracepoint.
    #[must_use]
    pub fn formats(&self) -> &BTreeMap<String, String> {
        &self.formats
    }

    /// What was lost so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
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

/// A filter that lets these threads pass, the first of them where they are many; without any, nobody.
fn any_of(field: &str, tids: &[i32]) -> String {
    let all: Vec<String> = tids.iter().take(FILTERED_MAX).map(|tid| format!("{field} == {tid}")).collect();
    if all.is_empty() { format!("{field} == -1") } else { all.join(" || ") }
}

/// Makes an instance that listens on `cpus` to `rows`.
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
    // A text takes whatever is written.
    let _ = cpus.write_mask(&mut mask);
    set("tracing_cpumask", &mask)?;
    // The least for all, then enough for those that are listened to.
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

/// Removes instances of ours whose process is gone: it was killed. The kernel keeps those that somebody reads.
fn sweep(place: &str, files: &RootDir) {
    for name in files.list("instances").unwrap_or_default() {
        let Some(maker) = name.strip_prefix(PREFIX) else { continue };
        let maker = maker.strip_suffix("-beside").unwrap_or(maker);
        let pid = maker.split('-').next().and_then(|pid| pid.parse().ok());
        if pid.and_then(identity).as_deref() != Some(maker) {
            // Somebody else may have been quicker.
            let _ = Instance::remove(place, &name);
        }
    }
}

/// What tells a process from every other one since boot: its id and when it started.
fn identity(pid: u32) -> Option<String> {
    let stat = RootDir::machine().read(&format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // One that nobody has waited for yet is gone all the same.
    let _state = words.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    let started = words.nth(18)?;
    Some(format!("{pid}-{started}"))
}
