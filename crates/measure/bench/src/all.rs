//! `tahti bench all`: every measurement, one after the other, each in a process of its own.

use crate::measure::own_program;
use crate::{ALL, Bench, Failed, Output};
use report::Report;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Every measurement, one after the other, with the arguments that give a valid figure
///
/// Those that shield CPUs are left out without --spare or --whole-machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A look at each, in a few minutes: not for a table
    #[arg(long)]
    quick: bool,
    /// Only those whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Processes that a shield must not touch: PID alone with its threads, PID+ with its descendants
    #[arg(long, value_name = "PIDS", env = "TAHTI_SPARE")]
    spare: Option<String>,
    /// Shield from every task of this machine
    #[arg(long)]
    whole_machine: bool,
    /// Print JSON: a list of reports
    #[arg(long)]
    json: bool,
    /// Write a page of all reports, too; Markdown if its name ends in .md
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Output, Failed> {
    let chosen = ALL.iter().filter(|bench| args.only.as_deref().is_none_or(|text| bench.name.contains(text)));
    let chosen: Vec<&&Bench> = chosen.collect();
    let (mut text, mut reports, mut good) = (String::new(), Vec::new(), true);
    for (nth, bench) in chosen.iter().enumerate() {
        let Some(words) = words(bench, args) else {
            eprintln!(
                "tahti bench: {} left out: it shields CPUs; name processes to be spared (--spare), or give --whole-machine",
                bench.name
            );
            continue;
        };
        eprintln!("tahti bench: {} ({} of {})", bench.name, nth + 1, chosen.len());
        match one(bench, &words) {
            Ok(report) => {
                text += &format!("$ tahti bench {} {}\n{}\n", bench.name, words.join(" "), report::text(&report));
                reports.push(report);
            }
            // The others can be measured all the same.
            Err(why) => {
                eprintln!("tahti bench: {why}");
                good = false;
            }
        }
    }
    // Also those that nothing of this run is about: what they would need is said.
    if let Some(experiments) = crate::beside(&reports, true) {
        text += &report::text(&experiments);
        reports.push(experiments);
    }
    if let Some(file) = &args.report {
        let runs = [("this run".into(), reports.clone())];
        let markdown = file.extension().is_some_and(|end| end == "md");
        let page = if markdown { report::markdown(&runs) } else { report::page(&runs) };
        std::fs::write(file, page).map_err(Failed::file(file))?;
    }
    if args.json {
        text = serde_json::to_string_pretty(&reports)? + "\n";
    }
    Ok(Output { text, good })
}

/// The arguments of a measurement; nothing where it lacks what it must be told.
fn words(bench: &Bench, args: &Args) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    if args.quick {
        words.extend(bench.quick.iter().map(|word| (*word).to_owned()));
    }
    // Some shield only in a part of what they measure.
    let may_shield = bench.command().get_arguments().any(|argument| argument.get_id() == "spare");
    match (&args.spare, args.whole_machine) {
        _ if !may_shield => {}
        (Some(spare), _) => words.extend(["--spare".into(), spare.clone()]),
        (None, true) => words.push("--whole-machine".into()),
        (None, false) if bench.shields => return None,
        (None, false) => {}
    }
    Some(words)
}

fn one(bench: &Bench, words: &[String]) -> Result<Report, Failed> {
    let shown = format!("tahti bench {}", bench.name);
    let mut command = Command::new(own_program()?);
    command.args(["bench", bench.name]).args(words).arg("--json").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(Failed::process(&shown))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(Failed::Ended { command: shown, status: output.status, output: text.into_owned() });
    }
    let reports = report::read(&text).map_err(|source| Failed::Report { file: shown.clone().into(), source })?;
    reports.into_iter().next().ok_or_else(|| Failed::answer(shown, "a report", "none"))
}
