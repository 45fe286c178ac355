//! A folder with a plant file, and commands run in it: what the tests of plants have in common.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::alone;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may hang before the test fails: never how long something should take.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// A folder with a plant file, and commands run with it as `TAHTI_RUN`.
pub(crate) struct Bench {
    pub(crate) dir: PathBuf,
}

impl Bench {
    pub(crate) fn new(name: &str, processes: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tahti-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let bench = Self { dir };
        if processes.contains("[shield]") {
            alone::wait(&bench.dir.join("run"));
        }
        bench.write(processes);
        bench
    }

    pub(crate) fn write(&self, processes: &str) {
        fs::write(self.dir.join("plant.toml"), format!("[plant]\nname = \"p\"\n{processes}")).unwrap();
    }

    pub(crate) fn tahti(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
        command.args(words).current_dir(&self.dir).env("TAHTI_RUN", self.dir.join("run")).stdin(Stdio::null());
        // Should the plant have a shield: everything but what this test starts, for it all descends from init.
        command.env("TAHTI_SPARE", "1+");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let child = self.tahti(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        finish(child)
    }

    /// Runs a command that must succeed; its output.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let text = text(&output);
        assert!(output.status.success(), "tahti {}: {text}{}", words.join(" "), self.log());
        text
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let output = self.ok(&["ps", "p", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&output).unwrap();
        all[0].clone()
    }

    pub(crate) fn process(&self, name: &str) -> serde_json::Value {
        let status = self.status();
        let processes = status["processes"].as_array().unwrap();
        processes.iter().find(|process| process["name"] == name).unwrap_or_else(|| panic!("{name} in {status}")).clone()
    }

    pub(crate) fn pid(&self, name: &str) -> i32 {
        self.process(name)["pid"].as_i64().unwrap_or_else(|| panic!("{name} runs\n{}", self.log())) as i32
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("run/p/log/_supervisor.log")).unwrap_or_default()
    }

    /// Waits until `what` is so.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < WATCHDOG, "never {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn supervisor(&self) -> i32 {
        self.status()["supervisor"].as_i64().unwrap() as i32
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A test that failed half-way must leave nobody behind.
        let _ = self.run(&["down", "p"]);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The end of a process and all that it wrote: read while it writes, for a pipe holds little.
pub(crate) fn finish(mut child: Child) -> Output {
    let begin = Instant::now();
    let (out, err) = (child.stdout.take().map(read_on), child.stderr.take().map(read_on));
    let joined = |thread: Option<JoinHandle<Vec<u8>>>| thread.map_or(Vec::new(), |thread| thread.join().unwrap());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Output { status, stdout: joined(out), stderr: joined(err) };
        }
        if begin.elapsed() > WATCHDOG {
            child.kill().unwrap();
            let status = child.wait().unwrap();
            panic!("a command hangs: {}", text(&Output { status, stdout: joined(out), stderr: joined(err) }));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_on(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    })
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether any of its threads still runs: what a process holds is let go with the last of them.
pub(crate) fn alive(pid: i32) -> bool {
    let runs = |stat: &Path| fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|stat| runs(&stat))
}

pub(crate) fn kill(pid: i32, signal: &str) {
    assert!(Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap().success());
}

pub(crate) fn sh(name: &str, script: &str, keys: &str) -> String {
    format!("[[process]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"-c\", '''{script}''']\n{keys}\n")
}

/// The machine's last CPU, for what changes the machine: as root, and on two CPUs at least.
pub(crate) fn last_cpu() -> String {
    // The effective user, as the kernel sees it.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    assert!(root, "these tests change the machine: run them as root (--unprivileged leaves them out)");
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let last = online.trim().split([',', '-']).next_back().unwrap().to_owned();
    assert!(last != "0", "these tests need two CPUs");
    last
}
