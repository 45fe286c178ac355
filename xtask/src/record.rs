//! Records of a run of the test command, in `target/test`: one file for each stage with its outcome, the durations of its
//! test programs and the tests that passed only at their second run; and a report of all stages.
//!
//! Each stage runs in a separate process and appends lines to its file. Some stages run in parallel.

use crate::run::root;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// Environment variable with the name of the stage that a process runs.
pub(crate) const STAGE: &str = "TAHTI_STAGE";

/// The outcome of a stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StageOutcome {
    Passed { seconds: f64, cpu_seconds: f64 },
    Failed { seconds: f64, cpu_seconds: f64 },
    DidNotRun { why: String },
}

/// Record of a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) ended: Option<StageOutcome>,
    /// Test programs, or other steps, with their durations in seconds.
    pub(crate) programs: Vec<(String, f64)>,
    /// Tests that passed only at their second run.
    pub(crate) again: Vec<String>,
    /// Why the stage failed; empty if it did not.
    pub(crate) failure: String,
}

fn folder() -> PathBuf {
    root().join("target/test")
}

/// Removes the records of the previous run.
///
/// # Errors
/// Names the folder.
pub(crate) fn clear() -> Result<(), String> {
    // The folder may not exist.
    let _ = fs::remove_dir_all(folder());
    fs::create_dir_all(folder()).map_err(|error| format!("{}: {error}", folder().display()))
}

/// Appends lines to the record of a stage. If the record cannot be written, prints an error and continues.
fn append(stage: &str, lines: &str) {
    let path = folder().join(stage);
    let file = File::options().append(true).create(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(lines.as_bytes())) {
        eprintln!("xtask: cannot write {}: {error}", path.display());
    }
}

/// Appends lines to the record of the stage that this process runs, if it runs one.
fn append_here(lines: &str) {
    if let Ok(stage) = std::env::var(STAGE) {
        append(&stage, lines);
    }
}

/// Records how long a test program, or another step of this stage, took.
pub(crate) fn program(name: &str, seconds: f64) {
    append_here(&format!("program {seconds:.1} {name}\n"));
}

/// Runs a step and records its duration.
pub(crate) fn timed<T>(name: &str, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = step();
    program(name, start.elapsed().as_secs_f64());
    done
}

/// Records tests that passed only at their second run.
pub(crate) fn again(names: impl IntoIterator<Item = String>) {
    names.into_iter().for_each(|name| append_here(&format!("again {name}\n")));
}

/// Records why a stage failed.
pub(crate) fn failure(stage: &str, text: &str) {
    let lines: String = text.lines().map(|line| format!("failure {line}\n")).collect();
    append(stage, &lines);
}

/// Records how a stage ended.
pub(crate) fn ended(stage: &str, ended: &StageOutcome) {
    append(
        stage,
        &match ended {
            StageOutcome::Passed { seconds, cpu_seconds } => format!("passed {seconds:.1} {cpu_seconds:.0}\n"),
            StageOutcome::Failed { seconds, cpu_seconds } => format!("failed {seconds:.1} {cpu_seconds:.0}\n"),
            StageOutcome::DidNotRun { why } => format!("without {why}\n"),
        },
    );
}

/// The record of a stage.
pub(crate) fn of(stage: &str) -> Record {
    parse(&fs::read_to_string(folder().join(stage)).unwrap_or_default())
}

fn parse(text: &str) -> Record {
    let mut record = Record::default();
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = |text: &str| text.parse().unwrap_or_default();
        match kind {
            "program" => record.programs.push((second.to_owned(), number(first))),
            "again" => record.again.push(rest.to_owned()),
            "failure" => record.failure += &format!("{rest}\n"),
            "passed" => {
                record.ended = Some(StageOutcome::Passed { seconds: number(first), cpu_seconds: number(second) })
            }
            "failed" => {
                record.ended = Some(StageOutcome::Failed { seconds: number(first), cpu_seconds: number(second) })
            }
            "without" => record.ended = Some(StageOutcome::DidNotRun { why: rest.to_owned() }),
            _ => {}
        }
    }
    record
}

