//! Logs on a disk that is temporarily full. Runs as root to mount a separate file system.

use base::Size;
use host::plant::Bounds;
use keep::keeper::Keeper;
use keep::keeper::protocol::{Event, KeeperSpec, LogSpec};
use keep::launch::{LaunchSpec, Terminal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A folder with a small disk in it, removed with the test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("tahti-logs-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("disk")).unwrap();
        let disk = Self(dir);
        let mount = ["-t", "tmpfs", "-o", "size=64k", "tahti-logs"];
        let mounted = Command::new("mount").args(mount).arg(disk.0.join("disk")).status().unwrap();
        assert!(mounted.success(), "this test must run as root");
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount always succeeds.
        let _ = Command::new("umount").arg("-l").arg(self.0.join("disk")).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lines_lost_on_a_full_disk_are_counted_in_the_log_and_the_next_line_is_complete() {
    let disk = SmallDisk::new();
    let at = |name: &str| disk.0.join("disk").join(name);
    std::fs::write(at("filler"), vec![0; 40_000]).unwrap();
    let script = "i=0; while [ $i -lt 60 ]; do printf '%01000d\\n' $i; i=$((i+1)); done; touch ../full; \
                  while [ ! -e ../go ]; do sleep 0.02; done; echo after";
    let mut launch = LaunchSpec::new("loop", ["/bin/sh", "-c", script]);
    (launch.terminal, launch.dir) = (Terminal::Pty, Some(disk.0.join("disk")));
    let log = LogSpec { path: at("log"), size: Size(1 << 20), keep: 1, also: None };
    let spec = KeeperSpec {
        dir: disk.0.join("keeper"),
        launch,
        bounds: Bounds::default(),
        within: Vec::new(),
        log: Some(log),
        ready_line: None,
        notify: false,
        held: false,
        operators: None,
        supervisor: None,
    };
    let mut keeper =
        Keeper::start(&spec, Path::new(env!("CARGO_BIN_EXE_tahti"))).unwrap_or_else(|error| panic!("{error}"));
    let begin = Instant::now();
    while !disk.0.join("full").exists() || keeper.status().unwrap().log_bytes_lost == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no byte was lost");
    }
    std::fs::remove_file(at("filler")).unwrap();
    std::fs::write(disk.0.join("go"), "").unwrap();
    while !matches!(keeper.wait_event(Duration::from_secs(60)).unwrap().expect("its end"), Event::Exited(_)) {}
    keeper.quit().unwrap();
    let text = std::fs::read_to_string(at("log")).unwrap();
    assert!(text.lines().any(|line| line.contains("lines (") && line.contains("were lost: No space left")), "{text}");
    assert!(text.contains("Z after\n"), "{text}");
    // Each line has its own stamp: no line is appended to an incomplete one.
    assert!(text.lines().all(|line| line.starts_with("20") && line.matches("Z ").count() == 1), "{text}");
}
