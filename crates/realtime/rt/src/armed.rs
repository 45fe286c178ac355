//! Construction and arming of a process's real-time part.

use crate::looping::{self, EventLoop, Flow, LoopSpec, Pulse};
use crate::obtained::Obtained;
use crate::page::SharedPage;
use crate::scope::Sampler;
use crate::variables::Exports;
use base::{CpuSet, DurNs, Policy, Schedule, Size};
use ring::LoopWriter;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// Body of a real-time thread.
enum Body {
    /// A loop on a schedule, which records its cycles on a page.
    Loop(SharedPage, Box<dyn FnMut(&Pulse) -> Flow + Send>),
    /// A loop on events, which records its cycles on a page.
    Events(SharedPage, Box<dyn EventLoop>),
    /// A task that controls its own timing and ends by itself.
    Task(Box<dyn FnOnce() + Send>),
}

/// State of the real-time part while it is being built.
#[derive(Default)]
pub struct Building {
    threads: Vec<(LoopSpec, Body)>,
    heap: Size,
}

/// State of the real-time part once it is armed.
pub struct Armed {
    obtained: Vec<Obtained>,
    threads: Vec<Thread>,
    stop: Arc<AtomicBool>,
    aligned_to_tai: bool,
    /// Keeps idle CPUs awake while it is open.
    _idle: Option<OwnedFd>,
}

/// The real-time part of a process: [`Building`], then [`Armed`].
pub struct Rt<State> {
    state: State,
}

struct Thread {
    spec: LoopSpec,
    gate: Arc<OnceLock<Option<Schedule>>>,
    handle: Option<JoinHandle<()>>,
    tid: i32,
}

/// Message from a thread that is prepared.
struct Ready {
    tid: i32,
    obtained: Vec<Obtained>,
}

/// A loop could not be prepared.
#[derive(Debug)]
pub struct ArmError {
    /// Name of the loop.
    name: String,
    why: String,
}

impl std::fmt::Display for ArmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loop {:?} could not be armed: {}", self.name, self.why)
    }
}

impl std::error::Error for ArmError {}

impl Default for Rt<Building> {
    fn default() -> Self {
        Self::new()
    }
}

