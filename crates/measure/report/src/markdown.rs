//! Reports as Markdown, with the contents of the page.

use crate::text::figure;
use crate::{Changes, Latency, Report, Row, Table, compare, experiments, micros, spikes};
use base::DurNs;
use std::fmt::Write as _;

/// Number of listed spikes of a row.
const SPIKES_MAX: usize = 5;

/// Named runs. With two or more, the changes from the first to the second come first.
#[must_use]
pub fn markdown(runs: &[(String, Vec<Report>)]) -> String {
    let mut out = String::from("# Measurements\n\n");
    if let [(base, first), (new, second), ..] = runs {
        changes(&mut out, base, new, &compare(first, second));
    }
    for (name, reports) in runs {
        target(&mut out, name, reports);
    }
    for (name, reports) in runs {
        for report in reports.iter().filter(|report| !report.experiments.is_empty()) {
            let _ = writeln!(out, "## {}: {}\n", cell(&report.what), cell(name));
            for paper in experiments::papers(report) {
                let _ = writeln!(out, "### {}\n", cell(&paper[0].paper));
                head(&mut out, &experiments::HEADS);
                let cells = paper.iter().map(experiments::cells);
                cells.for_each(|cells| row(&mut out, &cells.each_ref().map(String::as_str)));
                out.push('\n');
            }
        }
    }
    for (name, reports) in runs {
        let measured = reports.iter().filter(|report| report.experiments.is_empty());
        measured.for_each(|report| scenario(&mut out, name, report));
    }
    out
}

/// Text escaped for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

