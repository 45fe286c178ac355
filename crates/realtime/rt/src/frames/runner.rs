//! The process behind a frame: lets activities in, starts the real-time threads, notices who is gone.

use crate::frames::address;
use crate::frames::callers::Connected;
use crate::frames::caretaker;
use crate::frames::dispatcher::{Dispatcher, Known};
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
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::shm::SharedWords;

/// How often the runner looks round.
pub(super) const LOOK: DurNs = DurNs::from_ms(20);
/// From the dispatcher's start to the first minor.
const LEAD: DurNs = DurNs::from_ms(20);

/// Why a frame cannot run.
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

/// Why its threads do not run.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the frame has begun already")]
    Begun,
    #[error("thread {name} cannot be started: {error}")]
    Thread { name: &'static str, error: std::io::Error },
}

/// Something that the runner has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The frame has begun; who is missing.
    Running {
        /// Activities nobody has joined as.
        missing: Vec<String>,
    },
    /// Somebody joined: activity, process.
    Joined(String, u32),
    /// Somebody is gone: activity, whether it said so.
    Gone(String, bool),
    /// Somebody was refused, and why.
    Refused(String),
    /// Something real-time was not had.
    Missing(Obtained),
    /// The frame has ended by itself, and why.
    Over(String),
}

/// A frame's process. Dropping it ends the frame: members hear so.
pub struct Runner {
    pub(super) config: Config,
    plan: Option<Plan>,
    pub(super) shared: Arc<Shared>,
    pub(super) counter: Counter,
    pub(super) callers: Vec<Connected>,
    pub(super) handed: Arc<HandedTrigger>,
    /// Keeps idle CPUs awake as long as it is open.
    idle: Option<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    began: MonoNs,
    over: bool,
    /// The kernel lets nobody in, which was told.
    pub(super) refuses_all: bool,
    /// The activity whose thread is looked at next.
    pub(super) looked_at: usize,
    /// Segments of variables of those who are gone: unmapping one would interrupt the frame's CPU.
    pub(super) kept: Vec<SharedWords>,
}

impl Runner {
    /// Makes the page and opens the door; nobody runs yet.
    ///
    /// # Errors
    /// A frame that is not admitted, or is there already; the kernel's.
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
            looked_at: 0,
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

    /// Looks round once, for at most 20 ms: serves callers, begins the frame when all are there, notices who is gone.
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
            tell(Report::Over(format!("its time base {} is gone", self.config.spec.base)));
        }
    }

    /// Kills the processes that the recovery `restart` has named; their supervisor starts them anew.
    fn kill(&self) {
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.kill.swap(false, Ordering::AcqRel)
                && let Some(caller) = self.callers.iter().find(|caller| caller.activity == Some(activity))
                && let Some(process) = &caller.process
            {
                // The process that connected, as the kernel says, not what is in the page. It may be gone meanwhile.
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
            // The frame that is followed may still be starting.
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
            let why = "no fifo priority, or no CPU of its own for the frame";
            tell(Report::Missing(Obtained::no(what, why, "run as root and give the frame `cpu`")));
        }
        if let Some(cpu) = self.config.cpu {
            step_aside(cpu, self.shared.below(2), self.shared.ordered);
        }
        self.shared.page().set_state(FrameState::Running);
        let (cpu, ordered, top) = (self.config.cpu, self.shared.ordered, self.config.priority);
        let prepare = move |name: &str, priority: Priority| {
            // Only names and places: what is not had was told above.
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
        let known = |activity: &frame::Activity| Known { background: activity.is_background(), ..Known::default() };
        let (faults, known) = (Vec::with_capacity(activities), spec.activities.iter().map(known).collect());
        let dispatch = move || {
            // Last of all: what comes before this takes longer than the lead on a busy machine, and minors would be lost.
            let (pulse, begin) = first_minor(&spec);
            let longest = spec.minors.iter().copied().max().unwrap_or(DurNs::from_secs(1));
            let dispatcher = Dispatcher {
                shared,
                machine: Machine::new(plan, pulse, begin),
                trigger,
                faults,
                known,
                patience: DurNs(longest.0.saturating_mul(3)),
                external: spec.base != TimeBase::Timer,
                rhythm: Rhythm::default(),
                complete: false,
                unsettled: false,
                changes: u64::MAX,
                front: 0,
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
    /// Ends the frame, tells its members, and waits until their threads are gone, for so long at most: whoever ends their
    /// processes after that finds those that end with their frame at their end.
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
            // A panic in a thread has been printed by it.
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

/// The first minor's pulse, and when it is due. Pulses count whole major frames from the start of TAI, times the minors of
/// each.
fn first_minor(spec: &Spec) -> (u64, MonoNs) {
    let (now, scale) = sys::clock::mono_and_scale();
    let aligned = Schedule::aligned(now, scale, spec.major(), LEAD);
    let pulse = aligned.pulse().saturating_mul(spec.minors.len() as u64);
    (pulse, if spec.base == TimeBase::Timer { aligned.due() } else { now })
}

/// Keeps the calling thread, which lets others in, away from the frame's CPU. Where it has no other, as in a shield of one
/// CPU, it gets a place there: above calls that are parked, which could keep it from working for ever.
fn step_aside(cpu: CpuId, place: Policy, ordered: bool) {
    let others = sys::sched::affinity(0).map(|all| all.minus(&CpuSet::single(cpu))).unwrap_or_default();
    // Neither can fail where the frame's own threads could be placed.
    if !others.is_empty() {
        let _ = set_affinity(0, &others);
    } else if ordered {
        let _ = set_scheduling(0, Scheduling { policy: place, reset_on_fork: true });
    }
}

/// Whether this process may give threads the priorities of a frame on a CPU: tried on a thread of its own.
fn may_order(cpu: CpuId, priority: Priority) -> bool {
    let tried = std::thread::spawn(move || {
        let policy = Policy::Fifo(priority);
        set_affinity(0, &CpuSet::single(cpu)).is_ok()
            && set_scheduling(0, Scheduling { policy, reset_on_fork: true }).is_ok()
    });
    tried.join().unwrap_or(false)
}
