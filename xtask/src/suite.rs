//! Builds and runs test programs with cargo. A failed test fails its stage.

use crate::hang;
use crate::record::{self, Clock};
use crate::run::{Outcome, cargo, metadata, root, shown};
use crate::targets::{self, APART};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// When the output is printed: at once, or in one piece at the end (for stages that run in parallel).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Live,
    AtEnd,
}

/// Features that compile tests, some of which change the machine. Release builds enable none of them.
pub(crate) const FOR_TESTS: [&str; 3] = ["root-tests", "guest-tests", "peer-tests"];

/// A selection of the workspace's test programs, by name.
///
/// Nearly all stages build the same packages with all of [`FOR_TESTS`]. With another set of packages or features, cargo
/// would rebuild everything that depends on it.
#[derive(Default)]
pub(crate) struct Suite {
    /// The packages to build. Empty selects those of [`for_tests`].
    pub(crate) packages: &'static [&'static str],
    /// Additional features (`package/feature`).
    pub(crate) features: Vec<String>,
    /// Cargo's options for kinds of programs, for example `--lib`.
    pub(crate) kinds: &'static [&'static str],
    /// Integration tests.
    pub(crate) programs: Vec<String>,
    /// Arguments for the test programs.
    pub(crate) words: Vec<&'static str>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl Suite {
    /// The integration tests of a stage.
    pub(crate) fn of(stage: &str) -> Result<Self, String> {
        Ok(Self { programs: targets::tests_of(stage)?, ..Self::default() })
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name, value.as_ref().to_owned()));
        self
    }

    fn command(&self) -> Result<Command, String> {
        let mut command =
            if self.packages.is_empty() { for_tests("test") } else { of_packages("test", self.packages) }?;
        command.arg("--no-fail-fast").args(self.kinds);
        command.args(self.features.iter().flat_map(|feature| ["--features", feature]));
        command.args(self.programs.iter().flat_map(|program| ["--test", program]));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Builds the programs without running them.
    pub(crate) fn build(&self) -> Outcome {
        let mut command = self.command()?;
        command.args(["--quiet", "--no-run"]);
        record::timed(BUILDING, || crate::run::run(&mut command))
    }

    /// Builds and runs all tests.
    pub(crate) fn run(&self, show: Show) -> Outcome {
        let mut command = self.command()?;
        command.args(["--", "--quiet"]).args(&self.words);
        let line = shown(&command);
        let said = watched(&mut command, show, SILENCE)?;
        said.programs.iter().for_each(|(name, seconds)| record::program(name, *seconds));
        if said.status.success() {
            return Ok(());
        }
        let failed: String = failed(&said.text).iter().map(|name| format!("\nfailed: {name}")).collect();
        Err(format!("`{line}` ended with {}{failed}", said.status))
    }
}

/// Name of the build step in the stage's record.
pub(crate) const BUILDING: &str = "(building)";

/// A cargo command for the packages and features that nearly all stages build: the workspace without [`APART`].
pub(crate) fn for_tests(verb: &str) -> Result<Command, String> {
    let mut command = cargo([verb, "--workspace"]);
    command.args(APART.iter().flat_map(|(package, _)| ["--exclude", package]));
    enable(&mut command, |name| !APART.iter().any(|(apart, _)| *apart == name))?;
    Ok(command)
}

/// A cargo command for some packages with the test features that they have.
pub(crate) fn of_packages(verb: &str, names: &[&str]) -> Result<Command, String> {
    let mut command = cargo([verb]);
    command.args(names.iter().flat_map(|name| ["--package", name]));
    enable(&mut command, |name| names.contains(&name))?;
    Ok(command)
}

/// Enables the test features of the selected packages.
fn enable(command: &mut Command, is_selected: impl Fn(&str) -> bool) -> Result<(), String> {
    for package in metadata()? {
        let Some(name) = package["name"].as_str().filter(|name| is_selected(name)) else { continue };
        let has = |feature: &&&str| !package["features"][**feature].is_null();
        for feature in FOR_TESTS.iter().filter(has) {
            command.arg("--features").arg(format!("{name}/{feature}"));
        }
    }
    Ok(())
}

/// Maximum time that a command may print nothing. It is longer than any build or test. After it, the runner prints what
/// the command's children wait for and kills them, so that the remaining programs still run.
const SILENCE: Duration = Duration::from_secs(20 * 60);

/// Interval at which the output of a command is read.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Result of a command.
struct CommandOutput {
    status: ExitStatus,
    /// Output of the command and its children until the command ended.
    text: String,
    /// The test programs that it ran, with their durations in seconds.
    programs: Vec<(String, f64)>,
}

