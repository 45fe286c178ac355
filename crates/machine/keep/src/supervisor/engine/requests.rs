//! Answers to operators' requests.

use super::Engine;
use super::reshield::ReshieldError;
use crate::keeper::protocol as keeper;
use crate::partition::PartitionError;
use crate::supervisor::connection::Asker;
use crate::supervisor::control::{Reply, Request};
use crate::supervisor::{inputs, partitions, read_plant, status};
use base::MonoNs;
use host::plant::{Plant, Signal};
use host::supervise::{Event, Id, Phase, State, Unit};
use std::collections::BTreeSet;
use sys::clock::mono_now;

impl Engine {
    /// Handles a request. Returns the answer, or `None` if it is sent later.
    pub(super) fn serve(&mut self, client: u64, request: Request) -> Option<Reply> {
        let now = mono_now();
        Some(match request {
            Request::Status => Reply::Status(Box::new(status::status(
                &self.site,
                &self.processes,
                &self.shield,
                &self.tell,
                &self.health,
            ))),
            Request::Histograms => Reply::Histograms(status::histograms(&self.processes)),
            Request::Say { who, what } => {
                self.tell.show(now, &who, &what);
                Reply::Done
            }
            Request::Down => {
                self.waiting.push(client);
                self.tell.event(now, "tahti", "stop requested");
                self.go_down();
                Reply::Done
            }
            Request::Restart { name } => match self.processes.all.find(&name) {
                Some(id) if matches!(self.processes.all.phase(), Phase::Starting | Phase::Up) => {
                    self.observe(now, true);
                    self.tell.event(now, &name, "restart requested");
                    self.processes.event(Event::Restart(id));
                    Reply::Done
                }
                Some(_) => Reply::Refused("the plant is going down".to_owned()),
                None => self.unknown(&name),
            },
            Request::Stop { names } => self.stop_or_start(&names, true),
            Request::Start { names } => self.stop_or_start(&names, false),
            Request::Signal { name, signal } => match self.processes.all.find(&name) {
                Some(id) if self.processes[id].child.is_some() => {
                    let request = keeper::Request::Signal { signal: signal.into(), to: keeper::Target::Child };
                    if let Err(why) = self.processes[id].link.request(&request, Asker::Operator(client)) {
                        return Some(Reply::Refused(why.to_string()));
                    }
                    self.tell.event(now, &name, &format!("{} sent on request", Signal(signal)));
                    return None;
                }
                Some(_) => Reply::Refused(format!("process {name:?} is not running")),
                None => self.unknown(&name),
            },
            Request::Reload { dry_run } => return self.reload(now, dry_run, client),
            Request::Upgrade { program } => {
                if !program.is_absolute() || sys::program::find(&program, &self.site.folder, None).is_err() {
                    return Some(Reply::Refused(format!("{} is not an absolute path of a program", program.display())));
                }
                self.tell.event(now, "tahti", &format!("{} takes over", program.display()));
                self.upgrade = Some(program);
                Reply::Done
            }
        })
    }

