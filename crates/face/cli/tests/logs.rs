//! `tahti logs` over the logs of several processes.

use harness::process::Running;
use keep::supervisor::logs::stamp;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The run folder of a plant `p` that is down, removed with the test.
struct Run(PathBuf);

impl Run {
    fn new(test: &str) -> Self {
        let run = std::env::temp_dir().join(format!("tahti-logs-{test}-{}", std::process::id()));
        std::fs::create_dir_all(run.join("p/log")).unwrap();
        Self(run)
    }

    /// Appends a line, `seconds` old, to the log of a process.
    fn write(&self, name: &str, seconds: u64, text: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.log(name));
        writeln!(file.unwrap(), "{} {text}", stamp(now - 1000 * seconds)).unwrap();
    }

    fn log(&self, name: &str) -> PathBuf {
        self.0.join("p/log").join(format!("{name}.log"))
    }

    fn tahti(&self, words: &[&str]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_tahti")));
        command.arg("logs").args(words).args(["--plant", "p"]).env("TAHTI_RUN", &self.0);
        command
    }

    /// The printed lines without their stamps.
    fn lines(&self, words: &[&str]) -> Vec<String> {
        let output = self.tahti(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line[25..].to_owned()).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lines_of_all_processes_are_merged_by_time_and_filtered() {
    let run = Run::new("merged");
    run.write("loop", 4000, "too old, water");
    std::fs::rename(run.log("loop"), run.0.join("p/log/loop.log.1")).unwrap();
    run.write("loop", 500, "Water 1");
    run.write("pump", 400, "[err] water 2 \x1b[31mred");
    run.write("_supervisor", 300, "pump: started");
    run.write("loop", 200, "error: no water");
    let all = [
        "loop       info    Water 1",
        "pump       warning water 2 red",
        "supervisor info    pump: started",
        "loop       error   error: no water",
    ];
    assert_eq!(run.lines(&["--all", "--since", "10m"]), all);
    assert_eq!(run.lines(&["--all", "-n", "2"]), all[2..]);
    assert_eq!(run.lines(&["--all", "--since", "10m", "--grep", "WATER"]), [all[0], all[1], all[3]]);
    assert_eq!(run.lines(&["--all", "--severity", "warning"]), [all[1], all[3]]);
    assert_eq!(
        run.lines(&["loop", "--grep", "water"]),
        ["info    too old, water", "info    Water 1", "error   error: no water"]
    );
    assert_eq!(run.lines(&["--since", "10m"]), ["info    pump: started"]);
    let refused = run.tahti(&["loop", "--all"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
}

#[test]
fn severities_have_colours_on_a_terminal_only() {
    let run = Run::new("colours");
    run.write("loop", 1, "error: no water");
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = File::options().write(true).open(ptsname(&master, Vec::new()).unwrap().to_str().unwrap()).unwrap();
    let mut command = run.tahti(&["--all"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").stdout(terminal);
    assert!(command.status().unwrap().success());
    let mut printed = [0; 4096];
    let count = File::from(master).read(&mut printed).unwrap();
    let printed = String::from_utf8_lossy(&printed[..count]);
    assert!(printed.contains("\u{1b}[1;31merror  \u{1b}[0m error: no water"), "{printed:?}");
    assert!(!run.lines(&["--all"]).concat().contains('\u{1b}'));
}

#[test]
fn following_prints_new_lines_that_pass_the_filters() {
    let run = Run::new("followed");
    run.write("loop", 60, "water is cold");
    let logs = Running::until(&mut run.tahti(&["-f", "--all", "--since", "10m", "--grep", "water"]), "water is cold");
    run.write("loop", 0, "air is warm");
    run.write("pump", 0, "[err] water is warm");
    let line = logs.hears("warm");
    assert!(line.ends_with(" pump warning water is warm"), "{line}");
}
