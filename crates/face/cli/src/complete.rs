//! `tahti complete`: names of processes, plants and records for the shells' completion scripts.
//!
//! The scripts of `tahti completion` call it with the words of the command line. It prints one name per line, or nothing. It
//! ends within [`WITHIN`], whatever the machine does.

use crate::failure::own_program;
use clap::CommandFactory as _;
use keep::supervisor::rundir::{RunDir, Saved, living, plants};
use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A user notices longer waits.
const WITHIN: Duration = Duration::from_millis(500);
/// Names of records that are offered.
const RECORDS_BYTES_MAX: u64 = 4 << 20;

/// Print the names that fit at the end of a command line
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Words behind `tahti`; the last one is to be completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The names that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plants,
    Processes,
    Records,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let Some((kind, plant)) = wanted(&crate::Cli::command(), &args.words) else {
        return ExitCode::SUCCESS;
    };
    let last = args.words.last().map_or("", String::as_str);
    let begin = option_value(last).map_or(last, |(_, value)| value).to_owned();
    let (to, names) = channel();
    // A thread that still waits for a file system ends with this process.
    std::thread::spawn(move || {
        let _ = to.send(match kind {
            Kind::Plants => named(plants()),
            Kind::Processes => named(of_plants(plant.as_deref()).iter().flat_map(|plant| processes(plant)).collect()),
            Kind::Records => {
                let all = of_plants(plant.as_deref());
                RunFolders::Iocs(all.iter().filter_map(|name| RunDir::find(name).saved().ok().flatten()).collect())
            }
        });
    });
    let until = Instant::now() + WITHIN;
    let found = names.recv_timeout(WITHIN).unwrap_or(RunFolders::Names(Vec::new()));
    let mut names = match found {
        RunFolders::Names(names) => names,
        RunFolders::Iocs(saved) => saved.iter().flat_map(|saved| records(saved, until)).collect(),
    };
    names.retain(|name| name.starts_with(&begin));
    names.sort_unstable();
    names.dedup();
    names.iter().for_each(|name| println!("{name}"));
    ExitCode::SUCCESS
}

/// Contents of the run folders.
enum RunFolders {
    Names(Vec<String>),
    Iocs(Vec<Saved>),
}

fn named(names: Vec<String>) -> RunFolders {
    RunFolders::Names(names)
}

fn of_plants(given: Option<&str>) -> Vec<String> {
    given.map_or_else(living, |name| vec![name.to_owned()])
}

/// Names of the processes of a plant. Operators may not read the plant's state, so for them only running processes are
/// found.
fn processes(plant: &str) -> Vec<String> {
    let run = RunDir::find(plant);
    match run.saved() {
        Ok(Some(saved)) => saved.plant.processes.into_iter().map(|process| process.name).collect(),
        _ => run.keepers(),
    }
}

/// The records of a plant's IOCs, as their files have them.
fn records(saved: &Saved, until: Instant) -> Vec<String> {
    let folder = saved.file.parent().unwrap_or(std::path::Path::new("/"));
    let mut names = Vec::new();
    for process in &saved.plant.processes {
        let ["tahti", "ioc", words @ ..] = &process.command.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
            continue;
        };
        let Ok(program) = own_program() else { continue };
        let mut command = Command::new(program);
        command.args(["ioc", "--names"]).args(words).envs(&process.env);
        command.current_dir(process.dir.as_ref().map_or_else(|| folder.to_owned(), |dir| folder.join(dir)));
        names.extend(lines(command, until));
    }
    names
}

/// The lines that a command prints by then. Nothing if it takes longer; it is killed.
fn lines(mut command: Command, until: Instant) -> Vec<String> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = piped.spawn() else { return Vec::new() };
    let (to, text): (_, Receiver<String>) = channel();
    if let Some(from) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            if from.take(RECORDS_BYTES_MAX).read_to_string(&mut text).is_ok() {
                let _ = to.send(text);
            }
        });
    }
    let text = text.recv_timeout(until.saturating_duration_since(Instant::now()));
    if matches!(text, Err(RecvTimeoutError::Timeout)) {
        // Fails only if it has just ended.
        let _ = child.kill();
    }
    drop(child.wait());
    text.map_or_else(|_| Vec::new(), |text| text.lines().map(str::to_owned).collect())
}

