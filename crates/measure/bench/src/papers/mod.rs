//! The published experiments with their figures, and the measurements that repeat them.
//!
//! A result answers an experiment only if its bench ran with the arguments that make it that experiment ([`Run::must`]).
//! Published figures belong to the experiment; benches print them from here. Start at [`PAPERS`].

mod kek;
mod madoca;
mod open_next;
mod react;
mod vxworks;

use crate::measure::period;
use crate::{ALL, Bench};
use base::DurNs;
use clap::ArgMatches;
use report::{Experiment, Latency, Published, Report, Row, Table, micros, short};

/// A publication.
pub(crate) struct Paper {
    /// Authors, title, year.
    pub(crate) cited: &'static str,
    pub(crate) entries: &'static [Entry],
}

/// A published experiment, or a part of the published system.
pub(crate) struct Entry {
    /// `paper/experiment`.
    pub(crate) key: &'static str,
    pub(crate) what: &'static str,
    pub(crate) published: &'static [Published],
    /// The runs that together repeat the experiment.
    pub(crate) runs: &'static [Run],
    /// The command that does what the paper describes, with its page, if it is no measurement.
    pub(crate) shown: &'static str,
    /// Differences between ours and the published experiment.
    pub(crate) differs: &'static str,
    /// Hardware that would be needed for the rest.
    pub(crate) needs: &'static str,
}

impl Entry {
    /// The base of the struct updates in the tables.
    const NONE: Self = Self { key: "", what: "", published: &[], runs: &[], shown: "", differs: "", needs: "" };
}

/// A measurement that repeats an experiment.
pub(crate) struct Run {
    pub(crate) bench: &'static str,
    /// Arguments with as many samples as were published, or enough for the comparison.
    pub(crate) full: &'static [&'static str],
    /// Arguments for `all --quick`; the bench's own if there are none.
    pub(crate) quick: &'static [&'static str],
    /// Arguments for the test that every row is answered; the quick ones if there are none.
    pub(crate) smallest: &'static [&'static str],
    /// Arguments without which a result belongs to another experiment: name and value, [`ANY`] or [`NOT_GIVEN`]. Defaults count as given.
    pub(crate) must: &'static [(&'static str, &'static str)],
    /// The figures that answer: parts of the title of their table, and of their name.
    pub(crate) figures: &'static [(&'static str, &'static str)],
    /// Stops other processes of the machine, or needs a device that the command names: `all` does not run it.
    pub(crate) by_hand: bool,
}

impl Run {
    /// The base of the struct updates in the tables.
    const NONE: Self =
        Self { bench: "", full: &[], quick: &[], smallest: &[], must: &[], figures: &[], by_hand: false };
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// As many samples as were published.
    Full,
    /// Ten minutes in all: not for a table.
    Quick,
    /// The smallest that gives every row a figure: for a test.
    Smallest,
}

/// All of them.
pub(crate) const PAPERS: &[Paper] = &[madoca::PAPER, kek::PAPER, open_next::PAPER, react::PAPER, vxworks::PAPER];

/// Figures of one table that are shown; the rest is counted.
const FIGURES_MAX: usize = 12;

/// Any value of an argument that must be given.
pub(crate) const ANY: &str = "";
/// An argument that must not be given.
pub(crate) const NOT_GIVEN: &str = "-";

/// Their name among reports.
const NAME: &str = "experiments";

fn entries() -> impl Iterator<Item = (&'static Paper, &'static Entry)> {
    PAPERS.iter().flat_map(|paper| paper.entries.iter().map(move |entry| (paper, entry)))
}

/// Published figures of an experiment.
///
/// # Panics
/// If no experiment has this key; tests of every bench would show that.
pub(crate) fn published(key: &str) -> &'static [Published] {
    let found = entries().find(|(_, entry)| entry.key == key);
    assert!(found.is_some(), "no experiment {key}");
    found.map_or(&[], |(_, entry)| entry.published)
}

/// Published figures of the experiments that a bench can repeat.
pub(crate) fn published_for(bench: &str) -> Vec<Published> {
    published_where(|run| run.bench == bench)
}

/// Published figures of the experiments that this report answers.
pub(crate) fn published_beside(report: &Report) -> Vec<Published> {
    published_where(|run| run.found(std::slice::from_ref(report)).is_some())
}

fn published_where(is_chosen: impl Fn(&Run) -> bool) -> Vec<Published> {
    let of = entries().filter(|(_, entry)| entry.runs.iter().any(&is_chosen));
    of.flat_map(|(_, entry)| entry.published.iter().cloned()).collect()
}