    /// Stops or starts all of these processes. Refuses if the declared order forbids it, and then changes nothing.
    fn stop_or_start(&mut self, names: &[String], stop: bool) -> Reply {
        if !matches!(self.processes.all.phase(), Phase::Starting | Phase::Up) {
            return Reply::Refused("the plant is going down".to_owned());
        }
        let mut ids = Vec::new();
        for name in names {
            match self.processes.all.find(name) {
                Some(id) => ids.push(id),
                None => return self.unknown(name),
            }
        }
        let others = if stop { self.processes.all.needing(&ids) } else { self.processes.all.missing(&ids) };
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(|id| self.processes.name(id).to_owned()).collect();
            let all = [names, &others[..]].concat().join(" ");
            let (others, verb) = (others.join(", "), if stop { "stop" } else { "start" });
            let why = if stop { "runs only after it and must go first" } else { "must run before it and was stopped" };
            return Reply::Refused(format!("{}: {others} {why}; use `tahti {verb} {all}`", names.join(", ")));
        }
        if stop {
            self.observe(mono_now(), true);
        }
        for id in ids {
            let (word, event) = if stop { ("stop", Event::Stop(id)) } else { ("start", Event::Start(id)) };
            self.tell.event(mono_now(), self.processes.name(id), &format!("{word} requested"));
            self.processes.event(event);
        }
        Reply::Done
    }

    fn unknown(&self, name: &str) -> Reply {
        let names = || self.site.plant.processes.iter().map(|process| process.name.as_str());
        let meant = base::nearest(name, names()).map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
        let names = names().collect::<Vec<_>>().join(", ");
        Reply::Refused(format!("plant {:?} has no process {name:?}{meant} (it has: {names})", self.site.plant.name))
    }

    /// Applies the changes in the plant file.
    fn reload(&mut self, now: MonoNs, dry_run: bool, client: u64) -> Option<Reply> {
        match read_plant(&self.site.file, &self.site.profiles) {
            Ok((plant, _)) => {
                let plant = if self.site.no_dashboard { plant } else { plant.with_dashboard() };
                let mut reply = self.take_over(now, plant, dry_run, Some(client));
                if let Some(Reply::Changes(lines)) = &mut reply {
                    lines.extend(self.apply_files(now, dry_run));
                }
                reply
            }
            Err(error) => Some(Reply::Refused(error.to_string())),
        }
    }

    /// Restarts running processes whose alarm file has changed since they began. Returns a line for each.
    fn apply_files(&mut self, now: MonoNs, dry_run: bool) -> Vec<String> {
        let changed = |id: Id| {
            let process = self.site.process(self.processes.name(id))?;
            let file = inputs::file(&process.command)?;
            let is_up = matches!(self.processes.state(id), State::Warming { .. } | State::Running);
            let is_other = inputs::version(&self.site, process) != self.processes[id].input;
            (is_up && is_other).then(|| (id, format!("~ {}: restarts (changed: {file})", process.name)))
        };
        let changed: Vec<(Id, String)> = self.processes.ids().filter_map(changed).collect();
        for (id, line) in changed.iter().filter(|_| !dry_run) {
            self.tell.event(now, "reload", line);
            self.processes.event(Event::Restart(*id));
        }
        changed.into_iter().map(|(_, line)| line).collect()
    }

    /// Applies the changes of another version of the plant, for a client if there is one. Returns the answer, or `None` if
    /// it is sent later, because a change of the shield takes time.
    pub(crate) fn take_over(&mut self, now: MonoNs, new: Plant, dry_run: bool, client: Option<u64>) -> Option<Reply> {
        let changes = host::supervise::diff(&self.site.plant, &new);
        if new.name != self.site.plant.name {
            let (old, new) = (&self.site.plant.name, &new.name);
            return Some(Reply::Refused(format!(
                "the plant's name cannot be changed while it is up ({old} to {new}): its folder and its keepers go by it; \
                 use `tahti down` and `tahti up`"
            )));
        }
        if new.operators != self.site.plant.operators {
            let why = "the plant's operators cannot be changed while it is up; use `tahti down` and `tahti up`";
            return Some(Reply::Refused(why.to_owned()));
        }
        if dry_run {
            return Some(Reply::Changes(changes.iter().map(ToString::to_string).collect()));
        }
        if self.reshield.is_some() {
            let why = "the shield is being changed: try again when the change is complete";
            return Some(Reply::Refused(why.to_owned()));
        }
        let partitions_differ = new.partitions != self.site.plant.partitions;
        if new.shield != self.site.plant.shield && partitions_differ {
            let why = "the shield and the partitions cannot be changed in one reload: reload with one change, then with the other";
            return Some(Reply::Refused(why.to_owned()));
        }
        if !changes.is_empty() {
            // Rows that the new plant does not have are observed a last time, before shield and partitions change.
            self.observe(now, true);
        }
        // Also without a difference: bounds overwritten by another program are restored.
        let restored = match self.change_partitions(now, &new) {
            Ok(restored) => restored,
            Err(why) => {
                let why = format!("partitions cannot be changed: {why}; nothing else was applied");
                return Some(Reply::Refused(why));
            }
        };
        if changes.is_empty() {
            return Some(Reply::Changes(restored.into_iter().collect()));
        }
        if new.shield != self.site.plant.shield {
            let begun = self.change_shield(&new, client);
            let refused = |why: ReshieldError| format!("the shield cannot be changed: {why}; nothing else was applied");
            return begun.err().map(|why| Reply::Refused(refused(why)));
        }
        Some(Reply::Changes(self.adopt_plant(now, new)))
    }

    /// Changes partitions in place. If the plant file's partitions did not change, returns a report of restored bounds.
    fn change_partitions(&mut self, now: MonoNs, new: &Plant) -> Result<Option<String>, PartitionError> {
        if new.partitions.is_empty() && self.site.plant.partitions.is_empty() {
            return Ok(None);
        }
        let inside = |(unit, _): (&Unit, _)| {
            let process = self.site.process(&unit.spec.name).filter(|_| unit.state.is_alive())?;
            process.partition.clone()
        };
        let occupied: BTreeSet<String> = self.processes.iter().filter_map(inside).collect();
        let gone = |name: &&String| !new.partitions.iter().any(|one| one.name == **name);
        if let Some(name) = occupied.iter().find(gone) {
            return Err(PartitionError::StillOccupied(name.clone()));
        }
        let differ = new.partitions != self.site.plant.partitions;
        let writes = partitions::change(&mut self.site, &mut self.tell, &new.partitions, &occupied)?;
        if writes == 0 {
            return Ok(None);
        }
        let text = match differ {
            true => format!("partitions changed: {writes} writes"),
            false => format!("~ partitions: {writes} bounds restored that another program had overwritten"),
        };
        self.tell.event(now, "reload", &text);
        Ok((!differ).then_some(text))
    }

    /// Applies another version of the plant, after any change of the shield. Returns the list of changes.
    pub(super) fn adopt_plant(&mut self, now: MonoNs, new: Plant) -> Vec<String> {
        let changes = host::supervise::diff(&self.site.plant, &new);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        for line in &lines {
            self.tell.event(now, "reload", line);
        }
        let old = std::mem::replace(&mut self.site.plant, new);
        let new = &self.site.plant;
        self.processes.reload(now, &old, new);
        self.health.promise(now, &self.site);
        self.state_file.is_outdated();
        self.watchdog.rearm(now, old.watchdog.as_ref(), new.watchdog.as_ref(), &mut self.tell);
        lines
    }
}
