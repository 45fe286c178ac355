//! `tahti docs`: writes the documentation as HTML pages.

use crate::failure::{Failure, end};
use dash::manual;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the documentation as HTML pages into a folder
///
/// The dashboard serves the same pages below `/docs`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti docs html && xdg-open html/index.html")]
pub(crate) struct Args {
    /// Folder for the pages; created if missing
    #[arg(value_hint = clap::ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(write(&args))
}

fn write(args: &Args) -> Result<ExitCode, Failure> {
    let paths = manual::paths();
    for path in &paths {
        let Some(file) = manual::file(path) else { continue };
        let to = args.folder.join(path);
        let failed = |error: std::io::Error| Failure::from(format!("{}: {error}", to.display()));
        fs::create_dir_all(to.parent().unwrap_or(&args.folder)).map_err(failed)?;
        fs::write(&to, &file.bytes).map_err(failed)?;
    }
    println!("{} files; begin with {}", paths.len(), args.folder.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}
