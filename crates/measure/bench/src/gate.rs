//! `tahti bench compare`: two runs, and what got worse.

use crate::Failed;
use crate::Output;
use report::Report;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Compare two runs, and fail where one got worse beyond what chance does
///
/// Figures are compared that were measured several times in each run, by a rank test that is corrected for how many there
/// are; a difference below 5 % is none. Exit status 1: something got worse.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What `tahti bench … --json` printed before
    base: PathBuf,
    /// What it printed now
    new: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Output, Failed> {
    let changes = report::compare(&reports(&args.base)?, &reports(&args.new)?);
    if changes.figures.is_empty() {
        // A gate that was shown nothing must not pass.
        return Err(Failed::Incomparable(changes.text()));
    }
    Ok(Output { text: changes.text(), good: !changes.worse() })
}

/// More than any run of all measurements writes.
const REPORTS_BYTES: u64 = 64 << 20;

/// The reports of a file.
///
/// # Errors
/// It cannot be read, is larger than any report, or is none.
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
