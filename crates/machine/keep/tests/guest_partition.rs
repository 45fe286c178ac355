//! Partitions on control groups of version 2: raised, killed at every write, taken back.

use base::{CpuSet, Size};
use host::partition::Lack;
use host::plan::Step;
use host::plant::{Bounds, IoMax, Partition};
use host::snapshot::{Snapshot, Target, Value};
use keep::RunDir;
use keep::partition::{PartitionError, ground, lacking, lower, raise};
use keep::shield::machine::{Machine, RealMachine};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::root::RootDir;
use testkit::guest;

const TOP: &str = "/sys/fs/cgroup";

/// What a killed tahti unwinds with.
struct Killed;

/// The guest's machine, whose user is killed before the write after so many.
struct Dies {
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

fn dies(writes: usize) -> Dies {
    Dies { machine: RealMachine::at(&RootDir::machine()), writes }
}

fn machine() -> Dies {
    dies(usize::MAX)
}

/// The whole disk of the guest, where it has one.
fn disk() -> Option<String> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names.into_iter().find(|name| name.starts_with('v')).map(|name| format!("/dev/{name}"))
}

fn partitions() -> Vec<Partition> {
    let read = Some(Size(1 << 20));
    let io_max = disk().into_iter().map(|device| IoMax { device, read, ..IoMax::default() }).collect();
    let bounds = Bounds { memory_max: Some(Size(64 << 20)), tasks_max: Some(12) };
    let cpu_max = Some("30%/100ms".parse().unwrap());
    let first = Partition {
        name: "one".into(),
        cpu_max,
        cpu_weight: Some(50),
        bounds,
        io_max,
        required: true,
        ..Partition::default()
    };
    let second = Partition {
        name: "two".into(),
        bounds: Bounds { tasks_max: Some(3), ..Bounds::default() },
        required: true,
        ..Partition::default()
    };
    vec![first, second]
}

/// One at a time: the machine is one.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    guest::required();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything about control groups that a partition may change, as it is now.
fn state() -> (String, Vec<String>) {
    let mut below: Vec<String> = fs::read_dir(TOP)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    below.sort();
    (guest::read(&format!("{TOP}/cgroup.subtree_control")), below)
}

fn folder(name: &str) -> RunDir {
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    RunDir::at(path)
}

fn inside(dir: &Path) -> Child {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    guest::write(&dir.join("cgroup.procs").display().to_string(), &child.id().to_string());
    child
}

#[test]
fn bounds_stand_are_seen_when_written_over_and_wait_for_the_last_member_to_go() {
    let _turn = turn();
    let (before, dir, wanted) = (state(), folder("stand"), partitions());
    let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
    assert_eq!(raised.lacks, [] as [String; 0]);
    let [one] = &raised.partitions.dirs("one")[..] else { panic!("version 2 has one directory") };
    let read = |name: &str| guest::read(&one.join(name).display().to_string());
    assert_eq!(
        (read("cpu.max"), read("cpu.weight"), read("pids.max")),
        ("30000 100000".into(), "50".into(), "12".into())
    );
    assert_eq!(read("memory.max"), (64 << 20).to_string());
    assert!(disk().is_none() || read("io.max").contains("rbps=1048576 wbps=max"), "{}", read("io.max"));
    let again = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
    assert_eq!((again.writes, &again.partitions), (0, &raised.partitions));
    assert_eq!(raised.partitions.drift(&mut machine()).unwrap(), []);
    guest::write(&one.join("pids.max").display().to_string(), "max");
    let drift = raised.partitions.drift(&mut machine()).unwrap();
    assert_eq!((drift.len(), drift[0].0.as_str(), drift[0].1.found.to_string()), (1, "one", "max".to_owned()));
    let mut member = inside(one);
    let stands = raised.partitions.stand();
    assert_eq!((stands[0].tasks, stands[1].tasks.map(|tasks| tasks.max)), (None, Some(3)), "nothing bounds them now");
    assert!(stands[0].cpu.is_some_and(|cpu| cpu.used.is_some() && cpu.weight == Some(50)), "{stands:?}");
    let lowered = lower(&mut machine(), &dir).unwrap();
    assert!(lowered.left.iter().any(|left| left.contains("tahti-")), "{lowered:?}");
    member.kill().unwrap();
    member.wait().unwrap();
    assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
    assert_eq!(state(), before);
}

#[test]
fn killed_at_every_write_of_raising_and_taking_back_the_next_one_leaves_nothing() {
    let _turn = turn();
    let (before, dir, wanted) = (state(), folder("kill"), partitions());
    for raising in [true, false] {
        for writes in 0.. {
            assert!(writes < 100, "it never ends");
            if !raising {
                raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut machine = dies(writes);
                match raising {
                    true => raise(&mut machine, &dir, &wanted, ground(&wanted), false).map(drop),
                    false => lower(&mut machine, &dir).map(drop),
                }
            }));
            match &outcome {
                Ok(done) => assert!(done.is_ok(), "{done:?}"),
                Err(why) => assert!(why.is::<Killed>(), "a test within has failed"),
            }
            if raising && writes % 2 == 0 {
                // Who comes next may also go on.
                raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
            }
            assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
            assert_eq!(state(), before, "killed after {writes} writes");
            if outcome.is_ok() {
                assert!(writes >= 2, "{writes}");
                break;
            }
        }
    }
}

#[test]
fn a_directory_of_somebody_else_and_what_the_machine_lacks_are_refused_and_nothing_is_left() {
    let _turn = turn();
    let (before, dir, mut wanted) = (state(), folder("foreign"), partitions());
    let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
    let [two] = &raised.partitions.dirs("two")[..] else { panic!("version 2 has one directory") };
    lower(&mut machine(), &dir).unwrap();
    fs::create_dir(two).unwrap();
    let refused = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap_err();
    fs::remove_dir(two).unwrap();
    let PartitionError::Lacks { name, lacks } = &refused else { panic!("{refused}") };
    assert_eq!((name.as_str(), &lacks[..]), ("two", &[Lack::Foreign(two.display().to_string())][..]));
    assert_eq!(state(), before);
    wanted[0].io_max = vec![IoMax { device: "/dev/null".into(), read: Some(Size(1)), ..IoMax::default() }];
    assert_eq!(lacking(&ground(&wanted), &wanted[0], &[]), [Lack::NoDevice("/dev/null".into())]);
    wanted[0].required = false;
    let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
    assert!(raised.lacks.len() == 1 && raised.lacks[0].contains("/dev/null is no block device"), "{:?}", raised.lacks);
    lower(&mut machine(), &dir).unwrap();
    let shielded = lacking(&ground(&wanted), &wanted[1], &["loop".to_owned()]);
    assert_eq!(shielded, [Lack::OnShield("loop".into())]);
    assert_eq!(state(), before);
}