impl Rt<Building> {
    /// A real-time part without loops.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Building::default() }
    }

    /// Maps this much heap in advance, for code outside the loops that must allocate.
    pub fn heap(&mut self, size: Size) {
        self.state.heap = size;
    }

    /// Adds a loop that records its cycles on `page`.
    ///
    /// `body` runs once for each pulse, on the loop's thread. It must not allocate, lock or log. The page counts
    /// allocations.
    pub fn add_loop(&mut self, spec: LoopSpec, page: SharedPage, body: impl FnMut(&Pulse) -> Flow + Send + 'static) {
        self.state.threads.push((spec, Body::Loop(page, Box::new(body))));
    }

    /// Adds a loop whose cycles begin with events instead of clock pulses. It records on `page` how late it saw each event
    /// and how long the cycle took. The period in the spec is the minimum time between events; its wait method is ignored.
    pub fn add_events(&mut self, spec: LoopSpec, page: SharedPage, events: impl EventLoop + 'static) {
        self.state.threads.push((spec, Body::Events(page, Box::new(events))));
    }

    /// Adds a thread that controls its own timing. It is prepared in the same way as a loop's thread, but the period and
    /// wait method in the spec are ignored. It begins at [`start`](Rt::start). The caller must end it before calling
    /// [`stop`](Rt::stop).
    ///
    /// `body` must not allocate, lock or log.
    pub fn add_task(&mut self, spec: LoopSpec, body: impl FnOnce() + Send + 'static) {
        self.state.threads.push((spec, Body::Task(Box::new(body))));
    }

    /// Locks memory, prepares the loops' threads and waits until they are ready. The calling thread becomes time-sharing and
    /// leaves the loops' CPUs if possible, so that it does not delay them.
    ///
    /// Properties that could not be obtained are in [`missing`](Rt::missing). The loops run without them.
    ///
    /// # Errors
    /// A thread could not be started, or ended while it was being prepared.
    pub fn arm(self) -> Result<Rt<Armed>, ArmError> {
        let Building { threads: wanted, heap } = self.state;
        let mut obtained = arm_process(heap);
        // A loop without a CPU in its spec may run on any CPU.
        let cpus: Option<CpuSet> = wanted.iter().map(|(spec, _)| spec.cpu).collect();
        let idle = sys::thread::keep_awake(cpus.as_ref());
        let remedy = "run as root, or let the shield's profile keep idle states shallow";
        obtained.push(match &idle {
            Ok(_) => Obtained::yes("idle CPUs stay awake"),
            Err(error) => Obtained::no("idle CPUs stay awake", error, remedy),
        });
        let pulses = wanted.iter().any(|(_, body)| matches!(body, Body::Loop(..)));
        let inherited = sys::sched::scheduling(0).map_or(Policy::OTHER, |scheduling| scheduling.policy);
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (spec, body) in wanted {
            let failed = |why: String| ArmError { name: spec.name.clone(), why };
            let (tell, ready) = channel();
            let gate = Arc::new(OnceLock::new());
            // A task samples its variables itself, if at all.
            let exports = spec.exports.as_ref().filter(|_| !matches!(body, Body::Task(..)));
            let sampler = exports.map(Exports::sampler).and_then(|sampler| match sampler {
                Ok(sampler) => Some(sampler),
                Err(error) => {
                    obtained.push(named(&spec.name, Obtained::no("oscilloscope on its variables", error, "")));
                    None
                }
            });
            let (spec_there, gate_there, stop_there) = (spec.clone(), gate.clone(), stop.clone());
            let thread = Prepared { spec: spec_there, body, sampler, gate: gate_there, stop: stop_there, inherited };
            let builder = std::thread::Builder::new().stack_size(spec.stack.0 as usize);
            let handle = builder.spawn(move || thread.main(&tell)).map_err(|error| failed(error.to_string()))?;
            let ready = hear(&ready).ok_or_else(|| failed("its thread ended".into()))?;
            obtained.extend(ready.obtained.into_iter().map(|item| named(&spec.name, item)));
            threads.push(Thread { spec, gate, handle: Some(handle), tid: ready.tid });
        }
        step_aside(&threads);
        let aligned_to_tai = sys::clock::discipline().is_ok_and(|discipline| discipline.tai_offset_s > 0);
        // Only relevant for loops, since tasks control their own timing.
        obtained.extend(pulses.then(|| match aligned_to_tai {
            true => Obtained::yes("pulses counted in TAI"),
            false => Obtained::no(
                "pulses counted in TAI",
                "the kernel has no TAI offset; they are counted in UTC",
                "let chrony or ptp4l set it where several machines share pulses",
            ),
        }));
        Ok(Rt { state: Armed { obtained, threads, stop, aligned_to_tai, _idle: idle.ok().flatten() } })
    }
}

impl Rt<Armed> {
    /// All requested properties, obtained or not.
    #[must_use]
    pub fn obtained(&self) -> &[Obtained] {
        &self.state.obtained
    }

    /// Requested properties that were not obtained.
    pub fn missing(&self) -> impl Iterator<Item = &Obtained> {
        self.state.obtained.iter().filter(|item| item.missing.is_some())
    }

    /// Whether pulses are aligned to whole periods of TAI; otherwise they are aligned to UTC.
    #[must_use]
    pub fn aligned_to_tai(&self) -> bool {
        self.state.aligned_to_tai
    }

    /// Thread ids of the loops, in the order in which they were added.
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        self.state.threads.iter().map(|thread| thread.tid)
    }

    /// Starts the loops with the first pulse that is due at least `lead` from now. A second call does nothing.
    pub fn start(&mut self, lead: DurNs) {
        let (now, scale) = sys::clock::mono_and_scale();
        for thread in &self.state.threads {
            let schedule = Schedule::aligned(now, scale, thread.spec.period, lead);
            if thread.gate.set(Some(schedule)).is_ok()
                && let Some(handle) = &thread.handle
            {
                handle.thread().unpark();
            }
        }
    }

    /// Whether all loops have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.threads.iter().all(|thread| thread.handle.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Ends the loops at their next pulse and waits for them.
    pub fn stop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        for thread in &mut self.state.threads {
            let _ = thread.gate.set(None);
            if let Some(handle) = thread.handle.take() {
                handle.thread().unpark();
                if let Err(panic) = handle.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in &mut self.threads {
            let _ = thread.gate.set(None);
            if let Some(handle) = thread.handle.take() {
                handle.thread().unpark();
                let _ = handle.join();
            }
        }
    }
}

