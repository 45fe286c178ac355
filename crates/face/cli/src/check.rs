//! `tahti check`: reports all errors of a plant file and of the files it names.
//!
//! Options and files of IOCs, equipment managers and guests are checked by the same program that runs them, in their
//! folder and with their environment: `tahti ioc --check`, `tahti em check`, `tahti guest serve --check`. The loaders
//! therefore print the same messages as at run time.

use crate::failure::{Failure, own_program};
use host::plant::{
    Checked, Diagnostic, Diagnostics, Joined, Process, Profiles, Severity, channels, check_joined, document,
    place_of_rate,
};
use keep::supervisor::{Machine, joined, plant_file};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Termination as _};

/// Report every error in a plant file and in the files that it loads
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti check                  plant.toml of the current folder
  tahti check rf.toml --json   for editors
  tahti check st.cmd           an IOC script and the files that it loads
  tahti check --profile debug  only what `tahti up --profile debug` starts; without it, all profiles
  tahti check --print          the plant file joined with those that it includes, variables replaced
  tahti check --document       all keys with their defaults")]
pub(crate) struct Args {
    #[command(flatten)]
    file: crate::control::File,
    #[command(flatten)]
    chosen: crate::control::Chosen,
    /// Print the errors as JSON
    #[arg(long)]
    json: bool,
    /// Print the text of the plant file joined with the files that it includes
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Print the reference of all plant file keys (Markdown)
    #[arg(long)]
    document: bool,
}

pub(crate) fn run(args: Args) -> ExitCode {
    if args.document {
        print!("{}", document());
        return ExitCode::SUCCESS;
    }
    let plant = args.file.path();
    if plant.extension().is_some_and(|ending| ending == "cmd" || ending == "iocsh") {
        return match ask(&[Path::new("ioc"), "--check".as_ref(), plant], |_| {}) {
            Ok(said) => {
                let said = [ProcessCheck { process: None, ..said }];
                let count = summary(&plant.display().to_string(), &[], &said).unwrap_or_default();
                finish(args.json, plant, "[]", ("", &count), &said, false)
            }
            Err(why) => why.report(),
        };
    }
    let (file, joined) = match read(plant) {
        Ok(read) => read,
        Err(why) => return why.report(),
    };
    if args.print {
        print_joined(&joined);
    }
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let Checked { plant, readable, found, inactive } =
        check_joined(&joined, &args.chosen.profiles(), &Machine { folder: folder.clone() });
    let mut said = Vec::new();
    // Check the files of the processes even if the plant file has errors.
    let mut processes = plant.map_or(readable, |plant| plant.with_dashboard().processes);
    let mut found = [found, unknown(&joined, &inactive.unknown, &inactive.known)].concat();
    if !args.chosen.is_some() && !inactive.known.is_empty() {
        // Members that start only on request are checked, too.
        let all = check_joined(&joined, &Profiles::all(), &Machine { folder: folder.clone() });
        processes = all.plant.map_or(all.readable, |plant| plant.with_dashboard().processes);
        let further: Vec<Diagnostic> = all.found.into_iter().filter(|one| !found.contains(one)).collect();
        found.extend(further);
    }
    for process in &processes {
        match told(process, &folder) {
            Some(Ok(one)) => said.push(one),
            Some(Err(why)) => return why.report(),
            None => {}
        }
    }
    let found = [found, about_scans(&joined, &mut said), alarm::check_plant(&joined)].concat();
    let found = [found, unserved(&joined, || records(&processes, &folder))].concat();
    without_missing_files(&found, &mut said);
    let broken = found.iter().any(|one| one.severity == Severity::Error);
    let findings = serde_json::to_string(&found).unwrap_or_default();
    // Do not print "no error" above the errors of a process, nor below the text of the plant.
    let quiet = found.is_empty() && (args.print || said.iter().any(|one| one.broken));
    let mut shown = if quiet { String::new() } else { joined.render_all(&found) };
    if args.print {
        eprint!("{shown}");
        return finish(false, &file, &findings, ("", ""), &said, broken);
    }
    // The errors of processes are counted, too, in the last line.
    let count = summary(joined.names().next().unwrap_or_default(), &found, &said);
    if count.is_some() {
        let end = shown.trim_end().rfind('\n').map_or(0, |at| at + 1);
        shown.truncate(end);
    }
    finish(args.json, &file, &findings, (&shown, &count.unwrap_or_default()), &said, broken)
}

/// The line that counts all findings; `None` if no process has errors.
fn summary(file: &str, found: &[Diagnostic], said: &[ProcessCheck]) -> Option<String> {
    let of_processes: usize = said.iter().map(ProcessCheck::errors).sum();
    if of_processes == 0 {
        return None;
    }
    let errors = found.iter().filter(|one| one.severity == Severity::Error).count();
    let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let warnings = match found.len() - errors {
        0 => String::new(),
        warnings => format!(", {}", count(warnings, "warning")),
    };
    Some(format!("{file}: {}{warnings}\n", count(errors + of_processes, "error")))
}

