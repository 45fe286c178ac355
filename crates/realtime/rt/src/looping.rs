//! A periodic loop on a separate thread.

use crate::obtained::Obtained;
use crate::scope::Sampler;
use crate::variables::Exports;
use base::{CpuId, CpuSet, DurNs, Lateness, MonoNs, Policy, ResultDeadline, RtLevel, Schedule, Size, Worth};
use ring::{Counter, Cycle, Identity, LoopWriter, Wait, flags, marks};
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::{mono_now, sleep_until};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// After a long delay, the lateness of this many skipped pulses is recorded individually. Further ones are only counted.
const SKIPS_RECORDED_MAX: u64 = 4096;
/// Part of the stack that is touched in advance, in bytes, in case memory could not be locked.
const STACK_TOUCHED: usize = 64 << 10;

/// Specification of a loop.
#[derive(Clone, Debug)]
pub struct LoopSpec {
    /// Name of its thread. The kernel keeps 15 bytes.
    pub name: String,
    /// Time between pulses.
    pub period: DurNs,
    /// Scheduling class; `None` uses the class of the thread that arms.
    pub class: Option<Policy>,
    /// CPU that the loop is bound to; `None` leaves it on the process's CPUs.
    pub cpu: Option<CpuId>,
    /// Membership file of the control group that owns that CPU, for example a shield's. If the kernel refuses to bind the
    /// thread to the CPU, the thread joins this group and tries again.
    pub entry: Option<String>,
    /// Method of waiting for pulses.
    pub wait: Wait,
    /// Size of its stack.
    pub stack: Size,
    /// The variables that it exports. The loop samples them for the [oscilloscope](crate::scope) at the end of each cycle.
    /// It puts their safe values in force after a result that missed a hard deadline, until the next result in time. Ignored
    /// for tasks.
    pub exports: Option<Exports>,
}

impl LoopSpec {
    /// A loop that sleeps between its pulses, with the class and CPUs of its process.
    #[must_use]
    pub fn new(name: impl Into<String>, period: DurNs) -> Self {
        Self {
            name: name.into(),
            period,
            class: None,
            cpu: None,
            entry: None,
            wait: Wait::Sleep,
            stack: Size(256 << 10),
            exports: None,
        }
    }
}

/// Parameters of a cycle, passed to the loop's body.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// Pulse number.
    pub number: u64,
    /// Time at which the pulse was due.
    pub due: MonoNs,
    /// Time at which the loop woke up.
    pub woke: MonoNs,
    /// Number of pulses skipped just before this one.
    pub skipped: u64,
    /// Result deadline; `None` if none is set. After a firm deadline the body must discard the result
    /// ([`is_void`](Self::is_void)).
    pub deadline: Option<ResultDeadline>,
}

impl Pulse {
    /// Whether a result that is published now would have no value. Such a result must not be published.
    ///
    /// Real-time: some arithmetic.
    #[must_use]
    pub fn is_void(&self, now: MonoNs) -> bool {
        self.deadline.is_some_and(|deadline| now - self.due > deadline.void_after())
    }
}

/// Return value of a loop's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue.
    Continue,
    /// Continue, but the output of this cycle must not be used.
    Fault,
    /// End the loop.
    Stop,
}

/// An event that begins a cycle of a loop without clock pulses: the last pixel of a camera frame, a packet, an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event, set by its source. Missing numbers count as skipped.
    pub number: u64,
    /// Time of the event. The lateness of the cycle is counted from it.
    pub at: MonoNs,
}

/// A loop that is driven by events.
pub trait EventLoop: Send {
    /// Waits for the next event, at most 100 ms; `None` if there was none. Computations that can precede the event belong
    /// here, because they do not count as compute time of the cycle. Must not allocate, lock or log.
    fn await_event(&mut self) -> Option<Event>;

    /// The cycle, with the same contract as the body of a periodic loop.
    fn cycle(&mut self, pulse: &Pulse) -> Flow;
}

/// Binds the calling thread to a CPU. If the kernel refuses, enters the control group of `entry` and tries again.
pub(crate) fn bind(cpu: CpuId, entry: Option<&str>) -> sys::Result<()> {
    let bind = || set_affinity(0, &CpuSet::single(cpu));
    bind().or_else(|error| match entry {
        Some(entry) => RootDir::machine().write(entry, "0").and_then(|()| bind()),
        None => Err(error),
    })
}

