//! `tahti logs`: prints the output of processes from the rotated log files.

use crate::control::plant_name;
use crate::failure::{Failure, end, in_file};
use base::Visible;
use keep::supervisor::rundir::{RunDir, living, plants};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Show the log of a process, or of the supervisor
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti logs                   log of the supervisor
  tahti logs loop -f           follow the log of a process
  tahti logs loop -n 100000 --raw > loop.log")]
pub(crate) struct Args {
    /// Process
    name: Option<String>,
    /// Number of lines
    #[arg(long, short = 'n', default_value_t = 50)]
    lines: usize,
    /// Follow the log
    #[arg(long, short = 'f')]
    follow: bool,
    /// Print all bytes unchanged, including terminal control sequences
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    which: crate::control::PlantArgs,
}

/// An incomplete line longer than this is printed without waiting for its end.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of lines kept in memory.
const LINES_MAX: usize = 1_000_000;

pub(crate) fn run(args: Args) -> ExitCode {
    end(show(&args))
}

fn show(args: &Args) -> Result<(), Failure> {
    // Logs outlive their plant. A plant that is down can be named, or is selected if it is the only one with logs.
    let name = match (plant_name(args.which.plant.as_deref()), &plants()[..]) {
        (Ok(name), _) => name,
        (Err(_), [one]) if args.which.plant.is_none() => one.clone(),
        (Err(_), [_, ..]) if args.which.plant.is_none() && living().is_empty() => {
            return Err(
                format!("which plant? There are logs of: {}; name one with --plant", plants().join(", ")).into()
            );
        }
        (Err(why), _) => return Err(why),
    };
    let run = RunDir::find(&name);
    let path = run.log(args.name.as_deref());
    if !path.exists() {
        let known = known(&run);
        let wanted = args.name.as_deref().unwrap_or("the supervisor");
        return Err(format!("plant {name:?} has no log of {wanted:?}; there are: {}", known.join(", ")).into());
    }
    for line in tail(&path, args.lines)? {
        if write(&line, args.raw).is_err() {
            return Ok(());
        }
    }
    if !args.follow {
        return Ok(());
    }
    let mut file = File::open(&path).map_err(in_file(&path))?;
    let seek = |error| format!("{}: {error}", path.display());
    file.seek(SeekFrom::End(0)).map_err(seek)?;
    let mut bytes = Vec::new();
    loop {
        let got = file.read_to_end(&mut bytes).map_err(seek)?;
        // An incomplete line is held back until its end arrives, because it may end within a character or an escape
        // sequence.
        let ends = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = if args.raw || bytes.len() > LINE_BYTES_MAX { bytes.len() } else { ends };
        if write(&bytes[..whole], args.raw).is_err() {
            return Ok(());
        }
        bytes.drain(..whole);
        if got == 0 {
            // If the log was rotated, continue with the new file.
            if let (Ok(here), Ok(there)) = (file.metadata(), std::fs::metadata(&path))
                && here.ino() != there.ino()
            {
                file = File::open(&path).map_err(seek)?;
                continue;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The last lines of a log and of its rotated files, each with its line end.
pub(crate) fn tail(path: &Path, lines: usize) -> Result<VecDeque<Vec<u8>>, Failure> {
    let mut tail = VecDeque::new();
    let limit = lines.min(LINES_MAX);
    for file in rotated(path) {
        let reader = BufReader::new(File::open(&file).map_err(in_file(&file))?);
        for line in reader.split(b'\n') {
            let mut line = line.map_err(in_file(&file))?;
            line.push(b'\n');
            if tail.len() == limit {
                tail.pop_front();
            }
            if limit > 0 {
                tail.push_back(line);
            }
        }
    }
    Ok(tail)
}

/// Prints the output of a process: unchanged if `raw`, otherwise with control characters made visible.
pub(crate) fn write(bytes: &[u8], raw: bool) -> std::io::Result<()> {
    if raw {
        let mut out = std::io::stdout().lock();
        return out.write_all(bytes).and_then(|()| out.flush());
    }
    let text = String::from_utf8_lossy(bytes);
    crate::out::tell(format_args!("{}", Visible { text: &text, colours: crate::out::colours() }))
}

/// The files of a log, oldest first.
fn rotated(path: &Path) -> Vec<PathBuf> {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let mut files: Vec<PathBuf> = (1..=100).map(numbered).take_while(|file| file.exists()).collect();
    files.reverse();
    files.push(path.to_owned());
    files
}

/// The processes that have a log.
fn known(run: &RunDir) -> Vec<String> {
    let entries = std::fs::read_dir(run.path().join("log")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names
        .filter(|name| !name.starts_with('_'))
        .filter_map(|name| Some(name.strip_suffix(".log")?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}