/// Prints the joined text without trailing blanks, and where each file begins if there are several.
fn print_joined(joined: &Joined) {
    let (mut offset, mut last) = (0, None);
    let several = joined.names().count() > 1;
    let mut was_empty = true;
    for line in joined.text().split_inclusive('\n') {
        let (_, file) = joined.line(offset);
        offset += line.len();
        let file = file.or(joined.names().next());
        if several && file != last {
            println!("# {}", file.unwrap_or_default());
            (last, was_empty) = (file, true);
        }
        let line = line.trim_end();
        // Blanks in place of `include` and `[variables]`.
        if !(line.is_empty() && was_empty) {
            println!("{line}");
        }
        was_empty = line.is_empty();
    }
}

/// Errors about profiles that no member has.
fn unknown(joined: &Joined, unknown: &[String], known: &BTreeSet<String>) -> Vec<Diagnostic> {
    let mut found = Diagnostics::new(joined.first());
    for name in unknown {
        let remedy = base::nearest(name, known.iter().map(String::as_str));
        let remedy = remedy.map_or(String::new(), |meant| format!("did you mean {meant:?}?"));
        let all: Vec<&str> = known.iter().map(String::as_str).collect();
        let expected = if all.is_empty() { "a plant with `profiles`".to_owned() } else { all.join(", ") };
        found.error(0..0, format!("no member of the plant has the profile {name:?}"), expected, remedy);
    }
    found.finish()
}

/// Checks what the supervisor's own check does not include: alarms in a plant file or in an alarm file, and the names of
/// profiles.
pub(crate) fn is_good(file: &Path, profiles: &Profiles) -> Result<(), Failure> {
    let (file, joined) = read(file)?;
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let Checked { plant, found, inactive, .. } = check_joined(&joined, profiles, &Machine { folder: folder.clone() });
    // A file that cannot be read, which the supervisor's own check reports, may have the profiles.
    let is_whole = found.iter().all(|one| one.severity != Severity::Error);
    let names = if is_whole { unknown(&joined, &inactive.unknown, &inactive.known) } else { Vec::new() };
    let found = [names, alarm::check_plant(&joined)].concat();
    let is_alarm = |process: &&Process| process.command.get(1).is_some_and(|word| word == "alarm");
    for process in plant.iter().flat_map(|plant| &plant.processes).filter(is_alarm) {
        if let Some(alarms) = told(process, &folder).transpose()?.filter(|alarms| alarms.broken) {
            return Err(alarms.lines.join("\n").into());
        }
    }
    match found.iter().any(|one| one.severity == Severity::Error) {
        true => Err(joined.render_all(&found).into()),
        false => Ok(()),
    }
}

/// Result of checking one process.
struct ProcessCheck {
    process: Option<String>,
    lines: Vec<String>,
    broken: bool,
}

impl ProcessCheck {
    /// Number of errors printed.
    fn errors(&self) -> usize {
        if !self.broken {
            return 0;
        }
        let marked = self.lines.iter().filter(|line| line.starts_with("error: ")).count();
        // An IOC prints a line for each error.
        let lines = self.lines.iter().filter(|line| !line.is_empty() && !line.contains("warning: ")).count();
        if marked > 0 { marked } else { lines.max(1) }
    }
}

/// Checks the command line and files of a process with this program. `None` if the process runs another program.
fn told(process: &Process, folder: &Path) -> Option<Result<ProcessCheck, Failure>> {
    let command: Vec<&str> = process.command.iter().map(String::as_str).collect();
    let words: Vec<&Path> = match command[..] {
        // An IOC that loads nothing is reported as an error of the plant file.
        ["tahti", "ioc"] => return None,
        ["tahti", "ioc", ref rest @ ..] => ["ioc", "--check"].iter().chain(rest).map(Path::new).collect(),
        ["tahti", "guest", "serve", ref rest @ ..] => {
            ["guest", "serve", "--check"].iter().chain(rest).map(Path::new).collect()
        }
        ["tahti", "dash", "serve", ref rest @ ..] if rest.iter().any(|word| word.starts_with("--certificate")) => {
            ["dash", "serve", "--check"].iter().chain(rest).map(Path::new).collect()
        }
        ["tahti", "alarm", "serve", file, ..] if !file.starts_with("--") => {
            ["alarm", "serve", "--check", file].map(Path::new).into()
        }
        ["tahti", "em", "serve", file, ..] => ["em", "check", file].map(Path::new).into(),
        _ => return None,
    };
    let place = process.dir.as_ref().map_or_else(|| folder.to_owned(), |dir| folder.join(dir));
    let said = ask(&words, |command| {
        command.current_dir(place).envs(&process.env);
    });
    Some(said.map(|said| ProcessCheck { process: Some(process.name.clone()), ..said }))
}

