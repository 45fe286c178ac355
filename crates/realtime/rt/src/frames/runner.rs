//! The process of a frame: admits activities, starts the real-time threads, detects activities that have gone.

use crate::frames::address;
use crate::frames::callers::Connected;
use crate::frames::caretaker;
use crate::frames::dispatcher::{ActivityState, Dispatcher, HANGS_AFTER};
use crate::frames::shared::{Shared, Slot};
use crate::frames::trigger::{HandedTrigger, Trigger};
use crate::obtained::Obtained;
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy, Priority, Schedule};
use frame::{Config, Machine, PRIORITY_MIN, Plan, Rhythm, Spec, TimeBase};
use ring::{ActivityCounter, FramePage, FrameShape, FrameState, Presence};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use sys::clock::{mono_now, sleep_until};
use sys::handover::Counter;
use sys::rounds::Rounds;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::shm::SharedWords;

/// Period of the runner's checks.
pub(super) const LOOK: DurNs = DurNs::from_ms(20);
/// Time from the dispatcher's start to the first minor.
const LEAD: DurNs = DurNs::from_ms(20);

/// Reason why a frame cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError(String);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

impl From<sys::Error> for RunError {
    fn from(error: sys::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reason why the frame's threads cannot start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the frame has begun already")]
    Begun,
    #[error("thread {name} cannot be started: {error}")]
    Thread { name: &'static str, error: std::io::Error },
}

/// A report of the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The frame has begun.
    Running {
        /// Activities that no thread has joined as.
        missing: Vec<String>,
    },
    /// A thread joined: activity, process id.
    Joined(String, u32),
    /// A thread has gone: activity, and whether it left in an orderly way.
    Gone(String, bool),
    /// A request was refused, with the reason.
    Refused(String),
    /// A real-time property was not obtained.
    Missing(Obtained),
    /// The frame has ended by itself, with the reason.
    Over(String),
}

/// The process of a frame. Dropping it ends the frame and notifies its members.
pub struct Runner {
    pub(super) config: Config,
    plan: Option<Plan>,
    pub(super) shared: Arc<Shared>,
    pub(super) counter: Counter,
    pub(super) callers: Vec<Connected>,
    pub(super) handed: Arc<HandedTrigger>,
    /// Keeps idle CPUs awake while it is open.
    idle: Option<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    began: MonoNs,
    over: bool,
    /// The kernel accepts no connections, and this has been reported.
    pub(super) refuses_all: bool,
    /// Index of the activity whose thread is checked next.
    pub(super) next_activity: usize,
    /// Variable segments of threads that have gone. They stay mapped, because unmapping one would interrupt the frame's CPU.
    pub(super) kept: Vec<SharedWords>,
}

impl Runner {
    /// Creates the page and opens the socket. No thread runs yet.
    ///
    /// # Errors
    /// The frame is not admitted or already exists, or the kernel's error.
    pub fn new(config: Config) -> Result<Self, RunError> {
        let plan = Plan::admit(&config.spec)
            .map_err(|refused| RunError(refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
        if config.priority < PRIORITY_MIN {
            let (found, least) = (config.priority.0, PRIORITY_MIN.0);
            return Err(RunError(format!("a frame's priority is {found}; expected {least} to 99: four lie below it")));
        }
        let spec = &config.spec;
        let counter = Counter::open(&address(&spec.name))
            .map_err(|error| RunError(format!("frame {:?} runs already, or its name is taken: {error}", spec.name)))?;
        let shape = FrameShape {
            activities: plan.activities(),
            minors: plan.minors(),
            queue: plan.queue_max(),
            modes: spec.modes.len(),
        };
        let words = Arc::new(SharedWords::create("tahti-frame", shape.words())?);
        let page = FramePage::format(words.words(), &spec.name, shape).map_err(|error| RunError(error.to_string()))?;
        for (index, activity) in spec.activities.iter().enumerate() {
            page.set_activity_name(index, &activity.name);
            let budget = if activity.is_background() { 0 } else { activity.budget.map_or(0, |budget| budget.0 as u64) };
            page.set_activity_counter(index, ActivityCounter::Budget, budget);
            page.set_deadline(index, activity.deadline);
        }
        for (index, length) in spec.minors.iter().enumerate() {
            page.set_length(index, *length);
        }
        for (index, mode) in spec.modes.iter().enumerate() {
            page.set_mode_name(index, &mode.name);
        }
        let ordered = config.cpu.is_some_and(|cpu| may_order(cpu, config.priority));
        let slots = (0..plan.activities()).map(|_| Slot::default()).collect();
        let stop = AtomicBool::new(false);
        let (followers, parked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new(Shared { words, slots, stop, followers, parked, ordered, priority: config.priority });
        Ok(Self {
            config,
            plan: Some(plan),
            shared,
            counter,
            callers: Vec::new(),
            handed: Arc::default(),
            idle: None,
            threads: Vec::new(),
            began: mono_now(),
            over: false,
            refuses_all: false,
            next_activity: 0,
            kept: Vec::new(),
        })
    }

    /// The frame's page.
    #[must_use]
    pub fn page(&self) -> FramePage<'_> {
        self.shared.page()
    }

    /// Whether the frame has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Runs one iteration, for at most 20 ms: serves clients, begins the frame once all activities are present, and detects
    /// activities that have gone.
    pub fn turn(&mut self, mut tell: impl FnMut(Report)) {
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(self.counter.as_fd()).chain(self.callers.iter().map(|c| c.connection.as_fd())).collect();
        let ready = sys::poll::readable(&fds, LOOK);
        for index in (0..self.callers.len()).rev() {
            if ready[index + 1] {
                self.hear(index, &mut tell);
            }
        }
        if ready[0] {
            self.take_in(&mut tell);
        }
        self.kill();
        self.notice_one_that_ended(&mut tell);
        if self.threads.is_empty() && !self.over {
            self.begin_if_all_are_there(&mut tell);
        }
        if !self.threads.is_empty() && self.threads[0].is_finished() && !self.over {
            self.over = true;
            tell(Report::Over(format!("its time base {} was lost", self.config.spec.base)));
        }
    }

    /// Kills the processes that the recovery `restart` has selected. Their supervisor starts them again.
    fn kill(&self) {
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.kill.swap(false, Ordering::AcqRel)
                && let Some(caller) = self.callers.iter().find(|caller| caller.activity == Some(activity))
                && let Some(process) = &caller.process
            {
                // This is the process that connected, as reported by the kernel, not the one in the page. It may have ended
                // meanwhile.
                let _ = process.signal(9);
            }
        }
    }

    fn begin_if_all_are_there(&mut self, tell: &mut impl FnMut(Report)) {
        let page = self.shared.page();
        let missing: Vec<String> = (0..self.config.spec.activities.len())
            .filter(|activity| page.who(*activity).0 != Presence::Joined)
            .map(|activity| self.config.spec.activities[activity].name.clone())
            .collect();
        let late = mono_now() - self.began >= self.config.join_within;
        if !missing.is_empty() && !late {
            return;
        }
        let (followers, expected) = (self.shared.followers.load(Ordering::Acquire), &self.config.followers);
        if followers < expected.len() {
            if late {
                let expected = expected.join(", ");
                self.end(format!("not all of its followers are ready ({expected}): all start or none"), tell);
            }
            return;
        }
        let trigger = match Trigger::open(&self.config.spec.base, &self.shared.words, &self.handed) {
            Ok(trigger) => trigger,
            // The leading frame may still be starting.
            Err(_) if !late && matches!(self.config.spec.base, TimeBase::Frame(_)) => return,
            Err(why) => return self.end(why.to_string(), tell),
        };
        if let Err(why) = self.start(trigger, tell) {
            return self.end(why.to_string(), tell);
        }
        tell(Report::Running { missing });
    }

    fn end(&mut self, why: String, tell: &mut impl FnMut(Report)) {
        self.over = true;
        tell(Report::Over(why));
    }

    /// Starts the real-time threads.
    fn start(&mut self, trigger: Trigger, tell: &mut impl FnMut(Report)) -> Result<(), StartError> {
        let plan = self.plan.take().ok_or(StartError::Begun)?;
        let remedy = "run as root, or raise RLIMIT_MEMLOCK (see `tahti doctor`)";
        let locked = Obtained::of("memory locked", sys::mem::lock_all(), remedy);
        if locked.missing.is_some() {
            tell(Report::Missing(locked));
        }
        if let Some(shortfall) = self.counter.shortfall() {
            tell(Report::Missing(Obtained::no("a name that all find", shortfall, "")));
        }
        match sys::thread::keep_awake(self.config.cpu.map(CpuSet::single).as_ref()) {
            Ok(device) => self.idle = device,
            Err(error) => {
                let remedy = "run as root, or let the shield's profile keep idle states shallow";
                tell(Report::Missing(Obtained::no("idle CPUs stay awake", error, remedy)));
            }
        }
        if !self.shared.ordered {
            let what = "activities in order, late calls parked, blocked ones passed over";
            let why = "no FIFO priority, or no separate CPU for the frame";
            tell(Report::Missing(Obtained::no(what, why, "run as root and give the frame `cpu`")));
        }
        if let Some(cpu) = self.config.cpu {
            step_aside(cpu, self.shared.below(2), self.shared.ordered);
        }
        self.shared.page().set_state(FrameState::Running);
        let (cpu, ordered, top) = (self.config.cpu, self.shared.ordered, self.config.priority);
        let prepare = move |name: &str, priority: Priority| {
            // Names and placement only. Properties that are unavailable were reported above.
            let _ = sys::thread::set_name(name);
            let _ = sys::thread::no_timer_slack();
            if let Some(cpu) = cpu {
                let _ = set_affinity(0, &CpuSet::single(cpu));
            }
            if ordered {
                let _ = set_scheduling(0, Scheduling { policy: Policy::Fifo(priority), reset_on_fork: true });
            }
        };
        let spawn = |name: &'static str, priority: Priority, body: Box<dyn FnOnce() + Send>| {
            let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10);
            let spawned = builder.spawn(move || {
                prepare(name, priority);
                body();
            });
            spawned.map_err(|error| StartError::Thread { name, error })
        };
        let spec = self.config.spec.clone();
        let (shared, activities) = (self.shared.clone(), plan.activities());
        let known = |activity: &frame::Activity| ActivityState {
            background: activity.is_background(),
            ..ActivityState::default()
        };
        let (faults, known) = (Vec::with_capacity(activities), spec.activities.iter().map(known).collect());
        // A round waits for a border, then for a trigger.
        let longest = spec.minors.iter().copied().max().unwrap_or(DurNs::from_secs(1));
        let patience = DurNs(longest.0.saturating_mul(3));
        let rounds = Rounds::watch("dispatcher", DurNs(patience.0.saturating_mul(2).saturating_add(HANGS_AFTER.0)));
        let dispatch = move || {
            // Computed last: the steps before take longer than the lead on a busy machine, and minors would be lost.
            let (pulse, begin) = first_minor(&spec);
            let dispatcher = Dispatcher {
                shared,
                machine: Machine::new(plan, pulse, begin),
                trigger,
                faults,
                known,
                patience,
                external: spec.base != TimeBase::Timer,
                rhythm: Rhythm::default(),
                complete: false,
                unsettled: false,
                changes: u64::MAX,
                front: 0,
                rounds,
            };
            dispatcher.run();
        };
        let main = spawn("dispatcher", top, Box::new(dispatch))?;
        self.threads.push(main);
        if ordered {
            let shared = self.shared.clone();
            let care = spawn("caretaker", Priority(top.0 - 2), Box::new(move || caretaker::care(&shared)))?;
            self.threads.push(care);
        }
        Ok(())
    }
}

