//! `tahti alarm import` and `export`: conversion from and to Phoebus' alarm configuration (XML).

use crate::failure::{Failure, in_file, text_of};
use std::path::{Path, PathBuf};

/// Convert a Phoebus configuration (XML) to an alarm file; reports what cannot be converted
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti alarm import Accelerator.xml > alarms.toml
  tahti alarm serve --check alarms.toml")]
pub(super) struct ImportArgs {
    /// Phoebus configuration
    file: PathBuf,
}

/// Convert an alarm file or plant file to a Phoebus configuration (XML)
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti alarm export alarms.toml > Accelerator.xml
  tahti alarm export plant.toml > Accelerator.xml")]
pub(super) struct ExportArgs {
    /// Alarm file or plant file
    file: PathBuf,
}

/// Reads a configuration in UTF-8, or in the Latin-1 that its first line declares.
fn read(file: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(file).map_err(in_file(file))?;
    alarm::xml::decode(bytes).map_err(|error| format!("{}: {error}", file.display()).into())
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let shown = args.file.display();
    let (config, notes) = alarm::xml::import(&read(&args.file)?).map_err(|error| format!("{shown}: {error}"))?;
    notes.iter().for_each(|line| eprintln!("{shown}: {}", super::visible(line)));
    let left: usize = config.alarms.iter().map(|spec| spec.help.commands.len() + spec.help.actions.len()).sum();
    if left > 0 {
        eprintln!("{shown}: {left} commands and actions are stored for Phoebus; tahti does not run them");
    }
    print!("{}", alarm::xml::to_toml(&config));
    Ok(())
}

pub(super) fn export(args: &ExportArgs) -> Result<(), Failure> {
    let text = text_of(&args.file)?;
    let (config, found) = alarm::read(&text);
    if !found.is_empty() {
        eprint!("{}", table::render_all(&found, &args.file.display().to_string(), &text));
    }
    let config = config.ok_or_else(|| format!("{} cannot be used", args.file.display()))?;
    print!("{}", alarm::xml::export(&config));
    Ok(())
}
