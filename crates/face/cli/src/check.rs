//! `tahti check`: reports all errors of a plant file and of the files it names.
//!
//! Options and files of IOCs, equipment managers and guests are checked by the same program that runs them, in their
//! folder and with their environment: `tahti ioc --check`, `tahti em check`, `tahti guest serve --check`. The loaders
//! therefore print the same messages as at run time.

use crate::failure::{Failure, own_program, text_of};
use host::plant::{Checked, Diagnostic, Diagnostics, Process, Severity, check, document, place_of_rate, render_all};
use keep::supervisor::{Machine, plant_file};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Termination as _};

/// Report every error in a plant file and in the files that it loads
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti check                  plant.toml of the current folder
  tahti check rf.toml --json   for editors
  tahti check st.cmd           an IOC script and the files that it loads
  tahti check --document       all keys with their defaults")]
pub(crate) struct Args {
    #[command(flatten)]
    file: crate::control::File,
    /// Print the errors as JSON
    #[arg(long)]
    json: bool,
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
            Ok(said) => finish(args.json, plant, "[]", "", &[Said { process: None, ..said }], false),
            Err(why) => why.report(),
        };
    }
    let (file, text) = match read(plant) {
        Ok(read) => read,
        Err(why) => return why.report(),
    };
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let Checked { plant, readable, found } = check(&text, &Machine { folder: folder.clone() });
    let mut said = Vec::new();
    // Check the files of the processes even if the plant file has errors.
    let processes = plant.map_or(readable, |plant| plant.processes);
    for process in &processes {
        match told(process, &folder) {
            Some(Ok(one)) => said.push(one),
            Some(Err(why)) => return why.report(),
            None => {}
        }
    }
    let found = [found, about_scans(&text, &mut said), alarm::check_plant(&text)].concat();
    let broken = found.iter().any(|one| one.severity == Severity::Error);
    let findings = serde_json::to_string(&found).unwrap_or_default();
    // Do not print "no error" above the errors of a process.
    let quiet = found.is_empty() && said.iter().any(|one| one.broken);
    let shown = if quiet { String::new() } else { render_all(&found, &file.display().to_string(), &text) };
    finish(args.json, &file, &findings, &shown, &said, broken)
}

/// Checks the alarms in a plant file. The supervisor's own check does not include them.
pub(crate) fn alarms_are_good(file: &Path) -> Result<(), Failure> {
    let (file, text) = read(file)?;
    let found = alarm::check_plant(&text);
    match found.iter().any(|one| one.severity == Severity::Error) {
        true => Err(render_all(&found, &file.display().to_string(), &text).into()),
        false => Ok(()),
    }
}

/// Result of checking one process.
struct Said {
    process: Option<String>,
    lines: Vec<String>,
    broken: bool,
}

/// Checks the command line and files of a process with this program. `None` if the process runs another program.
fn told(process: &Process, folder: &Path) -> Option<Result<Said, Failure>> {
    let command: Vec<&str> = process.command.iter().map(String::as_str).collect();
    let words: Vec<&Path> = match command[..] {
        // An IOC that loads nothing is reported as an error of the plant file.
        ["tahti", "ioc"] => return None,
        ["tahti", "ioc", ref rest @ ..] => ["ioc", "--check"].iter().chain(rest).map(Path::new).collect(),
        ["tahti", "guest", "serve", ref rest @ ..] => {
            ["guest", "serve", "--check"].iter().chain(rest).map(Path::new).collect()
        }
        ["tahti", "em", "serve", file, ..] => ["em", "check", file].map(Path::new).into(),
        _ => return None,
    };
    let place = process.dir.as_ref().map_or_else(|| folder.to_owned(), |dir| folder.join(dir));
    let said = ask(&words, |command| {
        command.current_dir(place).envs(&process.env);
    });
    Some(said.map(|said| Said { process: Some(process.name.clone()), ..said }))
}

/// Moves IOC messages about scan rates to the line of the plant file that sets the rate.
fn about_scans(text: &str, said: &mut [Said]) -> Vec<Diagnostic> {
    let mut found = Diagnostics::new(text);
    for Said { process, lines, .. } in said {
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

fn ask(words: &[&Path], further: impl FnOnce(&mut Command)) -> Result<Said, Failure> {
    let program = own_program()?;
    let mut command = Command::new(program);
    command.args(words).stdin(std::process::Stdio::null());
    further(&mut command);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&said).lines().map(str::to_owned).collect();
    Ok(Said { process: None, lines, broken: !output.status.success() })
}

fn finish(json: bool, file: &Path, findings: &str, shown: &str, said: &[Said], broken: bool) -> ExitCode {
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
        for Said { process, lines, .. } in said {
            let before = process.as_ref().map_or(String::new(), |name| format!("{name}: "));
            lines.iter().for_each(|line| println!("{before}{line}"));
        }
    }
    if broken || said.iter().any(|said| said.broken) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(path: &Path) -> Result<(PathBuf, String), Failure> {
    let file = plant_file(path)?;
    let text = text_of(&file)?;
    Ok((file, text))
}
