//! What the supervisor shows: listings, the live line, the verdict.

use super::control::{Family, ProcessStatus, Status};
use super::engine::{Engine, Kid};
use super::probe;
use super::pulses::Judged;
use super::shielding::Lowered;
use super::tell::short;
use crate::group::{Group, MEMORY, TASKS};
use crate::page::Page;
use base::MonoNs;
use base::text::Counted;
use host::supervise::{Id, Phase, State, Unit};
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
        let (class, cpus) = pid.and_then(probe::foremost).unwrap_or(wanted);
        let usage = pid.map(probe::usage).unwrap_or_default();
        Some(ProcessStatus {
            name: unit.spec.name.clone(),
            state: unit.word().to_owned(),
            pid,
            keeper: kid.keeper_pid,
            class,
            cpus,
            cpu: usage.cpu,
            memory: usage.memory,
            threads: usage.threads,
            family: pid.map(|pid| self.family(&unit.spec.name, pid)),
            started: unit.history.started,
            starts: unit.history.starts,
            restarts: unit.history.restarts,
            ended: unit.history.ended.clone(),
            shortfalls: kid.shortfalls.clone(),
            evidence: kid.evidence.clone(),
            loop_page: kid.page.as_ref().and_then(Page::status),
        })
    }

    /// Everybody in the control group of a process; where there is none, itself and its descendants.
    fn family(&self, name: &str, pid: i32) -> Family {
        let group = Group::noted(&self.run.keeper(name));
        let members = group.as_ref().map(Group::members).filter(|members| members.contains(&pid));
        let (processes, all) = probe::usage_together(&members.unwrap_or_else(|| probe::processes(pid)));
        let bound = |controller| group.as_ref().and_then(|group| group.standing(controller));
        Family {
            processes,
            cpu: all.cpu,
            memory: all.memory,
            threads: all.threads,
            memory_bound: bound(&MEMORY),
            tasks_bound: bound(&TASKS),
        }
    }

    /// One line on how things stand now.
    pub(crate) fn live_line(&mut self, now: MonoNs) -> String {
        let rates: Vec<_> = self.kids.iter_mut().map(|kid| kid.page.as_mut().and_then(|page| page.rate(now))).collect();
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
        if let Phase::Stopping(_) = self.all.phase() {
            return format!("{line}  going down: {}", self.departures(now));
        }
        for (id, rate) in rates.into_iter().enumerate() {
            let Some(page) = self.kids[id].page.as_ref().and_then(Page::status) else { continue };
            let time = |time: Option<base::DurNs>| time.map_or_else(|| "?".to_owned(), short);
            // Writing to a String cannot fail.
            let _ = write!(
                line,
                "  {}: {} cycles, {:.1} Hz, p50 {} p99 {} max {}",
                self.all.units()[id].spec.name,
                page.cycles,
                rate.unwrap_or(0.0),
                time(page.wake.p50),
                time(page.wake.p99),
                time(page.wake.max)
            );
        }
        if faults > 0 {
            // Writing to a String cannot fail.
            let _ = write!(line, "  FAULTS {faults}");
        }
        line
    }

    /// Who is still there while the plant goes down, and until when.
    pub(crate) fn departures(&self, now: MonoNs) -> String {
        let alive = (0..self.kids.len()).filter(|id| self.all.units()[*id].state.is_alive());
        let word = |id: Id| match self.all.killed_at(id) {
            Some(at) => {
                format!("{} (SIGKILL in {} s)", self.name(id), ((at - now).0.max(0) + 999_999_999) / 1_000_000_000)
            }
            None => format!("{} (waits for those)", self.name(id)),
        };
        let words: Vec<String> = alive.map(word).collect();
        if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
    }

    /// Why not all was well; nothing if every process that should have run did so to the end.
    fn blemishes(&self, lowered: &Lowered) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(id) = self.all.failed() {
            found.push(format!("{} failed to start, so the plant went down", self.name(id)));
        }
        let units = || self.all.units().iter().filter(|unit| !unit.retired || unit.state.is_alive());
        for unit in units() {
            let name = &unit.spec.name;
            if unit.state == State::Faulted {
                let cause = unit.history.ended.as_ref().map_or(String::new(), |(_, cause)| format!(" ({cause})"));
                found.push(format!("the fault of {name} is latched{cause}"));
            }
            match unit.history.troubles {
                0 => {}
                1 => found.push(format!("{name} was in trouble once (`tahti logs`)")),
                times => found.push(format!("{name} was in trouble {times} times (`tahti logs`)")),
            }
        }
        // A plant that went down on its way up has shown nothing.
        let unready = |started: bool| {
            let never = units().filter(|unit| unit.history.ready.is_none() && (unit.history.starts > 0) == started);
            never.count()
        };
        let (unstarted, unready) = (unready(false), unready(true));
        if unstarted + unready > 0 {
            found.push(format!("never up as a whole: never started {unstarted}, never ready {unready}"));
        }
        if !lowered.whole {
            found.push("the machine is not as it was".to_owned());
        }
        found
    }

    /// What loops and frames have given up.
    fn judged(&self) -> Vec<Judged> {
        let units = self.all.units().iter().zip(&self.kids);
        let judge = |(unit, kid): (&Unit, &Kid)| {
            let process = self.plant.process(&unit.spec.name)?;
            // One that never started has a blemish of its own.
            let limit = process.miss_ratio_max.filter(|_| unit.history.starts > 0);
            Some(kid.pulses().judge(&unit.spec.name, unit.spec.ends_first, limit))
        };
        units.filter_map(judge).collect()
    }

    /// The table at the end, and whether all was well.
    pub(crate) fn verdict(&self, lowered: &Lowered) -> (bool, String) {
        let mut text = format!("{:<16} {:<10} {:>6} {:>8}  last end\n", "process", "state", "starts", "restarts");
        for unit in self.all.units().iter().filter(|unit| !unit.retired || unit.state.is_alive()) {
            let ended = match &unit.history.ended {
                Some((_, cause)) => cause.to_string(),
                None if unit.history.starts == 0 => "never started".to_owned(),
                None => "-".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<16} {:<10} {:>6} {:>8}  {ended}",
                unit.spec.name,
                unit.word(),
                unit.history.starts,
                unit.history.restarts
            );
        }
        for (unit, page) in
            self.all.units().iter().zip(self.kids.iter().map(|kid| kid.page.as_ref().and_then(Page::status)))
        {
            let Some(page) = page else { continue };
            let time = |time: Option<base::DurNs>| time.map_or_else(|| "?".to_owned(), short);
            let _ = writeln!(
                text,
                "loop {}: {} cycles of {}, {} pulses given up; wake-up latency p50 {}, p99 {}, p99.9 {}, max {}",
                unit.spec.name,
                page.cycles,
                page.period,
                page.misses,
                time(page.wake.p50),
                time(page.wake.p99),
                time(page.wake.p999),
                time(page.wake.max)
            );
        }
        if let Some(compare) = &self.compare {
            for (id, unit) in self.all.units().iter().enumerate() {
                text += &compare.table(&unit.spec.name, id).unwrap_or_default();
            }
        }
        if !self.shortfalls.is_empty() {
            let things = Counted(self.shortfalls.len(), "thing");
            let _ = writeln!(text, "{things} that the plant asks for could not be had: `tahti logs` names them");
        }
        for line in &lowered.said {
            let _ = writeln!(text, "{line}");
        }
        if self.tell.lost() > 0 {
            let _ = writeln!(text, "{} lines could not be written to the log", self.tell.lost());
        }
        let mut blemishes = self.blemishes(lowered);
        let mut given_up = Vec::new();
        for judged in self.judged() {
            match judged {
                Judged::All => {}
                Judged::Within(told) => given_up.push(told),
                Judged::Beyond(told) => blemishes.push(told),
            }
        }
        let mut words =
            if blemishes.is_empty() { "good".to_owned() } else { format!("NOT GOOD: {}", blemishes.join("; ")) };
        if !given_up.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(words, " ({})", given_up.join("; "));
        }
        let _ = write!(text, "up for {}: {words}", short(mono_now() - self.since));
        (blemishes.is_empty(), text)
    }
}
