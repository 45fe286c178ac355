//! `cargo xtask test`: runs each stage in a separate process that sees only the programs of its row, and reports.

use crate::again;
use crate::programs;
use crate::record::{self, Record, StageOutcome};
use crate::run::{Outcome, root, run};
use crate::test::{STAGES, Stage};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Option of the second run, which the first run starts for the stages that run in parallel.
const BESIDE: &str = "--beside";

/// Option that selects every stage.
const ALL: &str = "--all";

/// Parsed command line of a run.
struct Arguments {
    unprivileged: bool,
    /// Another run prints the report.
    is_beside: bool,
    stages: Vec<&'static Stage>,
}

impl Arguments {
    fn parse(args: Vec<String>) -> Result<Self, String> {
        let (flags, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|arg| arg.starts_with("--"));
        if let Some(unknown) = flags.iter().find(|flag| !["--unprivileged", ALL, BESIDE].contains(&flag.as_str())) {
            return Err(format!("unknown option {unknown}: expected {ALL} or --unprivileged"));
        }
        for name in &names {
            stage(name)?;
        }
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        if has(ALL) && !names.is_empty() {
            return Err(format!("{ALL} and the names of stages: expected one of them, as {ALL} selects every stage"));
        }
        let is_selected = |stage: &&Stage| match names[..] {
            [] => has(ALL) || stage.in_gate,
            _ => names.iter().any(|name| name == stage.name),
        };
        let stages = STAGES.iter().filter(is_selected).collect();
        Ok(Self { unprivileged: has("--unprivileged"), is_beside: has(BESIDE), stages })
    }
}

fn stage(name: &str) -> Result<&'static Stage, String> {
    let known = || STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
    let found = STAGES.iter().find(|stage| stage.name == name);
    found.ok_or_else(|| format!("unknown stage {name:?}: expected one of {}", known()))
}

/// Runs the selected stages in order. Continues after a failure and reports all outcomes at the end.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let (asked, start) = (Arguments::parse(args)?, Instant::now());
    if !asked.is_beside {
        record::clear()?;
    }
    run_all(&asked);
    let records = asked.stages.iter().map(|stage| (stage.name, record::of(stage.name)));
    let records: Vec<(&str, Record)> = records.collect();
    if !asked.is_beside {
        let report = record::report(&records, start.elapsed().as_secs_f64()) + &again::shown();
        println!("\n{report}kept in {}", record::keep(&report).display());
    }
    let fine =
        |record: &Record| matches!(record.ended, Some(StageOutcome::Passed { .. } | StageOutcome::DidNotRun { .. }));
    let failed = records.iter().filter(|(_, record)| !fine(record));
    let failed: Vec<_> =
        failed.map(|(name, record)| format!("stage {name} failed: {}", record.failure.trim_end())).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn run_all(asked: &Arguments) {
    let beside: Vec<&str> = asked.stages.iter().filter(|stage| stage.beside).map(|stage| stage.name).collect();
    let alone = asked.is_beside || beside.len() == asked.stages.len();
    let (mut background, mut begun) = (None, false);
    for stage in &asked.stages {
        if stage.needs_root && asked.unprivileged {
            record::ended(stage.name, &StageOutcome::DidNotRun { why: "it needs root (--unprivileged)".into() });
        } else if !stage.beside || alone {
            perform(stage);
        } else if !begun {
            begun = true;
            match Background::start(&beside) {
                Ok(started) => background = Some(started),
                Err(error) => beside.iter().for_each(|name| record::failure(name, &error)),
            }
        }
    }
    if let Some(background) = background {
        background.end();
    }
}

/// Runs a stage in a separate process and records how it ended.
fn perform(stage: &Stage) {
    println!("\n== {}: {}", stage.name, stage.what);
    let (start, used) = (Instant::now(), cpu_seconds());
    let outcome = prepare(stage).and_then(|mut command| match command.status() {
        Ok(status) if status.success() => Ok(()),
        // The process has recorded the reason, unless it was killed before.
        Ok(_) if !record::of(stage.name).failure.is_empty() => Err(String::new()),
        Ok(status) => Err(format!("its process ended with {status}")),
        Err(error) => Err(format!("its process could not be started: {error}")),
    });
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - used);
    let ended = match outcome {
        Ok(()) => StageOutcome::Passed { seconds, cpu_seconds },
        Err(why) => {
            record::failure(stage.name, &why);
            StageOutcome::Failed { seconds, cpu_seconds }
        }
    };
    record::ended(stage.name, &ended);
    println!(
        "{} {} in {seconds:.1} s",
        stage.name,
        if matches!(ended, StageOutcome::Passed { .. }) { "passed" } else { "FAILED" }
    );
}

