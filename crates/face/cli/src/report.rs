//! `tahti report`: measurements as a page.

use crate::failure::{Failure, end, in_file};
use ::report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make one page of measurements: what was wanted first, then each beside the published one
///
/// Reads what `tahti bench … --json` printed. Of two files or more the page says what changed from the first to the
/// second. It needs nothing else, no network either. Profiles (`tahti profile -o NAME.folded`) are drawn below.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Reports, each as `tahti bench … --json` printed it; profiles, whose names end in .folded
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to: a page, or Markdown if its name ends in .md; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    end(make(args))
}

fn make(args: &Args) -> Result<(), Failure> {
    let is_profile = |file: &&PathBuf| file.extension().is_some_and(|end| end == "folded");
    let (profiles, files): (Vec<&PathBuf>, Vec<&PathBuf>) = args.files.iter().partition(is_profile);
    let runs = files.into_iter().map(|file| Ok((name(file), bench::reports(file)?)));
    let mut runs: Vec<(String, Vec<Report>)> = runs.collect::<Result<_, Failure>>()?;
    runs.iter_mut().for_each(|(_, reports)| reports.extend(bench::beside(reports, false)));
    let profiles = profiles.into_iter().map(|file| profile(file)).collect::<Result<Vec<_>, Failure>>()?;
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

/// A profile as a report of its own.
fn profile(file: &Path) -> Result<Report, Failure> {
    let stacks = std::fs::read_to_string(file).map_err(in_file(file))?;
    if !stacks.lines().any(|line| line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok())) {
        return Err(format!(
            "{}: there is no folded stack in it (`thread;function;function COUNT`, a line each)",
            file.display()
        )
        .into());
    }
    Ok(Report { what: name(file), stacks, ..Report::default() })
}

/// A run is called as its file is.
fn name(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
