//! A shield of CPU 1, and interruptions of that CPU.

use crate::machine;
use std::path::PathBuf;
use std::process::{Child, Command};

/// Number of interrupts of CPU 1 for TLB shootdowns and function calls.
pub fn interruptions() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap();
    let rows = text.lines().filter(|line| ["TLB:", "CAL:"].iter().any(|row| line.trim_start().starts_with(row)));
    rows.map(|line| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()).sum()
}

/// A shield of CPU 1. It spares all processes that existed before, except this test.
pub struct Shield {
    /// `TAHTI_RUN` of the shield.
    pub run: PathBuf,
    /// Output of `tahti shield apply`, with the method of isolation.
    pub state: String,
}

impl Shield {
    /// Waits until no other shield exists, and creates this one.
    pub fn apply() -> Self {
        let run = std::env::temp_dir().join(format!("tahti-root-shield-{}", std::process::id()));
        machine::wait_for_others(&run);
        let mut shield = Self { run, state: String::new() };
        shield.state = shield.tahti(&["apply", "--cpus", "1"]);
        shield
    }

    fn tahti(&self, words: &[&str]) -> String {
        let own = std::process::id().to_string();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        // Kernel threads have no command line.
        let program = |pid: &String| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        let spare: Vec<String> = names
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own)
            .filter(program)
            .map(|pid| format!("{pid}+"))
            .collect();
        let output = crate::tahti()
            .arg("shield")
            .args(words)
            .env("TAHTI_RUN", &self.run)
            .env("TAHTI_SPARE", spare.join(","))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "tahti shield {words:?}: {said}");
        said
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.tahti(&["release"]);
        } else {
            // The message of the failed test has priority.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.tahti(&["release", "--force"])));
        }
        let _ = std::fs::remove_dir_all(&self.run);
    }
}

/// Name and permitted CPUs of each thread of a process.
pub fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let read = |task: PathBuf| {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let word = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (word("Name:"), word("Cpus_allowed_list:"))
    };
    tasks.map(|task| read(task.path())).collect()
}

/// A background load of CPU 1, at the lowest priority.
pub struct Spinner(Child);

impl Spinner {
    /// Starts the load.
    pub fn start() -> Self {
        let words = ["-c", "1", "nice", "-n", "19", "sh", "-c", "while :; do :; done"];
        Self(Command::new("taskset").args(words).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}
