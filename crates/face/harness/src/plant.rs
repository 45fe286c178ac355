//! A folder with a plant file, and commands run in it.

use crate::process::{finish, text};
use crate::{PATIENCE, machine};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with a plant file, and commands with a `TAHTI_RUN` in it.
pub struct Bench {
    /// The folder. Its subfolder `run` is `TAHTI_RUN`.
    pub dir: PathBuf,
}

impl Bench {
    /// A plant `p` with these processes. If they have a shield, waits until no other test has one.
    pub fn new(name: &str, processes: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tahti-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let bench = Self { dir };
        if processes.contains("[shield]") {
            machine::wait_for_others(&bench.dir.join("run"));
        }
        bench.write(processes);
        bench
    }

    /// A copy of an example of this project. `own` edits the text of each file.
    pub fn of_example(name: &str, example: &str, own: impl Fn(&str) -> String) -> Self {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples").join(example);
        let read = |file: &Path| own(&fs::read_to_string(file).unwrap());
        let plant = read(&example.join("plant.toml"));
        // The table `[plant]` is replaced by that of this folder.
        let (_, named) = plant.split_once("[plant]").unwrap();
        let (_, tables) = named.split_once("\n[").unwrap();
        let bench = Self::new(name, &format!("[{tables}"));
        for file in fs::read_dir(&example).unwrap() {
            let file = file.unwrap().path();
            if file.is_file() && file.file_name().is_some_and(|name| name != "plant.toml") {
                fs::write(bench.dir.join(file.file_name().unwrap()), read(&file)).unwrap();
            }
        }
        bench
    }

    /// Overwrites the plant file.
    pub fn write(&self, processes: &str) {
        fs::write(self.dir.join("plant.toml"), format!("[plant]\nname = \"p\"\n{processes}")).unwrap();
    }

    /// A command of tahti in the folder.
    pub fn tahti(&self, words: &[&str]) -> Command {
        let mut command = crate::tahti();
        command.args(words).current_dir(&self.dir).env("TAHTI_RUN", self.dir.join("run")).stdin(Stdio::null());
        // If the plant has a shield, it spares init and all its descendants, except those that this test starts.
        command.env("TAHTI_SPARE", "1+");
        let file = fs::read_to_string(self.dir.join("plant.toml")).unwrap_or_default();
        if file.contains("[dashboard]") {
            command.env_remove("TAHTI_NO_DASHBOARD");
        }
        command
    }

    /// Runs a command to completion.
    pub fn run(&self, words: &[&str]) -> Output {
        let child = self.tahti(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        finish(child)
    }

    /// Runs a command that must succeed and returns its output. A plant may end as *degraded* (exit status 4). It may also end as *failed* if
    /// the only reason is that other users of the machine stopped it for seconds. A stricter test must check the last line.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let text = text(&output);
        assert!(
            matches!(output.status.code(), Some(0 | 4)) || was_only_stopped(&output, &text),
            "tahti {}: {text}{}",
            words.join(" "),
            self.log()
        );
        text
    }

    /// Status of the plant, from `tahti ps --json`.
    pub fn status(&self) -> serde_json::Value {
        let output = self.ok(&["ps", "p", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&output).unwrap();
        all[0].clone()
    }

    /// Status of one process.
    pub fn process(&self, name: &str) -> serde_json::Value {
        let status = self.status();
        let processes = status["processes"].as_array().unwrap();
        processes.iter().find(|process| process["name"] == name).unwrap_or_else(|| panic!("{name} in {status}")).clone()
    }

    /// Id of a running process.
    pub fn pid(&self, name: &str) -> i32 {
        self.process(name)["pid"].as_i64().unwrap_or_else(|| panic!("{name} runs\n{}", self.log())) as i32
    }

    /// Log of the supervisor.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("run/p/log/_supervisor.log")).unwrap_or_default()
    }

    /// Waits until the condition holds.
    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < PATIENCE, "never {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Row of a claim in the output of `tahti ps --json`.
    pub fn row(&self, subject: &str, claim: &str) -> serde_json::Value {
        let status = self.status();
        let rows = status["health"].as_array().unwrap();
        let found = rows.iter().find(|row| row["subject"] == subject && row["claim"] == claim);
        found.unwrap_or_else(|| panic!("{subject} {claim} in {status}")).clone()
    }

    /// Waits until a row has a state, and returns the row.
    pub fn until_row(&self, subject: &str, claim: &str, state: &str) -> serde_json::Value {
        self.until(&format!("{subject} {claim} {state}"), || self.row(subject, claim)["state"] == state);
        self.row(subject, claim)
    }

    /// Takes the plant down. Returns exit status and last line.
    pub fn down(&self) -> (Option<i32>, String) {
        let output = self.run(&["down", "p"]);
        (output.status.code(), text(&output).lines().last().unwrap_or_default().to_owned())
    }

    /// Process id of the supervisor.
    pub fn supervisor(&self) -> i32 {
        self.status()["supervisor"].as_i64().unwrap() as i32
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A failed test must not leave processes behind.
        if let Ok(child) = self.tahti(&["down", "p"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            // A second panic while a test unwinds would end the whole test program.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| finish(child)));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The plant failed only because it was not observed for a while.
fn was_only_stopped(output: &Output, text: &str) -> bool {
    let last = text.lines().last().unwrap_or_default();
    let reasons = last.split_once(": failed: ").map(|(_, reasons)| reasons);
    output.status.code() == Some(3)
        && reasons.is_some_and(|all| {
            all.split("; ").all(|one| one.contains("no observation for more than") || one.contains(": unavailable: "))
        })
}

/// A process of a plant that runs a script, with additional keys.
pub fn sh(name: &str, script: &str, keys: &str) -> String {
    format!("[[process]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"-c\", '''{script}''']\n{keys}\n")
}
