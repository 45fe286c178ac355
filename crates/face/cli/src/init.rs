//! `tahti init`: a plant file to begin with.

use crate::failure::{Failure, end, in_file};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a plant file to begin with: it comes up as it is, on any machine; never overwrites one
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti init                   plant.toml in this folder
  tahti init rf && tahti up rf")]
pub(crate) struct Args {
    /// The folder; made if need be
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The plant's name [default: the folder's]
    #[arg(long)]
    name: Option<String>,
}

/// What it begins with. Everything that needs root or a CPU of its own is there, behind a `#`.
const PLANT: &str = include_str!("init/plant.toml");

/// The longest name of a plant.
const NAME_BYTES_MAX: usize = 32;

pub(crate) fn run(args: Args) -> ExitCode {
    end(write(&args).map(|file| {
        let folder = args.folder.display();
        println!("wrote {}", file.display());
        println!("  tahti check {folder}     finds every error in it");
        println!("  tahti up {folder}        brings it up; Ctrl-C takes it down");
    }))
}

fn write(args: &Args) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(&args.folder).map_err(in_file(&args.folder))?;
    let folder = std::fs::canonicalize(&args.folder).map_err(in_file(&args.folder))?;
    let name = args.name.clone().unwrap_or_else(|| {
        folder.file_name().map_or_else(|| "plant".to_owned(), |name| plain(&name.to_string_lossy()))
    });
    let text = PLANT.replace("@NAME@", &name);
    let file = args.folder.join("plant.toml");
    // Only a name that was given can be wrong.
    let machine = keep::supervisor::Machine { folder };
    let checked = host::plant::check(&text, &machine);
    if checked.plant.is_none() {
        return Err(host::plant::render_all(&checked.found, &file.display().to_string(), &text).into());
    }
    let mut out = match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(out) => out,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(format!("{} is there already and stays as it is; give another folder", file.display()).into());
        }
        Err(error) => return Err(in_file(&file)(error)),
    };
    out.write_all(text.as_bytes()).map_err(in_file(&file))?;
    Ok(file)
}

/// A folder's name as a plant may have it.
fn plain(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let name: String = letters.collect();
    let name = name.trim_matches('-');
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    if name.is_empty() { "plant".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_folder_gives_a_plant_a_name_that_it_may_have() {
        for folder in ["rf", "RF station 7", "...", "µ", "a/b", "-x-", &"long-".repeat(20), ".hidden_x"] {
            let text = PLANT.replace("@NAME@", &plain(folder));
            let checked = host::plant::check(&text, &host::plant::Anywhere);
            assert!(checked.plant.is_some(), "{folder}: {:?}", checked.found);
        }
    }

    #[test]
    fn what_stands_behind_a_hash_in_the_new_plant_is_right_too() {
        let text = PLANT.replace("@NAME@", "p");
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix("#") {
                Some(key) if key.starts_with(|first: char| first == '[' || first.is_ascii_lowercase()) => {
                    format!("{key}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let checked = host::plant::check(&uncommented, &host::plant::Anywhere);
        assert!(uncommented.contains("\n[shield]") && checked.found.is_empty(), "{:?}", checked.found);
    }
}