/// Measurements of [`runs`] that gave no figure, with the keys of their experiments.
pub(crate) fn without_figures(reports: &[Report], amount: Amount) -> Vec<String> {
    let runs = entries().flat_map(|(_, entry)| entry.runs.iter().map(move |run| (entry.key, run)));
    let missing = runs.filter(|(_, run)| !run.by_hand && run.found(reports).is_none());
    missing.map(|(key, run)| format!("{key}: {}", command(run.bench, run.arguments(amount).iter().copied()))).collect()
}

/// The measurements that answer every experiment: bench and arguments, each once.
pub(crate) fn runs(amount: Amount) -> Vec<(&'static str, &'static [&'static str])> {
    let mut all = Vec::new();
    for run in entries().flat_map(|(_, entry)| entry.runs).filter(|run| !run.by_hand) {
        let one = (run.bench, run.arguments(amount));
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// The experiments of these reports with their figures; with `all`, also the other experiments.
pub fn experiments(reports: &[Report], all: bool) -> Option<Report> {
    if reports.iter().any(|report| !report.experiments.is_empty()) {
        return None;
    }
    let is_about =
        |entry: &Entry| all || entry.runs.iter().any(|run| reports.iter().any(|report| report.bench == run.bench));
    let experiments: Vec<Experiment> = entries()
        .filter(|(_, entry)| is_about(entry))
        .map(|(paper, entry)| entry.with_figures(paper, reports))
        .collect();
    let last = reports.last()?;
    (!experiments.is_empty()).then(|| Report {
        bench: NAME.into(),
        experiment: "the published experiments, row by row".into(),
        what: "Published experiments with our figures".into(),
        ended_s: last.ended_s,
        machine: last.machine.clone(),
        experiments,
        ..Report::default()
    })
}

impl Entry {
    fn with_figures(&self, paper: &Paper, reports: &[Report]) -> Experiment {
        let (mut found, mut by, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for run in self.runs {
            match run.found(reports) {
                Some((report, figures)) => {
                    found.extend(figures);
                    by.push(command(run.bench, report.arguments.iter().map(String::as_str)));
                }
                None => missing.push(command(run.bench, run.full.iter().copied())),
            }
        }
        by.extend((!self.shown.is_empty()).then(|| self.shown.to_owned()));
        Experiment {
            key: self.key.into(),
            paper: paper.cited.into(),
            what: self.what.into(),
            published: self.published.to_vec(),
            found,
            by,
            missing,
            differs: self.differs.into(),
            needs: self.needs.into(),
        }
    }
}

impl Run {
    fn arguments(&self, amount: Amount) -> &'static [&'static str] {
        let usual = || ALL.iter().find(|bench| bench.name == self.bench).map_or(&[][..], |bench| bench.quick);
        match amount {
            Amount::Full => self.full,
            Amount::Smallest if !self.smallest.is_empty() => self.smallest,
            _ if !self.quick.is_empty() => self.quick,
            _ => usual(),
        }
    }

    /// The newest report that answers, with its figures.
    fn found<'a>(&self, reports: &'a [Report]) -> Option<(&'a Report, Vec<String>)> {
        let answers = reports.iter().rev().filter(|report| self.is_answered_by(report));
        // A run of other cases of the same bench has none of the figures.
        answers.map(|report| (report, figures(report, self.figures))).find(|(_, figures)| !figures.is_empty())
    }

    /// The report is of this bench, run with the arguments that make it this experiment.
    fn is_answered_by(&self, report: &Report) -> bool {
        let Some(bench) = ALL.iter().find(|bench| bench.name == self.bench) else { return false };
        report.bench == self.bench && parsed(bench, &report.arguments).is_some_and(|given| self.fits(&given))
    }

    fn fits(&self, given: &ArgMatches) -> bool {
        self.must.iter().all(|(name, value)| {
            let given = given.get_raw(name).into_iter().flatten();
            let mut given = given.filter_map(|text| text.to_str());
            match *value {
                ANY => given.next().is_some(),
                NOT_GIVEN => given.next().is_none(),
                value => given.any(|given| same(given, value)),
            }
        })
    }
}

/// Arguments parsed by the bench; nothing if it does not accept them, as in a report of another version.
fn parsed(bench: &Bench, arguments: &[String]) -> Option<ArgMatches> {
    let words = std::iter::once(bench.name).chain(arguments.iter().map(String::as_str));
    bench.command().try_get_matches_from(words).ok()
}

/// Two values of an argument mean the same: the same text, or the same time (`4001Hz`, `249938ns`).
fn same(given: &str, expected: &str) -> bool {
    given == expected || matches!((period(given), period(expected)), (Ok(one), Ok(other)) if one == other)
}

/// The command line of a measurement.
fn command<'a>(bench: &'a str, arguments: impl Iterator<Item = &'a str>) -> String {
    ["tahti", "bench", bench].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Figures of a report, a line for each table.
fn figures(report: &Report, which: &[(&str, &str)]) -> Vec<String> {
    let is_named = |table: &Table, row: &&Row| {
        which.iter().any(|(title, name)| table.title.contains(title) && row.name.contains(name))
    };
    let of_table = |table: &Table| {
        let rows: Vec<&Row> = table.rows.iter().filter(|row| is_named(table, row)).collect();
        let mut figures: Vec<String> = rows.iter().take(FIGURES_MAX).map(|row| figure(table, row)).collect();
        let more = rows.len().saturating_sub(FIGURES_MAX);
        figures.extend((more > 0).then(|| format!("{more} more below")));
        (!figures.is_empty()).then(|| format!("{}: {}", table.title, figures.join("; ")))
    };
    report.tables.iter().filter_map(of_table).collect()
}

/// A figure with its name.
fn figure(table: &Table, row: &Row) -> String {
    let name = &row.name;
    match (&row.latency, &row.ours) {
        (Some(latency), _) => format!("{name} {}", latencies(latency)),
        (None, Some(ours)) => {
            let beyond = if ours.beyond { "> " } else { "" };
            let head = format!("{name} {beyond}{} {}", short(ours.value), row.unit);
            let other = if table.other.is_empty() { "other" } else { &table.other };
            let compared = row.other.as_ref().map(|figure| format!(" ({other} {})", short(figure.value)));
            let note = if row.note.is_empty() { String::new() } else { format!(" ({})", row.note) };
            head.trim_end().to_owned() + &compared.unwrap_or_default() + &note
        }
        (None, None) => format!("{name} not measured {}", row.note).trim_end().to_owned(),
    }
}

fn latencies(latency: &Latency) -> String {
    let us = |ns: Option<i64>| ns.map_or("-".into(), |ns| micros(DurNs(ns)));
    let at = |percent| latency.percentile(percent).filter(|at| !at.beyond).map(|at| at.ns);
    let deviation = latency.sd_ns.map_or(String::new(), |sd| format!(", standard deviation {}", us(Some(sd))));
    format!(
        "min {}, mean {}, median {}, p99 {}, max {}{deviation} us ({} samples)",
        us(latency.min_ns),
        us(latency.mean_ns),
        us(at(50.0)),
        us(at(99.0)),
        us(latency.max_ns),
        latency.count
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_a_measurement_a_command_or_requirements() {
        for (_, entry) in entries() {
            let is_answered = !entry.runs.is_empty() || !entry.shown.is_empty() || !entry.needs.is_empty();
            assert!(is_answered && !entry.what.is_empty(), "{}", entry.key);
            for run in entry.runs {
                assert!(!run.figures.is_empty(), "{}: {}", entry.key, run.bench);
            }
        }
    }

    #[test]
    fn an_experiment_has_one_key() {
        let mut keys: Vec<&str> = entries().map(|(_, entry)| entry.key).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
    }

    #[test]
    fn the_bench_accepts_the_arguments_of_each_amount_and_they_repeat_the_experiment() {
        for (_, entry) in entries() {
            for run in entry.runs {
                let bench = ALL.iter().find(|bench| bench.name == run.bench);
                let bench = bench.unwrap_or_else(|| panic!("{}: no bench {}", entry.key, run.bench));
                for amount in [Amount::Full, Amount::Quick, Amount::Smallest] {
                    let words: Vec<String> = run.arguments(amount).iter().map(|word| (*word).to_owned()).collect();
                    let given = parsed(bench, &words).unwrap_or_else(|| panic!("{}: {words:?}", entry.key));
                    assert!(run.fits(&given), "{}: {words:?}", entry.key);
                }
            }
        }
    }

    #[test]
    fn a_result_with_other_arguments_does_not_answer_an_experiment() {
        let jitter =
            entries().find(|(_, entry)| entry.key == "vxworks/jitter").map(|(_, entry)| &entry.runs[0]).unwrap();
        let report = |words: &str| Report {
            bench: "wakeup".into(),
            arguments: words.split_whitespace().map(str::to_owned).collect(),
            ..Report::default()
        };
        let same =
            ["--period 4001Hz --load all --compare --spare 1+", "--load all --period 249938ns --compare --for 1s"];
        for words in same {
            assert!(jitter.is_answered_by(&report(words)), "{words}");
        }
        let others = [
            "",
            "--period 4001Hz --compare",
            "--load all --compare",
            "--period 4001Hz --load all",
            "--period 4001Hz --load all --compare --wait spin",
            "--period 4001Hz --load all --compare --class other",
            "--no-such",
        ];
        for words in others {
            assert!(!jitter.is_answered_by(&report(words)), "{words}");
        }
    }

    #[test]
    fn an_interrupt_of_any_device_answers_and_one_of_a_timer_does_not() {
        let interrupt = entries().find(|(_, entry)| entry.key == "kek/interrupt").map(|(_, entry)| &entry.runs[0]);
        let answers = |words: &str| {
            let arguments = words.split_whitespace().map(str::to_owned).collect();
            let report = Report { bench: "response".into(), arguments, ..Report::default() };
            interrupt.unwrap().is_answered_by(&report)
        };
        assert!(answers("--load none --device 0000:00:08.0 --raise 0=1"));
        assert!(!answers("--load none --timer") && !answers("--load none") && !answers("--device uio0 --raise 0=1"));
    }

    #[test]
    fn a_response_to_a_timer_or_a_device_does_not_answer_for_that_to_another_cpu() {
        let response = entries().find(|(_, entry)| entry.key == "react/response").map(|(_, entry)| entry.runs).unwrap();
        let answered = |words: &str| -> Vec<bool> {
            let arguments = words.split_whitespace().map(str::to_owned).collect();
            let report = Report { bench: "response".into(), arguments, ..Report::default() };
            response.iter().map(|run| run.is_answered_by(&report)).collect()
        };
        assert_eq!(answered("--compare"), [true, false, false]);
        assert_eq!(answered("--compare --timer"), [false, true, false]);
        assert_eq!(answered("--compare --device uio0 --raise 0=1"), [false, false, true]);
    }

    #[test]
    fn published_figures_are_printed_even_if_nothing_was_measured() {
        let row = Row::figure("1 second", "%", 0.045).against(report::Figure::once(0.204));
        let table = Table::new("periods: table II: load of one CPU").columns("tahti", "softIoc").row(row);
        let words = ["--quick", "--only", "periods"].map(str::to_owned).to_vec();
        let ioc = Report { bench: "ioc".into(), arguments: words, tables: vec![table], ..Report::default() };
        // A later run of another case of the same bench does not hide it.
        let other = Report { arguments: vec!["--only".into(), "connect".into()], tables: Vec::new(), ..ioc.clone() };
        let all = experiments(&[ioc.clone(), other], true).unwrap();
        assert_eq!(all.experiments.len(), entries().count());
        let of = |key: &str| all.experiments.iter().find(|one| one.key == key).unwrap();
        assert_eq!(of("kek/scan-load").found, ["periods: table II: load of one CPU: 1 second 0.045 % (softIoc 0.204)"]);
        assert_eq!(of("kek/scan-load").by, ["tahti bench ioc --quick --only periods"]);
        assert!(of("kek/scan-load").is_answered());
        let response = of("react/response");
        assert_eq!(response.published.len(), 2);
        let commands = [
            "tahti bench response --compare --events 5000000",
            "tahti bench response --timer --compare --events 5000000",
            "tahti bench response --device uio0 --raise 0x60=1 --clear 0x64=1 --compare --events 5000000",
        ];
        assert_eq!(response.missing, commands);
        assert!(!response.is_answered());
        assert_eq!(published_beside(&ioc), published("kek/scan-load"), "it shows no figures of other experiments");
        assert_eq!(published_beside(&Report { arguments: Vec::new(), bench: "wakeup".into(), ..ioc.clone() }), []);
        let missing = without_figures(std::slice::from_ref(&ioc), Amount::Smallest);
        assert!(
            missing.contains(&"react/response: tahti bench response --compare --events 800".to_owned()),
            "{missing:?}"
        );
        assert!(!missing.iter().any(|one| one.contains("kek/scan-load") || one.contains("--every-cpu")), "{missing:?}");
        // Of one measurement alone: only its experiments, and never twice.
        let few = experiments(std::slice::from_ref(&ioc), false).unwrap();
        assert!(few.experiments.iter().all(|one| one.key.starts_with("kek/")), "{few:?}");
        assert_eq!(experiments(&[ioc, few], true), None);
    }
}
