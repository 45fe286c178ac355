//! Partitions on cgroup v2: raised, killed at every write, lowered.

mod partition;

use base::Size;
use host::partition::Lack;
use host::plant::{Bounds, IoMax, Partition};
use keep::partition::{PartitionError, ground, lacking, lower, raise};
use partition::{Killed, dies, disk, folder, inside, machine, run_inside, state, turn};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use testkit::guest;

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

#[test]
fn bounds_are_applied_changes_are_reported_and_a_group_waits_for_its_last_member() {
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
    assert_eq!((stands[0].tasks, stands[1].tasks.map(|tasks| tasks.max)), (None, Some(3)), "no bound remains");
    assert!(stands[0].cpu.is_some_and(|cpu| cpu.used.is_some() && cpu.weight == Some(50)), "{stands:?}");
    let lowered = lower(&mut machine(), &dir).unwrap();
    assert!(lowered.left.iter().any(|left| left.contains("tahti-")), "{lowered:?}");
    member.kill().unwrap();
    member.wait().unwrap();
    assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
    assert_eq!(state(), before);
}

#[test]
fn disk_reads_and_writes_stay_within_the_bound() {
    let _turn = turn();
    let (before, dir, device) = (state(), folder("disk"), disk().expect("guests have a disk"));
    let bound =
        IoMax { device: device.clone(), read: Some(Size(1 << 20)), write: Some(Size(2 << 20)), ..IoMax::default() };
    let wanted = vec![Partition { name: "disk".into(), io_max: vec![bound], required: true, ..Partition::default() }];
    let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
    let [group] = &raised.partitions.dirs("disk")[..] else { panic!("version 2 has one directory") };
    // 3 MiB at 1 MiB/s, 6 MiB at 2 MiB/s, the first of each at once. A slow host makes it longer.
    let least = Duration::from_millis(1500);
    let took = run_inside(group, &format!("exec dd if={device} of=/dev/null bs=64k count=48 iflag=direct"));
    assert!(took > least, "read in {took:?}");
    let took = run_inside(group, &format!("exec dd if=/dev/zero of={device} bs=64k count=96 oflag=direct"));
    assert!(took > least, "written in {took:?}");
    let counted = guest::read(&group.join("io.stat").display().to_string());
    assert!(counted.contains("rbytes=3145728 wbytes=6291456"), "{counted}");
    assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
    assert_eq!(state(), before);
}

#[test]
fn a_kill_at_any_write_of_raising_or_lowering_is_cleaned_up_by_the_next_start() {
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
                // The next run may also raise the partition again.
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
fn a_foreign_directory_and_missing_features_are_refused_and_nothing_is_left() {
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
