//! A thread that has joined a frame.

use crate::frames::call;
use crate::scope::Sampler;
use crate::share::ShareError;
use crate::variables::Exports;
use base::{DurNs, Lateness, MonoNs, ResultDeadline, Worth};
use ring::{ActivityCounter, Baseline, FramePage, FrameState, marks};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::{mono_now, sleep_until};
use sys::shm::SharedWords;

/// Reason why a thread could not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// No frame of that name is running.
    NoFrame(String),
    /// The frame refused, with its reason.
    Refused(String),
    /// The kernel refused.
    Kernel(String),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame(name) => write!(
                f,
                "no frame {name:?} runs here; expected FRAME or PLANT/FRAME of a plant that is up ({} names its plant)",
                super::PLANT
            ),
            Self::Refused(why) | Self::Kernel(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for JoinError {}

/// Parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinorTurn {
    /// Pulse number.
    pub pulse: u64,
    /// The minor.
    pub minor: u16,
    /// The mode.
    pub mode: u16,
    /// Time at which the minor was due.
    pub due: MonoNs,
    /// Time at which the minor ends.
    pub end: MonoNs,
    /// Result deadline of the call, counted from `due`; `None` if none is set.
    pub deadline: Option<ResultDeadline>,
}

impl MinorTurn {
    /// Whether a result that is published now would have no value. Such a result must not be published.
    #[must_use]
    pub fn is_void(&self, now: MonoNs) -> bool {
        self.deadline.is_some_and(|deadline| now - self.due > deadline.void_after())
    }
}

/// The calling thread as an activity. Dropping it leaves the frame.
#[derive(Debug)]
pub struct Member {
    words: Arc<SharedWords>,
    activity: usize,
    connection: Arc<OwnedFd>,
    gone: Arc<AtomicBool>,
    in_call: bool,
    /// Samples its variables for the oscilloscope.
    sampler: Option<Sampler>,
    /// Variables whose safe values are in force after a result that missed its hard deadline, until the next result in time.
    safe: Option<Exports>,
    /// Pulse of the present call, due time and end of its minor.
    pulse: u64,
    due: MonoNs,
    end: MonoNs,
    /// Whether the frame knows that the thread waits for its turns.
    come: bool,
    /// Calls until the thread reads its accounts again.
    until_accounts: u32,
}

/// Calls between two readings of a thread's accounts. A reading is a system call, which costs as much as waking the next
/// activity.
const ACCOUNTS_EVERY: u32 = 16;

