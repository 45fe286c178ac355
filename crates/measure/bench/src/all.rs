//! `tahti bench all`: every measurement, one after the other, each in a separate process.

use crate::measure::own_program;
use crate::papers::{self, Amount};
use crate::{ALL, Bench, Failed, Output};
use report::Report;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Run every measurement and compare with the published experiments
///
/// Measures with and without the shield where the paper did. Skips those measurements unless --spare or --whole-machine is given.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Take few samples, in about ten minutes: not for publication. Without it, as many samples as were published: several hours
    #[arg(long)]
    quick: bool,
    /// Take the minimum number of samples that gives each published experiment a figure; fails if one has none
    #[arg(long, hide = true, conflicts_with = "quick")]
    smallest: bool,
    /// Only measurements whose name contains this
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
    /// Also write a page of all reports; Markdown if its name ends in .md
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Output, Failed> {
    let chosen = jobs(args);
    let (mut text, mut reports, mut good) = (String::new(), Vec::new(), true);
    for (nth, (bench, words)) in chosen.iter().enumerate() {
        let Some(words) = with_spared(bench, words, args) else {
            eprintln!(
                "tahti bench: skipped: {} {}: it shields CPUs\n  try: --spare PIDS (processes that the shield must not touch) or --whole-machine",
                bench.name,
                words.join(" ")
            );
            continue;
        };
        eprintln!("tahti bench: {} {} ({} of {})", bench.name, words.join(" "), nth + 1, chosen.len());
        match one(bench, &words) {
            Ok(report) => {
                text += &format!("$ tahti bench {} {}\n{}\n", bench.name, words.join(" "), report::text(&report));
                reports.push(report);
            }
            // Continue with the others.
            Err(why) => {
                eprintln!("tahti bench: {why}");
                good = false;
            }
        }
    }
    // Includes experiments that this run did not repeat, with their requirements.
    if let Some(experiments) = crate::experiments(&reports, true) {
        if args.smallest {
            for one in papers::without_figures(&reports, Amount::Smallest) {
                eprintln!("tahti bench: no figure: {one}");
                good = false;
            }
        }
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

/// The runs of the published experiments, and each other measurement once.
fn jobs(args: &Args) -> Vec<(&'static Bench, &'static [&'static str])> {
    let amount = match (args.smallest, args.quick) {
        (true, _) => Amount::Smallest,
        (_, true) => Amount::Quick,
        _ => Amount::Full,
    };
    let published = papers::runs(amount);
    let is_chosen = |bench: &&&Bench| args.only.as_deref().is_none_or(|text| bench.name.contains(text));
    let of_bench = |bench: &&'static Bench| {
        let bench = *bench;
        let runs = published.iter().filter(|(name, _)| *name == bench.name);
        let mut runs: Vec<_> = runs.map(|(_, words)| (bench, *words)).collect();
        // The smallest amount is for the published experiments alone.
        if runs.is_empty() && amount != Amount::Smallest {
            runs.push((bench, if args.quick { bench.quick } else { &[] }));
        }
        runs
    };
    ALL.iter().filter(is_chosen).flat_map(of_bench).collect()
}

/// The arguments with the processes that a shield must not touch; nothing if it shields CPUs and none are given.
fn with_spared(bench: &Bench, words: &[&str], args: &Args) -> Option<Vec<String>> {
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    // Some measurements use a shield only with certain arguments.
    let may_shield = bench.command().get_arguments().any(|argument| argument.get_id() == "spare");
    let shields = bench.shields || words.iter().any(|word| word == "--compare" || word == "--shield");
    match (args.spare.as_ref().filter(|spare| !spare.is_empty()), args.whole_machine) {
        _ if !may_shield => {}
        (Some(spare), _) => words.extend(["--spare".into(), spare.clone()]),
        (None, true) => words.push("--whole-machine".into()),
        (None, false) if shields => return None,
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
