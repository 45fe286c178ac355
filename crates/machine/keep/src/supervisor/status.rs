//! The supervisor's output: status, live line, verdict.

use super::compare::Compare;
use super::control::{Family, LoopHistogram, ProcessStatus, Status, Value};
use super::health::Health;
use super::probe;
use super::processes::{Processes, Supervised};
use super::reporter::{Reporter, short};
use super::shielding::{Lowered, Shielding};
use super::site::Site;
use crate::family::Parents;
use crate::group::{Group, MEMORY, TASKS};
use crate::launch::start_ticks;
use crate::page::Page;
use base::text::Counted;
use base::{DurNs, MonoNs};
use host::plant::Process;
use host::supervise::{Cause, Phase, State, Unit};
use rustix::fs::OFlags;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use sys::clock::mono_now;

/// Takes the status of the plant.
pub(crate) fn status(
    site: &Site,
    processes: &Processes,
    shield: &Shielding,
    tell: &Reporter,
    health: &Health,
) -> Status {
    // One scan of all processes serves every process without a control group. It is skipped if all have one.
    let parents = OnceCell::new();
    let each = processes.iter().filter_map(|(unit, one)| process_status(site, unit, one, &parents));
    Status {
        name: site.plant.name.clone(),
        file: site.file.clone(),
        profiles: site.profiles.clone(),
        phase: processes.all.phase(),
        supervisor: std::process::id(),
        since: site.since,
        now: mono_now(),
        shield: shield.words(&site.plant),
        shortfalls: tell.unavailable(|_| true).map(str::to_owned).collect(),
        outcome: health.outcome(mono_now()),
        health: health.table().status(),
        processes: each.collect(),
        partitions: super::partitions::stand(site),
    }
}

fn process_status(site: &Site, unit: &Unit, one: &Supervised, parents: &OnceCell<Parents>) -> Option<ProcessStatus> {
    let process = site.process(&unit.spec.name).filter(|_| !unit.retired)?;
    let pid = one.child.map(|child| child.pid);
    let wanted = (process.class, site.cpus(process));
    // The keeper may have reaped the process already, and another process may have its PID.
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
        last_line: last_line(unit, one),
        automatic: super::site::automatic(process).map(|(name, value)| (name.clone(), value.clone())).collect(),
        shortfalls: one.shortfalls.clone(),
        trouble: one.trouble.clone(),
        status_text: one.status_text.clone(),
        evidence: one.incident.evidence.clone(),
        loop_page: one.page.as_ref().and_then(Page::status),
        value: value(process, one),
        guest: guest_note(&site.run.guest(&unit.spec.name)),
    })
}

/// Last line of output before a process's last end, if the end was a failure. A process that was not ready in time has written
/// its last line after SIGTERM, so that line explains nothing.
pub(super) fn last_line(unit: &Unit, one: &Supervised) -> Option<String> {
    let (_, cause) = unit.history.ended.as_ref()?;
    one.last_line.clone().filter(|_| cause.is_failure() && *cause != Cause::NotReady)
}

/// The last end of a process, with the last line of its output if the end was a failure.
pub(super) fn end_in_words(unit: &Unit, one: &Supervised) -> Option<String> {
    let (_, cause) = unit.history.ended.as_ref()?;
    Some(format!("{cause}{}", cause.behind(last_line(unit, one).as_deref())))
}

/// First line of the note that a guest's process has stored in its folder; `None` for other processes. The folder may belong
/// to another user. That user could replace the note by a link to a file that only this user can read, or by a pipe on which
/// the supervisor would block, so only a regular file is read.
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

/// The value of a process's results.
pub(super) fn value(process: &Process, one: &Supervised) -> Option<Value> {
    let tally = one.value()?;
    let least = process.deadline.and_then(|deadline| deadline.least);
    let deadline = process.deadline.map(|deadline| deadline.to_string());
    Some(Value { deadline, least, tally, share: tally.share() })
}

/// Totals of all members of a process's control group, or of the process and its descendants if it has no group.
fn family(keeper: &Path, pid: i32, parents: &OnceCell<Parents>) -> Family {
    let group = Group::noted(keeper);
    let members = group.as_ref().map(Group::members).filter(|members| members.contains(&pid));
    let below = || parents.get_or_init(Parents::look).family(vec![pid]);
    let (processes, all) = probe::usage_together(&members.unwrap_or_else(below));
    let bound = |controller| group.as_ref().and_then(|group| group.standing(controller));
    Family {
        processes,
        // The group's counter includes ended descendants that no member waited for.
        cpu: group.as_ref().and_then(Group::cpu).map_or(all.cpu, |counted| counted.max(all.cpu)),
        memory: all.memory,
        threads: all.threads,
        memory_bound: bound(&MEMORY),
        tasks_bound: bound(&TASKS),
    }
}

/// The histograms of all loops that have started.
pub(crate) fn histograms(processes: &Processes) -> Vec<LoopHistogram> {
    let of = |(unit, one): (&Unit, &Supervised)| {
        let hist = one.page.as_ref()?.wake()?;
        let buckets = hist.buckets().map(|(from, to, count)| (from.0, to.0, count)).collect();
        let mean = hist.mean().unwrap_or_default();
        let sum = DurNs(mean.0.saturating_mul(i64::try_from(hist.count()).unwrap_or(i64::MAX)));
        Some(LoopHistogram { name: unit.spec.name.clone(), buckets, beyond: hist.overflow(), sum })
    };
    processes.iter().filter_map(of).collect()
}

/// The live line: the present state of the plant.
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

/// A time for display, `?` if unknown.
fn known(time: Option<DurNs>) -> String {
    time.map_or_else(|| "?".to_owned(), short)
}

/// The final report, up to the verdict with its reasons.
pub(crate) fn verdict(
    site: &Site,
    processes: &Processes,
    compare: Option<&Compare>,
    lowered: &Lowered,
    tell: &Reporter,
) -> String {
    let mut text = format!("{:<16} {:<10} {:>6} {:>8}  last end\n", "process", "state", "starts", "restarts");
    for (unit, one) in processes.iter().filter(|(unit, _)| !unit.retired || unit.state.is_alive()) {
        let ended = match end_in_words(unit, one) {
            Some(ended) => ended,
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
            "loop {:?}: {} cycles of {}, {} skipped; wake-up latency p50 {}, p99 {}, p99.9 {}, max {}",
            unit.spec.name,
            page.cycles,
            page.period,
            Counted(usize::try_from(page.misses).unwrap_or(usize::MAX), "period"),
            known(page.wake.p50),
            known(page.wake.p99),
            known(page.wake.p999),
            known(page.wake.max)
        );
    }
    for (id, unit) in processes.all.units().iter().enumerate() {
        text += &compare.and_then(|compare| compare.table(&unit.spec.name, id)).unwrap_or_default();
    }
    for line in &lowered.said {
        let _ = writeln!(text, "{line}");
    }
    if tell.lost() > 0 {
        let _ = writeln!(text, "{} lines could not be written to the log", tell.lost());
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "up for {}: ", short(mono_now() - site.since));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_from_a_file_and_not_from_a_link_or_pipe() {
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
