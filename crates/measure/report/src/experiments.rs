//! Published experiments with our figures, grouped by publication: on a terminal, on a page, and in Markdown.

use crate::chart::escaped;
use crate::{Experiment, Report};
use std::fmt::Write as _;

/// Heads of the columns.
pub(crate) const HEADS: [&str; 4] = ["experiment", "published", "here", "command"];

/// The lines of each column.
fn columns(of: &Experiment) -> [Vec<String>; 4] {
    let published =
        of.published.iter().map(|one| format!("{}: {} ({}, {})", one.publisher, one.figures, one.year, one.hardware));
    [vec![of.what.clone()], published.collect(), of.answer(), of.by.clone()]
}

/// The experiments, grouped by publication.
pub(crate) fn papers(report: &Report) -> impl Iterator<Item = &[Experiment]> {
    report.experiments.chunk_by(|one, next| one.paper == next.paper)
}

/// Text for a terminal.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    for paper in papers(report) {
        let _ = writeln!(out, "\n== {}", paper[0].paper);
        for of in paper {
            let [name, published, here, by] = columns(of);
            let _ = writeln!(out, "\n{}", name.join(" "));
            published.iter().for_each(|line| _ = writeln!(out, "  published: {line}"));
            here.iter().for_each(|line| _ = writeln!(out, "  here: {line}"));
            by.iter().for_each(|line| _ = writeln!(out, "  command: {line}"));
        }
    }
    out
}

/// Sections of a page.
pub(crate) fn page(out: &mut String, run: &str, reports: &[Report]) {
    for report in reports.iter().filter(|report| !report.experiments.is_empty()) {
        let _ = writeln!(out, "<section><h2>{}: {}</h2>", escaped(&report.what), escaped(run));
        for paper in papers(report) {
            let _ = write!(out, "<h3>{}</h3>\n<table class=\"experiments\"><tr>", escaped(&paper[0].paper));
            HEADS.iter().for_each(|head| _ = write!(out, "<th>{head}</th>"));
            out.push_str("</tr>\n");
            for of in paper {
                out.push_str("<tr>");
                for lines in columns(of) {
                    let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
                    let _ = write!(out, "<td>{}</td>", lines.join("<br>"));
                }
                out.push_str("</tr>\n");
            }
            out.push_str("</table>\n");
        }
        out.push_str("</section>\n");
    }
}

/// The cells of a row in Markdown.
pub(crate) fn cells(of: &Experiment) -> [String; 4] {
    columns(of).map(|lines| lines.join("; "))
}