fn row(out: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn head(out: &mut String, cells: &[&str]) {
    row(out, cells);
    let _ = writeln!(out, "|{}", "---|".repeat(cells.len()));
}

fn changes(out: &mut String, base: &str, new: &str, changes: &Changes) {
    let _ = writeln!(out, "## From {} to {}\n\n{}\n", cell(base), cell(new), changes.verdict());
    head(out, &["figure", "before", "now", "ratio", "p-value", ""]);
    for of in &changes.figures {
        let unit = format!("{} [{}]", of.what, of.unit);
        let what = if of.unit.is_empty() { &of.what } else { &unit };
        let [before, now] = [&of.base, &of.new].map(|of| figure(Some(of)));
        row(out, &[what, &before, &now, &of.ratio(), &of.p_value(), of.change.word()]);
    }
    out.push('\n');
    let lists = [("new culprit", &changes.culprits), ("machine", &changes.machine), ("not compared", &changes.missing)];
    for (what, list) in lists {
        list.iter().for_each(|line| {
            let _ = writeln!(out, "- {what}: {}", cell(line));
        });
    }
    out.push('\n');
}

fn target(out: &mut String, name: &str, reports: &[Report]) {
    if reports.iter().all(|report| report.rows_with_target().next().is_none()) {
        return;
    }
    let _ = writeln!(out, "## Targets: {}\n", cell(name));
    head(out, &["measurement", "figure", "measured", "target", ""]);
    for report in reports {
        for (title, of) in report.rows_with_target() {
            let Some(target) = &of.target else { continue };
            let what = format!("{title}: {}", of.name);
            let verdict = of.verdict.map_or("undecided", |verdict| verdict.word());
            row(out, &[&report.bench, &what, &measured(of), &target.words(), verdict]);
        }
    }
    out.push('\n');
}

/// The number that the target applies to.
pub(crate) fn measured(row: &Row) -> String {
    match (row.target.map(|target| target.of), row.ratio) {
        (Some(crate::TargetSubject::Ratio), Some(ratio)) => format!("{ratio:.2} x"),
        (Some(crate::TargetSubject::Ratio), None) => "-".into(),
        _ => format!("{} {}", figure(row.ours.as_ref()), row.unit).trim_end().to_owned(),
    }
}

fn scenario(out: &mut String, run: &str, report: &Report) {
    if report.experiment.is_empty() {
        // No measurement of `tahti bench`.
        let _ = writeln!(out, "## {} ({})\n", cell(&report.what), cell(run));
    } else {
        let _ = writeln!(
            out,
            "## {}: {} ({})\n\n{}. Target: {}.\n",
            cell(&report.bench),
            cell(&report.experiment),
            cell(run),
            cell(&report.what),
            cell(&report.target)
        );
        let _ = writeln!(out, "`tahti bench {} {}`\n", report.bench, report.arguments.join(" "));
    }
    let lines = report.machine.lines().into_iter().chain(report.published.iter().map(crate::Published::line));
    lines.chain(report.setup.iter().cloned()).for_each(|line| {
        let _ = writeln!(out, "- {}", cell(&line));
    });
    out.push('\n');
    report.tables.iter().for_each(|of| table(out, of));
    report.notes.iter().for_each(|line| {
        let _ = writeln!(out, "- {}", cell(line));
    });
    out.push('\n');
}

fn table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "### {}\n", cell(&table.title));
    table.published.iter().for_each(|published| {
        let _ = writeln!(out, "- {}", cell(&published.line()));
    });
    out.push('\n');
    if table.rows.iter().any(|row| row.latency.is_some()) {
        head(out, &LATENCY_HEADS);
        for (of, latency) in table.rows.iter().filter_map(|row| Some((row, row.latency.as_ref()?))) {
            let cells = latency_cells(latency);
            row(out, &[&[of.name.as_str()][..], &cells.each_ref().map(String::as_str)[..]].concat());
        }
        out.push('\n');
        for of in table.rows.iter().filter(|row| row.latency.is_some() && !row.note.is_empty()) {
            let _ = writeln!(out, "- {}: {}", cell(&of.name), cell(&of.note));
        }
        out.push('\n');
    }
    if table.rows.iter().any(|row| row.latency.is_none()) {
        let named = |name: &str, usual: &str| if name.is_empty() { usual.to_owned() } else { name.to_owned() };
        head(out, &["", &named(&table.other, "other"), &named(&table.ours, "measured"), "ratio", "target", "", ""]);
        for of in table.rows.iter().filter(|row| row.latency.is_none()) {
            let ratio = of.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let target = of.target.map_or(String::new(), |target| target.words());
            let verdict = of.verdict.map_or("", |verdict| verdict.word());
            let [other, ours] = [&of.other, &of.ours].map(|of| figure(of.as_ref()));
            row(out, &[&named_with_unit(of), &other, &ours, &ratio, &target, verdict, &of.note]);
        }
        out.push('\n');
    }
    for of in table.rows.iter().filter(|row| !row.culprits.is_empty()) {
        for culprit in &of.culprits {
            let _ = writeln!(
                out,
                "- {}: {:.1} % {} x{}",
                cell(&of.name),
                culprit.share_percent,
                cell(&culprit.name),
                culprit.count
            );
        }
    }
    for of in table.rows.iter().filter(|row| !row.spikes.is_empty()) {
        let _ = writeln!(out, "\n{}, the longest delays:\n", cell(&of.name));
        spikes::lines(&of.spikes, SPIKES_MAX).iter().for_each(|line| _ = writeln!(out, "- {}", cell(line)));
    }
    table.notes.iter().for_each(|line| {
        let _ = writeln!(out, "- {}", cell(line));
    });
    out.push('\n');
}

pub(crate) fn named_with_unit(row: &Row) -> String {
    if row.unit.is_empty() { row.name.clone() } else { format!("{} [{}]", row.name, row.unit) }
}

/// Heads of a table of latencies.
pub(crate) const LATENCY_HEADS: [&str; 9] =
    ["[us]", "samples", "min", "mean", "median", "p99", "p99.9", "p99.99", "max"];

/// The cells after the name.
pub(crate) fn latency_cells(latency: &Latency) -> [String; 8] {
    let time = |ns: Option<i64>| ns.map_or("-".into(), |ns| micros(DurNs(ns)));
    let at = |percent| match latency.percentile(percent) {
        Some(found) => format!("{}{}", if found.beyond { ">" } else { "" }, micros(DurNs(found.ns))),
        None => "-".into(),
    };
    [
        latency.count.to_string(),
        time(latency.min_ns),
        time(latency.mean_ns),
        at(50.0),
        at(99.0),
        at(99.9),
        at(99.99),
        time(latency.max_ns),
    ]
}
