//! `tahti logs`: prints the output of processes from the rotated log files.

use crate::control::{foreign, plant_name};
use crate::failure::{Failure, end, in_file};
use crate::out::{Colour, Painted};
use base::{DurNs, Visible};
use keep::supervisor::logs::{Level, Line, Reader, stamp};
use keep::supervisor::rundir::{RunDir, living, plants};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Show the log of a process, of the supervisor, or of all of them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti logs                   log of the supervisor
  tahti logs loop -f           follow the log of a process
  tahti logs --all --since 10m --grep water
                               lines of all logs, merged by time
  tahti logs -f --all --severity warning
                               follow the warnings and errors of all processes
  tahti logs loop -n 100000 --raw > loop.log")]
pub(crate) struct Args {
    /// Process
    name: Option<String>,
    /// Merge the logs of all processes and of the supervisor by time
    #[arg(long, short = 'a', conflicts_with = "name")]
    all: bool,
    /// Number of lines, the newest [default: 50, with --since all]
    #[arg(long, short = 'n')]
    lines: Option<usize>,
    /// Only lines of this last time, such as 10m
    #[arg(long, value_name = "TIME")]
    since: Option<DurNs>,
    /// Only lines that contain this text, in any case
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Only lines of at least this severity: info, warning, error
    #[arg(long, value_name = "SEVERITY", value_parser = ["info", "warning", "error"])]
    severity: Option<String>,
    /// Follow the log
    #[arg(long, short = 'f')]
    follow: bool,
    /// Print all bytes unchanged, including terminal control sequences
    #[arg(long, conflicts_with_all = ["all", "since", "grep", "severity"])]
    raw: bool,
    #[command(flatten)]
    which: crate::control::PlantArgs,
}

/// An incomplete line longer than this is printed without waiting for its end.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of lines kept in memory.
const LINES_MAX: usize = 1_000_000;

/// Number of lines printed by default.
const LINES: usize = 50;

/// Interval at which a log is read while it is followed.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

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
    if args.all {
        return merged(args, &run);
    }
    let path = run.log(args.name.as_deref());
    if let Err(error) = path.metadata() {
        if error.kind() == std::io::ErrorKind::PermissionDenied {
            return Err(foreign(&name, &error).into());
        }
        let running = running(&name);
        let Some(silent) = args.name.as_ref().filter(|process| running.contains(process)) else {
            let known: BTreeSet<String> = known(&run).into_iter().chain(running).collect();
            let known: Vec<String> = known.into_iter().collect();
            let wanted = args.name.as_deref().unwrap_or("the supervisor");
            return Err(format!("plant {name:?} has no log of {wanted:?}; there are: {}", known.join(", ")).into());
        };
        eprintln!(
            "tahti: {silent} is running and has printed nothing since its log was moved or removed; \
             the next line creates {}",
            path.display()
        );
        if !args.follow {
            return Ok(());
        }
        while !path.exists() {
            std::thread::sleep(FOLLOW_EVERY);
        }
    }
    if args.since.is_some() || args.grep.is_some() || args.severity.is_some() {
        return merged(args, &run);
    }
    for line in tail(&path, args.lines.unwrap_or(LINES))? {
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
            std::thread::sleep(FOLLOW_EVERY);
        }
    }
}

/// Prints the lines of all logs, or of one, that pass the filters of `args`.
fn merged(args: &Args, run: &RunDir) -> Result<(), Failure> {
    let level = match args.severity.as_deref() {
        Some("error") => Level::Error,
        Some("warning") => Level::Warning,
        _ => Level::Info,
    };
    let process = (!args.all).then(|| args.name.as_deref().unwrap_or_default());
    let text = args.grep.as_deref().unwrap_or_default().to_lowercase();
    let fits =
        |line: &Line| process.is_none_or(|name| name == line.process) && line.level >= level && line.contains(&text);
    let ago = |span: DurNs| stamp(sys::clock::wall_ns().saturating_sub(span.0.max(0).unsigned_abs()) / 1_000_000);
    let since = args.since.map_or_else(String::new, ago);
    let most = args.lines.unwrap_or(if args.since.is_some() { LINES_MAX } else { LINES }).min(LINES_MAX);
    let folder = run.path().join("log");
    let mut reader = Reader::new(run);
    let mut lines = reader.past(&since, most, &fits).map_err(in_file(&folder))?;
    let (mut width, mut unreadable) = (0, Vec::new());
    loop {
        if reader.unreadable() != unreadable {
            unreadable = reader.unreadable().to_vec();
            unreadable.iter().for_each(|why| eprintln!("tahti: cannot read the log {why}"));
        }
        let names = reader.names().into_iter().map(|name| shown(name).chars().count());
        width = names.max().unwrap_or(0).max(width);
        for line in &lines {
            if print(line, args.all.then_some(width)).is_err() {
                return Ok(());
            }
        }
        if !args.follow {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_EVERY);
        lines = reader.fresh().map_err(in_file(&folder))?;
        lines.retain(fits);
    }
}

/// Name of a process; the supervisor has an empty one.
fn shown(process: &str) -> &str {
    if process.is_empty() { "supervisor" } else { process }
}

/// Prints a line: time, name of the process padded to `width`, severity, text. Without `width` there is no name.
fn print(line: &Line, width: Option<usize>) -> std::io::Result<()> {
    let level = line.level;
    let word = format!("{:<7}", level.word());
    let text = Visible { text: &line.text, colours: crate::out::colours() };
    let name = width.map_or_else(String::new, |width| format!("{:<width$} ", shown(&line.process)));
    let (stamp, name) = (Painted(Colour::Faint, &line.stamp), Painted(Colour::Head, name));
    match level {
        Level::Info => crate::out::tell(format_args!("{stamp} {name}{word} {text}\n")),
        Level::Warning => crate::out::tell(format_args!("{stamp} {name}{} {text}\n", Painted(Colour::Doubtful, word))),
        Level::Error => crate::out::tell(format_args!("{stamp} {name}{} {text}\n", Painted(Colour::Bad, word))),
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

/// The processes of a plant that are running; empty if the plant is down or belongs to another user.
fn running(plant: &str) -> Vec<String> {
    let processes = crate::ps::status(plant).map_or(Vec::new(), |status| status.processes);
    processes.into_iter().filter(|process| process.pid.is_some()).map(|process| process.name).collect()
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