/// Prepares the calling thread for a loop. The class is set last, so that the preparation disturbs no other thread.
pub(crate) fn prepare(spec: &LoopSpec, inherited: Policy, flush_denormals: bool) -> Vec<Obtained> {
    let mut report = Vec::new();
    report.push(Obtained::of(format!("thread name {}", spec.name), sys::thread::set_name(&spec.name), ""));
    touch_stack();
    report.push(Obtained::of("signals kept away".to_owned(), sys::signal::block_all(), ""));
    if let Some(cpu) = spec.cpu {
        let remedy = "see `tahti doctor` for the CPUs of this process";
        report.push(Obtained::of(format!("CPU {cpu}"), bind(cpu, spec.entry.as_deref()), remedy));
    }
    report.push(Obtained::of("timer slack 1ns", sys::thread::no_timer_slack(), ""));
    if flush_denormals {
        report.push(match sys::thread::flush_denormals() {
            true => Obtained::yes("denormals flushed to zero"),
            false => Obtained::no("denormals flushed to zero", "not supported on this CPU", ""),
        });
    }
    let class = spec.class.unwrap_or(inherited);
    // Processes started by the loop must not inherit its real-time class.
    let set = set_scheduling(0, Scheduling { policy: class, reset_on_fork: true });
    let remedy = "run as root, or raise RLIMIT_RTPRIO (see `tahti doctor`)";
    report.push(Obtained::of(format!("class {class}"), set, remedy));
    report
}

/// Touches the pages of the stack that the loop will use.
#[inline(never)]
fn touch_stack() {
    let mut room = [0u8; STACK_TOUCHED];
    std::hint::black_box(&mut room);
}

/// Identity of the loop, with the properties that the kernel reports, not those requested.
pub(crate) fn identity(spec: &LoopSpec, first: &Schedule) -> Identity {
    let mut name = [0; 16];
    name.iter_mut().zip(spec.name.bytes().take(15)).for_each(|(to, from)| *to = from);
    let cpus = sys::sched::affinity(0).unwrap_or(CpuSet::EMPTY);
    let level = sys::sched::scheduling(0).map_or(RtLevel::None, |scheduling| scheduling.policy.level());
    Identity {
        name,
        pid: std::process::id(),
        tid: sys::thread::id() as u32,
        period: spec.period,
        first_due: first.due(),
        first_pulse: first.pulse(),
        cpu: cpus.lowest().filter(|_| cpus.count() == 1),
        wait: spec.wait,
        priority: match level {
            RtLevel::None => 0,
            RtLevel::Fixed(priority) => priority.0,
            // Deadline threads are above every fixed priority.
            RtLevel::Deadline => 100,
        },
        armed: mono_now(),
    }
}

/// Accounts of the thread that must not change while the loop runs.
struct Accounts {
    usage: sys::thread::ThreadUsage,
    allocs: sys::alloc::AllocCounts,
}

impl Accounts {
    fn take() -> Self {
        Self { usage: sys::thread::usage(), allocs: sys::alloc::thread_counts().unwrap_or_default() }
    }

    /// Adds the changes since the last call to the page's counters.
    fn book(&mut self, page: &LoopWriter<'_>) {
        let now = Self::take();
        let (was, is) = (&self.usage, &now.usage);
        page.add(Counter::MinorFaults, is.minor_faults - was.minor_faults);
        page.add(Counter::MajorFaults, is.major_faults - was.major_faults);
        page.add(Counter::VoluntarySwitches, is.voluntary - was.voluntary);
        page.add(Counter::InvoluntarySwitches, is.involuntary - was.involuntary);
        page.add(Counter::Allocations, now.allocs.taken - self.allocs.taken);
        page.add(Counter::Frees, now.allocs.given - self.allocs.given);
        *self = now;
    }
}

/// State for the accounting of each cycle.
struct Running<'a, 'b> {
    page: &'a mut LoopWriter<'b>,
    sampler: Option<Sampler>,
    accounts: Accounts,
    period: DurNs,
    /// Variables whose safe values are in force while the loop misses a hard deadline, and whether they are.
    safe: Option<(Exports, bool)>,
}

impl<'a, 'b> Running<'a, 'b> {
    fn new(
        page: &'a mut LoopWriter<'b>,
        sampler: Option<Sampler>,
        period: DurNs,
        wait: Wait,
        exports: Option<Exports>,
    ) -> Self {
        // Called once in advance, so that no memory is touched for the first time later.
        Accounts::take().book(page);
        await_pulse(MonoNs(0), wait);
        let hard = page.deadline().is_some_and(|deadline| deadline.late == Lateness::Hard);
        let safe = exports.filter(|_| hard).map(|exports| (exports, false));
        Self { page, sampler, accounts: Accounts::take(), period, safe }
    }

