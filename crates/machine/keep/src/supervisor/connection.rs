//! The supervisor's end of a process's keeper. Nobody waits for a keeper, because the others' processes need the
//! supervisor meanwhile: what takes its time is done beside the loop.

use super::aside::{Aside, Lost};
use super::probe;
use crate::keeper::protocol::{ChildId, KeeperSpec, Request};
use crate::keeper::{ANSWER_WITHIN, Keeper, KeeperError, News};
use base::{DurNs, MonoNs};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::clock::mono_now;

/// SIGKILL is not left to a keeper that owes an answer for longer than this.
const KILL_WITHIN: DurNs = DurNs::from_secs(1);
/// How long a keeper may take to end.
const QUIT_WITHIN: Duration = Duration::from_millis(500);

/// Whose request a keeper has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The engine's, which learns from events whether it helped.
    Own,
    /// To start its process.
    Start,
    /// An operator's, who waits.
    Operator(u64),
}

/// Why a keeper does not do what it should.
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
    Lost(#[from] Lost),
}

/// A keeper, or what is done to get one.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    keeper: Option<Keeper>,
    /// Whose requests it has not answered, oldest first.
    pending: VecDeque<Asker>,
    /// What is done about it beside the loop.
    work: Option<Work>,
    /// Whether people know that it does not answer.
    silence_reported: bool,
    /// What it was started with; `None` where that is not known.
    spec: Option<KeeperSpec>,
    /// Its process.
    pub(crate) pid: Option<i32>,
}

/// What is done about a keeper beside the loop; the process starts when it is over, not before.
#[derive(Debug)]
enum Work {
    /// One is started, the one before it dismissed.
    Start(Aside<Result<Keeper, KeeperError>>, Box<KeeperSpec>),
    /// One has gone, and what it left is ended; how many processes that were.
    End(Aside<usize>, String),
    /// One that is no longer needed ends.
    Dismiss(Aside<()>),
}

/// Work that is done.
#[derive(Debug)]
pub(crate) enum Finished {
    /// A keeper serves, whose process follows as news, or none could be had.
    Started(Result<(), ConnectionError>),
    /// The keeper has gone for this reason; so many processes that it left were killed.
    Ended(String, Result<usize, Lost>),
    /// A keeper that was no longer needed is gone.
    Dismissed,
}

impl Connection {
    /// A keeper that another supervisor started.
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

    /// Whether something is done about it beside the loop.
    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// Whether there is a keeper that was started in the same way: it keeps its consoles over a restart.
    pub(crate) fn fits(&self, spec: &KeeperSpec) -> bool {
        self.keeper.is_some() && self.spec.as_ref().is_some_and(|old| same(old, spec))
    }

    /// The next start takes another keeper.
    pub(crate) fn replace_keeper(&mut self) {
        self.spec = None;
    }

    /// Starts a keeper in the place of the one that is there.
    ///
    /// # Errors
    /// It could not be begun.
    pub(crate) fn begin(&mut self, spec: KeeperSpec, program: &Path) -> sys::Result<()> {
        let (before, program, wanted) = (self.keeper.take(), program.to_owned(), spec.clone());
        self.spec = None;
        self.pending.clear();
        let work = Aside::begin("tahti-keeper", move || {
            if let Some(before) = before {
                dismiss(before);
            }
            Keeper::start(&wanted, &program)
        })?;
        self.work = Some(Work::Start(work, Box::new(spec)));
        Ok(())
    }