/// The kind of names for the last word, and the plant that other words name.
fn wanted(tahti: &clap::Command, words: &[String]) -> Option<(Kind, Option<String>)> {
    let (last, before) = words.split_last()?;
    let (mut command, mut positionals) = (tahti, 0);
    let (mut option, mut plant): (Option<&clap::Arg>, _) = (None, None);
    let mut only_positionals = false;
    for word in before {
        // Shells may split `--plant=NAME` at the sign.
        if word == "=" {
            continue;
        }
        if let Some(arg) = option.take() {
            plant = is_plant(arg).then(|| word.clone()).or(plant);
        } else if word == "--" {
            only_positionals = true;
        } else if let Some(rest) = word.strip_prefix('-').filter(|_| !only_positionals) {
            let (name, value) = rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
            let fits = |arg: &&clap::Arg| match name.strip_prefix('-') {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_short().is_some_and(|short| name.ends_with(short)),
            };
            let arg = command.get_arguments().find(fits).filter(|arg| arg.get_action().takes_values());
            match (arg, value) {
                (Some(arg), Some(value)) if is_plant(arg) => plant = Some(value.to_owned()),
                (arg, None) => option = arg,
                _ => {}
            }
        } else if let Some(below) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = below;
        } else {
            positionals += 1;
        }
    }
    let kind = match option {
        None if !only_positionals && let Some((name, _)) = option_value(last) => {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
            return of_option(arg).map(|kind| (kind, plant));
        }
        Some(arg) => of_option(arg),
        None if last.starts_with('-') && !only_positionals => None,
        None => positional(command, positionals),
    };
    Some((kind?, plant))
}

/// Name and value of `--NAME=VALUE`.
fn option_value(word: &str) -> Option<(&str, &str)> {
    word.strip_prefix("--")?.split_once('=')
}

/// The kind of names for an option's value.
fn of_option(arg: &clap::Arg) -> Option<Kind> {
    match arg {
        arg if is_plant(arg) => Some(Kind::Plants),
        arg => (arg.get_id() == "process").then_some(Kind::Processes),
    }
}

fn is_plant(arg: &clap::Arg) -> bool {
    arg.get_long() == Some("plant") || arg.get_id() == "plant"
}

/// The kind of names for a positional argument.
fn positional(command: &clap::Command, nth: usize) -> Option<Kind> {
    let all: Vec<&clap::Arg> = command.get_positionals().collect();
    let arg = all.get(nth).or_else(|| all.last().filter(|last| is_list(last)))?;
    match (command.get_name(), arg.get_id().as_str()) {
        ("caget" | "cainfo" | "camonitor" | "caput" | "pvget" | "pvinfo" | "pvmonitor" | "pvput", _) => {
            Some(Kind::Records)
        }
        ("attach" | "logs" | "restart" | "signal" | "start" | "status" | "stop", "name" | "names") => {
            Some(Kind::Processes)
        }
        // These take files.
        ("up" | "check" | "define", _) => None,
        (_, "plant") => Some(Kind::Plants),
        _ => None,
    }
}

fn is_list(arg: &clap::Arg) -> bool {
    arg.get_num_args().is_some_and(|count| count.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<(Kind, Option<String>)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&crate::Cli::command(), &words)
    }

    #[test]
    fn the_last_word_of_a_command_line_has_the_kind_of_its_argument() {
        let of = |kind, plant: Option<&str>| Some((kind, plant.map(str::to_owned)));
        for line in ["restart ", "stop a b", "logs -f lo", "console l", "signal HUP ", "status ", "profile --process "]
        {
            assert_eq!(kind(line), of(Kind::Processes, None), "{line}");
        }
        for line in ["restart --plant rf l", "restart --plant=rf l", "restart -P rf ", "restart --plant = rf x"] {
            assert_eq!(kind(line), of(Kind::Processes, Some("rf")), "{line}");
        }
        for line in
            ["down ", "ps r", "top ", "reload --dry-run ", "logs --plant ", "logs a --plant = r", "logs a --plant=r"]
        {
            assert_eq!(kind(line), of(Kind::Plants, None), "{line}");
        }
        for line in ["caget ", "caget -w 1 X", "camonitor A B", "caput RF:", "cainfo "] {
            assert_eq!(kind(line), of(Kind::Records, None), "{line}");
        }
        for line in ["", "re", "up ", "check pl", "restart --no", "signal ", "shield apply ", "nonsense x "] {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn a_program_that_takes_long_is_killed_and_gives_no_names() {
        let mut quick = Command::new("printf");
        quick.arg("a\\nb\\n");
        assert_eq!(lines(quick, Instant::now() + Duration::from_secs(60)), ["a", "b"]);
        let mut slow = Command::new("sleep");
        slow.arg("1000");
        assert!(lines(slow, Instant::now()).is_empty());
        assert!(lines(Command::new("/no/such/program"), Instant::now()).is_empty());
    }
}
