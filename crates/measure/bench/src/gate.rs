//! `tahti bench compare`: comparison of two runs.

use crate::Failed;
use crate::Output;
use report::Report;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Compare two runs and fail if a figure got significantly worse
///
/// Compares the figures that were measured several times in each run, with a rank test corrected for the number of
/// figures. Ignores differences below 5 %. Exit status 1: a figure got worse.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Earlier output of `tahti bench … --json`
    base: PathBuf,
    /// New output of `tahti bench … --json`
    new: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Output, Failed> {
    let changes = report::compare(&reports(&args.base)?, &reports(&args.new)?);
    if changes.figures.is_empty() {
        // A comparison without figures must not succeed.
        return Err(Failed::Incomparable(changes.text()));
    }
    Ok(Output { text: changes.text(), good: !changes.worse() })
}

/// Size limit, above that of any run of all measurements.
const REPORTS_BYTES: u64 = 64 << 20;

/// The reports of a file.
///
/// # Errors
/// It cannot be read, is too large, or is not a report.
pub fn reports(path: &Path) -> Result<Vec<Report>, Failed> {
    let mut text = String::new();
    let file = File::open(path).map_err(Failed::file(path))?;
    let read = file.take(REPORTS_BYTES + 1).read_to_string(&mut text).map_err(Failed::file(path))?;
    if read as u64 > REPORTS_BYTES {
        let found = format!("more than {} MiB", REPORTS_BYTES >> 20);
        return Err(Failed::answer(path.display(), "a report", found));
    }
    report::read(&text).map_err(|source| Failed::Report { file: path.to_owned(), source })
}
