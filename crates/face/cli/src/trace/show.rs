//! The state of a recorder as text.

use super::{Shown, lives};
use crate::explain::span;
use crate::failure::Failure;
use crate::out::{Colour, Painted};
use recorder::status::{LateLine, Status};

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
    lines(&status, runs).iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// The lines of the status.
fn lines(status: &Status, runs: bool) -> Vec<String> {
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
        lines.extend(status.last.iter().map(|told| late(told, status.now)));
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

/// A late wake-up as a line of text.
pub(crate) fn late(told: &LateLine, now: base::MonoNs) -> String {
    let ago = span((now - told.at).0.max(0) as u64);
    let delay = span(told.delay.0.max(0) as u64);
    format!("{ago:>9} ago {delay:>9}  {} ({}), CPU {}: {}", told.name, told.tid, told.cpu, told.culprit)
}
