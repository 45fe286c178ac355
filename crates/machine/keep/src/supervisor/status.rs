//! What the supervisor shows: listings, the live line, the verdict.

use super::compare::Compare;
use super::control::{Family, LoopHistogram, ProcessStatus, Status, Value};
use super::probe;
use super::processes::{Processes, Supervised};
use super::pulses::{MissVerdict, judge_value};
use super::shielding::{Lowered, Shielding};
use super::site::Site;
use super::tell::{Teller, short};
use crate::family::Parents;
use crate::group::{Group, MEMORY, TASKS};
use crate::launch::start_ticks;
use crate::page::Page;
use base::text::Counted;
use base::{DurNs, MonoNs};
use host::plant::Process;
use host::supervise::{Phase, State, Unit};
use rustix::fs::OFlags;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use sys::clock::mono_now;

/// How the plant stands.
pub(crate) fn status(site: &Site, processes: &Processes, shield: &Shielding, tell: &Teller) -> Status {
    // One look for all that have no control group; none where all have.
    let parents = OnceCell::new();
    let each = processes.iter().filter_map(|(unit, one)| process_status(site, unit, one, &parents));
    Status {
        name: site.plant.name.clone(),
        file: site.file.clone(),
        phase: processes.all.phase(),
        supervisor: std::process::id(),
        since: site.since,
        now: mono_now(),
        shield: shield.words(&site.plant),
        shortfalls: tell.shortfalls().to_vec(),
        processes: each.collect(),
        partitions: super::partitions::stand(site),
    }
}

fn process_status(site: &Site, unit: &Unit, one: &Supervised, parents: &OnceCell<Parents>) -> Option<ProcessStatus> {
    let process = site.process(&unit.spec.name).filter(|_| !unit.retired)?;
    let pid = one.child.map(|child| child.pid);
    let wanted = (process.class, site.cpus(process));
    // Its keeper may have reaped it already, and another process have its number.
    let there = one.child.filter(|child| start_ticks(child.pid) == Some(child.start_ticks)).map(|child| child.pid);
    let (class, cpus) = there.and_then(probe::foremost).unwrap_or(wanted);
    let usage = there.map(probe::usage).unwrap_or_default();
    Some(ProcessStatus {
        name: unit.spec.name.clone(),
        state: unit.word().to_owned(),
        pid,
        keeper: one.link.pid,
        class,
        cpus,
        cpu: usage.cpu,
        memory: usage.memory,
        threads: usage.threads,
        family: there.map(|pid| family(&site.run.keeper(&unit.spec.name), pid, parents)),
        started: unit.history.started,
        starts: unit.history.starts,
        restarts: unit.history.restarts,
        ended: unit.history.ended.clone(),
        shortfalls: one.shortfalls.clone(),
        trouble: one.trouble.clone(),
        evidence: one.incident.evidence.clone(),
        loop_page: one.page.as_ref().and_then(Page::status),
        value: value(process, one),
        guest: guest_note(&site.run.guest(&unit.spec.name)),
    })
}

/// What a guest's process has noted in its folder; others have none. The folder may be another user's, who could have put a link into
/// the note's place, which shows what this user alone may read, or a pipe, for which the supervisor would wait.
#[must_use]
pub fn guest_note(folder: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 1000;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join("note")).ok()?;
    let file = file.metadata().is_ok_and(|about| about.is_file()).then_some(file)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().next()?.to_owned())
}

/// What the results of a process were worth.
fn value(process: &Process, one: &Supervised) -> Option<Value> {
    let tally = one.value()?;
    let least = process.deadline.and_then(|deadline| deadline.least);
    let deadline = process.deadline.map(|deadline| deadline.to_string());
    Some(Value { deadline, least, tally, share: tally.share() })
}

/// Everybody in the control group of a process; where there is none, itself and its descendants.
fn family(keeper: &Path, pid: i32, parents: &OnceCell<Parents>) -> Family {
    let group = Group::noted(keeper);
    let members = group.as_ref().map(Group::members).filter(|members| members.contains(&pid));
    let below = || parents.get_or_init(Parents::look).family(vec![pid]);
    let (processes, all) = probe::usage_together(&members.unwrap_or_else(below));
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

/// The histograms of all loops that have begun.
pub(crate) fn histograms(processes: &Processes) -> Vec<LoopHistogram> {
    let of = |(unit, one): (&Unit, &Supervised)| {
        let hist = one.page.as_ref()?.wake()?;
        let buckets = hist.buckets().map(|(from, to, count)| (from.0, to.0, count)).collect();
        Some(LoopHistogram { name: unit.spec.name.clone(), buckets, beyond: hist.overflow() })
    };
    processes.iter().filter_map(of).collect()
}

/// One line on how things stand now.
pub(crate) fn live_line(now: MonoNs, site: &Site, processes: &mut Processes, shield: &Shielding) -> String {
    let units = || processes.all.units().iter().filter(|unit| !unit.retired);
    let running = units().filter(|unit| unit.state == State::Running).count();
    let restarts: u64 = units().map(|unit| unit.history.restarts).sum();
    let faults = units().filter(|unit| unit.state == State::Faulted).count();
    let mut line = format!(
        "{:>9.3}  {}  {running}/{} running  restarts {restarts}  {}",
        (now - site.since).0 as f64 / 1e9,
        site.plant.name,
        units().count(),
        shield.words(&site.plant),
    );
    let going_down = matches!(processes.all.phase(), Phase::Stopping(_));
    for (unit, one) in processes.iter_mut() {
        let Some(page) = one.page.as_mut() else { continue };
        let rate = page.rate(now).unwrap_or(0.0);
        let Some(page) = page.status().filter(|_| !going_down) else { continue };
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            "  {}: {} cycles, {rate:.1} Hz, p50 {} p99 {} max {}",
            unit.spec.name,
            page.cycles,
            known(page.wake.p50),
            known(page.wake.p99),
            known(page.wake.max)
        );
    }
    // Writing to a String cannot fail.
    let _ = match () {
        () if going_down => write!(line, "  going down: {}", processes.departures(now)),
        () if faults > 0 => write!(line, "  FAULTS {faults}"),
        () => Ok(()),
    };
    line
}

