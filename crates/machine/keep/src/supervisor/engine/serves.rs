//! Answering operators.

use super::{Asker, Engine, Kid};
use crate::keeper::protocol as keeper;
use crate::supervisor::control::{Reply, Request};
use crate::supervisor::{read_plant, spec::find_program};
use base::MonoNs;
use host::plant::{Plant, Signal};
use host::supervise::{Event, Phase};
use sys::clock::mono_now;

impl Engine {
    /// The answer; `None` if it comes later.
    pub(super) fn serve(&mut self, client: u64, request: Request) -> Option<Reply> {
        let now = mono_now();
        Some(match request {
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Down => {
                self.waiting.push(client);
                self.tell.event(now, "tahti", "asked to go down");
                self.event(Event::Down);
                Reply::Done
            }
            Request::Restart { name } => match self.all.find(&name) {
                Some(id) if matches!(self.all.phase(), Phase::Starting | Phase::Up) => {
                    self.tell.event(now, &name, "restart asked for");
                    self.event(Event::Restart(id));
                    Reply::Done
                }
                Some(_) => Reply::Refused("the plant is going down".to_owned()),
                None => self.unknown(&name),
            },
            Request::Stop { names } => self.stop_or_start(&names, true),
            Request::Start { names } => self.stop_or_start(&names, false),
            Request::Signal { name, signal } => match self.all.find(&name) {
                Some(id) if self.kids[id].child.is_some() => {
                    let request = keeper::Request::Signal { signal: signal.into(), to: keeper::Target::Child };
                    if let Err(why) = self.tell_keeper(id, &request, Asker::Operator(client)) {
                        return Some(Reply::Refused(why));
                    }
                    self.tell.event(now, &name, &format!("{} sent on request", Signal(signal)));
                    return None;
                }
                Some(_) => Reply::Refused(format!("process {name:?} is not running")),
                None => self.unknown(&name),
            },
            Request::Reload { dry_run } => return self.reload(now, dry_run, client),
            Request::Upgrade { program } => {
                if !program.is_absolute() || find_program(&program.to_string_lossy(), &self.common.folder).is_err() {
                    return Some(Reply::Refused(format!("{} is no program with an absolute path", program.display())));
                }
                self.tell.event(now, "tahti", &format!("{} takes over", program.display()));
                self.upgrade = Some(program);
                Reply::Done
            }
        })
    }

    /// Stops or starts all of these, or none where that would be against the declared order.
    fn stop_or_start(&mut self, names: &[String], stop: bool) -> Reply {
        if !matches!(self.all.phase(), Phase::Starting | Phase::Up) {
            return Reply::Refused("the plant is going down".to_owned());
        }
        let mut ids = Vec::new();
        for name in names {
            match self.all.find(name) {
                Some(id) => ids.push(id),
                None => return self.unknown(name),
            }
        }
        let others = if stop { self.all.needing(&ids) } else { self.all.missing(&ids) };
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(|id| self.name(id)).collect();
            let all = [names, &others[..]].concat().join(" ");
            let (others, verb) = (others.join(", "), if stop { "stop" } else { "start" });
            let why = if stop { "runs only after it and must go first" } else { "must run before it and was stopped" };
            return Reply::Refused(format!("{}: {others} {why}; use `tahti {verb} {all}`", names.join(", ")));
        }
        for id in ids {
            let (word, event) = if stop { ("stop", Event::Stop(id)) } else { ("start", Event::Start(id)) };
            self.tell.event(mono_now(), &self.name(id), &format!("{word} asked for"));
            self.event(event);
        }
        Reply::Done
    }

    pub(super) fn unknown(&self, name: &str) -> Reply {
        let names = || self.plant.processes.iter().map(|process| process.name.as_str());
        let meant = base::nearest(name, names()).map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
        let names = names().collect::<Vec<_>>().join(", ");
        Reply::Refused(format!("plant {:?} has no process {name:?}{meant} (it has: {names})", self.plant.name))
    }

    /// Takes over what differs in the plant file.
    fn reload(&mut self, now: MonoNs, dry_run: bool, client: u64) -> Option<Reply> {
        match read_plant(&self.file) {
            Ok((plant, _)) => self.take_over(now, plant, dry_run, Some(client)),
            Err(text) => Some(Reply::Refused(text)),
        }
    }

    /// Takes over what differs in another reading of the plant, for a client or for nobody. The answer; `None` if it
    /// comes later: another shield takes its time.
    pub(crate) fn take_over(&mut self, now: MonoNs, new: Plant, dry_run: bool, client: Option<u64>) -> Option<Reply> {
        let changes = host::supervise::diff(&self.plant, &new);
        if new.name != self.plant.name {
            let (old, new) = (&self.plant.name, &new.name);
            return Some(Reply::Refused(format!(
                "the plant's name cannot be changed while it is up ({old} to {new}): its folder and its keepers go by it; \
                 use `tahti down` and `tahti up`"
            )));
        }
        if new.operators != self.plant.operators {
            let why = "the plant's operators cannot be changed while it is up; use `tahti down` and `tahti up`";
            return Some(Reply::Refused(why.to_owned()));
        }
        if dry_run || changes.is_empty() {
            return Some(Reply::Changes(changes.iter().map(ToString::to_string).collect()));
        }
        if self.reshield.is_some() {
            let why = "the shield is being changed at this moment: try again when that is done";
            return Some(Reply::Refused(why.to_owned()));
        }
        if new.shield != self.plant.shield {
            let begun = self.change_shield(&new, client);
            let refused = |why| format!("the shield cannot be changed: {why}; nothing else was taken over");
            return begun.err().map(|why| Reply::Refused(refused(why)));
        }
        Some(Reply::Changes(self.adopt_plant(now, new)))
    }

    /// Takes over another reading of the plant, whose shield stands; what was changed.
    pub(super) fn adopt_plant(&mut self, now: MonoNs, new: Plant) -> Vec<String> {
        let changes = host::supervise::diff(&self.plant, &new);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        for line in &lines {
            self.tell.event(now, "reload", line);
        }
        let old = std::mem::replace(&mut self.plant, new);
        self.all.reload(now, &old, &self.plant);
        self.kids.resize_with(self.all.units().len(), Kid::default);
        self.saved = None;
        self.rearm_watchdog(now, old.watchdog.as_ref());
        lines
    }
}