impl Member {
    /// Joins `frame` as `activity` with the calling thread. Waits for the frame to appear, at most for `within`. The frame
    /// sets the thread's scheduling class and CPU. With `variables`, the frame can put their safe values in force, and the
    /// thread samples them for the [oscilloscope](crate::scope) after each call, unless another thread does.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(frame: &str, activity: &str, variables: Option<&Exports>, within: DurNs) -> Result<Self, JoinError> {
        let kernel = |error: sys::Error| JoinError::Kernel(error.to_string());
        let give_up = mono_now() + within;
        let connection = loop {
            match call(frame) {
                Ok(connection) => break connection,
                Err(JoinError::NoFrame(_)) if mono_now() < give_up => sleep_until(mono_now() + DurNs::from_ms(20)),
                Err(error) => return Err(error),
            }
        };
        // Done before the frame binds this thread to its CPU: the thread that listens for sampling requests must not run
        // there.
        let sampler = match variables.map(Exports::sampler).transpose() {
            Ok(sampler) => sampler,
            // Activities may share their variables.
            Err(ShareError::Sampled { .. }) => None,
            Err(error) => return Err(JoinError::Kernel(error.to_string())),
        };
        let request = format!("join {} {activity}", sys::thread::id());
        let fds: Vec<_> = variables.map(Exports::fd).into_iter().collect();
        sys::handover::send(connection.as_fd(), request.as_bytes(), &fds).map_err(kernel)?;
        let mut answer = [0; 512];
        let refused = || JoinError::Refused(format!("frame {frame:?} ended while {activity:?} joined"));
        let (length, fds) =
            sys::handover::receive(connection.as_fd(), &mut answer).map_err(kernel)?.ok_or_else(refused)?;
        let text = String::from_utf8_lossy(&answer[..length]).into_owned();
        let index = text.strip_prefix("ok ").and_then(|index| index.parse::<usize>().ok());
        let (Some(activity), Some(fd)) = (index, fds.into_iter().next()) else {
            return Err(JoinError::Refused(text.strip_prefix("no ").unwrap_or(&text).to_owned()));
        };
        let words = SharedWords::attach(fd).map_err(kernel)?;
        let page = FramePage::attach(words.words()).map_err(|error| JoinError::Kernel(error.to_string()))?;
        if activity >= page.shape().activities {
            return Err(JoinError::Refused(format!("frame {frame:?} names an activity that it does not have")));
        }
        let member = Self {
            words: Arc::new(words),
            activity,
            connection: Arc::new(connection),
            gone: Arc::new(AtomicBool::new(false)),
            in_call: false,
            sampler,
            safe: variables.cloned(),
            pulse: 0,
            due: MonoNs(0),
            end: MonoNs(0),
            come: false,
            until_accounts: 0,
        };
        member.guard().map_err(|error| JoinError::Kernel(error.to_string()))?;
        Ok(member)
    }

    /// Ends the present call, if there is one, and waits for the next. Returns `None` once the frame has ended or its
    /// process has died.
    ///
    /// The first call of this function reports that the thread is ready. A frame does not begin before all activities have
    /// asked for their first turn.
    ///
    /// Real-time: neither allocates nor locks. Costs two futex calls and about thirty stores, and a `getrusage` in every
    /// 16th call and after each call that took longer than its budget.
    pub fn next_turn(&mut self) -> Option<MinorTurn> {
        let page = FramePage::attach(self.words.words()).ok()?;
        let in_call = self.in_call;
        let done = if in_call { mono_now() } else { MonoNs(0) };
        if in_call {
            self.weigh(&page, done);
        }
        let over = finish(&page, self.activity, &mut self.in_call, done);
        if over {
            self.until_accounts = 0;
        }
        if let Some(sampler) = self.sampler.as_mut().filter(|_| in_call) {
            let missed = if done > self.end { marks::MISS } else { 0 };
            sampler.cycle(self.pulse, done, missed | if over { marks::OVERRUN } else { 0 });
        }
        if !std::mem::replace(&mut self.come, true) {
            page.come(self.activity);
        }
        let word = page.call_word(self.activity);
        loop {
            let seen = word.load(Ordering::Acquire);
            if page.start(self.activity) {
                page.set_begun(self.activity, mono_now());
                look_at_accounts(&page, self.activity, &mut self.until_accounts);
                self.in_call = true;
                let border = page.border();
                let ring::FrameBorder { pulse, minor, mode, due, end, .. } = border;
                (self.pulse, self.due, self.end) = (pulse, due, end);
                let deadline = page.deadline(self.activity);
                return Some(MinorTurn { pulse, minor, mode, due, end, deadline });
            }
            if self.gone.load(Ordering::Acquire) || page.state() == FrameState::Ended {
                return None;
            }
            if sys::futex::wait(word, seen, None) {
                page.count_wait(self.activity);
            }
        }
    }

    /// Judges the result of the call that ends. If it missed a hard deadline, the safe values are put in force before the
    /// next activity has the turn. If the call does not end at all, the frame puts them in force.
    fn weigh(&self, page: &FramePage<'_>, done: MonoNs) {
        let Some(worth) = page.weigh(self.activity, done - self.due) else { return };
        let hard = page.deadline(self.activity).is_some_and(|deadline| deadline.late == Lateness::Hard);
        if let Some(variables) = self.safe.as_ref().filter(|_| hard) {
            variables.stand_safe(worth == Worth::NONE);
        }
    }

    /// Whether the frame's process has died instead of ending its frame. A process that the plant has started should then
    /// exit with an error, so that it is started again together with the frame. Valid once [`next_turn`](Self::next_turn)
    /// has returned `None`.
    #[must_use]
    pub fn frame_died(&self) -> bool {
        self.gone.load(Ordering::Acquire) && self.page().is_none_or(|page| page.state() != FrameState::Ended)
    }

    /// Requests a mode by its name. The frame enters it at the start of its next major frame. The last request before that
    /// counts.
    ///
    /// Real-time: compares the names of the frame's modes and stores one word. Allocates only for an error.
    ///
    /// # Errors
    /// If the frame has no mode of that name. The error lists its modes.
    pub fn want_mode(&self, mode: &str) -> Result<(), JoinError> {
        let page = self.page().ok_or_else(|| JoinError::Refused("the frame's page was destroyed".to_owned()))?;
        super::watch::want_mode(&page, mode)
    }

    /// The frame's page, for observers.
    #[must_use]
    pub fn page(&self) -> Option<FramePage<'_>> {
        FramePage::attach(self.words.words()).ok()
    }

    /// Starts a thread that sleeps until the frame's process is gone, and then wakes the member.
    fn guard(&self) -> std::io::Result<()> {
        let (words, activity) = (self.words.clone(), self.activity);
        let (alive, gone) = (self.connection.clone(), self.gone.clone());
        let builder = std::thread::Builder::new().name("tahti-frame".to_owned()).stack_size(64 << 10);
        builder.spawn(move || {
            let _ = sys::sched::set_scheduling(
                0,
                sys::sched::Scheduling { policy: base::Policy::OTHER, reset_on_fork: false },
            );
            // The member shuts its connection down when it leaves, which also ends this wait.
            while sys::handover::is_alive(alive.as_fd()) {
                sys::poll::is_readable(alive.as_fd(), DurNs::from_secs(3600));
            }
            gone.store(true, Ordering::Release);
            if let Ok(page) = FramePage::attach(words.words()) {
                sys::futex::wake(page.call_word(activity));
            }
        })?;
        Ok(())
    }
}

