//! Reports as one self-contained page: targets first, then each measurement with the published figures.

use crate::chart::{COLOURS, chart, escaped};
use crate::markdown::{LATENCY_HEADS, latency_cells, measured, named_with_unit};
use crate::spikes::timeline;
use crate::text::figure;
use crate::{Change, Changes, Published, Report, Row, Table, Verdict, compare};
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page of named runs. With two or more, the changes from the first to the second come first, and their histograms
/// overlay each other.
#[must_use]
pub fn page(runs: &[(String, Vec<Report>)]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tahti: measurements</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <header><h1>Measurements</h1><button id=\"theme\" type=\"button\">light / dark</button></header>\n"
    );
    if let [(base, first), (new, second), ..] = runs {
        changes(&mut out, base, new, &compare(first, second));
    }
    runs.iter().for_each(|(name, reports)| target(&mut out, name, reports));
    runs.iter().for_each(|(name, reports)| crate::experiments::page(&mut out, name, reports));
    for (nth, (name, reports)) in runs.iter().enumerate() {
        let is_measured = |report: &&Report| report.experiments.is_empty() && report.stacks.is_empty();
        for report in reports.iter().filter(is_measured) {
            // Shown with the first run that has it; the others overlay it.
            let seen = runs[..nth].iter().flat_map(|(_, reports)| reports).any(|other| alike(report, other));
            let same: Vec<(&str, &Report)> = runs[nth + 1..]
                .iter()
                .flat_map(|(name, reports)| reports.iter().map(|report| (name.as_str(), report)))
                .filter(|(_, other)| alike(report, other))
                .collect();
            if !seen {
                scenario(&mut out, name, report, &same);
            }
        }
    }
    runs.iter().for_each(|(name, reports)| crate::flame::page(&mut out, name, reports));
    let _ = writeln!(out, "<script>{SCRIPT}</script></body></html>");
    out
}

/// Whether two reports are of the same measurement.
fn alike(one: &Report, other: &Report) -> bool {
    one.bench == other.bench && one.arguments == other.arguments
}

fn cells(out: &mut String, tag: &str, cells: &[&str]) {
    out.push_str("<tr>");
    for text in cells {
        let _ = write!(out, "<{tag}>{}</{tag}>", escaped(text));
    }
    out.push_str("</tr>\n");
}

fn list(out: &mut String, lines: &[String]) {
    if !lines.is_empty() {
        let items: String = lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        let _ = writeln!(out, "<ul>{items}</ul>");
    }
}

fn changes(out: &mut String, base: &str, new: &str, changes: &Changes) {
    let class = match changes.worse() {
        true => "bad",
        // Neutral without figures.
        false if changes.figures.is_empty() => "",
        false => "good",
    };
    let _ = writeln!(
        out,
        "<section><h2>From {} to {}</h2><p class=\"verdict {class}\">{}</p><table>",
        escaped(base),
        escaped(new),
        escaped(&changes.verdict())
    );
    cells(out, "th", &["figure", "before", "now", "ratio", "p-value", ""]);
    for of in &changes.figures {
        let class = match of.change {
            Change::Worse => "bad",
            Change::Better => "good",
            Change::Same | Change::NotTested => "",
        };
        let unit = if of.unit.is_empty() { String::new() } else { format!(" [{}]", of.unit) };
        let [before, now] = [&of.base, &of.new].map(|of| escaped(&figure(Some(of))));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{before}</td><td>{now}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td></tr>",
            escaped(&format!("{}{unit}", of.what)),
            escaped(&of.ratio()),
            escaped(&of.p_value()),
            of.change.word()
        );
    }
    out.push_str("</table>\n");
    let lists = [("new culprit", &changes.culprits), ("machine", &changes.machine), ("not compared", &changes.missing)];
    for (what, lines) in lists {
        list(out, &lines.iter().map(|line| format!("{what}: {line}")).collect::<Vec<_>>());
    }
    out.push_str("</section>\n");
}

fn target(out: &mut String, name: &str, reports: &[Report]) {
    let rows =
        || reports.iter().flat_map(|report| report.rows_with_target().map(move |(title, row)| (report, title, row)));
    if rows().next().is_none() {
        return;
    }
    let count = |verdict| rows().filter(|(_, _, row)| row.verdict == verdict).count();
    let missed = count(Some(Verdict::Missed));
    let _ = writeln!(
        out,
        "<section><h2>Targets: {}</h2><p class=\"verdict {}\">{} reached, {missed} missed, {} undecided</p><table>",
        escaped(name),
        if missed > 0 { "bad" } else { "good" },
        count(Some(Verdict::Reached)),
        count(None)
    );
    cells(out, "th", &["measurement", "figure", "measured", "target", ""]);
    for (report, title, row) in rows() {
        let target = row.target.map_or(String::new(), |target| target.words());
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            escaped(&report.bench),
            escaped(&format!("{title}: {}", row.name)),
            escaped(&measured(row)),
            escaped(&target),
            verdict(row)
        );
    }
    out.push_str("</table></section>\n");
}

