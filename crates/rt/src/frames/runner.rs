//! The process behind a frame: lets activities in, starts the real-time threads, notices who is gone.

use crate::frames::address;
use crate::frames::caretaker;
use crate::frames::cause::ThreadFiles;
use crate::frames::dispatcher::{Dispatcher, Known};
use crate::frames::shared::{Guest, Shared, Slot};
use crate::frames::trigger::{Door, Trigger};
use crate::obtained::Obtained;
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy, Priority, Schedule};
use frame::{Config, Machine, PRIORITY_MIN, Plan, Rhythm, TimeBase};
use ring::{ActivityCounter, FrameCounter, FramePage, FrameShape, FrameState, Presence};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use sys::handover::Counter;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::shm::SharedWords;

/// How often the runner looks round.
const LOOK: DurNs = DurNs::from_ms(20);
/// From the last one's joining to the first minor.
const LEAD: DurNs = DurNs::from_ms(20);
/// Connections at a time.
const CALLERS_MAX: usize = 4096;

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

/// Somebody connected.
struct Connected {
    connection: OwnedFd,
    pid: u32,
    /// The activity that it has joined as.
    activity: Option<usize>,
    follows: bool,
    said_goodbye: bool,
}

/// A frame's process. Dropping it ends the frame: members hear so.
pub struct Runner {
    config: Config,
    plan: Option<Plan>,
    shared: Arc<Shared>,
    counter: Counter,
    callers: Vec<Connected>,
    door: Arc<Door>,
    /// Keeps idle CPUs awake as long as it is open.
    idle: Option<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    began: MonoNs,
    over: bool,
    /// Segments of variables of those who are gone: unmapping one would interrupt the frame's CPU.
    kept: Vec<SharedWords>,
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
            door: Arc::default(),
            idle: None,
            threads: Vec::new(),
            began: mono_now(),
            over: false,
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
            match self.counter.accept() {
                Ok(Some(caller)) if self.callers.len() < CALLERS_MAX => self.callers.push(Connected {
                    connection: caller.connection,
                    pid: caller.pid as u32,
                    activity: None,
                    follows: false,
                    said_goodbye: false,
                }),
                Ok(_) => {}
                Err(error) => tell(Report::Refused(error.to_string())),
            }
        }
        self.kill();
        if self.threads.is_empty() && !self.over {
            self.begin_if_all_are_there(&mut tell);
        }
        if !self.threads.is_empty() && self.threads[0].is_finished() && !self.over {
            self.over = true;
            tell(Report::Over(format!("its time base {} is gone", self.config.spec.base)));
        }
    }

    fn hear(&mut self, index: usize, tell: &mut impl FnMut(Report)) {
        let mut bytes = [0u8; 256];
        let received = sys::handover::receive(self.callers[index].connection.as_fd(), &mut bytes);
        let Ok(Some((length, fds))) = received else {
            let gone = self.callers.swap_remove(index);
            return self.gone(&gone, tell);
        };
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let mut words = text.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("join"), Some(tid), Some(name)) => {
                let joined = tid
                    .parse()
                    .map_err(|_| format!("{tid:?} is no thread id"))
                    .and_then(|tid| self.join(index, tid, name, fds));
                match joined {
                    Ok(activity) => {
                        let (pid, tid) = (self.callers[index].pid, tid.parse().unwrap_or(0));
                        self.page().set_who(activity, Presence::Joining, pid, tid);
                        self.answer(index, &format!("ok {activity}"));
                        tell(Report::Joined(name.to_owned(), self.callers[index].pid));
                    }
                    Err(why) => {
                        let why = format!("activity {name:?} of frame {:?}: {why}", self.config.spec.name);
                        self.page().count(FrameCounter::Refused, 1);
                        self.refuse(index, &why);
                        tell(Report::Refused(why));
                    }
                }
            }
            (Some("watch"), ..) => self.answer(index, "ok"),
            (Some("follow"), ..) => {
                if !std::mem::replace(&mut self.callers[index].follows, true) {
                    self.shared.followers.fetch_add(1, Ordering::AcqRel);
                }
                self.answer(index, "ok");
            }
            (Some("trigger"), ..) => match (&self.config.spec.base, fds.into_iter().next()) {
                (TimeBase::Eventfd, Some(fd)) => {
                    self.door.leave(fd);
                    // Who is gone needs no answer.
                    let _ = sys::handover::send(self.callers[index].connection.as_fd(), b"ok", &[]);
                }
                (TimeBase::Eventfd, None) => self.refuse(index, "no descriptor came; expected one"),
                (base, _) => {
                    let why = format!("frame {:?} has the time base {base}; expected eventfd", self.config.spec.name);
                    self.refuse(index, &why);
                }
            },
            (Some("leave"), ..) => self.callers[index].said_goodbye = true,
            _ => self.refuse(index, "expected join TID NAME, watch, follow, trigger or leave"),
        }
    }

    /// Says no. Who is gone needs no answer.
    fn refuse(&self, index: usize, why: &str) {
        let _ = sys::handover::send(self.callers[index].connection.as_fd(), format!("no {why}").as_bytes(), &[]);
    }

    /// Hands the page over. Who is gone meanwhile is noticed at its connection.
    fn answer(&self, index: usize, text: &str) {
        let _ = sys::handover::send(self.callers[index].connection.as_fd(), text.as_bytes(), &[self.shared.words.fd()]);
    }

    /// Lets a thread in.
    fn join(&mut self, index: usize, tid: u32, name: &str, fds: Vec<OwnedFd>) -> Result<usize, String> {
        let pid = self.callers[index].pid;
        let spec = &self.config.spec;
        let activity = spec.activities.iter().position(|activity| activity.name == name).ok_or_else(|| {
            let known = spec.activities.iter().map(|activity| activity.name.as_str()).collect::<Vec<_>>().join(", ");
            format!("no such activity; expected one of {known}")
        })?;
        if self.callers[index].activity.is_some() {
            return Err("this connection has joined already; expected a new one for each thread".to_owned());
        }
        let page = self.shared.page();
        if let (Presence::Joined | Presence::Joining, by, _) = page.who(activity) {
            return Err(format!("process {by} has joined as it already; expected one at a time"));
        }
        let files = ThreadFiles::open(pid, tid)
            .map_err(|error| format!("thread {tid} of process {pid} cannot be looked at: {error}"))?;
        if self.shared.ordered {
            let below = if spec.activities[activity].is_background() { 4 } else { 1 };
            if let Some(cpu) = self.config.cpu {
                set_affinity(tid as i32, &CpuSet::single(cpu)).map_err(|error| error.to_string())?;
            }
            let scheduling = Scheduling { policy: self.shared.below(below), reset_on_fork: true };
            set_scheduling(tid as i32, scheduling).map_err(|error| error.to_string())?;
        }
        let variables = fds.into_iter().next().and_then(|fd| SharedWords::attach(fd).ok());
        let slot = &self.shared.slots[activity];
        slot.kill.store(false, Ordering::Release);
        page.forget(activity);
        let mut guest = slot.guest.lock().unwrap_or_else(|broken| broken.into_inner());
        let old = std::mem::replace(&mut *guest, Guest { files: Some(files), variables });
        drop(guest);
        self.kept.extend(old.variables);
        for counter in [ActivityCounter::Demoted, ActivityCounter::Safe, ActivityCounter::Consecutive] {
            page.set_activity_counter(activity, counter, 0);
        }
        page.count_activity(activity, ActivityCounter::Joins, 1);
        self.callers[index].activity = Some(activity);
        Ok(activity)
    }

    /// Somebody's connection has ended.
    fn gone(&mut self, gone: &Connected, tell: &mut impl FnMut(Report)) {
        if gone.follows {
            self.shared.followers.fetch_sub(1, Ordering::AcqRel);
        }
        let Some(activity) = gone.activity else { return };
        let page = self.shared.page();
        let presence = if gone.said_goodbye { Presence::Left } else { Presence::Died };
        page.set_who(activity, presence, 0, 0);
        page.forget(activity);
        // The turn must not stay with it.
        let turn = page.turn();
        if page.at(turn).map(usize::from) == Some(activity) {
            Shared::pass_over(&page, turn);
        }
        tell(Report::Gone(self.config.spec.activities[activity].name.clone(), gone.said_goodbye));
    }

    /// Kills the processes that the recovery `restart` has named; their supervisor starts them anew.
    fn kill(&self) {
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.kill.swap(false, Ordering::AcqRel)
                && let (Presence::Joined, pid, _) = self.shared.page().who(activity)
            {
                // It may be gone meanwhile.
                let _ = sys::child::kill(pid as i32, 9);
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
        let trigger = match Trigger::open(&self.config.spec.base, &self.shared.words, &self.door) {
            Ok(trigger) => trigger,
            // The frame that is followed may still be starting.
            Err(_) if !late && matches!(self.config.spec.base, TimeBase::Frame(_)) => return,
            Err(why) => return self.end(why, tell),
        };
        if let Err(why) = self.start(trigger, tell) {
            return self.end(why, tell);
        }
        tell(Report::Running { missing });
    }

    fn end(&mut self, why: String, tell: &mut impl FnMut(Report)) {
        self.over = true;
        tell(Report::Over(why));
    }

    /// Starts the real-time threads.
    fn start(&mut self, trigger: Trigger, tell: &mut impl FnMut(Report)) -> Result<(), String> {
        let plan = self.plan.take().ok_or("the frame has begun already")?;
        let spec = &self.config.spec;
        let external = spec.base != TimeBase::Timer;
        let longest = spec.minors.iter().copied().max().unwrap_or(DurNs::from_secs(1));
        // Pulses count whole major frames from the start of TAI, times the minors of each.
        let (now, scale) = sys::clock::mono_and_tai().unwrap_or_else(|_| (mono_now(), mono_now().0));
        let aligned = Schedule::aligned(now, scale, spec.major(), LEAD);
        let pulse = aligned.pulse().saturating_mul(spec.minors.len() as u64);
        let begin = if external { now } else { aligned.due() };
        let activities = plan.activities();
        let page = self.shared.page();
        let known = |activity: &frame::Activity| Known { background: activity.is_background(), ..Known::default() };
        let dispatcher = Dispatcher {
            shared: self.shared.clone(),
            machine: Machine::new(plan, pulse, begin),
            trigger,
            faults: Vec::with_capacity(activities),
            known: spec.activities.iter().map(known).collect(),
            patience: DurNs(longest.0.saturating_mul(3)),
            external,
            rhythm: Rhythm::default(),
            complete: false,
            changes: u64::MAX,
            front: 0,
        };
        let remedy = "run as root, or raise RLIMIT_MEMLOCK (see `tahti doctor`)";
        let locked = Obtained::of("memory locked", sys::mem::lock_all(), remedy);
        if locked.missing.is_some() {
            tell(Report::Missing(locked));
        }
        match sys::thread::hold_idle_latency(0) {
            Ok(device) => self.idle = Some(device),
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
        page.set_state(FrameState::Running);
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
            spawned.map_err(|error| format!("thread {name} cannot be started: {error}"))
        };
        let main = spawn("dispatcher", top, Box::new(move || dispatcher.run()))?;
        self.threads.push(main);
        if ordered {
            let shared = self.shared.clone();
            let care = spawn("caretaker", Priority(top.0 - 2), Box::new(move || caretaker::care(&shared)))?;
            self.threads.push(care);
        }
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
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
