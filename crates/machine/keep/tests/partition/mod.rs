//! Helpers for tests of partitions in a guest with cgroup v2: a machine that kills its user at a write, and the machine's state.

mod traffic;

use base::CpuSet;
use host::plan::Step;
use host::snapshot::{Snapshot, Target, Value};
use keep::RunDir;
use keep::shield::machine::{Machine, RealMachine};
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::root::RootDir;
use testkit::guest;

pub(crate) const TOP: &str = "/sys/fs/cgroup";

/// The panic payload of a killed tahti.
pub(crate) struct Killed;

/// The guest's machine. It kills its user before the write after the given number of writes.
pub(crate) struct Dies {
    machine: RealMachine,
    writes: usize,
}

impl Machine for Dies {
    fn boot_id(&mut self) -> String {
        self.machine.boot_id()
    }

    fn snapshot(&mut self, cpus: &CpuSet) -> sys::Result<Snapshot> {
        self.machine.snapshot(cpus)
    }

    fn look_again(&mut self, before: &Snapshot, steps: &[Step]) -> sys::Result<Snapshot> {
        self.machine.look_again(before, steps)
    }

    fn read(&mut self, target: &Target) -> sys::Result<Value> {
        self.machine.read(target)
    }

    fn write(&mut self, step: &Step) -> sys::Result<()> {
        if self.writes == 0 {
            resume_unwind(Box::new(Killed));
        }
        self.writes -= 1;
        self.machine.write(step)
    }
}

pub(crate) fn dies(writes: usize) -> Dies {
    Dies { machine: RealMachine::at(&RootDir::machine()), writes }
}

pub(crate) fn machine() -> Dies {
    dies(usize::MAX)
}

/// The whole disk of the guest, if it has one.
pub(crate) fn disk() -> Option<String> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names.into_iter().find(|name| name.starts_with('v')).map(|name| format!("/dev/{name}"))
}

/// Lock for the machine: its tests run one at a time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    guest::required();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of control groups that a partition may change.
pub(crate) fn state() -> (String, Vec<String>) {
    let mut below: Vec<String> = fs::read_dir(TOP)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    below.sort();
    (guest::read(&format!("{TOP}/cgroup.subtree_control")), below)
}

pub(crate) fn folder(name: &str) -> RunDir {
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    RunDir::at(path)
}

pub(crate) fn inside(dir: &Path) -> Child {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    guest::write(&dir.join("cgroup.procs").display().to_string(), &child.id().to_string());
    child
}

/// Runs a script within a partition's group to its end; returns its duration.
pub(crate) fn run_inside(dir: &Path, script: &str) -> Duration {
    let script = format!("echo $$ > {}/cgroup.procs; {script}", dir.display());
    let begin = Instant::now();
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    begin.elapsed()
}