impl Member {
    /// Time budget of a call of its activity; `None` if none is set.
    #[must_use]
    pub fn budget(&self) -> Option<DurNs> {
        let page = FramePage::attach(self.words.words()).ok()?;
        let budget = page.activity_counter(self.activity, ActivityCounter::Budget);
        (budget > 0).then_some(DurNs(budget as i64))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Ok(page) = FramePage::attach(self.words.words()) {
            finish(&page, self.activity, &mut self.in_call, mono_now());
        }
        // Best effort: a frame that is gone need not be notified.
        let _ = sys::handover::send(self.connection.as_fd(), b"leave", &[]);
        sys::handover::hang_up(self.connection.as_fd());
    }
}

/// Ends the present call, and wakes the activity that has the turn then. Returns whether the call took longer than its
/// budget.
fn finish(page: &FramePage<'_>, activity: usize, in_call: &mut bool, now: MonoNs) -> bool {
    if !std::mem::take(in_call) {
        return false;
    }
    let over = || page.activity_counter(activity, ActivityCounter::OverBudget);
    let before = over();
    if let Some(next) = page.finish(activity, now) {
        sys::futex::wake(page.call_word(next.into()));
    }
    over() != before
}

/// Stores the thread's accounts, if it is time. The dispatcher uses them to find out why a call does not end.
fn look_at_accounts(page: &FramePage<'_>, activity: usize, until: &mut u32) {
    match until.checked_sub(1) {
        Some(left) => *until = left,
        None => {
            let usage = sys::thread::usage();
            let cost = Baseline {
                cpu: usage.cpu,
                faults: usage.minor_faults + usage.major_faults,
                voluntary: usage.voluntary,
                involuntary: usage.involuntary,
            };
            page.set_baseline(activity, &page.beyond(activity, &cost));
            *until = ACCOUNTS_EVERY - 1;
        }
    }
}

/// Triggers a frame whose time base is `software` or `counter`, once.
///
/// # Errors
/// If no frame of that name runs.
pub fn trigger(frame: &str) -> Result<(), JoinError> {
    let watcher = super::Watcher::open(frame)?;
    sys::futex::count_up(watcher.page().trigger_word(), 1);
    Ok(())
}

/// Hands a file descriptor to a frame whose time base is `eventfd`. Each time it becomes readable a minor begins. A
/// descriptor handed over later replaces it. The frame reads a duplicate, so the caller keeps its own.
///
/// An eventfd, a timerfd and a UIO device report the number of ticks. Any other descriptor counts as one tick with each
/// read.
///
/// A UIO device's interrupt comes once. The activity that has serviced the device must call
/// [`enable`](crate::device::Uio::enable) for the next one, otherwise the frame's trigger stops. VFIO's message interrupts
/// need no such call.
///
/// # Errors
/// If no frame of that name is running, or it has another time base.
pub fn hand_trigger(frame: &str, fd: BorrowedFd<'_>) -> Result<(), JoinError> {
    let kernel = |error: sys::Error| JoinError::Kernel(error.to_string());
    let connection = call(frame)?;
    sys::handover::send(connection.as_fd(), b"trigger", &[fd]).map_err(kernel)?;
    let mut answer = [0; 512];
    let received = sys::handover::receive(connection.as_fd(), &mut answer).map_err(kernel)?;
    let (length, _) = received.ok_or_else(|| JoinError::Refused(format!("frame {frame:?} ended meanwhile")))?;
    match String::from_utf8_lossy(&answer[..length]).strip_prefix("no ") {
        Some(why) => Err(JoinError::Refused(why.to_owned())),
        None => Ok(()),
    }
}