/// Installs the programs of a stage and returns the command that runs it. The command resets all signals to their defaults:
/// `nohup` and background jobs of a script ignore some of them, and the programs under test would inherit that.
fn prepare(stage: &Stage) -> Result<Command, String> {
    programs::install(stage.name, stage.needs)?;
    let path = programs::path(stage.name, stage.needs)?;
    // Not the path of this program, as a stage may have replaced it with another build.
    let this = format!("/proc/{}/exe", std::process::id());
    let mut command = Command::new("env");
    command.args(["--default-signal", &this, "stage", stage.name]).env("PATH", path).env(record::STAGE, stage.name);
    Ok(command)
}

/// Runs a stage in this process, which [`perform`] has started.
pub(crate) fn within(args: &[String]) -> Outcome {
    let [name] = args else { return Err("expected the name of one stage".into()) };
    let stage = stage(name)?;
    (stage.run)().inspect_err(|why| {
        record::failure(stage.name, why);
        let hint = "it sees only the programs that its row in xtask/src/test.rs declares";
        record::failure(stage.name, &format!("If a program was not found: {hint} (links in target/path/{name})."));
    })
}

/// CPU time in seconds of the ended child processes. Compared with the elapsed time, it shows how long a stage waited.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain spaces. The fields after it count from 3; 16 and 17 are user and system time of children.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    // The kernel's unit for user space is 1/100 s on all machines.
    ticks.sum::<f64>() / 100.0
}

/// A separate process that runs stages in parallel with the others. Its output is printed at its end.
struct Background {
    child: Child,
    said: File,
}

impl Background {
    fn start(names: &[&str]) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("{} could not be started: {error}", names.join(", "));
        let path = root().join("target/beside.txt");
        let said = File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(wrong)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["test", BESIDE]).args(names).stdin(Stdio::null());
        command.stdout(said.try_clone().map_err(wrong)?).stderr(said.try_clone().map_err(wrong)?);
        println!("\n== {}: in parallel with the next stages; their output follows at their end", names.join(", "));
        let child = command.spawn().map_err(wrong)?;
        // The other stages compare with C programs that behave differently if they must wait for a CPU.
        if let Err(why) = run(Command::new("renice").args(["-n", "19", "-p"]).arg(child.id().to_string())) {
            println!("{why}: they take as much of the CPUs as the others");
        }
        Ok(Self { child, said })
    }

    /// Waits for its end. The records hold the outcome of its stages; a stage without a record has failed.
    fn end(mut self) {
        let ended = self.child.wait();
        let mut said = String::new();
        let read = self.said.rewind().and_then(|()| self.said.read_to_string(&mut said));
        println!("{said}");
        if let (Err(error), _) | (_, Err(error)) = (ended.map(drop), read.map(drop)) {
            println!("the stages run in parallel are lost: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(args: &[&str]) -> Result<Vec<&'static str>, String> {
        let asked = Arguments::parse(args.iter().map(|arg| (*arg).to_owned()).collect())?;
        Ok(asked.stages.iter().map(|stage| stage.name).collect())
    }

    #[test]
    fn without_options_the_gate_runs_and_with_all_every_stage_runs() {
        assert_eq!(stages(&[]).unwrap(), ["fmt", "tidy", "clippy", "unit", "root", "doc"]);
        assert_eq!(stages(&["--unprivileged"]), stages(&[]));
        let all = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>();
        assert_eq!(stages(&["--all"]).unwrap(), all);
        assert_eq!(stages(&["vm", "fmt"]).unwrap(), ["fmt", "vm"]);
    }

    #[test]
    fn unknown_options_and_stages_are_refused() {
        assert!(stages(&["--al"]).unwrap_err().starts_with("unknown option --al: expected --all"));
        assert!(stages(&["units"]).unwrap_err().starts_with("unknown stage \"units\": expected one of fmt, "));
        assert!(stages(&["--all", "fmt"]).unwrap_err().starts_with("--all and the names of stages"));
    }
}