    /// Ends the keeper, whose child is gone. Without a thread it stays behind, idle, until the plant is down.
    pub(crate) fn dismiss(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            self.work = Aside::begin("tahti-keeper", move || dismiss(keeper)).ok().map(Work::Dismiss);
        }
    }

    /// Ends what is left of a process whose keeper is gone, or hangs and goes with it: dying takes its time.
    ///
    /// # Errors
    /// It could not be begun.
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
        let work = Aside::begin("tahti-family", move || {
            if let Some(keeper) = hung {
                probe::end_keeper(&keeper);
            }
            if let Some(child) = child {
                probe::kill_for_good(child);
            }
            // What it started and does not mind the end of its terminal would run beside the next copy.
            crate::group::end_family(&folder)
        })?;
        self.work = Some(Work::End(work, why.to_owned()));
        Ok(())
    }

    /// The work that is done.
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
                // However it ended, it is over.
                let _ = work.take()?;
                Finished::Dismissed
            }
        };
        self.work = None;
        Some(finished)
    }

    /// Sends the keeper a request; the outcome comes as news.
    ///
    /// # Errors
    /// There is no keeper, or it cannot be reached.
    pub(crate) fn request(&mut self, request: &Request, asker: Asker) -> Result<(), ConnectionError> {
        let keeper = self.keeper.as_mut().ok_or(ConnectionError::None)?;
        keeper.tell(request, mono_now())?;
        self.pending.push_back(asker);
        Ok(())
    }

    /// What the keeper has said, without waiting; an error is why there is none any more.
    pub(crate) fn next(&mut self) -> Option<Result<News, ConnectionError>> {
        let keeper = self.keeper.as_mut()?;
        match keeper.next_news() {
            Ok(Some(news)) => Some(Ok(news)),
            Ok(None) if keeper.is_lost() => Some(Err(ConnectionError::Gone)),
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Whose request has been answered.
    pub(crate) fn answered(&mut self) -> Option<Asker> {
        self.pending.pop_front()
    }

    /// Operators who wait for an answer, which will not come.
    pub(crate) fn abandon(&mut self) -> Vec<u64> {
        let operator = |asker: &mut Asker| match std::mem::replace(asker, Asker::Own) {
            Asker::Operator(client) => Some(client),
            Asker::Own | Asker::Start => None,
        };
        self.pending.iter_mut().filter_map(operator).collect()
    }

    /// When a keeper that owes an answer counts as hung.
    pub(crate) fn next_silent(&self) -> Option<MonoNs> {
        let keeper = self.keeper.as_ref().filter(|_| !self.silence_reported)?;
        Some(keeper.silent_since()? + ANSWER_WITHIN)
    }

    /// Why it counts as hung from now on.
    pub(crate) fn silence(&self, now: MonoNs) -> Option<ConnectionError> {
        self.next_silent().filter(|at| now >= *at)?;
        let process = self.keeper.as_ref()?.process();
        Some(ConnectionError::Silent(process.map_or(0, |process| process.pid)))
    }

    /// People know now that it does not answer, or that it answers; whether they did.
    pub(crate) fn report_silence(&mut self, silent: bool) -> bool {
        std::mem::replace(&mut self.silence_reported, silent)
    }

    /// Whether SIGKILL must go another way than through the keeper.
    pub(crate) fn owes_too_long(&self, now: MonoNs) -> bool {
        let since = self.keeper.as_ref().and_then(Keeper::silent_since);
        since.is_some_and(|since| now - since >= KILL_WITHIN)
    }

    /// The keeper, taken out.
    pub(crate) fn take_keeper(&mut self) -> Option<Keeper> {
        self.keeper.take()
    }
}

/// Ends a keeper whose child is gone, and waits until its place is free for another one.
pub(crate) fn dismiss(mut keeper: Keeper) {
    let told = keeper.tell(&Request::Quit, mono_now());
    while told.is_ok() && !keeper.is_lost() {
        // It closes the connection at its end.
        match keeper.wait_event(QUIT_WITHIN) {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    if !keeper.is_lost() {
        probe::end_keeper(&keeper);
    }
}

/// Whether two specs make the same process; numbers of descriptors differ from start to start.
fn same(old: &KeeperSpec, new: &KeeperSpec) -> bool {
    let mut old = old.clone();
    for (to, from) in old.launch.inherit.iter_mut().zip(&new.launch.inherit) {
        to.fd = from.fd;
    }
    old == *new
}
