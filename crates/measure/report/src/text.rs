//! A report as tables on a terminal.

use crate::{Figure, Latency, Report, Row, Table};
use base::DurNs;
use std::fmt::Write as _;

/// Minimum and maximum width of the first column.
const NAME: usize = 46;
const NAME_MAX: usize = 200;

/// The whole report as text, ending with a newline.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let head = report.machine.lines().into_iter().chain(report.published.iter().map(|published| published.line()));
    head.chain(report.setup.iter().cloned()).for_each(|line| push(&mut out, &line));
    for table in &report.tables {
        out.push('\n');
        write_table(&mut out, table);
    }
    out.push_str(&crate::experiments::text(report));
    if !report.notes.is_empty() {
        out.push('\n');
    }
    report.notes.iter().for_each(|line| push(&mut out, line));
    out
}

fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

fn write_table(out: &mut String, table: &Table) {
    push(out, &table.title);
    table.published.iter().for_each(|published| push(out, &format!("  {}", published.line())));
    // Latencies and single figures have different heads.
    let mut rest = &table.rows[..];
    while let Some(first) = rest.first() {
        let alike = rest.iter().take_while(|row| row.latency.is_some() == first.latency.is_some()).count();
        let (rows, left) = rest.split_at(alike);
        match first.latency {
            Some(_) => write_latencies(out, rows),
            None => write_figures(out, table, rows),
        }
        rest = left;
    }
    for row in &table.rows {
        row.culprits.iter().for_each(|culprit| {
            push(out, &format!("  {}: {:.1} % {} x{}", row.name, culprit.share_percent, culprit.name, culprit.count));
        });
    }
    table.notes.iter().for_each(|line| push(out, &format!("  {line}")));
}

fn write_latencies(out: &mut String, rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.chars().count() + 2).max().unwrap_or(0).clamp(28, NAME_MAX);
    let spread = rows.iter().any(|row| row.latency.as_ref().is_some_and(|latency| latency.sd_ns.is_some()));
    push(out, &format!("{:<width$} {}{}", "  [us]", heads(), if spread { "       sd" } else { "" }));
    for row in rows {
        let Some(latency) = &row.latency else { continue };
        let sd = match spread {
            true => format!(" {:>8}", latency.sd_ns.map_or("-".into(), |ns| micros(DurNs(ns)))),
            false => String::new(),
        };
        let name = format!("  {}", row.name);
        push(out, &format!("{name:<width$} {}{sd}{}", line(latency), tail(row)));
    }
}

/// The end of a row: ratio, target and verdict if there are any, and the remark.
fn tail(row: &Row) -> String {
    let mut text = String::new();
    if let Some(ratio) = row.ratio {
        let _ = write!(text, "  {ratio:.2} x");
    }
    if let Some(target) = &row.target {
        let _ = write!(text, "  target {}", target.words());
    }
    if let Some(verdict) = row.verdict {
        let _ = write!(text, ": {}", verdict.word());
    }
    if !row.note.is_empty() {
        let _ = write!(text, "  {}", row.note);
    }
    text
}

/// The heads of [`line()`].
#[must_use]
pub fn heads() -> String {
    format!("{:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}", "samples", "min", "mean", "median", "p99", "p99.9", "max")
}

/// One line of latencies: samples, min, mean, median, p99, p99.9, max, in microseconds. A percentile beyond the histogram
/// is printed as a bound; one with too few samples is not printed.
#[must_use]
pub fn line(latency: &Latency) -> String {
    let time = |ns: Option<i64>| ns.map_or("-".into(), |ns| micros(DurNs(ns)));
    let at = |percent| match latency.percentile(percent) {
        Some(found) => format!("{}{}", if found.beyond { ">" } else { "" }, micros(DurNs(found.ns))),
        None => "-".into(),
    };
    format!(
        "{:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        latency.count,
        time(latency.min_ns),
        time(latency.mean_ns),
        at(50.0),
        at(99.0),
        at(99.9),
        time(latency.max_ns),
    )
}

/// Microseconds with three significant digits.
#[must_use]
pub fn micros(time: DurNs) -> String {
    let us = time.0 as f64 / 1000.0;
    match us.abs() {
        x if x < 10.0 => format!("{us:.2}"),
        x if x < 100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

fn write_figures(out: &mut String, table: &Table, rows: &[Row]) {
    let compared = rows.iter().any(|row| row.other.is_some() || row.ratio.is_some()) || !table.other.is_empty();
    let target = rows.iter().any(|row| row.target.is_some() || row.verdict.is_some());
    let name = |row: &Row| match row.unit.as_str() {
        "" => row.name.clone(),
        unit => format!("{} [{unit}]", row.name),
    };
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).clamp(NAME, NAME_MAX);
    let cells = |name: &str, other: &str, ours: &str, ratio: &str, rest: &str| match compared {
        true => format!("  {name:<width$} {other:>10} {ours:>10} {ratio:>8}  {rest}"),
        false => format!("  {name:<width$} {ours:>10}  {rest}"),
    };
    if compared || target || !table.ours.is_empty() {
        let ours = if table.ours.is_empty() { "measured" } else { &table.ours };
        push(out, &cells("", &table.other, ours, "ratio", if target { "target" } else { "" }));
    }
    for row in rows {
        let rest = match (&row.target, row.verdict) {
            (Some(target), Some(verdict)) => format!("{}: {}  {}", target.words(), verdict.word(), row.note),
            (Some(target), None) => format!("{}  {}", target.words(), row.note),
            (None, Some(verdict)) => format!("{}  {}", verdict.word(), row.note),
            (None, None) => row.note.clone(),
        };
        let ratio = row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        push(out, &cells(&name(row), &figure(row.other.as_ref()), &figure(row.ours.as_ref()), &ratio, &rest));
    }
}

/// A figure as a cell of a table.
pub(crate) fn figure(figure: Option<&Figure>) -> String {
    match figure {
        Some(figure) => format!("{}{}", if figure.beyond { ">" } else { "" }, short(figure.value)),
        None => "-".into(),
    }
}

/// A number with three significant digits; integers below a million unchanged.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size < 1e6 && value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Published, Target};
    use base::Histogram;

    #[test]
    fn a_table_shows_both_figures_and_the_target() {
        let row = Row::figure("CPU per record", "ns", 98.0).target(Target::ratio_at_most(0.2));
        let table = Table {
            published: vec![Published::new("KEK", "1997", "PowerPC 604e", "953 us")],
            ..Table::new("database").columns("tahti", "softIoc").row(row.against(Figure::once(490.0)))
        };
        let report = Report { tables: vec![table], ..Report::default() };
        let shown = text(&report);
        assert!(shown.contains("\ndatabase\n  published: KEK (PowerPC 604e, 1997): 953 us\n"), "{shown}");
        assert!(shown.contains("   softIoc      tahti    ratio  target\n"), "{shown}");
        assert!(shown.contains("       490         98     0.20  ≤ 0.2 x: yes\n"), "{shown}");
    }

    #[test]
    fn a_percentile_beyond_the_histogram_is_shown_as_a_bound() {
        let mut hist = Histogram::new();
        (0..2000).for_each(|_| hist.record(DurNs::from_secs(100)));
        assert!(line(&Latency::from(&hist)).contains(" >"));
        let row = Row::latency("late", Latency::from(&hist), Vec::new());
        assert_eq!(row.target(Target::at_most(1e9)).verdict, None);
    }
}
