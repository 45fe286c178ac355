//! The supervisor's connection to the keeper of a process. The supervisor never waits for a keeper, because the other
//! processes need it meanwhile. Slow work runs on a background thread.

use super::background::{BackgroundTask, NoResult};
use super::probe;
use crate::keeper::protocol::{ChildId, KeeperSpec, Request};
use crate::keeper::{ANSWER_WITHIN, Keeper, KeeperError, News};
use base::{DurNs, MonoNs};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::clock::mono_now;

/// If a keeper owes an answer for longer than this, SIGKILL is sent without it.
const KILL_WITHIN: DurNs = DurNs::from_secs(1);
/// Maximum time between two messages of a keeper that is ending.
const QUIT_WITHIN: Duration = Duration::from_millis(500);

/// Origin of a request that a keeper has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The engine, which sees the effect in later events.
    Own,
    /// The engine, to start the process.
    Start,
    /// The engine, to see whether the keeper works.
    Check,
    /// An operator. The client waits for the answer.
    Operator(u64),
}

/// A fault of a keeper.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("it has no keeper")]
    None,
    #[error("its keeper is gone")]
    Gone,
    #[error("its keeper did not survive")]
    NotFound,
    #[error("its keeper (process {0}) does not answer: is it stopped? (`kill -CONT {0}`)")]
    Silent(i32),
    #[error("its keeper does not answer: killed with everything below it")]
    Killed,
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error(transparent)]
    Thread(#[from] sys::Error),
    #[error(transparent)]
    Lost(#[from] NoResult),
}

/// A keeper, or the background work to get one.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    keeper: Option<Keeper>,
    /// Origins of the unanswered requests, oldest first.
    pending: VecDeque<Asker>,
    /// Work on a background thread.
    work: Option<Work>,
    /// Whether its silence has been reported.
    silence_reported: bool,
    /// The spec it was started with; `None` if unknown.
    spec: Option<KeeperSpec>,
    /// PID of the keeper.
    pub(crate) pid: Option<i32>,
}

/// Background work on a keeper. The process starts only after it has ended.
#[derive(Debug)]
enum Work {
    /// Starts a keeper, after dismissing the previous one.
    Start(BackgroundTask<Result<Keeper, KeeperError>>, Box<KeeperSpec>),
    /// Ends the processes left by a keeper that is gone. Returns their number.
    End(BackgroundTask<usize>, String),
    /// Ends a keeper that is no longer needed.
    Dismiss(BackgroundTask<()>),
}

/// Completed background work.
#[derive(Debug)]
pub(crate) enum Finished {
    /// A keeper serves, and messages about its process follow; or the start failed.
    Started(Result<(), ConnectionError>),
    /// The keeper is gone for this reason, and this many remaining processes were killed.
    Ended(String, Result<usize, NoResult>),
    /// A keeper that was no longer needed is gone.
    Dismissed,
}

impl Connection {
    /// Wraps a keeper started by another supervisor.
    pub(crate) fn adopted(keeper: Keeper, spec: Option<KeeperSpec>, pid: i32) -> Self {
        Self { keeper: Some(keeper), spec, pid: Some(pid), ..Self::default() }
    }

