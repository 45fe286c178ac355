//! Connections to a frame: clients join, watch or follow it, hand over a trigger, and leave.

use crate::frames::cause::ThreadFiles;
use crate::frames::runner::{LOOK, Report, Runner};
use crate::frames::shared::{Guest, Shared};
use base::CpuSet;
use frame::TimeBase;
use ring::{ActivityCounter, FrameCounter, Presence};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::clock::{mono_now, sleep_until};
use sys::process::Process;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::shm::SharedWords;

/// Maximum number of connections at a time.
const CALLERS_MAX: usize = 4096;

/// Reason why a thread is not admitted.
#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error("{0:?} is no thread id")]
    NoThread(String),
    #[error("no such activity; expected one of {0}")]
    NoActivity(String),
    #[error("this connection has joined already; expected a new one for each thread")]
    Joined,
    #[error("process {0} has joined as it already; expected one at a time")]
    Taken(u32),
    #[error("thread {tid} of process {pid} cannot be inspected: {error}")]
    Thread { pid: u32, tid: u32, error: std::io::Error },
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

/// A connected client.
pub(super) struct Connected {
    pub(super) connection: OwnedFd,
    pub(super) pid: u32,
    /// A handle for signals to its process; `None` if that has ended already.
    pub(super) process: Option<Process>,
    /// The activity that it has joined as.
    pub(super) activity: Option<usize>,
    follows: bool,
    said_goodbye: bool,
    /// Its socket is full of answers that it has not read.
    takes_nothing: bool,
}