    fn cycle(&mut self, pulse: &Pulse, body: &mut dyn FnMut(&Pulse) -> Flow) -> Flow {
        let mut cycle = Cycle { pulse: pulse.number, expected: pulse.due, woke: pulse.woke, done: MonoNs(0), flags: 0 };
        if pulse.skipped > 0 {
            cycle.flags |= flags::SKIPPED;
        }
        self.page.begin(&cycle);
        let flow = body(pulse);
        cycle.done = mono_now();
        if flow == Flow::Fault {
            cycle.flags |= flags::FAULT;
        }
        if cycle.done >= pulse.due + self.period {
            cycle.flags |= flags::LATE;
            self.page.add(Counter::Late, 1);
        }
        let worth = self.page.end(&cycle);
        if let Some((exports, stand)) = &mut self.safe
            && *stand != (worth == Some(Worth::NONE))
        {
            *stand = !*stand;
            exports.stand_safe(*stand);
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.cycle(pulse.number, cycle.done, marks_of(&cycle, pulse.skipped));
        }
        self.accounts.book(self.page);
        flow
    }
}

/// Runs a periodic loop until the body or `stop` ends it.
///
/// Real-time: neither allocates nor locks. In addition to the body, a cycle costs one sleep, three readings of the clock,
/// one `getrusage` and about forty stores into the page. With variables, the cost of [`Sampler::cycle`] is added.
pub(crate) fn run(
    mut schedule: Schedule,
    wait: Wait,
    page: &mut LoopWriter<'_>,
    stop: &AtomicBool,
    sampler: Option<Sampler>,
    exports: Option<Exports>,
    body: &mut dyn FnMut(&Pulse) -> Flow,
) {
    let deadline = page.deadline();
    let mut running = Running::new(page, sampler, schedule.period(), wait, exports);
    let mut skipped = 0;
    loop {
        let (number, due) = (schedule.pulse(), schedule.due());
        let woke = await_pulse(due, wait);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if running.cycle(&Pulse { number, due, woke, skipped, deadline }, body) == Flow::Stop {
            break;
        }
        let now = mono_now();
        let given_up = schedule.advance(now);
        skipped = given_up.count;
        let mut missed = given_up.first_due;
        for _ in 0..skipped.min(SKIPS_RECORDED_MAX) {
            running.page.skip(missed, now);
            missed = missed + schedule.period();
        }
        running.page.add(Counter::Overruns, skipped.saturating_sub(SKIPS_RECORDED_MAX));
    }
}

/// Runs a loop on events until it or `stop` ends it, otherwise as [`run`]. Missing event numbers count as overruns. A number
/// that is not above the last one starts the numbering again.
pub(crate) fn run_events(
    period: DurNs,
    page: &mut LoopWriter<'_>,
    stop: &AtomicBool,
    sampler: Option<Sampler>,
    exports: Option<Exports>,
    events: &mut dyn EventLoop,
) {
    let deadline = page.deadline();
    let mut running = Running::new(page, sampler, period, Wait::Sleep, exports);
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(event) = events.await_event() else { continue };
        let woke = mono_now();
        let skipped = last.map_or(0, |last: u64| event.number.saturating_sub(last).saturating_sub(1));
        running.page.add(Counter::Overruns, skipped);
        last = Some(event.number);
        let pulse = Pulse { number: event.number, due: event.at, woke, skipped, deadline };
        if running.cycle(&pulse, &mut |pulse| events.cycle(pulse)) == Flow::Stop {
            break;
        }
    }
}

/// The marks of a cycle in captures.
fn marks_of(cycle: &Cycle, skipped: u64) -> u64 {
    let pairs = [(flags::LATE, marks::MISS), (flags::SKIPPED, marks::OVERRUN), (flags::FAULT, marks::FAULT)];
    let said = pairs.iter().filter(|(flag, _)| cycle.flags & flag != 0).map(|(_, mark)| mark);
    said.sum::<u64>() | skipped.min(u64::from(u32::MAX)) << 32
}

/// Waits until `due` and returns the first reading of the clock that is not before it.
fn await_pulse(due: MonoNs, wait: Wait) -> MonoNs {
    match wait {
        Wait::Sleep => sleep_until(due),
        Wait::Spin => {}
        Wait::Both { spin } => sleep_until(due + DurNs(-spin.0)),
    }
    loop {
        let now = mono_now();
        if now >= due {
            return now;
        }
        std::hint::spin_loop();
    }
}