    /// The descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        use rustix::fd::AsFd as _;
        let work = self.work.as_ref().map(|work| match work {
            Work::Start(work, _) => work.as_fd(),
            Work::End(work, _) => work.as_fd(),
            Work::Dismiss(work) => work.as_fd(),
        });
        self.keeper.as_ref().map(Keeper::as_fd).into_iter().chain(work)
    }

    /// Whether background work is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// Whether there is a keeper with an equivalent spec. It is reused for a restart, which keeps its consoles attached.
    pub(crate) fn fits(&self, spec: &KeeperSpec) -> bool {
        self.keeper.is_some() && self.spec.as_ref().is_some_and(|old| same(old, spec))
    }

    /// Makes the next start use a new keeper.
    pub(crate) fn replace_keeper(&mut self) {
        self.spec = None;
    }

    /// Starts a keeper in place of the current one.
    ///
    /// # Errors
    /// The background thread cannot be started.
    pub(crate) fn begin(&mut self, spec: KeeperSpec, program: &Path) -> sys::Result<()> {
        let (before, program, wanted) = (self.keeper.take(), program.to_owned(), spec.clone());
        (self.spec, self.silence_reported) = (None, false);
        self.pending.clear();
        let work = BackgroundTask::begin("tahti-keeper", move || {
            if let Some(before) = before {
                dismiss(before);
            }
            // A keeper that answered an earlier start too late. A new one ends the processes that it leaves.
            if let Ok(Some((late, _))) = Keeper::adopt(&wanted.dir) {
                probe::end_keeper(&late);
            }
            Keeper::start(&wanted, &program)
        })?;
        self.work = Some(Work::Start(work, Box::new(spec)));
        Ok(())
    }

    /// Ends the keeper, whose child is gone. If no thread can be started, the keeper stays idle until the plant is down.
    pub(crate) fn dismiss(&mut self) {
        self.silence_reported = false;
        if let Some(keeper) = self.keeper.take() {
            self.work = BackgroundTask::begin("tahti-keeper", move || dismiss(keeper)).ok().map(Work::Dismiss);
        }
    }

    /// Ends the remaining processes of a keeper that is gone, or that hangs and is killed with them. Runs in the background,
    /// because ending processes takes time.
    ///
    /// # Errors
    /// The background thread cannot be started.
    pub(crate) fn end_family(
        &mut self,
        hangs: bool,
        child: Option<ChildId>,
        folder: PathBuf,
        why: &str,
    ) -> sys::Result<()> {
        let hung = self.keeper.take().filter(|_| hangs);
        (self.pid, self.silence_reported) = (None, false);
        self.pending.clear();
        let work = BackgroundTask::begin("tahti-family", move || {
            if let Some(keeper) = hung {
                probe::end_keeper(&keeper);
            }
            if let Some(child) = child {
                probe::kill_for_good(child);
            }
            // Descendants that survived the end of their terminal would run at the same time as the next instance.
            crate::group::end_family(&folder)
        })?;
        self.work = Some(Work::End(work, why.to_owned()));
        Ok(())
    }

    /// Takes the result of completed background work.
    pub(crate) fn finished(&mut self) -> Option<Finished> {
        let finished = match self.work.as_ref()? {
            Work::Start(work, spec) => {
                let started = work.take()?.map_err(ConnectionError::from).and_then(|started| Ok(started?));
                Finished::Started(started.map(|keeper| {
                    self.pid = keeper.process().map(|process| process.pid);
                    (self.keeper, self.spec) = (Some(keeper), Some(KeeperSpec::clone(spec)));
                }))
            }
            Work::End(work, why) => Finished::Ended(why.clone(), work.take()?),
            Work::Dismiss(work) => {
                // The result does not matter here.
                let _ = work.take()?;
                Finished::Dismissed
            }
        };
        self.work = None;
        Some(finished)
    }

    /// Sends the keeper a request. The outcome arrives through [`next`](Self::next).
    ///
    /// # Errors
    /// There is no keeper, or it cannot be reached.
    pub(crate) fn request(&mut self, request: &Request, asker: Asker) -> Result<(), ConnectionError> {
        let keeper = self.keeper.as_mut().ok_or(ConnectionError::None)?;
        keeper.tell(request, mono_now())?;
        self.pending.push_back(asker);
        Ok(())
    }

    /// The next message of the keeper, without waiting. An error means that the keeper is gone or unusable.
    pub(crate) fn next(&mut self) -> Option<Result<News, ConnectionError>> {
        let keeper = self.keeper.as_mut()?;
        match keeper.next_news() {
            Ok(Some(news)) => Some(Ok(news)),
            Ok(None) if keeper.is_lost() => Some(Err(ConnectionError::Gone)),
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Removes and returns the origin of the oldest pending request, which has been answered.
    pub(crate) fn answered(&mut self) -> Option<Asker> {
        self.pending.pop_front()
    }

    /// Ids of the operators whose requests to this keeper will not be answered.
    pub(crate) fn abandon(&mut self) -> Vec<u64> {
        let operator = |asker: &mut Asker| match *asker {
            Asker::Operator(client) => {
                *asker = Asker::Own;
                Some(client)
            }
            Asker::Own | Asker::Start | Asker::Check => None,
        };
        self.pending.iter_mut().filter_map(operator).collect()
    }

    /// Asks the keeper for its status, unless it owes an answer already.
    pub(crate) fn check(&mut self) {
        if self.keeper.is_some() && self.pending.is_empty() {
            // A keeper that cannot be reached is detected by `next`.
            let _ = self.request(&Request::Status, Asker::Check);
        }
    }

    /// Whether the keeper counts as hung.
    pub(crate) fn is_silent(&self) -> bool {
        self.silence_reported
    }

    /// Time at which a keeper that owes an answer counts as hung.
    pub(crate) fn next_silent(&self) -> Option<MonoNs> {
        let keeper = self.keeper.as_ref().filter(|_| !self.silence_reported)?;
        Some(keeper.silent_since()? + ANSWER_WITHIN)
    }

    /// The fault, if the keeper counts as hung at `now`.
    pub(crate) fn silence(&self, now: MonoNs) -> Option<ConnectionError> {
        self.next_silent().filter(|at| now >= *at)?;
        let process = self.keeper.as_ref()?.process();
        Some(ConnectionError::Silent(process.map_or(0, |process| process.pid)))
    }

    /// Records whether the silence has been reported. Returns the previous value.
    pub(crate) fn report_silence(&mut self, silent: bool) -> bool {
        std::mem::replace(&mut self.silence_reported, silent)
    }

    /// Whether SIGKILL must bypass the keeper.
    pub(crate) fn owes_too_long(&self, now: MonoNs) -> bool {
        let since = self.keeper.as_ref().and_then(Keeper::silent_since);
        since.is_some_and(|since| now - since >= KILL_WITHIN)
    }

    /// Removes and returns the keeper.
    pub(crate) fn take_keeper(&mut self) -> Option<Keeper> {
        self.keeper.take()
    }
}

/// Ends a keeper whose child is gone, and waits until its directory is free for another one.
pub(crate) fn dismiss(mut keeper: Keeper) {
    let told = keeper.tell(&Request::Quit, mono_now());
    while told.is_ok() && !keeper.is_lost() {
        // The keeper closes the connection when it ends.
        match keeper.wait_event(QUIT_WITHIN) {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    if !keeper.is_lost() {
        probe::end_keeper(&keeper);
    }
}

/// Whether two specs start the same process. Descriptor numbers are ignored, since they differ from start to start.
fn same(old: &KeeperSpec, new: &KeeperSpec) -> bool {
    let mut old = old.clone();
    for (to, from) in old.launch.inherit.iter_mut().zip(&new.launch.inherit) {
        to.fd = from.fd;
    }
    old == *new
}
