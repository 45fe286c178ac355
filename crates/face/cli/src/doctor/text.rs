//! The doctor's report as text: verdicts first, then findings by severity, then checks without findings.

use base::text::Counted;
use host::doctor::{About, Entry, RemedyKind, Report, Severity, UseReport, Verdict};

/// Maximum width of a line in columns.
const WIDTH: usize = 100;

/// The whole report. `all` also lists the checks that found no problem.
pub(super) fn report(report: &Report, all: bool) -> String {
    let mut out = heading(report);
    for judged in &report.uses {
        out += &verdict(judged);
    }
    let ids = report.findings.iter().map(|entry| entry.id.len()).max().unwrap_or(0);
    let mut last = None;
    for entry in report.findings.iter().filter(|entry| all || entry.severity != Severity::Fine) {
        if last != Some(entry.severity) {
            out.push('\n');
        }
        last = Some(entry.severity);
        out += &finding(entry, ids);
    }
    out + &footer(report, all)
}

/// Documentation of a check.
pub(super) fn about(about: &About) -> String {
    let mut out = format!("{} ({})\n", about.id, about.title);
    for (name, text) in [("checks", about.what), ("matters", about.why), ("source", about.source)] {
        out += &hang(&format!("{name:<10}"), text);
    }
    for (index, path) in about.reads.iter().enumerate() {
        out += &format!("{:<10}{path}\n", if index == 0 { "reads" } else { "" });
    }
    out
}

fn heading(report: &Report) -> String {
    let kernel =
        report.kernel.as_deref().map_or_else(|| "unknown kernel".to_owned(), |kernel| format!("Linux {kernel}"));
    match report.capture {
        true => format!("{kernel}, captured files: permissions and clock were not tried\n\n"),
        false => format!("{kernel}\n\n"),
    }
}

fn verdict(judged: &UseReport) -> String {
    let start = format!("  {:<14}{:<19}", judged.wanted.title(), judged.verdict.title());
    let mut decided = judged.decided_by.join(", ");
    if judged.verdict == Verdict::WithReservations && judged.reservations_removed_by_shield > 0 {
        decided += &format!(
            "; `tahti shield apply` removes {} of {}",
            judged.reservations_removed_by_shield,
            judged.decided_by.len()
        );
    }
    if decided.is_empty() { format!("{}\n", start.trim_end()) } else { hang(&start, &decided) }
}

fn finding(entry: &Entry, ids: usize) -> String {
    let mut start = format!("{:<9}{:<ids$}  ", entry.severity, entry.id);
    let indent = " ".repeat(start.len());
    let mut out = String::new();
    for line in &entry.evidence {
        out += &hang(&start, line);
        start.clone_from(&indent);
    }
    if let Some(remedy) = &entry.remedy {
        let by = match remedy.how {
            RemedyKind::Change | RemedyKind::Machine => "",
            RemedyKind::Shield => " (tahti shield apply does it)",
            RemedyKind::Boot | RemedyKind::Kernel | RemedyKind::Firmware => " (needs a reboot)",
        };
        out += &hang(&format!("{indent}-> "), &format!("{}{by}", remedy.text));
    }
    out
}

fn footer(report: &Report, all: bool) -> String {
    let count = |severity| report.findings.iter().filter(|entry| entry.severity == severity).count();
    let fine = count(Severity::Fine);
    let listed = if all || fine == 0 { "" } else { " (--all lists them)" };
    format!(
        "\n{}: {}, {}, {} unknown, {}, {fine} fine{listed}; --explain CHECK explains one\n",
        Counted(report.findings.len(), "check"),
        Counted(count(Severity::Problem), "problem"),
        Counted(count(Severity::Warning), "warning"),
        count(Severity::Unknown),
        Counted(count(Severity::Note), "note"),
    )
}

/// `text` after `start`, wrapped at [`WIDTH`] with a hanging indent.
fn hang(start: &str, text: &str) -> String {
    let mut out = keep::supervisor::hang(start, text, WIDTH);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