fn verdict(row: &Row) -> String {
    let (class, word) = match row.verdict {
        Some(verdict @ (Verdict::Reached | Verdict::Better)) => ("good", verdict.word()),
        Some(verdict @ (Verdict::Missed | Verdict::Worse)) => ("bad", verdict.word()),
        Some(verdict) => ("", verdict.word()),
        None if row.target.is_some() => ("", "undecided"),
        None => ("", ""),
    };
    format!("<td class=\"{class}\">{word}</td>")
}

fn scenario(out: &mut String, run: &str, report: &Report, same: &[(&str, &Report)]) {
    if report.experiment.is_empty() {
        // No measurement of `tahti bench`.
        let _ = writeln!(out, "<section><h2>{}</h2>", escaped(&report.what));
    } else {
        let _ = writeln!(
            out,
            "<section><h2>{}: {}</h2><p>{}. Target: {}.</p><p><code>tahti bench {} {}</code></p>",
            escaped(&report.bench),
            escaped(&report.experiment),
            escaped(&report.what),
            escaped(&report.target),
            escaped(&report.bench),
            escaped(&report.arguments.join(" "))
        );
    }
    published(out, &report.published);
    for (name, of) in std::iter::once((run, report)).chain(same.iter().copied()) {
        let _ = write!(out, "<details><summary>{}: the machine</summary>", escaped(name));
        list(out, &of.machine.lines());
        let knobs: Vec<String> = of.machine.knobs.iter().map(|(path, value)| format!("{path}: {value}")).collect();
        list(out, &knobs);
        list(
            out,
            &of.machine.off_profile.iter().map(|knob| format!("a shield would change: {knob}")).collect::<Vec<_>>(),
        );
        out.push_str("</details>\n");
    }
    list(out, &report.setup);
    for of in &report.tables {
        let others: Vec<(&str, &Table)> = same
            .iter()
            .filter_map(|(name, report)| Some((*name, report.tables.iter().find(|other| other.title == of.title)?)))
            .collect();
        table(out, run, of, &others);
    }
    list(out, &report.notes);
    out.push_str("</section>\n");
}

fn published(out: &mut String, published: &[Published]) {
    if published.is_empty() {
        return;
    }
    out.push_str("<table class=\"published\">");
    cells(out, "th", &["published by", "year", "hardware", "figures"]);
    published.iter().for_each(|of| cells(out, "td", &[&of.publisher, &of.year, &of.hardware, &of.figures]));
    out.push_str("</table>\n");
}