/// Runs a command to its end.
fn watched(command: &mut Command, show: Show, silence: Duration) -> Result<CommandOutput, String> {
    let shown = shown(command);
    let wrong = |error: std::io::Error| format!("`{shown}` could not be started: {error}");
    let mut said = Vec::new();
    let mut say = |bytes: &[u8]| {
        if show == Show::Live {
            // The reader may have closed the pipe. Only the outcome of the tests counts.
            let _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
        }
        said.extend_from_slice(bytes);
    };
    say(format!("$ {shown}\n").as_bytes());
    let (ours, theirs) = std::io::pipe().map_err(wrong)?;
    let mut ours = without_waiting(ours).map_err(wrong)?;
    command.current_dir(root()).stdout(theirs.try_clone().map_err(wrong)?).stderr(theirs);
    let mut child = command.spawn().map_err(wrong)?;
    // The command holds the write ends of the pipe until it is dropped.
    *command = Command::new(command.get_program());
    let (mut last, mut bytes, mut clock) = (Instant::now(), [0; 4096], Clock::new(BUILDING, Instant::now()));
    let status = loop {
        // Check for the end before reading: the output is in the pipe by then. A process that a test left behind may hold the
        // pipe open for longer.
        let ended = child.try_wait().map_err(wrong)?;
        while let Some(length) = read(&mut ours, &mut bytes).map_err(wrong)? {
            say(&bytes[..length]);
            last = Instant::now();
            clock.take(&bytes[..length], last);
        }
        if let Some(status) = ended {
            break status;
        }
        if last.elapsed() > silence {
            let hung = Some(hang::descendants(child.id())).filter(|below| !below.is_empty());
            let hung = hung.unwrap_or_else(|| vec![child.id()]);
            say(format!("\nHANGS: nothing said for {silence:?}; ended:\n").as_bytes());
            hung.iter().for_each(|pid| say(hang::threads(*pid).as_bytes()));
            hang::end(&hung);
            last = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    };
    clock.end(Instant::now());
    let text = String::from_utf8_lossy(&said).into_owned();
    if show == Show::AtEnd {
        print!("{text}");
    }
    Ok(CommandOutput { status, text, programs: clock.programs })
}

/// Makes a pipe non-blocking. The standard library offers this for sockets only; the kernel accepts it for a pipe, too.
fn without_waiting(pipe: PipeReader) -> std::io::Result<File> {
    let said = UnixStream::from(OwnedFd::from(pipe));
    said.set_nonblocking(true)?;
    Ok(OwnedFd::from(said).into())
}

/// Reads the bytes that are in the pipe, if any.
fn read(pipe: &mut File, bytes: &mut [u8]) -> std::io::Result<Option<usize>> {
    match pipe.read(bytes) {
        Ok(length) => Ok(Some(length).filter(|length| *length > 0)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names of the failed tests in the output of cargo and the programs. A program that ended without naming a failed test has
/// cargo's words that select it.
fn failed(text: &str) -> Vec<String> {
    let (mut all, mut list) = (Vec::new(), Vec::new());
    let mut is_named = false;
    for line in text.lines() {
        if line == "failures:" {
            list.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            list.push(name.to_owned());
        } else if line.starts_with("test result: FAILED.") {
            is_named = !list.is_empty();
            all.append(&mut list);
        } else if let Some(program) = line.strip_prefix("error: test failed, to rerun pass ")
            && !std::mem::take(&mut is_named)
        {
            all.push(program.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "
running 3 tests
.F.
failures:

---- a::goes_wrong stdout ----
    indented words of the test
failures:
    as words of the test

failures:
    a::goes_wrong

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p sys --lib`

running 1 test
.
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: 1 target failed:
    `-p sys --lib`
";

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_suite_enables_all_test_features_and_plain_tests_run_without_root() {
        let words = words(&for_tests("test").unwrap());
        for feature in ["cli/root-tests", "cli/peer-tests", "keep/guest-tests", "db/peer-tests"] {
            assert!(words.iter().any(|word| word == feature), "{words:?}");
        }
        assert_eq!(words[1..4], ["--workspace", "--exclude", "fabric"]);
        let plain = targets::tests_of("unit").unwrap();
        assert!(plain.iter().any(|name| name == "alarm_plant"));
        let gated = |name: &&String| name.starts_with("root_") || name.starts_with("guest_") || *name == "differential";
        assert_eq!(plain.iter().find(gated), None);
    }

    #[test]
    fn a_suite_of_some_packages_enables_only_their_test_features() {
        let words = words(&of_packages("test", &["broker", "fabric"]).unwrap());
        let expected = ["test", "--package", "broker", "--package", "fabric", "--features", "broker/root-tests"];
        assert_eq!(words, expected);
    }

    #[test]
    fn failed_tests_and_programs_that_named_none_are_parsed_from_the_output() {
        assert_eq!(failed(SAID), ["a::goes_wrong"]);
        let killed = "\nrunning 2 tests\nerror: test failed, to rerun pass `-p rt --test frames`\n\nCaused by:\n  process didn't exit successfully\n";
        assert_eq!(failed(&format!("{SAID}{killed}")), ["a::goes_wrong", "`-p rt --test frames`"]);
        assert_eq!(failed("error[E0308]: mismatched types\nerror: could not compile `sys`\n"), Vec::<String>::new());
    }

    #[test]
    fn output_and_errors_of_a_command_are_in_order_although_a_child_lives_on() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 5 & echo one; echo two >&2; echo three; exit 3"]);
        let CommandOutput { status, text, .. } = watched(&mut command, Show::AtEnd, SILENCE).unwrap();
        assert_eq!((status.code(), text.lines().skip(1).collect::<Vec<_>>()), (Some(3), vec!["one", "two", "three"]));
    }

    #[test]
    fn a_child_that_hangs_is_ended_and_its_state_is_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begins; sleep 1000; echo goes on"]);
        let CommandOutput { status, text, .. } = watched(&mut command, Show::AtEnd, Duration::from_secs(1)).unwrap();
        assert!(status.success() && text.contains("begins\n") && text.contains("HANGS"), "{text}");
        assert!(
            text.contains(": sleep 1000\n") && text.contains("sleep: S in ") && text.ends_with("goes on\n"),
            "{text}"
        );
    }
}
