//! The published experiments that this program repeats, row by row: which measurement repeats each and which of its figures answer,
//! or what would be needed.

use crate::{ALL, Bench};
use report::{Experiment, Good, Latency, Published, Report, Row, Table, micros, short};

/// A published experiment.
struct Of {
    number: &'static str,
    what: &'static str,
    how: How,
}

/// How it is answered here.
enum How {
    /// By figures of a measurement: those whose table and whose name hold these words.
    Figures(&'static str, &'static [(&'static str, &'static str)]),
    /// By something that this program does: a command that shows it.
    Does(&'static str),
    /// Not on this machine: what would be needed.
    Needs(&'static str),
    /// By figures, but not as a whole: what would be needed for the rest.
    Partly(&'static str, &'static [(&'static str, &'static str)], &'static str),
}
use How::{Does, Figures, Needs, Partly};

/// Figures of a table that are shown.
const FOUND_MAX: usize = 12;

const fn of(number: &'static str, what: &'static str, how: How) -> Of {
    Of { number, what, how }
}

/// All of them.
const EXPERIMENTS: &[Of] = &[
    of(
        "S1.1",
        "shares of endless loops, time sharing and real time",
        Partly(
            "classes",
            &[("time-sharing loop", "time sharing"), ("real-time loop", "real time")],
            "a machine that may stop for the loops on every CPU: `tahti bench classes --every-cpu`",
        ),
    ),
    of(
        "S1.2",
        "loops bound to one processor",
        Figures("classes", &[("bound to CPU", "bound time sharing"), ("bound to CPU", "bound real time")]),
    ),
    of("S1.3", "processes and threads in a set of processors", Figures("classes", &[("in a set of", "in the set")])),
    of("S1.4", "a runaway real-time process is stopped from another CPU", Figures("runaway", &[("", "")])),
    of("S1.5", "round trips of messages through the server", Figures("rtt", &[("round trips", "message")])),
    of(
        "S1.6",
        "equipment control, polling into memory, fast feedback, event-synchronised acquisition",
        Does("tahti em, tahti up, tahti archive (docs/equipment.md, docs/plant.md, docs/operate.md)"),
    ),
    of("S1.7", "waiting by spinning instead of sleeping", Figures("wakeup", &[("wake-up latency", "")])),
    of("S2.1", "an IOC: database, scans, monitors, Channel Access, device support", Does("tahti ioc (docs/ioc.md)")),
    of(
        "S2.2",
        "the benchmark database: 300 record processings a scan",
        Figures("ioc", &[("database-", "CPU per record"), ("periodic-", "CPU per record")]),
    ),
    of("S2.3", "CPU load at scan periods of 1.0, 0.5, 0.2 and 0.1 s", Figures("ioc", &[("periods:", "second")])),
    of(
        "S2.4",
        "Channel Access: search, put, get, put and get; CPU and network load",
        Figures(
            "ioc",
            &[
                ("connect:", "search: time"),
                ("connect:", "search: CPU load"),
                ("connect:", "search: traffic"),
                ("transfer:", "put: time"),
                ("transfer:", "put: CPU load"),
                ("transfer:", "put: traffic"),
                ("transfer:", "get: time"),
                ("transfer:", "get: CPU load"),
                ("transfer:", "get: traffic"),
                ("transfer:", "put and get in turn: time"),
            ],
        ),
    ),
    of(
        "S2.5",
        "interrupt latency: vector, service routine",
        Partly(
            "response",
            &[("from an event", "")],
            "a device that interrupts and a user-level driver: docs/how-to/drive-a-device-from-user-space.md",
        ),
    ),
    of("S2.6", "an event processes two records", Figures("ioc", &[("event:", "median"), ("event:", "p99")])),
    of(
        "S3.1",
        "a prime task beside 0, 70 and 100 % interference",
        Figures("interference", &[("spread of the prime task", "largest"), ("prime task (FIFO 50)", "time")]),
    ),
    of("S3.2", "a network stream beside computation", Figures("interference", &[("a stream", "")])),
    of(
        "S3.3",
        "the full bandwidth of a link of 100 Mbit/s",
        Figures("interference", &[("a stream", "Mbit/s"), ("a stream", "")]),
    ),
    of(
        "S3.4",
        "isolation in space and time",
        Does("tahti shield, [[process]] memory_max (docs/shield.md, docs/plant.md)"),
    ),
    of(
        "S3.5",
        "other operating systems beside the real-time part",
        Partly(
            "interference",
            &[("spread of the prime task", "guest"), ("a stream", "guest")],
            "KVM that boots an ordinary kernel: the guests that are measured beside are emulated",
        ),
    ),
    of("S3.6", "hard, firm and soft deadlines", Does("recovery and tolerate of [[frame.activity]] (docs/frames.md)")),
    of("S4.1", "a tool that keeps CPUs free", Figures("shield", &[("", "")])),
    of(
        "S4.2",
        "interrupt response without and with the shield, unloaded and loaded",
        Partly("response", &[("from an event", "")], "64 CPUs and a device's interrupt; `--compare` for the shield"),
    ),
    of(
        "S4.3",
        "rules for the program: pin, lock memory, stay out of the kernel",
        Does("tahti doctor, tahti run (docs/doctor.md)"),
    ),
    of("S4.4", "drivers in user space", Does("docs/how-to/drive-a-device-from-user-space.md")),
    of(
        "S4.5",
        "frame-rate scheduler",
        Figures("frames", &[("begin of minors", "frame"), ("dispatcher", "its own work, median")]),
    ),
    of("S4.6", "a program keeps its CPU to itself for a short stretch", Figures("quiet", &[("looks", "lost")])),
    of("S4.7", "latencies of threads in the tens of us", Figures("wakeup", &[("wake-up latency", "")])),
    of("S4.8", "find the cause of latency; test again at each release", Does("tahti explain, tahti bench compare")),
    of("S5.1", "task response at 4001 Hz, loaded", Figures("wakeup", &[("wake-up latency", "")])),
    of("S5.2", "what reading the clock costs", Figures("clock", &[("", "")])),
    of("S5.3", "response independent of CPU load", Figures("response", &[("p99 beside", "loaded, by unloaded")])),
    of(
        "S5.4",
        "scaling with cores, local and shared data",
        Partly(
            "compute",
            &[("work done by several CPUs", ""), ("an addition to a counter", "")],
            "CPUs of more than one socket for the fall below one core",
        ),
    ),
    of("S5.5", "a parallel share of 90 %", Figures("compute", &[("speed-up by parallel share", "")])),
    of("S5.6", "SIMD", Figures("compute", &[("matrix times vector on one CPU", "")])),
    of(
        "S5.7",
        "event trace, profiler, leaks, live variables, coverage",
        Does("tahti trace, tahti explain, tahti profile, tahti frames show (docs/measuring.md)"),
    ),
    of("S5.8", "hyper-threads switched off", Does("tahti doctor names siblings of real-time CPUs")),
    of("S5.9", "an adaptive-optics computer", Figures("ao", &[("a frame of", "one CPU"), ("a frame of", "two CPUs")])),
    of("S5.10", "PTP clocks", Needs("a network card with a hardware clock")),
];

/// The name under which they stand among reports.
const NAME: &str = "experiments";

/// All of them beside what these reports found. `all`: those, too, that none of the reports is about.
pub fn beside(reports: &[Report], all: bool) -> Option<Report> {
    if reports.iter().any(|report| !report.experiments.is_empty()) {
        return None;
    }
    let experiments: Vec<Experiment> = EXPERIMENTS.iter().filter_map(|of| of.beside(reports, all)).collect();
    let last = reports.last()?;
    (!experiments.is_empty()).then(|| Report {
        bench: NAME.into(),
        experiment: "own: the published experiments row by row".into(),
        what: "Published experiments, and what was found of each".into(),
        ended_s: last.ended_s,
        machine: last.machine.clone(),
        experiments,
        ..Report::default()
    })
}

impl Of {
    fn beside(&self, reports: &[Report], all: bool) -> Option<Experiment> {
        let (bench, which, needs) = match self.how {
            Figures(bench, which) => (Some(bench), which, ""),
            Partly(bench, which, needs) => (Some(bench), which, needs),
            Does(_) => (None, &[][..], ""),
            Needs(needs) => (None, &[][..], needs),
        };
        let report = reports.iter().find(|report| Some(report.bench.as_str()) == bench);
        if report.is_none() && !all {
            return None;
        }
        let does = if let Does(by) = self.how { by } else { "" };
        let by = bench.map_or_else(|| does.to_owned(), |name| command(name, report));
        let found = match (report, does.is_empty()) {
            (Some(report), _) => found(report, which),
            (None, false) => vec!["shown, not measured".into()],
            (None, true) => Vec::new(),
        };
        Some(Experiment {
            number: self.number.into(),
            what: self.what.into(),
            published: published(self.number, reports),
            found,
            by,
            needs: needs.into(),
        })
    }
}

/// The command line of a measurement.
fn command(bench: &str, report: Option<&Report>) -> String {
    let words = report.map_or_else(String::new, |report| format!(" {}", report.arguments.join(" ")));
    format!("tahti bench {bench}{words}").trim_end().to_owned()
}

/// What was published of an experiment: by measurements' rows, and by tables of what was measured; each once.
fn published(number: &str, reports: &[Report]) -> Vec<Published> {
    let tables = reports.iter().flat_map(|report| &report.tables).flat_map(|table| &table.published);
    let rows = ALL.iter().flat_map(|bench: &&Bench| bench.published);
    let mut all: Vec<Published> = Vec::new();
    for one in rows.chain(tables).filter(|one| one.number == number) {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// Figures of a report, a line for each of its tables: those of each pair of words in their order, without those of others and of parts
/// of ours.
fn found(report: &Report, which: &[(&str, &str)]) -> Vec<String> {
    let wanted = |table: &Table, row: &&Row| {
        let named = which.iter().any(|(title, name)| table.title.contains(title) && row.name.contains(name));
        named && (row.latency.is_none() || row.good != Good::Neither)
    };
    let of_table = |table: &Table| {
        let rows: Vec<&Row> = table.rows.iter().filter(|row| wanted(table, row)).collect();
        let mut figures: Vec<String> = rows.iter().take(FOUND_MAX).map(|row| figure(table, row)).collect();
        let more = rows.len().saturating_sub(FOUND_MAX);
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
            let beside = row.other.as_ref().map(|figure| format!(" ({other} {})", short(figure.value)));
            head.trim_end().to_owned() + &beside.unwrap_or_default()
        }
        (None, None) => format!("{name} not measured {}", row.note).trim_end().to_owned(),
    }
}

fn latencies(latency: &Latency) -> String {
    let us = |ns: Option<i64>| ns.map_or("-".into(), |ns| micros(base::DurNs(ns)));
    let at = |percent| latency.percentile(percent).filter(|at| !at.beyond).map(|at| at.ns);
    format!(
        "mean {}, median {}, p99 {}, max {} us ({} samples)",
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

    /// How many rows each of the five documents has.
    const ROWS: [usize; 5] = [7, 6, 6, 8, 10];

    #[test]
    fn every_row_of_the_documents_is_measured_or_shown_or_says_what_it_needs() {
        let numbers =
            (1..).zip(ROWS).flat_map(|(document, rows)| (1..=rows).map(move |row| format!("S{document}.{row}")));
        assert_eq!(EXPERIMENTS.iter().map(|of| of.number.to_owned()).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
        for of in EXPERIMENTS {
            let said = match of.how {
                Figures(bench, which) | Partly(bench, which, _) => {
                    assert!(ALL.iter().any(|known| known.name == bench), "{}: {bench}", of.number);
                    !which.is_empty()
                }
                Does(by) => !by.is_empty(),
                Needs(what) => !what.is_empty(),
            };
            assert!(said && !of.what.is_empty(), "{}", of.number);
        }
    }

    #[test]
    fn what_was_published_stands_at_an_experiment_that_there_is() {
        for one in ALL.iter().flat_map(|bench| bench.published) {
            let known = EXPERIMENTS.iter().any(|of| of.number == one.number);
            assert!(known, "{}: {:?}", one.who, one.number);
        }
    }

    #[test]
    fn figures_stand_beside_what_was_published_and_what_was_not_measured_says_so() {
        let row = Row::figure("1 second", "%", 0.045).against(report::Figure::once(0.204));
        let mut table = Table::new("periods: table II: load of one CPU").columns("tahti", "softIoc").row(row);
        table.published.push(Published::of("S2.3", "KEK", "1997", "PowerPC 604e", "0.60, 1.2, 3.0, 6.1 %"));
        let ioc =
            Report { bench: "ioc".into(), arguments: vec!["--quick".into()], tables: vec![table], ..Report::default() };
        let all = beside(std::slice::from_ref(&ioc), true).unwrap();
        assert_eq!(all.experiments.len(), EXPERIMENTS.len());
        let of = |number: &str| all.experiments.iter().find(|one| one.number == number).unwrap();
        assert_eq!(of("S2.3").found, ["periods: table II: load of one CPU: 1 second 0.045 % (softIoc 0.204)"]);
        assert_eq!((of("S2.3").published.len(), of("S2.3").by.as_str()), (1, "tahti bench ioc --quick"));
        assert_eq!((of("S4.5").found.len(), of("S4.5").by.as_str()), (0, "tahti bench frames"));
        assert!(of("S5.4").needs.contains("socket"));
        // Of one measurement alone: only what it is about, and never twice.
        let few = beside(std::slice::from_ref(&ioc), false).unwrap();
        assert!(few.experiments.iter().all(|one| one.number.starts_with("S2.")), "{few:?}");
        assert_eq!(beside(&[ioc, few], true), None);
    }
}