/// Parts of a loop's thread before it runs.
struct Prepared {
    spec: LoopSpec,
    body: Body,
    sampler: Option<Sampler>,
    gate: Arc<OnceLock<Option<Schedule>>>,
    stop: Arc<AtomicBool>,
    inherited: Policy,
}

impl Prepared {
    fn main(self, tell: &Sender<Ready>) {
        // The floating-point mode of a task is left unchanged, because EPICS records keep denormals.
        let obtained = looping::prepare(&self.spec, self.inherited, !matches!(self.body, Body::Task(..)));
        if tell.send(Ready { tid: sys::thread::id(), obtained }).is_err() {
            return;
        }
        let schedule = loop {
            match self.gate.get() {
                Some(Some(schedule)) => break *schedule,
                Some(None) => return,
                None => std::thread::park(),
            }
        };
        let Self { spec, body, sampler, stop, .. } = self;
        match body {
            Body::Task(body) => body(),
            Body::Loop(page, mut body) => on_page(&spec, &schedule, &page, |page| {
                looping::run(schedule, spec.wait, page, &stop, sampler, spec.exports.clone(), &mut body);
            }),
            Body::Events(page, mut events) => on_page(&spec, &schedule, &page, |page| {
                looping::run_events(spec.period, page, &stop, sampler, spec.exports.clone(), &mut *events);
            }),
        }
    }
}

/// Takes the page for a loop and runs it.
fn on_page(spec: &LoopSpec, schedule: &Schedule, page: &SharedPage, run: impl FnOnce(&mut LoopWriter<'_>)) {
    let mut writer = match page.read().take(&looping::identity(spec, schedule)) {
        Ok(writer) => writer,
        Err(error) => unreachable!("a page that was mapped long enough: {error}"),
    };
    run(&mut writer);
    writer.finish();
}

fn hear(ready: &Receiver<Ready>) -> Option<Ready> {
    ready.recv().ok()
}

fn named(name: &str, item: Obtained) -> Obtained {
    Obtained { what: format!("{name}: {}", item.what), ..item }
}

/// Arms the parts that concern the whole process.
fn arm_process(heap: Size) -> Vec<Obtained> {
    let mut obtained = Vec::new();
    obtained.push(match sys::mem::keep_heap() {
        true => Obtained::yes("heap kept, never trimmed or unmapped"),
        false => Obtained::no("heap kept, never trimmed or unmapped", "not glibc's allocator", ""),
    });
    obtained.push(Obtained::of("no huge pages", sys::mem::no_huge_pages(), ""));
    if heap.0 > 0 {
        let mut room = vec![0u8; heap.0 as usize];
        room.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&mut room);
    }
    let remedy = "run with CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK";
    obtained.push(Obtained::of("memory locked", sys::mem::lock_all(), remedy));
    obtained.push(match sys::alloc::is_counting() {
        true => Obtained::yes("allocations counted"),
        false => Obtained::no("allocations counted", "this binary does not set rt::Counting as its allocator", ""),
    });
    obtained
}

/// Moves the calling thread off the loops' CPUs and makes it time-sharing. Errors are ignored: they only cost the loops some
/// context switches, which their pages count.
fn step_aside(threads: &[Thread]) {
    if threads.is_empty() {
        return;
    }
    let _ = set_scheduling(0, Scheduling { policy: Policy::OTHER, reset_on_fork: false });
    let bound: CpuSet = threads.iter().filter_map(|thread| thread.spec.cpu).collect();
    if let Ok(mine) = sys::sched::affinity(0) {
        let elsewhere = mine.minus(&bound);
        if !bound.is_empty() && !elsewhere.is_empty() {
            let _ = set_affinity(0, &elsewhere);
        }
    }
}
