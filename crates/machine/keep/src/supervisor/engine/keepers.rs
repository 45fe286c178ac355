//! Talking with keepers: nobody waits for one, because the others' processes need the supervisor meanwhile.

use super::{Asker, Engine, Waits};
use crate::keeper::protocol::{KeeperSpec, Request};
use crate::keeper::{ANSWER_WITHIN, Keeper, News};
use crate::supervisor::aside::Aside;
use crate::supervisor::control;
use crate::supervisor::probe;
use base::{DurNs, MonoNs};
use host::supervise::{End, Event, Id, State};
use rustix::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use sys::clock::mono_now;

/// SIGKILL is not left to a keeper that owes an answer for longer than this.
const KILL_WITHIN: DurNs = DurNs::from_secs(1);
/// How long a keeper may take to end.
const QUIT_WITHIN: Duration = Duration::from_millis(500);

/// What is done about a keeper beside the loop; the process starts when it is over, not before.
#[derive(Debug)]
pub(super) enum Beside {
    /// One is started, the one before it dismissed.
    Start(Aside<Result<Keeper, String>>, Box<KeeperSpec>),
    /// One has gone, and what it left is ended; how many processes that were.
    End(Aside<usize>, String),
    /// One that is no longer needed ends.
    Dismiss(Aside<()>),
}

impl Beside {
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        match self {
            Self::Start(work, _) => work.as_fd(),
            Self::End(work, _) => work.as_fd(),
            Self::Dismiss(work) => work.as_fd(),
        }
    }
}

impl Engine {
    /// Starts a keeper in the place of the one that is there; its process follows as news.
    ///
    /// # Errors
    /// It could not be begun.
    pub(super) fn begin_keeper(&mut self, id: Id, spec: KeeperSpec) -> Result<(), String> {
        let kid = &mut self.kids[id];
        let (before, program, told) = (kid.keeper.take(), self.common.program.clone(), spec.clone());
        (kid.spec, kid.child, kid.exit) = (None, None, None);
        kid.told.clear();
        let work = Aside::begin("tahti-keeper", move || {
            if let Some(before) = before {
                dismiss(before);
            }
            Keeper::start(&told, &program).map_err(|error| error.to_string())
        })?;
        kid.beside = Some(Beside::Start(work, Box::new(spec)));
        Ok(())
    }

    /// Whether something is done about the keeper of this process, or of another one that had its name.
    pub(super) fn is_beside(&self, id: Id) -> bool {
        let units = self.all.units();
        let same = |other: Id| units[other].spec.name == units[id].spec.name;
        (0..self.kids.len()).any(|other| self.kids[other].beside.is_some() && same(other))
    }

    /// Goes on with what has been done beside the loop.
    pub(super) fn keepers_beside(&mut self) {
        let mut any = false;
        for id in 0..self.kids.len() {
            match &self.kids[id].beside {
                Some(Beside::Start(work, _)) => {
                    let Some(outcome) = work.take() else { continue };
                    let Some(Beside::Start(_, spec)) = self.kids[id].beside.take() else { continue };
                    self.began_keeper(id, *spec, outcome.and_then(|keeper| keeper));
                }
                Some(Beside::End(work, _)) => {
                    let Some(outcome) = work.take() else { continue };
                    let Some(Beside::End(_, why)) = self.kids[id].beside.take() else { continue };
                    self.ended_family(id, &why, outcome);
                }
                Some(Beside::Dismiss(work)) if work.take().is_some() => self.kids[id].beside = None,
                Some(Beside::Dismiss(_)) | None => continue,
            }
            any = true;
        }
        if any {
            self.let_start();
        }
    }

    /// Starts what waited for the shield or for a keeper, as far as it need not wait on.
    pub(super) fn let_start(&mut self) {
        for waits in std::mem::take(&mut self.waits) {
            match waits {
                _ if self.reshield.is_some() => self.waits.push(waits),
                Waits::Start(id) if self.all.units()[id].state == State::Launching => self.start(id),
                Waits::Start(_) => {}
                // Whether it runs or not comes as an event; a keeper that is gone is noticed by itself.
                Waits::Go(id) => drop(self.tell_keeper(id, &Request::Go, Asker::Own)),
            }
        }
    }

    fn began_keeper(&mut self, id: Id, spec: KeeperSpec, outcome: Result<Keeper, String>) {
        match outcome {
            Ok(keeper) => {
                let kid = &mut self.kids[id];
                kid.keeper_pid = keeper.process().map(|process| process.pid);
                (kid.keeper, kid.spec) = (Some(keeper), Some(spec));
            }
            Err(why) => self.event(Event::StartFailed(id, why)),
        }
    }

    /// Tells a keeper what to do; the outcome comes as news.
    ///
    /// # Errors
    /// There is no keeper, or it cannot be told.
    pub(super) fn tell_keeper(&mut self, id: Id, request: &Request, whose: Asker) -> Result<(), String> {
        let kid = &mut self.kids[id];
        let keeper = kid.keeper.as_mut().ok_or("it has no keeper")?;
        keeper.tell(request, mono_now()).map_err(|error| error.to_string())?;
        kid.told.push_back(whose);
        Ok(())
    }

    /// Takes in what keepers have said, without waiting; whether there was anything.
    pub(super) fn keepers(&mut self, now: MonoNs) -> bool {
        let mut any = false;
        for id in 0..self.kids.len() {
            // Bounded: a child that floods its notify socket must not keep the others waiting.
            for _ in 0..64 {
                let Some(keeper) = &mut self.kids[id].keeper else { break };
                match keeper.next_news() {
                    Ok(Some(news)) => {
                        any = true;
                        self.keeper_news(now, id, news);
                    }
                    Ok(None) if keeper.is_lost() => {
                        any = true;
                        self.keeper_gone(id, "its keeper is gone");
                    }
                    Ok(None) => break,
                    Err(error) => {
                        any = true;
                        self.keeper_gone(id, &error.to_string());
                    }
                }
            }
        }
        any
    }

