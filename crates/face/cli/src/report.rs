//! `tahti report`: measurements as a page.

use ::report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make one page of measurements: what was wanted first, then each beside the published one
///
/// Reads what `tahti bench … --json` printed. Of two files or more the page says what changed from the first to the
/// second. It needs nothing else, no network either.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Reports, each as `tahti bench … --json` printed it
    #[arg(required = true, value_name = "JSON")]
    files: Vec<PathBuf>,
    /// Where to: a page, or Markdown if its name ends in .md; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match make(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => crate::fail(&why),
    }
}

fn make(args: &Args) -> Result<(), String> {
    let runs = args.files.iter().map(|file| Ok((name(file), bench::reports(file)?)));
    let mut runs: Vec<(String, Vec<Report>)> = runs.collect::<Result<_, String>>()?;
    runs.iter_mut().for_each(|(_, reports)| reports.extend(bench::beside(reports, false)));
    let markdown = args.output.as_deref().and_then(Path::extension).is_some_and(|end| end == "md");
    let text = if markdown || args.markdown { ::report::markdown(&runs) } else { ::report::page(&runs) };
    match &args.output {
        Some(file) => std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// A run is called as its file is.
fn name(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