/// A table of the first run, with the same table of the others.
fn table(out: &mut String, run: &str, table: &Table, others: &[(&str, &Table)]) {
    let _ = write!(out, "<h3>{}</h3>\n<div class=\"columns\"><div>", escaped(&table.title));
    let all: Vec<(&str, &Table)> = std::iter::once((run, table)).chain(others.iter().copied()).collect();
    let named = |run: &str, row: &Row| if all.len() > 1 { format!("{} ({run})", row.name) } else { row.name.clone() };
    let rows = || all.iter().flat_map(|(run, table)| table.rows.iter().map(move |row| (*run, row)));
    let series: Vec<_> = rows().filter_map(|(run, row)| Some((named(run, row), row.latency.as_ref()?))).collect();
    if !series.is_empty() {
        out.push_str("<table class=\"latencies\">");
        cells(out, "th", &LATENCY_HEADS);
        for (nth, (name, latency)) in series.iter().enumerate() {
            let _ = write!(out, "<tr data-series=\"{nth}\"><td class=\"s{}\">{}</td>", nth % COLOURS, escaped(name));
            latency_cells(latency).iter().for_each(|cell| {
                let _ = write!(out, "<td>{}</td>", escaped(cell));
            });
            out.push_str("</tr>\n");
        }
        let _ = write!(out, "</table>\n{}", chart(&series));
        let noted: Vec<String> = rows()
            .filter(|(_, row)| row.latency.is_some() && !row.note.is_empty())
            .map(|(run, row)| format!("{}: {}", named(run, row), row.note))
            .collect();
        list(out, &noted);
    }
    // In the colors of their histograms.
    let latencies = rows().filter(|(_, row)| row.latency.is_some()).enumerate();
    let spikes: Vec<_> = latencies
        .filter(|(_, (_, row))| !row.spikes.is_empty())
        .map(|(nth, (run, row))| (nth, named(run, row), row.spikes.as_slice()))
        .collect();
    let drawn = timeline(&spikes, out.len());
    out.push_str(&drawn);
    if table.rows.iter().any(|row| row.latency.is_none()) {
        let head = |name: &str, usual: &str| if name.is_empty() { usual.to_owned() } else { name.to_owned() };
        out.push_str("<table>");
        cells(
            out,
            "th",
            &["", &head(&table.other, "other"), &head(&table.ours, "measured"), "ratio", "target", "", ""],
        );
        for (run, row) in rows().filter(|(_, row)| row.latency.is_none()) {
            let name = named(run, &Row { name: named_with_unit(row), ..Row::default() });
            let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let target = row.target.map_or(String::new(), |target| target.words());
            let cells = [&name, &figure(row.other.as_ref()), &figure(row.ours.as_ref()), &ratio, &target];
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
            let _ = writeln!(out, "<tr>{cells}{}<td>{}</td></tr>", verdict(row), escaped(&row.note));
        }
        out.push_str("</table>\n");
    }
    for (run, row) in rows().filter(|(_, row)| !row.culprits.is_empty()) {
        let line =
            |culprit: &crate::Culprit| format!("{:.1} % {} x{}", culprit.share_percent, culprit.name, culprit.count);
        let _ = write!(out, "<p>{}: causes of delays</p>", escaped(&named(run, row)));
        list(out, &row.culprits.iter().map(line).collect::<Vec<_>>());
    }
    list(out, &table.notes);
    out.push_str("</div><div>");
    published(out, &table.published);
    out.push_str("</div></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Experiment, Good, Latency, Spike, Target, markdown};
    use base::{DurNs, Histogram};

    fn report(scale: i64) -> Report {
        let mut hist = Histogram::new();
        (1..3000).for_each(|n| hist.record(DurNs(n * 1000 * scale)));
        let pieces = (0..8).map(|n| f64::from(n + 100) * scale as f64).collect();
        let row = Row::latency("CPU 1 open", Latency::from(&hist), pieces).target(Target::at_most(4000.0));
        let spike = |at_ns| Spike { at_ns, late_ns: 90_000, parts: vec![("host (the CPU was idle)".into(), 90_000)] };
        let row = Row { spikes: vec![spike(5), spike(1_000_000_000)], ..row };
        let figure = Row::figure("<b>lost</b>", "us", 3.0).good(Good::Low);
        let mut table = Table::new("wake-up latency").row(row).row(figure);
        table.published.push(Published::new("SGI REACT", "2007", "Itanium 2", "556.95 | 11.15 us"));
        Report { bench: "wakeup".into(), experiment: "VxWorks".into(), tables: vec![table], ..Report::default() }
    }

    #[test]
    fn the_page_is_self_contained_and_starts_with_the_targets() {
        let text = page(&[("run".into(), vec![report(1)])]);
        assert!(text.find("Targets: ").unwrap() < text.find("wake-up latency</h3>").unwrap());
        assert!(text.contains("1 reached, 0 missed, 0 undecided") && text.contains("maximum 2999 us"), "{text}");
        assert!(!text.contains("http") && !text.contains(" src="), "no external resources");
        assert!(text.contains("&lt;b&gt;lost") && !text.contains("<b>"), "text of a report is escaped");
        assert!(text.contains("<td>2007</td><td>Itanium 2</td>"));
    }

    #[test]
    fn two_runs_overlay_each_other_and_the_page_starts_with_changes() {
        let runs = [("before".into(), vec![report(1)]), ("now".into(), vec![report(2)])];
        let text = page(&runs);
        assert!(text.contains("From before to now") && text.contains("1 worse"), "{text}");
        assert_eq!(text.matches("<svg").count(), 2, "histograms, and delays over time");
        assert_eq!(text.matches("<path").count(), 2);
        let text = markdown(&runs);
        assert!(text.contains("## From before to now\n\n1 worse") && text.contains("556.95 \\| 11.15 us"), "{text}");
    }

    /// A report of typical maximum size: full histograms, spikes with all their parts.
    fn full(nth: usize) -> Report {
        let mut hist = Histogram::new();
        (0..36).for_each(|power| (0..32).for_each(|part| hist.record(DurNs((1 << power) + (part << power) / 32))));
        let parts = || (0..6).map(|n| (format!("non-preemptible kernel code of kworker (work item {n})"), 100_000 - n));
        let spike = |n: u64| Spike { at_ns: n * 100_000_000, late_ns: 800_000 - n, parts: parts().collect() };
        let row = |n: usize| Row {
            spikes: (0..40).map(spike).collect(),
            ..Row::latency(format!("CPU {n} shielded, ours"), Latency::from(&hist), Vec::new())
        };
        let table = Table { rows: (0..4).map(row).collect(), ..Table::new("wake-up latency") };
        Report { bench: format!("wakeup-{nth}"), tables: vec![table], ..Report::default() }
    }

    #[test]
    fn a_page_of_ten_measurements_is_below_two_megabytes() {
        let reports: Vec<Report> = (0..10).map(full).collect();
        let text = page(&[("run".into(), reports)]);
        assert!(text.len() < 2_000_000, "{}", text.len());
        assert_eq!(text.matches("href=\"#spike-").count(), 10 * 4 * 40);
        let ids: std::collections::BTreeSet<&str> =
            text.split("<details id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(ids.len(), 10 * 4 * 40, "each has a separate id");
    }

    #[test]
    fn published_experiments_are_shown_with_our_figures_or_the_command_that_measures_them() {
        let of = |found: &[&str], needs: &str| Experiment {
            key: "react/response".into(),
            paper: "SGI: a poster".into(),
            what: "interrupt response".into(),
            published: vec![Published::new("SGI REACT", "2007", "Itanium 2", "11.95 us")],
            found: found.iter().map(|line| (*line).to_owned()).collect(),
            missing: if found.is_empty() { vec!["tahti bench response --compare".into()] } else { Vec::new() },
            needs: needs.into(),
            ..Experiment::default()
        };
        let experiments = vec![of(&["p99 <12> us"], ""), of(&[], "two sockets"), of(&[], "")];
        let report = Report { what: "Published experiments".into(), experiments, ..Report::default() };
        assert_eq!(crate::read(&crate::json(&report)).as_deref(), Ok(&[report.clone()][..]));
        let texts = [
            page(&[("run".into(), vec![report.clone()])]),
            markdown(&[("run".into(), vec![report.clone()])]),
            crate::text(&report),
        ];
        for text in &texts {
            for words in [
                "interrupt response",
                "SGI REACT: 11.95 us (2007, Itanium 2)",
                "needs two sockets",
                "not measured here: run `tahti bench response --compare`",
                "SGI: a poster",
            ] {
                assert!(text.contains(words), "{words}: {text}");
            }
        }
        assert!(texts[0].contains("p99 &lt;12&gt; us"));
    }

    /// Renders reports in all formats; returns the total length.
    fn made(reports: &[Report]) -> usize {
        let texts: usize = reports.iter().map(|report| crate::text(report).len()).sum();
        let runs = [("one".to_owned(), reports.to_vec()), ("two".to_owned(), vec![report(1)])];
        let latencies = reports.iter().flat_map(|report| &report.tables).flat_map(|table| &table.rows);
        let drawn: usize = latencies.filter_map(|row| row.latency.as_ref()).map(|of| crate::vxworks(of).len()).sum();
        texts + drawn + page(&runs).len() + markdown(&runs).len()
    }

    #[test]
    fn no_foreign_report_makes_an_output_panic() {
        let whole = crate::json(&report(1));
        let words = ["-9223372036854775808", "18446744073709551615", "1e308", "-0.0", "null", "[]", "\"\"", "true"];
        // A linear congruential generator with a fixed seed.
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let number = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == '-';
        let values: Vec<(usize, &str)> =
            whole.match_indices(number).filter(|(at, _)| !whole[..*at].ends_with(number)).collect();
        let mut understood = 0;
        for _ in 0..600 {
            let (at, _) = values[next(values.len())];
            let end = whole[at..].find(|letter| !number(letter)).map_or(whole.len(), |len| at + len);
            let strange = format!("{}{}{}", &whole[..at], words[next(words.len())], &whole[end..]);
            if let Ok(reports) = crate::read(&strange) {
                understood += usize::from(made(&reports) > 0);
            }
        }
        assert!(understood > 50, "{understood}");
    }

    #[test]
    fn a_name_may_be_of_any_length() {
        let mut long = report(1);
        long.tables[0].rows.iter_mut().for_each(|row| row.name = "long ".repeat(20_000));
        assert!(made(&[long]) > 100_000);
    }
}
