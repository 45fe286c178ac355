//! What the supervisor shows: listings, the live line, the verdict.

use super::control::{ProcessStatus, Status};
use super::engine::Engine;
use super::probe;
use super::tell::short;
use base::MonoNs;
use host::supervise::{Id, State};
use std::fmt::Write as _;
use sys::clock::mono_now;

impl Engine {
    /// How the plant stands.
    pub(crate) fn status(&self) -> Status {
        Status {
            name: self.plant.name.clone(),
            file: self.file.clone(),
            phase: self.all.phase(),
            supervisor: std::process::id(),
            since: self.since,
            now: mono_now(),
            shield: self.shield.words(&self.plant),
            shortfalls: self.shortfalls.clone(),
            processes: (0..self.kids.len()).filter_map(|id| self.process_status(id)).collect(),
        }
    }

    fn process_status(&self, id: Id) -> Option<ProcessStatus> {
        let unit = &self.all.units()[id];
        let process = self.plant.process(&unit.spec.name).filter(|_| !unit.retired)?;
        let kid = &self.kids[id];
        let pid = kid.child.map(|child| child.pid);
        let wanted = (process.class, self.common.cpus(process));
        let (class, cpus) = pid.and_then(probe::placement).unwrap_or(wanted);
        let usage = pid.map(probe::usage).unwrap_or_default();
        Some(ProcessStatus {
            name: unit.spec.name.clone(),
            state: unit.state.word().to_owned(),
            pid,
            keeper: kid.keeper_pid,
            class,
            cpus,
            cpu: usage.cpu,
            memory: usage.memory,
            threads: usage.threads,
            started: unit.history.started,
            starts: unit.history.starts,
            restarts: unit.history.restarts,
            ended: unit.history.ended.clone(),
            shortfalls: kid.shortfalls.clone(),
            evidence: None,
            loop_page: None,
        })
    }

    /// One line on how things stand now.
    pub(crate) fn live_line(&self, now: MonoNs) -> String {
        let units = || self.all.units().iter().filter(|unit| !unit.retired);
        let running = units().filter(|unit| unit.state == State::Running).count();
        let restarts: u64 = units().map(|unit| unit.history.restarts).sum();
        let faults = units().filter(|unit| unit.state == State::Faulted).count();
        let mut line = format!(
            "{:>9.3}  {}  {running}/{} running  restarts {restarts}  {}",
            (now - self.since).0 as f64 / 1e9,
            self.plant.name,
            units().count(),
            self.shield.words(&self.plant),
        );
        if faults > 0 {
            // Writing to a String cannot fail.
            let _ = write!(line, "  FAULTS {faults}");
        }
        line
    }

    /// The table at the end, and whether all was well: every process that should have run did so to the end.
    pub(crate) fn verdict(&self) -> (bool, String) {
        let failed = self.all.failed();
        let mut good = failed.is_none();
        let mut text = format!("{:<16} {:<10} {:>6} {:>8}  last end\n", "process", "state", "starts", "restarts");
        for unit in self.all.units().iter().filter(|unit| !unit.retired || unit.state.is_alive()) {
            let ended = match &unit.history.ended {
                Some((_, cause)) => cause.to_string(),
                None if unit.history.starts == 0 => "never started".to_owned(),
                None => "-".to_owned(),
            };
            good &= unit.state != State::Faulted;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<16} {:<10} {:>6} {:>8}  {ended}",
                unit.spec.name,
                unit.state.word(),
                unit.history.starts,
                unit.history.restarts
            );
        }
        for shortfall in &self.shortfalls {
            let _ = writeln!(text, "not had: {shortfall}");
        }
        if self.tell.lost > 0 {
            let _ = writeln!(text, "{} lines could not be written to the log", self.tell.lost);
        }
        if let Some(id) = failed {
            let _ = writeln!(text, "{} failed to start, so the plant went down", self.all.units()[id].spec.name);
        }
        let _ = write!(text, "up for {}: {}", short(mono_now() - self.since), if good { "good" } else { "NOT GOOD" });
        (good, text)
    }
}
