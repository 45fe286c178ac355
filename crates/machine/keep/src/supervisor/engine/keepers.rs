//! Talking with keepers: nobody waits for one, because the others' processes need the supervisor meanwhile.

use super::{Engine, Told};
use crate::keeper::protocol::Request;
use crate::keeper::{ANSWER_WITHIN, Keeper, News};
use crate::supervisor::control;
use crate::supervisor::probe;
use base::{DurNs, MonoNs};
use host::supervise::{End, Event, Id, State};
use std::time::Duration;
use sys::clock::mono_now;

/// SIGKILL is not left to a keeper that owes an answer for longer than this.
const KILL_WITHIN: DurNs = DurNs::from_secs(1);
/// How long a keeper may take to end.
const QUIT_WITHIN: Duration = Duration::from_millis(500);

impl Engine {
    /// Tells a keeper what to do; the outcome comes as news.
    ///
    /// # Errors
    /// There is no keeper, or it cannot be told.
    pub(super) fn tell_keeper(&mut self, id: Id, request: &Request, whose: Told) -> Result<(), String> {
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
                (Some(Told::Operator(client)), outcome) => {
                    let reply = outcome.map_or_else(control::Reply::Refused, |()| control::Reply::Done);
                    self.server.answer(client, &reply);
                }
                // Somebody at a console was faster; any other reason has come as an event.
                (Some(Told::Start), Err(why)) => match self.kids[id].child {
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
        if let Some(keeper) = self.kids[id].keeper.take() {
            probe::end_keeper(&keeper);
        }
        self.keeper_gone(id, why);
    }

    /// Tells operators who wait for an answer of this keeper that none will come.
    fn refuse(&mut self, id: Id, why: &str) {
        for told in &mut self.kids[id].told {
            if let Told::Operator(client) = std::mem::replace(told, Told::Own) {
                self.server.answer(client, &control::Reply::Refused(why.to_owned()));
            }
        }
    }

    /// A keeper was killed: its child goes with it, because nobody would know of its end.
    pub(super) fn keeper_gone(&mut self, id: Id, why: &str) {
        self.refuse(id, why);
        let kid = &mut self.kids[id];
        (kid.keeper, kid.keeper_pid, kid.silence_told) = (None, None, false);
        kid.told.clear();
        let child = kid.child.take();
        self.tell.event(mono_now(), &self.name(id), why);
        if let Some(child) = child {
            probe::kill_for_good(child);
        }
        // What it started and does not mind the end of its terminal would run beside the next copy.
        let more = crate::group::end_family(&self.run.keeper(&self.name(id)));
        if more > 0 {
            self.tell.event(mono_now(), &self.name(id), &format!("{more} processes that it left behind were killed"));
        }
        if self.all.units()[id].state == State::Launching {
            self.event(Event::StartFailed(id, why.to_owned()));
        } else {
            self.event(Event::Exited(id, End::Unseen));
        }
    }
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