/// The report of a run: each stage with its outcome and duration, followed by its test programs, the longest first; and the
/// duration of the run, with the CPU time of all stages.
pub(crate) fn report(records: &[(&str, Record)], run_seconds: f64) -> String {
    let mut text = format!("{:<10} {:<8} {:>8} {:>8}\n", "stage", "outcome", "seconds", "CPU s");
    let mut run_cpu_seconds = 0.0;
    for (stage, record) in records {
        let (word, seconds, cpu_seconds) = match &record.ended {
            Some(StageOutcome::Passed { seconds, cpu_seconds }) => ("passed", *seconds, *cpu_seconds),
            Some(StageOutcome::Failed { seconds, cpu_seconds }) => ("FAILED", *seconds, *cpu_seconds),
            Some(StageOutcome::DidNotRun { why }) => {
                let _ = writeln!(text, "{stage:<10} DID NOT RUN: {why}");
                continue;
            }
            None => {
                let _ = writeln!(text, "{stage:<10} FAILED: it did not end");
                continue;
            }
        };
        run_cpu_seconds += cpu_seconds;
        let _ = writeln!(text, "{stage:<10} {word:<8} {seconds:>8.1} {cpu_seconds:>8.0}");
        for test in &record.again {
            let _ = writeln!(text, "           ONLY WHEN RUN AGAIN: {test}");
        }
        let mut programs: Vec<_> = record.programs.iter().collect();
        programs.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (long, short): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|(_, seconds)| *seconds >= SHOWN_SECONDS_MIN);
        for (program, seconds) in long {
            let _ = writeln!(text, "  {program:<55} {seconds:>8.1}");
        }
        if !short.is_empty() {
            let sum: f64 = short.iter().map(|(_, seconds)| seconds).sum();
            let name = format!("{} more, each below {SHOWN_SECONDS_MIN} s", short.len());
            let _ = writeln!(text, "  {name:<55} {sum:>8.1}");
        }
    }
    let _ = writeln!(text, "{:<19} {run_seconds:>8.1} {run_cpu_seconds:>8.0}", "whole run");
    text
}

/// Programs with a shorter duration are summed in one line.
const SHOWN_SECONDS_MIN: f64 = 1.0;

/// Writes the report and returns its path.
pub(crate) fn keep(report: &str) -> PathBuf {
    let path = folder().join("report.txt");
    if let Err(error) = fs::write(&path, report) {
        eprintln!("xtask: cannot write {}: {error}", path.display());
    }
    path
}

/// Durations of test programs, from the line that cargo prints before each: `Running tests/x.rs (target/…/x-0123)`.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Incomplete last line.
    line: Vec<u8>,
    running: Option<(String, Instant)>,
    /// The programs that ended, with their seconds.
    pub(crate) programs: Vec<(String, f64)>,
}

impl Clock {
    /// Creates a clock that records the time before the first program as `first`.
    pub(crate) fn new(first: &str, now: Instant) -> Self {
        Self { line: Vec::new(), running: Some((first.to_owned(), now)), programs: Vec::new() }
    }

    /// Processes output that was printed until `now`.
    pub(crate) fn take(&mut self, bytes: &[u8], now: Instant) {
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if let Some(name) = begins(&String::from_utf8_lossy(&line)) {
                self.end(now);
                self.running = Some((name, now));
            }
        }
    }

    /// Ends the current program.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Some((name, since)) = self.running.take() {
            self.programs.push((name, (now - since).as_secs_f64()));
        }
    }
}

/// The program that cargo starts after it prints this line.
fn begins(line: &str) -> Option<String> {
    if let Some(package) = line.strip_prefix("   Doc-tests ") {
        return Some(format!("{package} (documentation)"));
    }
    let (source, file) = line.strip_prefix("     Running ")?.split_once(" (")?;
    let file = file.trim_end_matches(')').rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(format!("{name} ({source})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_report_shows_stages_with_their_seconds_and_their_longest_programs_first() {
        let unit = "program 0.4 a (tests/a.rs)\nprogram 2.0 b (tests/b.rs)\nprogram 30.5 c (tests/c.rs)\n\
                    again b::sometimes\nfailure c::never: expected 1\nfailure found 2\nfailed 40.0 71\n";
        let unit = parse(unit);
        assert_eq!(unit.failure, "c::never: expected 1\nfound 2\n");
        let none = parse("without needs root\n");
        let records = [("fmt", parse("passed 3.0 2\n")), ("unit", unit), ("root", none), ("doc", parse(""))];
        let report = report(&records, 44.0);
        let expected = "
stage      outcome   seconds    CPU s
fmt        passed        3.0        2
unit       FAILED       40.0       71
           ONLY WHEN RUN AGAIN: b::sometimes
  c (tests/c.rs)                                              30.5
  b (tests/b.rs)                                               2.0
  1 more, each below 1 s                                       0.4
root       DID NOT RUN: needs root
doc        FAILED: it did not end
whole run               44.0       73
";
        assert_eq!(format!("\n{report}"), expected);
    }

    #[test]
    fn a_program_runs_from_the_line_that_names_it_to_the_next_such_line() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = Clock::new("(building)", start);
        clock.take(b"    Finished `test`\n     Running unittests src/lib.rs (target/debug/deps/my_lib-0f1)\n..", at(1));
        clock.take(b"..\n     Running tests/x.rs (targ", at(3));
        clock.take(b"et/debug/deps/x-0f2)\n", at(4));
        clock.take(b"   Doc-tests base\n", at(9));
        clock.end(at(10));
        let programs = [("my_lib (unittests src/lib.rs)", 3.0), ("x (tests/x.rs)", 5.0), ("base (documentation)", 1.0)];
        let expected = [[("(building)", 1.0)].as_slice(), &programs].concat();
        let found: Vec<(&str, f64)> = clock.programs.iter().map(|(name, seconds)| (name.as_str(), *seconds)).collect();
        assert_eq!(found, expected);
    }
}
