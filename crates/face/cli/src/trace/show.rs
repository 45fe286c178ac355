//! The state of a recorder as text.

use super::{Shown, lives};
use crate::explain::span;
use crate::failure::Failure;
use crate::out::{Colour, Painted};
use keep::supervisor::logs::stamp;
use keep::supervisor::rundir::living;
use recorder::status::{LateLine, Status};
use std::path::{Path, PathBuf};
use sys::clock::mono_now;

pub(super) fn status(args: &Shown) -> Result<(), Failure> {
    let folder = args.which.folder()?;
    let runs = lives(&folder);
    let Some(status) = Status::read(&folder) else {
        // Fails with a remedy if no recorder runs.
        args.which.living()?;
        return Err(format!("{}: its status cannot be read", folder.display()).into());
    };
    if args.json {
        let text = serde_json::to_string_pretty(&status)?;
        println!("{text}");
        return Ok(());
    }
    let wall = sys::clock::wall_ns().saturating_sub(mono_now().0);
    let mut lines = lines(&status, runs, wall);
    lines.extend(others(args.which.plant.is_some(), &folder));
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// A line that names the running recorders of plants, if the shown one was not selected by its plant.
fn others(is_given: bool, shown: &Path) -> Option<String> {
    let is_other = |folder: &PathBuf| folder != shown && lives(folder);
    let plants = if is_given { Vec::new() } else { living() };
    let others: Vec<String> = plants
        .iter()
        .filter(|plant| is_other(&super::folder(Some(plant))))
        .map(|plant| format!("`tahti trace status --plant {plant}`"))
        .collect();
    (!others.is_empty()).then(|| format!("recorders of plants: {}", others.join(", ")))
}

/// The lines of the status. `wall`: what the wall clock is ahead of the monotonic clock, in nanoseconds.
fn lines(status: &Status, runs: bool, wall: u64) -> Vec<String> {
    let ns = |span: base::DurNs| span.0.max(0) as u64;
    let ran = ns(status.now - status.since).max(1);
    // A rate over a fraction of a second shows the start of the recorder only.
    let rates = match status.now - status.since >= base::DurNs::from_secs(1) {
        true => format!(
            " ({:.0} a second); reading and explaining them took {:.2} % of one CPU",
            status.events as f64 * 1e9 / ran as f64,
            100.0 * ns(status.burnt) as f64 / ran as f64
        ),
        false => String::new(),
    };
    let word = if runs { "records" } else { "has ended; it recorded" };
    let mut lines = vec![
        format!("process {} {word} CPU {} for {}, {} threads", status.pid, status.cpus, span(ran), status.threads),
        format!("{} wake-ups, {} of them later than {}", status.wakeups, status.late, status.above),
        format!(
            "{} events{rates}; window {} of {} KiB",
            status.events,
            status.held_bytes / 1024,
            status.held_bytes_max / 1024,
        ),
    ];
    if status.lost.times > 0 {
        lines.push(format!(
            "lost: {} events in {} places (--buffer-kb sets a larger buffer)",
            status.lost.events, status.lost.times
        ));
    }
    lines.extend(status.shortfall.iter().chain(&status.trouble).map(|text| Painted(Colour::Bad, text).to_string()));
    if !status.culprits.is_empty() {
        lines.push(String::new());
        lines.push(
            Painted(Colour::Head, format!("{:>9}  {:>6}  {:>9}  culprit", "together", "delays", "longest")).to_string(),
        );
        for (culprit, tally) in &status.culprits {
            let (total, longest) = (span(tally.total_ns), span(tally.longest_ns));
            lines.push(format!("{total:>9}  {:>6}  {longest:>9}  {culprit}", tally.delays));
        }
        lines.push(format!("unexplained: {:.1} %", status.unexplained_percent));
        lines.push(String::new());
        lines.push(Painted(Colour::Head, "the last late wake-ups:").to_string());
        lines.extend(
            status
                .last
                .iter()
                .map(|told| format!("{} {}", stamp(told.at.0.saturating_add(wall) / 1_000_000), delay(told))),
        );
    }
    if !status.kept.is_empty() {
        lines.push(String::new());
        lines.push(Painted(Colour::Head, "kept:").to_string());
        for kept in &status.kept {
            lines.push(format!("{} ({} KiB): {}", kept.file.display(), kept.bytes.div_ceil(1024), kept.reason));
        }
    }
    if status.left_out > 0 {
        lines.push(format!("{} more were not stored, too soon after another one (--every)", status.left_out));
    }
    lines
}

/// A late wake-up as a line of text, with its age.
pub(crate) fn late(told: &LateLine, now: base::MonoNs) -> String {
    let ago = span((now - told.at).0.max(0) as u64);
    format!("{ago:>9} ago {}", delay(told))
}

/// A late wake-up without its time.
fn delay(told: &LateLine) -> String {
    let delay = span(told.delay.0.max(0) as u64);
    format!("{delay:>9}  {} ({}), CPU {}: {}", told.name, told.tid, told.cpu, told.culprit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended() -> Status {
        let late = json!({ "at_ns": 4_000_000_000_u64, "tid": 12, "name": "loop", "cpu": 1, "delay_ns": 1_200_000,
            "culprit": "burst (python3 7) ran first (time sharing)", "parts": [] });
        serde_json::from_value(json!({
            "pid": 9, "since_ns": 0, "now_ns": 5_000_000_000_u64, "cpus": "1", "above_ns": 500_000, "threads": 0, "events": 7,
            "shortfall": "watches 0 threads: the selected threads have ended",
            "lost": { "events": 0, "times": 0, "broken": 0 }, "burnt_ns": 1, "held_bytes": 1, "held_bytes_max": 2,
            "wakeups": 1000, "late": 1, "unexplained_percent": 0.0, "culprits": [["timer interrupt",
            { "total_ns": 1, "delays": 1, "longest_ns": 1 }]], "last": [late], "kept": [], "left_out": 0, "trouble": null
        }))
        .unwrap()
    }

    #[test]
    fn late_wake_ups_have_a_time_of_day_that_does_not_depend_on_the_present() {
        // 2023-11-14 22:13:20 UTC at 0 of the monotonic clock.
        let text = lines(&ended(), false, 1_700_000_000_000_000_000).join("\n");
        let time = stamp(1_700_000_004_000);
        assert!(text.contains(&format!("{time}   1.20 ms  loop (12), CPU 1: burst (python3 7) ran first")), "{text}");
        assert!(text.contains("process 9 has ended; it recorded CPU 1 for 5.00 s, 0 threads"), "{text}");
    }

    #[test]
    fn a_recorder_without_threads_says_so_in_its_state() {
        assert!(lines(&ended(), true, 0).iter().any(|line| line.contains("watches 0 threads: ")));
    }
}
