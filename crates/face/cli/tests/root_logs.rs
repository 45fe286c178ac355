//! Logs on a disk that is temporarily full. Runs as root to mount a separate file system.

use base::Size;
use harness::disk::Disk;
use host::plant::Bounds;
use keep::keeper::Keeper;
use keep::keeper::protocol::{Event, KeeperSpec, LogSpec};
use keep::launch::{LaunchSpec, Terminal};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn lines_lost_on_a_full_disk_are_counted_in_the_log_and_the_next_line_is_complete() {
    let folder = harness::Folder::new();
    let dir = &folder.0;
    let disk = Disk::mount(dir.join("disk"), "64k");
    let at = |name: &str| disk.0.join(name);
    std::fs::write(at("filler"), vec![0; 40_000]).unwrap();
    let script = "i=0; while [ $i -lt 60 ]; do printf '%01000d\\n' $i; i=$((i+1)); done; touch ../full; \
                  while [ ! -e ../go ]; do sleep 0.02; done; echo after";
    let mut launch = LaunchSpec::new("loop", ["/bin/sh", "-c", script]);
    (launch.terminal, launch.dir) = (Terminal::Pty, Some(disk.0.clone()));
    let log = LogSpec { path: at("log"), size: Size(1 << 20), keep: 1, also: None };
    let spec = KeeperSpec {
        dir: dir.join("keeper"),
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
    while !dir.join("full").exists() || keeper.status().unwrap().log_bytes_lost == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no byte was lost");
    }
    std::fs::remove_file(at("filler")).unwrap();
    std::fs::write(dir.join("go"), "").unwrap();
    while !matches!(keeper.wait_event(Duration::from_secs(60)).unwrap().expect("its end"), Event::Exited(_)) {}
    keeper.quit().unwrap();
    let text = std::fs::read_to_string(at("log")).unwrap();
    assert!(text.lines().any(|line| line.contains("lines (") && line.contains("were lost: No space left")), "{text}");
    assert!(text.contains("Z after\n"), "{text}");
    // Each line has its own stamp: no line is appended to an incomplete one.
    assert!(text.lines().all(|line| line.starts_with("20") && line.matches("Z ").count() == 1), "{text}");
}
