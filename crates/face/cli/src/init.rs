//! `tahti init`: creates the files of a new plant.

mod template;

use crate::failure::{Failure, end, in_file};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use template::{NAME_BYTES_MAX, Template, plain};

/// Create a plant file that runs as it is, without root
///
/// Existing files are never overwritten.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti init demo && tahti up demo
  tahti init                          plant.toml in the current folder
  tahti init rf --template loop       a real-time loop and nothing that it does not need")]
pub(crate) struct Args {
    /// Folder of the plant; created if missing
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Name of the plant [default: the name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// Content of the plant
    #[arg(long, value_enum, default_value_t = Template::Full)]
    template: Template,
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(write(&args).map(|files| {
        let folder = args.folder.display();
        files.iter().for_each(|file| println!("wrote {}", file.display()));
        println!("  tahti up {folder}        starts it; Ctrl-C stops it");
        println!("  tahti check {folder}     reports errors after a change");
    }))
}

fn write(args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let is_new = !args.folder.exists();
    std::fs::create_dir_all(&args.folder).map_err(in_file(&args.folder))?;
    let written = write_in(args);
    if written.is_err() && is_new {
        // Fails if the folder is not empty, which then stays.
        let _ = std::fs::remove_dir(&args.folder);
    }
    written
}

/// Writes all files, or none.
fn write_in(args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let folder = std::fs::canonicalize(&args.folder).map_err(in_file(&args.folder))?;
    let name = args.name.clone().unwrap_or_else(|| {
        folder.file_name().map_or_else(|| "plant".to_owned(), |name| plain(&name.to_string_lossy()))
    });
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("--name {name:?} is too long: expected at most {NAME_BYTES_MAX} characters").into());
    }
    let files = args.template.files(&name);
    let (plant, text) = (args.folder.join(files[0].0), &files[0].1);
    // The templates are valid, so an error can only come from the given name.
    let checked = host::plant::check(text, &keep::supervisor::Machine { folder });
    if checked.plant.is_none() {
        return Err(host::plant::render_all(&checked.found, &plant.display().to_string(), text).into());
    }
    let mut written = Vec::new();
    for (name, text) in &files {
        let file = args.folder.join(name);
        if let Err(why) = create(&file, text) {
            // Errors are ignored: the first error is the one to report.
            written.iter().for_each(|file| drop(std::fs::remove_file(file)));
            return Err(why);
        }
        written.push(file);
    }
    Ok(written)
}

/// Creates a file with this text. If that fails, no file is left.
fn create(file: &Path, text: &str) -> Result<(), Failure> {
    let mut out = match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(out) => out,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(format!("{} exists and is not overwritten; choose another folder", file.display()).into());
        }
        Err(error) => return Err(in_file(file)(error)),
    };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    written.map_err(|error| {
        // Errors are ignored: the first error is the one to report.
        let _ = std::fs::remove_file(file);
        in_file(file)(error)
    })
}
