//! `tahti check`: everything that is wrong with a plant file.

use host::plant::{Checked, Severity, check, document, render_all};
use keep::supervisor::{Machine, plant_file};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Find everything that is wrong with a plant file
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti check                  plant.toml of this folder
  tahti check rf.toml --json   for editors
  tahti check --document       every key, its default and what it means")]
pub(crate) struct Args {
    #[command(flatten)]
    file: crate::control::File,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Print the page on the plant file (Markdown)
    #[arg(long)]
    document: bool,
}

pub(crate) fn run(args: Args) -> ExitCode {
    if args.document {
        print!("{}", document());
        return ExitCode::SUCCESS;
    }
    let (file, text) = match read(args.file.path()) {
        Ok(read) => read,
        Err(why) => return crate::fail(&why),
    };
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let Checked { found, .. } = check(&text, &Machine { folder });
    if args.json {
        println!("{}", serde_json::json!({ "file": file, "findings": found }));
    } else {
        print!("{}", render_all(&found, &file.display().to_string(), &text));
    }
    let broken = found.iter().any(|one| one.severity == Severity::Error);
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(path: &Path) -> Result<(PathBuf, String), String> {
    let file = plant_file(path)?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("plant file {}: {error}", file.display()))?;
    Ok((file, text))
}
