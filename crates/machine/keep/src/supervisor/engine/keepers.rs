//! Following what keepers say, and what is done about them beside the loop.

use super::{Engine, Waits};
use crate::keeper::News;
use crate::keeper::protocol::Request;
use crate::supervisor::connection::{Asker, ConnectionError, Finished};
use crate::supervisor::control::Reply;
use base::MonoNs;
use host::supervise::{End, Event, Id, State};
use sys::clock::mono_now;

/// News taken of a keeper at a time: a child that floods its notify socket must not keep the others waiting.
const NEWS_MAX: usize = 64;

impl Engine {
    /// Goes on with what has been done beside the loop.
    pub(super) fn keepers_finished(&mut self) {
        let mut any = false;
        for id in self.processes.ids() {
            let Some(finished) = self.processes[id].link.finished() else { continue };
            any = true;
            match finished {
                Finished::Started(Err(why)) => self.processes.event(Event::StartFailed(id, why.to_string())),
                Finished::Ended(why, killed) => self.ended_family(id, why, killed.map_err(ConnectionError::from)),
                Finished::Started(Ok(())) | Finished::Dismissed => {}
            }
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
                Waits::Start(id) if self.processes.state(id) == State::Launching => self.start(id),
                Waits::Start(_) => {}
                // Whether it runs or not comes as an event; a keeper that is gone is noticed by itself.
                Waits::Go(id) => drop(self.processes[id].link.request(&Request::Go, Asker::Own)),
            }
        }
    }

    /// Takes in what keepers have said, without waiting; whether there was anything.
    pub(super) fn keepers(&mut self, now: MonoNs) -> bool {
        let mut any = false;
        for id in self.processes.ids() {
            for _ in 0..NEWS_MAX {
                let Some(news) = self.processes[id].link.next() else { break };
                any = true;
                match news {
                    Ok(news) => self.keeper_news(now, id, news),
                    // It was killed: its child goes with it, because nobody would know of its end.
                    Err(why) => self.end_keeper(id, false, &why),
                }
            }
        }
        any
    }

    fn keeper_news(&mut self, now: MonoNs, id: Id, news: News) {
        if !matches!(news, News::Event(_)) && self.processes[id].link.report_silence(false) {
            self.tell.event(now, self.processes.name(id), "its keeper answers again");
        }
        match news {
            News::Event(event) => self.keeper_event(now, id, event),
            News::Status(status) => {
                self.processes[id].link.answered();
                self.note_shortfalls(id, &status);
            }
            News::Answer(outcome) => match (self.processes[id].link.answered(), outcome) {
                (Some(Asker::Operator(client)), outcome) => {
                    let reply = outcome.map_or_else(Reply::Refused, |()| Reply::Done);
                    self.server.answer(client, &reply);
                }
                // Somebody at a console was faster; any other reason has come as an event.
                (Some(Asker::Start), Err(why)) => match self.processes[id].child {
                    Some(_) => self.processes.event(Event::Started(id)),
                    None => self.processes.event(Event::StartFailed(id, why)),
                },
                // A refused signal means that the process has just ended.
                (_, Ok(()) | Err(_)) => {}
            },
        }
    }

    /// Deals with keepers that do not answer: people are told, and one that should start its process is given up.
    pub(super) fn silent_keepers(&mut self, now: MonoNs) {
        for id in self.processes.ids() {
            let Some(why) = self.processes[id].link.silence(now) else { continue };
            if self.processes.state(id) == State::Launching {
                self.end_keeper(id, true, &why);
                continue;
            }
            self.processes[id].link.report_silence(true);
            self.tell.event(now, self.processes.name(id), &why.to_string());
            self.refuse(id, &why);
        }
    }

    /// Tells operators who wait for an answer of this keeper that none will come.
    fn refuse(&mut self, id: Id, why: &ConnectionError) {
        for client in self.processes[id].link.abandon() {
            self.server.answer(client, &Reply::Refused(why.to_string()));
        }
    }

    /// Ends what is left of a process whose keeper is gone, or hangs and goes with it, beside the loop.
    pub(super) fn end_keeper(&mut self, id: Id, hangs: bool, why: &ConnectionError) {
        self.refuse(id, why);
        let folder = self.site.run.keeper(self.processes.name(id));
        let why = why.to_string();
        self.tell.event(mono_now(), self.processes.name(id), &why);
        let one = &mut self.processes[id];
        let child = one.child.take();
        if let Err(error) = one.link.end_family(hangs, child, folder, &why) {
            self.ended_family(id, why, Err(error.into()));
        }
    }

    fn ended_family(&mut self, id: Id, why: String, killed: Result<usize, ConnectionError>) {
        let text = match killed {
            Ok(0) => None,
            Ok(more) => Some(format!("{more} processes that it left behind were killed")),
            Err(error) => Some(format!("PROCESSES THAT IT LEFT BEHIND MAY STILL RUN: {error}")),
        };
        if let Some(text) = text {
            self.tell.event(mono_now(), self.processes.name(id), &text);
        }
        if self.processes.state(id) == State::Launching {
            self.processes.event(Event::StartFailed(id, why));
        } else {
            self.processes.event(Event::Exited(id, End::Unseen));
        }
    }
}
