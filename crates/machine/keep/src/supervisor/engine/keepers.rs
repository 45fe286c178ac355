//! Handles messages from keepers, and the results of background work on them.

use super::{Engine, Waits};
use crate::keeper::protocol::Request;
use crate::keeper::{News, Refusal};
use crate::supervisor::connection::{Asker, ConnectionError, Finished};
use crate::supervisor::control::Reply;
use base::{DurNs, MonoNs};
use host::supervise::{End, Event, Id, State};
use sys::clock::mono_now;

/// Maximum number of messages handled per keeper at a time, so that a child that floods its notify socket does not delay the
/// others.
const NEWS_MAX: usize = 64;

/// Interval between two checks of a keeper.
const CHECK_EVERY: DurNs = DurNs::from_secs(2);

impl Engine {
    /// Handles completed background work.
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

    /// Performs the starts that waited for the shield or a keeper, as far as possible.
    pub(super) fn let_start(&mut self) {
        for waits in std::mem::take(&mut self.waits) {
            match waits {
                _ if self.reshield.is_some() => self.waits.push(waits),
                Waits::Start(id) if self.processes.state(id) == State::Launching => self.start(id),
                Waits::Start(_) => {}
                // The result arrives as an event. A keeper that is gone is detected separately.
                Waits::Go(id) => drop(self.processes[id].link.request(&Request::Go, Asker::Own)),
            }
        }
    }

    /// Handles the keepers' messages without waiting. Returns whether there were any.
    pub(super) fn keepers(&mut self, now: MonoNs) -> bool {
        let mut any = false;
        for id in self.processes.ids() {
            for _ in 0..NEWS_MAX {
                let Some(news) = self.processes[id].link.next() else { break };
                any = true;
                match news {
                    Ok(news) => self.keeper_news(now, id, news),
                    // The keeper was killed. Its child is killed too, because its end could not be detected.
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
                self.processes[id].log_bytes_lost = status.log_bytes_lost;
                if self.processes[id].link.answered() != Some(Asker::Check) {
                    self.note_shortfalls(id, &status);
                    self.observe_start(now, id);
                }
            }
            News::Answer(outcome) => match (self.processes[id].link.answered(), outcome) {
                (Some(Asker::Operator(client)), outcome) => {
                    let reply = outcome.map_or_else(|Refusal(why)| Reply::Refused(why), |()| Reply::Done);
                    self.server.answer(client, &reply);
                }
                // A console user started it first. Any other cause has already arrived as an event.
                (Some(Asker::Start), Err(Refusal(why))) => match self.processes[id].child {
                    Some(_) => self.processes.event(Event::Started(id)),
                    None => self.processes.event(Event::StartFailed(id, why)),
                },
                // A refused signal means that the process has just ended.
                (_, Ok(()) | Err(_)) => {}
            },
        }
    }

    /// Asks each keeper for its status every [`CHECK_EVERY`]: a stopped keeper owes the answer, and lines that a keeper could
    /// not log are counted.
    pub(super) fn check_keepers(&mut self, now: MonoNs) {
        if now < self.keepers_due {
            return;
        }
        self.keepers_due = now + CHECK_EVERY;
        for id in self.processes.ids() {
            self.processes[id].link.check();
        }
    }

    /// Handles keepers that do not answer. The fault is reported; a keeper that was to start its process is killed.
    pub(super) fn silent_keepers(&mut self, now: MonoNs) {
        for id in self.processes.ids() {
            let Some(why) = self.processes[id].link.silence(now) else { continue };
            if self.processes.state(id) == State::Launching {
                self.end_keeper(id, true, &why);
                continue;
            }
            self.processes[id].link.report_silence(true);
            self.tell.error(now, self.processes.name(id), &why.to_string());
            self.refuse(id, &why);
        }
    }

    /// Refuses the requests of operators that this keeper has not answered.
    fn refuse(&mut self, id: Id, why: &ConnectionError) {
        for client in self.processes[id].link.abandon() {
            self.server.answer(client, &Reply::Refused(why.to_string()));
        }
    }

    /// Ends the remaining processes of a keeper that is gone, or that hangs and is killed with them. Runs in the background.
    pub(super) fn end_keeper(&mut self, id: Id, hangs: bool, why: &ConnectionError) {
        self.refuse(id, why);
        let folder = self.site.run.keeper(self.processes.name(id));
        let why = why.to_string();
        self.tell.error(mono_now(), self.processes.name(id), &why);
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
            self.tell.error(mono_now(), self.processes.name(id), &text);
        }
        if self.processes.state(id) == State::Launching {
            self.processes.event(Event::StartFailed(id, why));
        } else {
            self.processes.event(Event::Exited(id, End::Unseen));
        }
    }
}
