//! Processes that remain after their keeper was killed, in the freezer of cgroup v1. Version 2 is not available here,
//! because the process joins a v2 group itself, as the shield's processes do.

use host::plant::Bounds;
use keep::keeper::Keeper;
use keep::keeper::protocol::{KeeperSpec, Status};
use keep::launch::{LaunchSpec, Terminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A v2 group and a folder, removed on drop.
struct TestGroup {
    group: PathBuf,
    folder: PathBuf,
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // If a process is still in the group, the test has failed already.
        let _ = std::fs::write(self.group.join("cgroup.kill"), "1");
        for _ in 0..100 {
            if std::fs::remove_dir(&self.group).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn a_keeper_that_replaces_a_killed_one_first_ends_the_processes_in_its_freezer() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let v2 = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let v2 = v2.expect("this test needs cgroup v2 and v1's freezer, both mounted");
    let group = Path::new(v2).join(format!("tahti-family-test-{}", std::process::id()));
    let folder = std::env::temp_dir().join(format!("tahti-family-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap_or_else(|error| panic!("{}: {error}; run this as root", group.display()));
    std::fs::create_dir_all(&folder).unwrap();
    let place = TestGroup { group, folder };
    let script = "env -i setsid sh -c 'trap \"\" HUP TERM; echo $$ >> daemons; while :; do /bin/sleep 1; done' & wait";
    let mut launch = LaunchSpec::new("a", ["/bin/sh", "-c", script]);
    (launch.terminal, launch.dir) = (Terminal::Pty, Some(place.folder.clone()));
    launch.cgroups = vec![place.group.clone()];
    let dir = place.folder.join("keeper");
    let spec = KeeperSpec {
        dir,
        launch,
        bounds: Bounds::default(),
        within: Vec::new(),
        log: None,
        ready_line: None,
        notify: false,
        held: false,
        operators: None,
        supervisor: None,
    };
    let start =
        || Keeper::start(&spec, Path::new(env!("CARGO_BIN_EXE_tahti"))).unwrap_or_else(|error| panic!("{error}"));
    let daemons = || -> Vec<i32> {
        let text = std::fs::read_to_string(place.folder.join("daemons")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let Status { keeper, .. } = start().status().unwrap();
    until("its daemon", || daemons().len() == 1);
    let noted = std::fs::read_to_string(spec.dir.join("group")).unwrap();
    assert!(noted.contains("/freezer/"), "{noted}");
    sys::process::Process::open(keeper.pid).unwrap().signal(9).unwrap();
    until("killed", || !alive(keeper.pid));
    assert!(alive(daemons()[0]), "no check has run yet");
    let mut next = start();
    assert!(!alive(daemons()[0]), "it still runs with the next copy");
    until("the next daemon", || daemons().len() == 2);
    next.signal(9, keep::keeper::protocol::Target::All).unwrap();
    until("its end", || !alive(daemons()[1]) && next.status().is_ok_and(|status| status.child.is_none()));
    next.quit().unwrap();
    until("tidy", || !Path::new(&noted).exists());
}