    fn keeper_news(&mut self, now: MonoNs, id: Id, news: News) {
        if !matches!(news, News::Event(_)) && std::mem::take(&mut self.kids[id].silence_told) {
            self.tell.event(now, &self.name(id), "its keeper answers again");
        }
        match news {
            News::Event(event) => self.keeper_event(now, id, event),
            News::Status(status) => {
                self.kids[id].told.pop_front();
                self.stands(id, &status);
            }
            News::Answer(outcome) => match (self.kids[id].told.pop_front(), outcome) {
                (Some(Asker::Operator(client)), outcome) => {
                    let reply = outcome.map_or_else(control::Reply::Refused, |()| control::Reply::Done);
                    self.server.answer(client, &reply);
                }
                // Somebody at a console was faster; any other reason has come as an event.
                (Some(Asker::Start), Err(why)) => match self.kids[id].child {
                    Some(_) => self.event(Event::Started(id)),
                    None => self.event(Event::StartFailed(id, why)),
                },
                // A refused signal means that the process has just ended.
                (_, Ok(()) | Err(_)) => {}
            },
        }
    }

    /// When a keeper that owes an answer counts as hung.
    pub(super) fn next_silent(&self) -> Option<MonoNs> {
        let waited_for = self.kids.iter().filter(|kid| !kid.silence_told);
        waited_for.filter_map(|kid| Some(kid.keeper.as_ref()?.silent_since()? + ANSWER_WITHIN)).min()
    }

    /// Deals with keepers that do not answer: people are told, and one that should start its process is given up.
    pub(super) fn silent_keepers(&mut self, now: MonoNs) {
        for id in 0..self.kids.len() {
            let kid = &self.kids[id];
            let Some(keeper) = kid.keeper.as_ref().filter(|_| !kid.silence_told) else { continue };
            if keeper.silent_since().is_none_or(|since| now - since < ANSWER_WITHIN) {
                continue;
            }
            let pid = keeper.process().map_or(0, |process| process.pid);
            let why = format!("its keeper (process {pid}) does not answer: is it stopped? (`kill -CONT {pid}`)");
            if self.all.units()[id].state == State::Launching {
                self.give_up_keeper(id, &why);
                continue;
            }
            self.kids[id].silence_told = true;
            self.tell.event(now, &self.name(id), &why);
            self.refuse(id, &why);
        }
    }

    /// Whether SIGKILL must go another way than through the keeper.
    pub(super) fn is_deaf(&self, id: Id, now: MonoNs) -> bool {
        let since = self.kids[id].keeper.as_ref().and_then(Keeper::silent_since);
        since.is_some_and(|since| now - since >= KILL_WITHIN)
    }

    /// Ends a keeper that does not answer, with everything below it.
    pub(super) fn give_up_keeper(&mut self, id: Id, why: &str) {
        let hung = self.kids[id].keeper.take();
        self.end_family(id, hung, why);
    }

    /// Tells operators who wait for an answer of this keeper that none will come.
    fn refuse(&mut self, id: Id, why: &str) {
        for told in &mut self.kids[id].told {
            if let Asker::Operator(client) = std::mem::replace(told, Asker::Own) {
                self.server.answer(client, &control::Reply::Refused(why.to_owned()));
            }
        }
    }

    /// A keeper was killed: its child goes with it, because nobody would know of its end.
    pub(super) fn keeper_gone(&mut self, id: Id, why: &str) {
        self.end_family(id, None, why);
    }

    /// Ends what is left of a process without a keeper, or with one that hangs, beside the loop: dying takes its time.
    fn end_family(&mut self, id: Id, hung: Option<Keeper>, why: &str) {
        self.refuse(id, why);
        let kid = &mut self.kids[id];
        (kid.keeper, kid.keeper_pid, kid.silence_told) = (None, None, false);
        kid.told.clear();
        let (child, folder) = (kid.child.take(), self.run.keeper(&self.name(id)));
        self.tell.event(mono_now(), &self.name(id), why);
        let work = Aside::begin("tahti-family", move || {
            if let Some(keeper) = hung {
                probe::end_keeper(&keeper);
            }
            if let Some(child) = child {
                probe::kill_for_good(child);
            }
            // What it started and does not mind the end of its terminal would run beside the next copy.
            crate::group::end_family(&folder)
        });
        match work {
            Ok(work) => self.kids[id].beside = Some(Beside::End(work, why.to_owned())),
            Err(error) => self.ended_family(id, why, Err(error)),
        }
    }

    fn ended_family(&mut self, id: Id, why: &str, killed: Result<usize, String>) {
        let said = match killed {
            Ok(0) => None,
            Ok(more) => Some(format!("{more} processes that it left behind were killed")),
            Err(error) => Some(format!("PROCESSES THAT IT LEFT BEHIND MAY STILL RUN: {error}")),
        };
        if let Some(said) = said {
            self.tell.event(mono_now(), &self.name(id), &said);
        }
        if self.all.units()[id].state == State::Launching {
            self.event(Event::StartFailed(id, why.to_owned()));
        } else {
            self.event(Event::Exited(id, End::Unseen));
        }
    }
}

/// Has a keeper ended beside the loop whose child is gone; nothing where no thread can be had.
pub(super) fn dismiss_beside(keeper: Keeper) -> Option<Beside> {
    Aside::begin("tahti-keeper", move || dismiss(keeper)).ok().map(Beside::Dismiss)
}

/// Ends a keeper whose child is gone, and waits until its place is free for another one.
pub(super) fn dismiss(mut keeper: Keeper) {
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
