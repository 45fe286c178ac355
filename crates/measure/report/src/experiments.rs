//! Published experiments beside what was found here: the same table on a terminal, a page, and in Markdown.

use crate::chart::escaped;
use crate::{Experiment, Report};
use std::fmt::Write as _;

/// Heads of the columns.
pub(crate) const HEADS: [&str; 4] = ["experiment", "published", "here", "by"];

/// What stands in each column, as lines.
fn columns(of: &Experiment) -> [Vec<String>; 4] {
    let published =
        of.published.iter().map(|one| format!("{}: {} ({}, {})", one.who, one.figures, one.year, one.hardware));
    let answer = of.answer();
    let here = if answer.is_empty() { vec!["not measured in this run".to_owned()] } else { answer };
    [vec![of.what.clone()], published.collect(), here, vec![of.by.clone()]]
}

/// On a terminal: an experiment in some lines.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    for of in &report.experiments {
        let [name, published, here, by] = columns(of);
        let _ = writeln!(out, "\n{}", name.join(" "));
        published.iter().for_each(|line| _ = writeln!(out, "  published: {line}"));
        here.iter().for_each(|line| _ = writeln!(out, "  here: {line}"));
        by.iter().filter(|line| !line.is_empty()).for_each(|line| _ = writeln!(out, "  by: {line}"));
    }
    out
}

/// On a page.
pub(crate) fn page(out: &mut String, run: &str, reports: &[Report]) {
    for report in reports.iter().filter(|report| !report.experiments.is_empty()) {
        let _ = write!(
            out,
            "<section><h2>{}: {}</h2>\n<table class=\"experiments\"><tr>",
            escaped(&report.what),
            escaped(run)
        );
        HEADS.iter().for_each(|head| _ = write!(out, "<th>{head}</th>"));
        out.push_str("</tr>\n");
        for of in &report.experiments {
            out.push_str("<tr>");
            for lines in columns(of) {
                let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
                let _ = write!(out, "<td>{}</td>", lines.join("<br>"));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></section>\n");
    }
}

/// The rows of a table in Markdown, of cells.
pub(crate) fn cells(report: &Report) -> Vec<[String; 4]> {
    report.experiments.iter().map(|of| columns(of).map(|lines| lines.join("; "))).collect()
}
