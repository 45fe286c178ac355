//! Freezes and kills a runaway through its control group, with v1's freezer or v2.

use base::DurNs;
use host::guard::{Budget, Rung, RungAction};
use keep::guard::{EventKind, Guard, GuardEvent, WatchSpec};
use keep::launch::{LaunchSpec, Terminal, hold};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::child::{Waited, look};

/// Timeout. Only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A control group that is removed on drop.
struct Group(PathBuf);

impl Group {
    fn below(top: &str) -> Self {
        let dir = Path::new(top).join(format!("tahti-freeze-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        Self(dir)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn is_frozen(&self) -> bool {
        self.read("freezer.state").trim() == "FROZEN" || self.read("cgroup.events").contains("frozen 1")
    }

    fn processes(&self) -> Vec<i32> {
        self.read("cgroup.procs").lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Frozen processes die only after they are thawed.
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
        for _ in 0..500 {
            for process in self.processes().into_iter().filter_map(|pid| sys::process::Process::open(pid).ok()) {
                let _ = process.signal(9);
            }
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn expect(guard: &mut Guard, action: RungAction) {
    let wanted =
        |event: &GuardEvent| matches!(event.what, EventKind::Step { action: done, refused: 0, .. } if done == action);
    until(action.word(), || guard.next_event().is_some_and(|event| wanted(&event)));
}

/// Freezes a FIFO loop and a daemon that escaped from it. `kills_all`: the group can kill all its processes.
pub(crate) fn freezes_and_kills(top: &str, cpu: &str, kills_all: bool) {
    let group = Group::below(top);
    let (mut guard, shortfalls) = Guard::start(&cpu.parse().unwrap()).unwrap();
    assert!(guard.class().is_real_time(), "{shortfalls:?}");
    // The daemon is a child of init: only the group still contains it.
    let script = "(setsid sleep 1000 &) ; while :; do :; done";
    let mut spec = LaunchSpec::new("frozen", ["/bin/sh", "-c", script]);
    (spec.terminal, spec.require_rt) = (Terminal::Null, true);
    (spec.policy, spec.cpus) = (Some("fifo:10".parse().unwrap()), Some(cpu.parse().unwrap()));
    spec.cgroups = vec![group.0.clone()];
    let held = hold(&spec).unwrap_or_else(|error| panic!("{error}"));
    let child = held.child();
    let rung = |action, wait| Rung { action, wait };
    let watch = WatchSpec {
        child,
        ancestor: child.pid,
        budget: Budget::Share { percent: 50, period: DurNs::from_ms(200) },
        ladder: vec![rung(RungAction::Freeze, DurNs::from_secs(2)), rung(RungAction::Kill, DurNs::from_secs(5))],
        heartbeat: None,
        freezer: Some(group.0.clone()),
        starved_after: DurNs::from_secs(60),
    };
    guard.watch(watch).unwrap_or_else(|error| panic!("{error}"));
    held.go().unwrap_or_else(|error| panic!("{error}"));
    expect(&mut guard, RungAction::Freeze);
    until("frozen", || group.is_frozen());
    let daemon = group.processes().into_iter().find(|pid| *pid != child.pid).expect("the daemon is in the group");
    expect(&mut guard, RungAction::Kill);
    until("ended", || matches!(look(child.pid, false), Ok(Waited::Ended(ended)) if ended.status & 0x7f == 9));
    if kills_all {
        until("all ended", || group.processes().is_empty());
    } else {
        // v1 has no such file: the escaped daemon is thawed and continues.
        assert!(group.processes().contains(&daemon) && !group.is_frozen());
    }
}