impl Runner {
    /// Ends the frame, notifies its members, and waits until their threads are gone, at most for `within`. If the caller
    /// then kills the members' processes, those that end with their frame have already ended by themselves.
    pub fn finish(&mut self, within: DurNs) {
        self.stop();
        let until = mono_now() + within;
        let joined = |activity: usize| matches!(self.page().who(activity).0, Presence::Joined | Presence::Joining);
        let is_there = |slot: &Slot| slot.files().is_some_and(|files| !files.is_gone());
        while mono_now() < until
            && self.shared.slots.iter().enumerate().any(|(activity, slot)| joined(activity) && is_there(slot))
        {
            sleep_until(mono_now() + DurNs::from_ms(5));
        }
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let page = self.shared.page();
        page.set_state(FrameState::Ended);
        sys::futex::wake(page.pulse_word());
        sys::futex::wake(page.trigger_word());
        sys::futex::wake(page.care_word());
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the message itself.
            let _ = thread.join();
        }
        for activity in 0..page.shape().activities {
            sys::futex::wake(page.call_word(activity));
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Pulse number and due time of the first minor. A pulse number is the number of whole major frames since the start of TAI,
/// times the minors in each.
fn first_minor(spec: &Spec) -> (u64, MonoNs) {
    let (now, scale) = sys::clock::mono_and_scale();
    let aligned = Schedule::aligned(now, scale, spec.major(), LEAD);
    let pulse = aligned.pulse().saturating_mul(spec.minors.len() as u64);
    (pulse, if spec.base == TimeBase::Timer { aligned.due() } else { now })
}

/// Moves the calling thread, which serves clients, off the frame's CPU. If it has no other CPU, as in a shield of one CPU,
/// it gets a priority above parked calls, which could otherwise keep it from running for ever.
fn step_aside(cpu: CpuId, place: Policy, ordered: bool) {
    let others = sys::sched::affinity(0).map(|all| all.minus(&CpuSet::single(cpu))).unwrap_or_default();
    // Neither call can fail if the frame's own threads could be placed.
    if !others.is_empty() {
        let _ = set_affinity(0, &others);
    } else if ordered {
        let _ = set_scheduling(0, Scheduling { policy: place, reset_on_fork: true });
    }
}

/// Whether this process may give threads a frame's priorities on a CPU. This is tried with a separate thread.
fn may_order(cpu: CpuId, priority: Priority) -> bool {
    let tried = std::thread::spawn(move || {
        let policy = Policy::Fifo(priority);
        set_affinity(0, &CpuSet::single(cpu)).is_ok()
            && set_scheduling(0, Scheduling { policy, reset_on_fork: true }).is_ok()
    });
    tried.join().unwrap_or(false)
}