/// A figure that may not be known.
fn known(time: Option<DurNs>) -> String {
    time.map_or_else(|| "?".to_owned(), short)
}

/// Why not all was well; nothing if every process that should have run did so to the end.
fn blemishes(processes: &Processes, lowered: &Lowered) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(id) = processes.all.failed() {
        found.push(format!("{} failed to start, so the plant went down", processes.name(id)));
    }
    let units = || processes.all.units().iter().filter(|unit| !unit.retired || unit.state.is_alive());
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
        let needed = units().filter(|unit| !unit.spec.optional);
        let never = needed.filter(|unit| unit.history.ready.is_none() && (unit.history.starts > 0) == started);
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

/// What loops and frames have given up, and what results were worth.
fn misses<'a>(site: &'a Site, processes: &'a Processes) -> impl Iterator<Item = MissVerdict> + 'a {
    let of = |(unit, one): (&Unit, &Supervised)| {
        let process = site.process(&unit.spec.name)?;
        let name = &unit.spec.name;
        // One that never started has a blemish of its own.
        let limit = process.miss_ratio_max.filter(|_| unit.history.starts > 0);
        let misses = one.pulses().judge(name, unit.spec.ends_first, limit);
        let hard = one.told_value.map_or(0, |told| told.hard);
        let value = value(process, one).map(|value| judge_value(name, &value, process.deadline.as_ref(), hard));
        Some(std::iter::once(misses).chain(value))
    };
    processes.iter().filter_map(of).flatten()
}

/// The table at the end, and whether all was well.
pub(crate) fn verdict(
    site: &Site,
    processes: &Processes,
    compare: Option<&Compare>,
    lowered: &Lowered,
    tell: &Teller,
) -> (bool, String) {
    let mut text = format!("{:<16} {:<10} {:>6} {:>8}  last end\n", "process", "state", "starts", "restarts");
    for unit in processes.all.units().iter().filter(|unit| !unit.retired || unit.state.is_alive()) {
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
    for (unit, one) in processes.iter() {
        let Some(page) = one.page.as_ref().and_then(Page::status) else { continue };
        let _ = writeln!(
            text,
            "loop {}: {} cycles of {}, {} pulses given up; wake-up latency p50 {}, p99 {}, p99.9 {}, max {}",
            unit.spec.name,
            page.cycles,
            page.period,
            page.misses,
            known(page.wake.p50),
            known(page.wake.p99),
            known(page.wake.p999),
            known(page.wake.max)
        );
    }
    for (id, unit) in processes.all.units().iter().enumerate() {
        text += &compare.and_then(|compare| compare.table(&unit.spec.name, id)).unwrap_or_default();
    }
    if !tell.shortfalls().is_empty() {
        let things = Counted(tell.shortfalls().len(), "thing");
        let _ = writeln!(text, "{things} that the plant asks for: unavailable; `tahti logs` names them");
    }
    for line in &lowered.said {
        let _ = writeln!(text, "{line}");
    }
    if tell.lost() > 0 {
        let _ = writeln!(text, "{} lines could not be written to the log", tell.lost());
    }
    let mut blemishes = blemishes(processes, lowered);
    let mut given_up = Vec::new();
    for verdict in misses(site, processes) {
        match verdict {
            MissVerdict::None => {}
            MissVerdict::Within(text) => given_up.push(text),
            MissVerdict::Beyond(text) => blemishes.push(text),
        }
    }
    let mut words =
        if blemishes.is_empty() { "good".to_owned() } else { format!("NOT GOOD: {}", blemishes.join("; ")) };
    if !given_up.is_empty() {
        let _ = write!(words, " ({})", given_up.join("; "));
    }
    let _ = write!(text, "up for {}: {words}", short(mono_now() - site.since));
    (blemishes.is_empty(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_a_file_and_neither_a_link_nor_a_pipe_in_its_place() {
        let folder = std::env::temp_dir().join(format!("tahti-note-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = folder.join("note");
        assert_eq!(guest_note(&folder), None);
        std::fs::write(&place, "emulated\nand more").unwrap();
        assert_eq!(guest_note(&folder).as_deref(), Some("emulated"));
        std::fs::rename(&place, folder.join("other")).unwrap();
        std::os::unix::fs::symlink("other", &place).unwrap();
        assert_eq!(guest_note(&folder), None);
        std::fs::remove_file(&place).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert_eq!(guest_note(&folder), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