/// Moves IOC messages about scan rates to the line of the plant file that sets the rate.
fn about_scans(joined: &Joined, said: &mut [ProcessCheck]) -> Vec<Diagnostic> {
    let text = joined.text();
    let mut found = Diagnostics::of(joined);
    for ProcessCheck { process, lines, .. } in said {
        let Some(name) = process else { continue };
        lines.retain(|line| {
            let what = line.strip_prefix("scan: ").unwrap_or_default();
            let rate = what.strip_prefix("scan \"").and_then(|rest| rest.split('"').next());
            let Some(place) = rate.and_then(|rate| place_of_rate(text, name, rate)) else { return true };
            let (what, expected) = what.split_once("; expected ").unwrap_or((what, ""));
            found.error(place, format!("ioc {name:?}: {what}"), expected, "");
            false
        });
    }
    found.finish()
}

/// The records in the files of the plant's IOCs. Files with errors have those that can be read.
fn records(processes: &[Process], folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for process in processes {
        let ["tahti", "ioc", words @ ..] = &process.command.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
            continue;
        };
        let words: Vec<&Path> = ["ioc", "--names"].iter().chain(words).map(Path::new).collect();
        let place = process.dir.as_ref().map_or_else(|| folder.to_owned(), |dir| folder.join(dir));
        let said = ask(&words, |command| {
            command.current_dir(place).envs(&process.env);
        });
        // Without the names there is no warning; the check of the process reports why it cannot run.
        names.extend(said.map_or(Vec::new(), |said| said.lines));
    }
    names
}

/// Warnings about channels of the archive and of alarms that no IOC of the plant has, but whose names are nearly those of its
/// records. They may be on another host.
fn unserved(joined: &Joined, records: impl FnOnce() -> BTreeSet<String>) -> Vec<Diagnostic> {
    let mut found = Diagnostics::of(joined);
    let channels = channels(joined.text());
    let records = if channels.is_empty() { BTreeSet::new() } else { records() };
    for (channel, place) in channels {
        let (record, field) =
            channel.split_once('.').map_or((channel.as_str(), None), |(name, field)| (name, Some(field)));
        if records.contains(record) || records.contains(&channel) {
            continue;
        }
        let Some(meant) = base::nearest(record, records.iter().map(String::as_str)) else { continue };
        let meant = field.map_or(meant.to_owned(), |field| format!("{meant}.{field}"));
        let remedy = format!("did you mean {meant:?}? A channel of another host needs no change");
        found.warning(place, format!("no IOC of this plant has a record for {channel:?}"), remedy);
    }
    found.finish()
}

/// Removes the messages of IOCs about missing files that the findings have with their places.
fn without_missing_files(found: &[Diagnostic], said: &mut [ProcessCheck]) {
    for ProcessCheck { process, lines, broken } in said {
        let Some(name) = process else { continue };
        let count = lines.len();
        lines.retain(|line| {
            let file = line.strip_suffix(": No such file or directory (os error 2)");
            let start = |file: &str| format!("process {name:?} cannot read {file:?}: ");
            file.is_none_or(|file| !found.iter().any(|one| one.message.starts_with(&start(file))))
        });
        *broken &= lines.len() == count || !lines.is_empty();
    }
}

fn ask(words: &[&Path], further: impl FnOnce(&mut Command)) -> Result<ProcessCheck, Failure> {
    let program = own_program()?;
    let mut command = Command::new(program);
    command.args(words).stdin(std::process::Stdio::null());
    further(&mut command);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&said).lines().map(str::to_owned).collect();
    Ok(ProcessCheck { process: None, lines, broken: !output.status.success() })
}

/// Prints the findings of the plant file, those of its processes and their number. Returns the exit status.
fn finish(
    json: bool,
    file: &Path,
    findings: &str,
    (shown, count): (&str, &str),
    said: &[ProcessCheck],
    broken: bool,
) -> ExitCode {
    if json {
        let findings: serde_json::Value = serde_json::from_str(findings).unwrap_or_default();
        let files: Vec<_> = said
            .iter()
            .filter(|said| !said.lines.is_empty())
            .map(|said| serde_json::json!({ "process": said.process, "broken": said.broken, "said": said.lines }))
            .collect();
        println!("{}", serde_json::json!({ "file": file, "findings": findings, "files": files }));
    } else {
        print!("{shown}");
        for ProcessCheck { process, lines, .. } in said {
            let before = process.as_ref().map_or(String::new(), |name| format!("{name}: "));
            lines.iter().for_each(|line| println!("{before}{line}"));
        }
        print!("{count}");
    }
    if broken || said.iter().any(|said| said.broken) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(path: &Path) -> Result<(PathBuf, Joined), Failure> {
    let file = plant_file(path)?;
    let joined = joined(&file)?;
    Ok((file, joined))
}
