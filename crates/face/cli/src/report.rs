//! `tahti report`: writes measurements as an HTML page.

use crate::failure::{Failure, end, in_file};
use ::report::{Good, Report, Row, Table, Target};
use base::Worth;
use keep::supervisor::control::{ProcessStatus, Status};
use keep::supervisor::short;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make one page of measurement results, with targets and published figures
///
/// Reads the output of `tahti bench … --json`. With two or more files the page shows the changes from the first to the
/// second. Adds profiles (`tahti profile -o NAME.folded`), the deadline figures of `tahti ps … --json`, and the coverage of programs
/// (`llvm-cov export --format=lcov`, `lcov`, `gcov`): which lines and functions were executed, and which were not.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Output of `tahti bench … --json` or `tahti ps … --json`, profiles (.folded), coverage (.info, .lcov, .gcov)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output file; Markdown if its name ends in .md [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    end(make(args))
}

fn make(args: &Args) -> Result<(), Failure> {
    let ends = |file: &Path, ends: &[&str]| file.extension().is_some_and(|end| ends.iter().any(|one| end == *one));
    let (profiles, files): (Vec<&PathBuf>, Vec<&PathBuf>) = args.files.iter().partition(|file| ends(file, &["folded"]));
    let (covered, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        files.into_iter().partition(|file| ends(file, &["info", "lcov", "gcov"]));
    let runs = files.into_iter().map(|file| Ok((name(file), reports(file)?)));
    let mut runs: Vec<(String, Vec<Report>)> = runs.collect::<Result<_, Failure>>()?;
    runs.iter_mut().for_each(|(_, reports)| reports.extend(bench::experiments(reports, false)));
    let profiles = profiles.into_iter().map(|file| profile(file)).chain(covered.into_iter().map(|file| coverage(file)));
    let profiles = profiles.collect::<Result<Vec<_>, Failure>>()?;
    match runs.last_mut() {
        Some((_, reports)) => reports.extend(profiles),
        None => runs.push((String::new(), profiles)),
    }
    let markdown = args.output.as_deref().and_then(Path::extension).is_some_and(|end| end == "md");
    let text = if markdown || args.markdown { ::report::markdown(&runs) } else { ::report::page(&runs) };
    match &args.output {
        Some(file) => std::fs::write(file, text).map_err(in_file(file)),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// The reports in a file: of measurements, or of the plants in the JSON output of `tahti ps`.
fn reports(file: &Path) -> Result<Vec<Report>, Failure> {
    // If the file is no process listing, the report reader gives the more accurate error.
    let plants = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Vec<Status>>(&bytes).ok());
    match plants.filter(|plants| !plants.is_empty()) {
        Some(plants) => Ok(plants.iter().map(plant).collect()),
        None => Ok(bench::reports(file)?),
    }
}

/// A report about how a plant has kept its deadlines.
fn plant(status: &Status) -> Report {
    let title = "value of results, and wake-up latency of loops";
    let rows = status.processes.iter().flat_map(rows).collect();
    let setup = format!("up for {}, {}", short(status.now - status.since), status.shield);
    Report {
        bench: format!("plant {}", status.name),
        what: format!("plant {}, from `tahti ps`", status.name),
        setup: vec![setup],
        tables: vec![Table { rows, ..Table::new(title) }],
        ..Report::default()
    }
}

/// The figures of a process.
fn rows(process: &ProcessStatus) -> Vec<Row> {
    let mut rows = Vec::new();
    let named = |what: &str| format!("{}: {what}", process.name);
    let percent = |worth: Worth| f64::from(worth.0) / 10_000.0;
    if let Some(value) = &process.value {
        let obtained = value.share.map_or(f64::NAN, percent);
        let row = Row::figure(named("value obtained"), "%", obtained).good(Good::High);
        let target = value.least.map(|least| Target::at_least(percent(least)));
        rows.push(target.into_iter().fold(row, Row::target).note(value.to_string()));
    }
    if let Some(page) = &process.loop_page {
        let wake = [("p50", page.wake.p50), ("p99", page.wake.p99), ("p99.9", page.wake.p999), ("max", page.wake.max)];
        rows.extend(wake.into_iter().filter_map(|(word, time)| {
            let late = Row::figure(named(&format!("wake-up {word}")), "us", time?.0 as f64 / 1_000.0);
            Some(late.good(Good::Low))
        }));
        let skipped = Row::figure(named("skipped periods"), "", page.misses as f64).good(Good::Low);
        rows.push(skipped.note(format!("of {}", page.cycles.saturating_add(page.misses))));
    }
    rows
}

/// A report that shows a profile.
fn profile(file: &Path) -> Result<Report, Failure> {
    let stacks = std::fs::read_to_string(file).map_err(in_file(file))?;
    if !stacks.lines().any(|line| line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok())) {
        return Err(
            format!("{}: no folded stacks; expected lines `thread;function;function COUNT`", file.display()).into()
        );
    }
    Ok(Report { what: name(file), stacks, ..Report::default() })
}

/// A report about the coverage of programs. Sources need not be UTF-8: gcov prints their lines.
fn coverage(file: &Path) -> Result<Report, Failure> {
    let bytes = std::fs::read(file).map_err(in_file(file))?;
    let found = ::report::coverage(&name(file), &String::from_utf8_lossy(&bytes), profile::demangled);
    Ok(found.map_err(|why| format!("{}: {why}", file.display()))?)
}

/// The name of a run: the file name without its extension.
fn name(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