impl Runner {
    /// Accepts the next connection.
    pub(super) fn take_in(&mut self, tell: &mut impl FnMut(Report)) {
        match self.counter.accept() {
            Ok(caller) => {
                self.refuses_all = false;
                if caller.is_some() && self.callers.len() >= CALLERS_MAX {
                    self.page().count(FrameCounter::HungUp, 1);
                    return;
                }
                self.callers.extend(caller.map(|caller| Connected {
                    process: Process::of_peer(caller.connection.as_fd(), caller.pid).ok(),
                    connection: caller.connection,
                    pid: caller.pid as u32,
                    activity: None,
                    follows: false,
                    said_goodbye: false,
                    takes_nothing: false,
                }));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.refuses_all, true) {
                    tell(Report::Refused(error.to_string()));
                }
                // Sleeps before it waits again, since retrying at once would only use the CPU.
                sleep_until(mono_now() + LOOK);
            }
        }
    }

    /// Handles a request of a client. Disconnects a client that does not read its answers, because waiting for it would
    /// block the runner.
    pub(super) fn hear(&mut self, index: usize, tell: &mut impl FnMut(Report)) {
        let mut bytes = [0u8; 256];
        let received = sys::handover::receive(self.callers[index].connection.as_fd(), &mut bytes);
        let Ok(Some((length, fds))) = received else {
            let gone = self.callers.swap_remove(index);
            return self.gone(&gone, tell);
        };
        self.do_as_told(index, &bytes[..length], fds, tell);
        if self.callers[index].takes_nothing {
            let gone = self.callers.swap_remove(index);
            self.page().count(FrameCounter::HungUp, 1);
            let frame = &self.config.spec.name;
            tell(Report::Refused(format!(
                "process {} sends requests to frame {frame:?} and reads no answers; expected one request, then its \
                 answer: it was disconnected",
                gone.pid
            )));
            self.gone(&gone, tell);
        }
    }

    fn do_as_told(&mut self, index: usize, bytes: &[u8], fds: Vec<OwnedFd>, tell: &mut impl FnMut(Report)) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut words = text.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("join"), Some(tid), Some(name)) => {
                let joined = tid
                    .parse()
                    .map_err(|_| JoinError::NoThread(tid.to_owned()))
                    .and_then(|tid| self.join(index, tid, name, fds));
                match joined {
                    Ok(activity) => {
                        let (pid, tid) = (self.callers[index].pid, tid.parse().unwrap_or(0));
                        self.shared.slots[activity].tid.store(tid, Ordering::Release);
                        self.page().set_who(activity, Presence::Joining, pid, tid as u32);
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
                    self.handed.leave(fd);
                    self.say(index, "ok", false);
                }
                (TimeBase::Eventfd, None) => self.refuse(index, "no descriptor arrived; expected one"),
                (base, _) => {
                    let why = format!("frame {:?} has the time base {base}; expected eventfd", self.config.spec.name);
                    self.refuse(index, &why);
                }
            },
            (Some("leave"), ..) => self.callers[index].said_goodbye = true,
            _ => self.refuse(index, "expected join TID NAME, watch, follow, trigger or leave"),
        }
    }

    /// Sends a refusal.
    fn refuse(&mut self, index: usize, why: &str) {
        self.say(index, &format!("no {why}"), false);
    }

    /// Sends an answer with the frame page.
    fn answer(&mut self, index: usize, text: &str) {
        self.say(index, text, true);
    }

    /// Sends an answer without waiting. If the client is gone, reading its connection shows it.
    fn say(&mut self, index: usize, text: &str, with_page: bool) {
        let page = [self.shared.words.fd()];
        let fds = if with_page { &page[..] } else { &[] };
        let caller = &mut self.callers[index];
        caller.takes_nothing |= sys::handover::send_now(caller.connection.as_fd(), text.as_bytes(), fds).is_err();
    }

    /// Admits a thread.
    fn join(&mut self, index: usize, tid: u32, name: &str, fds: Vec<OwnedFd>) -> Result<usize, JoinError> {
        let pid = self.callers[index].pid;
        let spec = &self.config.spec;
        let activity = spec.activities.iter().position(|activity| activity.name == name).ok_or_else(|| {
            let known = spec.activities.iter().map(|activity| activity.name.as_str()).collect::<Vec<_>>().join(", ");
            JoinError::NoActivity(known)
        })?;
        if self.callers[index].activity.is_some() {
            return Err(JoinError::Joined);
        }
        let page = self.shared.page();
        if let (Presence::Joined | Presence::Joining, by, _) = page.who(activity) {
            return Err(JoinError::Taken(by));
        }
        let files = ThreadFiles::open(pid, tid).map_err(|error| JoinError::Thread { pid, tid, error })?;
        if self.shared.ordered {
            let below = if spec.activities[activity].is_background() { 4 } else { 1 };
            if let Some(cpu) = self.config.cpu {
                set_affinity(tid as i32, &CpuSet::single(cpu))?;
            }
            let scheduling = Scheduling { policy: self.shared.below(below), reset_on_fork: true };
            set_scheduling(tid as i32, scheduling)?;
        }
        let variables = fds.into_iter().next().and_then(|fd| SharedWords::attach(fd).ok());
        let shown = variables.as_ref().and_then(|words| ring::Variables::attach(words.words()).ok());
        // Each activity has a turn in every major frame, except background activities, which run when there is time.
        if let Some(shown) = shown.filter(|_| !spec.activities[activity].is_background()) {
            shown.set_period(spec.major());
        }
        let slot = &self.shared.slots[activity];
        slot.kill.store(false, Ordering::Release);
        page.forget(activity);
        let mut guest = slot.guest.lock().unwrap_or_else(|broken| broken.into_inner());
        let old = std::mem::replace(&mut *guest, Guest { files: Some(Arc::new(files)), variables });
        drop(guest);
        self.kept.extend(old.variables);
        for counter in [ActivityCounter::Demoted, ActivityCounter::Safe, ActivityCounter::Consecutive] {
            page.set_activity_counter(activity, counter, 0);
        }
        page.count_activity(activity, ActivityCounter::Joins, 1);
        self.callers[index].activity = Some(activity);
        Ok(activity)
    }

    /// Removes a client whose connection has ended.
    fn gone(&mut self, gone: &Connected, tell: &mut impl FnMut(Report)) {
        if gone.follows {
            self.shared.followers.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(activity) = gone.activity {
            self.free(activity, gone.said_goodbye, tell);
        }
    }

    /// Frees an activity whose thread has gone.
    fn free(&self, activity: usize, said_goodbye: bool, tell: &mut impl FnMut(Report)) {
        let page = self.shared.page();
        let presence = if said_goodbye { Presence::Left } else { Presence::Died };
        self.shared.slots[activity].tid.store(0, Ordering::Release);
        page.set_who(activity, presence, 0, 0);
        page.forget(activity);
        // If the activity has the turn, it is passed on.
        let turn = page.turn();
        if page.at(turn).map(usize::from) == Some(activity) {
            Shared::pass_over(&page, turn);
        }
        tell(Report::Gone(self.config.spec.activities[activity].name.clone(), said_goodbye));
    }

    /// Detects a thread that ended without leaving while its connection is still open, because its process or a child that
    /// inherited the connection lives. Checks one activity per call.
    pub(super) fn notice_one_that_ended(&mut self, tell: &mut impl FnMut(Report)) {
        let activity = self.next_activity;
        self.next_activity = (activity + 1) % self.shared.slots.len();
        let ended = self.shared.slots[activity].files().is_some_and(|files| files.is_gone());
        let caller = self.callers.iter_mut().find(|caller| ended && caller.activity == Some(activity));
        if let Some(caller) = caller {
            caller.activity = None;
            self.free(activity, false, tell);
        }
    }
}
