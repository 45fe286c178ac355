use super::*;
use crate::plan::{Plan, Step, revert};
use crate::plant::{Bounds, CpuMax, IoMax};
use crate::snapshot::{Form, Target, Value};
use base::Size;
use proptest::prelude::*;
use std::collections::BTreeSet;

type TargetValues = BTreeMap<Target, Value>;

fn partition() -> Partition {
    Partition {
        name: "hmi".into(),
        cpu_max: Some("50%/100ms".parse().unwrap()),
        cpu_weight: Some(50),
        bounds: Bounds { memory_max: Some(Size((64 << 20) + 1)), tasks_max: Some(24) },
        io_max: vec![IoMax {
            device: "/dev/sda".into(),
            read: Some(Size(1 << 20)),
            write_ops: Some(7),
            ..IoMax::default()
        }],
        required: true,
        inner: vec![Controller::Memory],
        cache: None,
        memory_bandwidth: None,
        network: None,
    }
}

/// A machine with these controllers in version 1 and all others in version 2. The own group is two levels below the
/// top.
fn ground(v1: &[Controller], passed: &[Controller]) -> Ground {
    let rest = Controller::ALL.into_iter().filter(|one| !v1.contains(one) && *one != Controller::Account);
    Ground {
        v1: v1.iter().map(|one| (*one, format!("/cg/{}/own", one.name(Version::V1)))).collect(),
        v2: Some(Unified {
            controllers: rest.collect(),
            above: vec![
                ("/cg2/a/b".into(), Vec::new()),
                ("/cg2/a".into(), passed.to_vec()),
                ("/cg2".into(), Vec::new()),
            ],
        }),
        page_bytes: 4096,
        devices: BTreeMap::from([("/dev/sda".into(), Device::Block(8, 0))]),
        resctrl: None,
        links: BTreeMap::from([("eth0".into(), Some(network::Link::default()))]),
        read_only: BTreeSet::new(),
    }
}

/// Simulates the kernel: a directory appears and disappears with its files, and a written value stays.
fn take(seen: &mut TargetValues, all: &[RequestedValue], plan: &Plan) {
    for step in &plan.steps {
        let found = seen.get(&step.target).unwrap_or(&Value::Absent);
        assert_eq!(found, &step.from, "{}", step.label);
        seen.insert(step.target.clone(), step.to.clone());
        if matches!(&step.target, Target::Traffic { handle: network::BUCKET, .. }) && step.to == Value::Absent {
            let below = |target: &Target| matches!(target, Target::Traffic { .. } | Target::TrafficClass { .. });
            seen.iter_mut().filter(|(target, _)| below(target)).for_each(|(_, value)| *value = Value::Absent);
        }
        let Target::Dir { path: dir } = &step.target else { continue };
        let sends = if step.to == Value::Present { Value::Text(String::new()) } else { Value::Absent };
        let sender = Target::Sender { path: dir.clone() };
        if all.iter().any(|one| one.target == sender) {
            seen.insert(sender, sends);
        }
        for one in all {
            let Target::File { path, form } = &one.target else { continue };
            if path.rsplit_once('/').is_some_and(|(parent, _)| parent == dir) {
                let fresh = if step.to == Value::Present { form.read("max") } else { Value::Absent };
                seen.insert(one.target.clone(), fresh);
            }
        }
    }
}

/// Initial state: the files of the groups above.
fn before(all: &[RequestedValue]) -> TargetValues {
    let dirs: BTreeSet<&str> = all
        .iter()
        .filter_map(|one| if let Target::Dir { path } = &one.target { Some(path.as_str()) } else { None })
        .collect();
    let mut seen = TargetValues::new();
    for one in all {
        let above = match &one.target {
            Target::File { path, form } if !dirs.contains(path.rsplit_once('/').unwrap().0) => form.read("cpuset"),
            _ => Value::Absent,
        };
        seen.insert(one.target.clone(), above);
    }
    seen
}

fn text(target: &str, all: &[RequestedValue]) -> String {
    let one = all.iter().find(|one| one.target.to_string() == target);
    one.unwrap_or_else(|| panic!("{target} in {all:#?}")).value.to_string()
}

#[test]
fn version_2_gets_one_directory_where_all_controllers_are_enabled() {
    let all = [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::Io];
    let ground = ground(&[], &all);
    let (homes, lacks) = homes(&ground, "tahti-p.hmi", &partition());
    assert_eq!(lacks, []);
    assert_eq!(homes.iter().map(|home| home.dir.as_str()).collect::<Vec<_>>(), ["/cg2/a/tahti-p.hmi"]);
    let wanted = wanted(&ground, &homes, &partition(), &[]);
    for (file, value) in [
        ("cpu.max", "50000 100000"),
        ("cpu.weight", "50"),
        ("memory.max", "67108864"),
        ("pids.max", "24"),
        ("io.max", "rbps=1048576 wbps=max riops=max wiops=7"),
        ("cgroup.subtree_control", "+memory"),
    ] {
        assert_eq!(text(&format!("/cg2/a/tahti-p.hmi/{file}"), &wanted), value);
    }
}

#[test]
fn read_only_groups_are_reported_once_each_and_others_are_not_checked() {
    let with = |read_only: &[&str]| Ground {
        read_only: read_only.iter().copied().map(str::to_owned).collect(),
        ..ground(&[Controller::Cpu, Controller::Pids], &Controller::ALL)
    };
    let lacks = |read_only: &[&str]| homes(&with(read_only), "tahti-p.hmi", &partition()).1;
    let both = ["/cg2/a", "/cg/cpu/own"].map(|dir| Lack::ReadOnly(dir.into()));
    assert_eq!(lacks(&["/cg/cpu/own", "/cg2/a", "/cg2"]), [both[1].clone(), both[0].clone()]);
    assert_eq!(lacks(&["/cg2"]), []);
}

#[test]
fn if_no_group_enables_the_controllers_the_top_group_does() {
    let ground = ground(&[], &[Controller::Pids]);
    let (homes, _) = homes(&ground, "x", &partition());
    assert_eq!(homes[0].dir, "/cg2/x");
    let all = wanted(&ground, &homes, &partition(), &[]);
    assert_eq!(all[0].target.to_string(), "/cg2/cgroup.subtree_control");
    assert_eq!(all[0].value.to_string(), "+cpu");
}

#[test]
fn version_1_gets_a_directory_for_each_controller_below_the_group_of_the_supervisor() {
    let ground = ground(&Controller::ALL, &[]);
    let (homes, lacks) = homes(&ground, "x", &partition());
    assert_eq!((homes.len(), lacks), (5, Vec::new()));
    let all = wanted(&ground, &homes, &partition(), &[]);
    for (file, value) in [
        ("cpu/own/x/cpu.cfs_period_us", "100000"),
        ("cpu/own/x/cpu.cfs_quota_us", "50000"),
        ("cpu/own/x/cpu.shares", "512"),
        ("memory/own/x/memory.limit_in_bytes", "67108864"),
        ("pids/own/x/pids.max", "24"),
        ("blkio/own/x/blkio.throttle.read_bps_device", "1048576"),
        ("blkio/own/x/blkio.throttle.write_iops_device", "7"),
    ] {
        assert_eq!(text(&format!("/cg/{file}"), &all), value);
    }
}

#[test]
fn missing_controllers_devices_and_files_are_named() {
    let mut bare = ground(&[], &[]);
    bare.v2.as_mut().unwrap().controllers = vec![Controller::Cpu, Controller::Pids];
    bare.devices = BTreeMap::from([("/dev/sda".into(), Device::Part)]);
    let (_, lacks) = homes(&bare, "x", &partition());
    let expected =
        [Lack::Controller(Controller::Memory), Lack::Controller(Controller::Io), Lack::Part("/dev/sda".into())];
    assert_eq!(lacks, expected);
    let ground = ground(&[], &[]);
    let (homes, _) = homes(&ground, "x", &partition());
    let all = wanted(&ground, &homes, &partition(), &[]);
    let mut seen = before(&all);
    seen.insert(Target::Dir { path: "/cg2/x".into() }, Value::Present);
    let lacks = plan(&seen, &all, &BTreeSet::new(), true).unwrap_err();
    assert!(lacks.contains(&Lack::Foreign("/cg2/x".into())), "{lacks:?}");
    let lacks = plan(&seen, &all, &BTreeSet::from([Target::Dir { path: "/cg2/x".to_owned() }]), true).unwrap_err();
    assert!(lacks.iter().any(|lack| lack.to_string().contains("cpu.max does not exist")), "{lacks:?}");
}

#[test]
fn lines_of_a_device_are_distinguished_from_those_of_others() {
    let form = Form::Device { major: 8, minor: 0 };
    let value = form.read("8:16 rbps=1\n8:0 rbps=2 wbps=max\n");
    assert_eq!(value, Value::Text("rbps=2 wbps=max".into()));
    assert_eq!(form.write(&value).unwrap(), "8:0 rbps=2 wbps=max");
    assert_eq!(form.read("18:0 7\n"), Value::Text(String::new()));
    let form = Form::Passes { controller: Controller::Io };
    assert_eq!(form.read("cpu io\n"), Value::Text("+io".into()));
    assert_eq!(form.read("cpu\n"), Value::Text("-io".into()));
}

fn any_partition() -> impl Strategy<Value = Partition> {
    let cpu =
        proptest::option::of((1..400u32).prop_map(|percent| CpuMax { percent, period: base::DurNs::from_ms(100) }));
    let memory = proptest::option::of((1u64 << 20..1 << 34).prop_map(Size));
    let inner = proptest::sample::subsequence(vec![Controller::Memory, Controller::Pids], 0..=2);
    let weight = proptest::option::of(1..10_000u16);
    let tasks = proptest::option::of(1..1000u64);
    (cpu, weight, memory, tasks, any::<[bool; 2]>(), inner).prop_map(
        |(cpu_max, cpu_weight, memory_max, tasks_max, [io, network], inner)| {
            let io_max = if io { partition().io_max } else { Vec::new() };
            let bounds = Bounds { memory_max, tasks_max };
            let network = network.then(|| crate::plant::Network {
                device: "eth0".into(),
                link: "1Gbit".parse().unwrap(),
                rate: "20Mbit".parse().unwrap(),
                max: None,
                delay: Some(base::DurNs::from_ms(1)),
                queue: crate::plant::Queue::Fifo,
            });
            Partition {
                name: "x".into(),
                cpu_max,
                cpu_weight,
                bounds,
                io_max,
                network,
                required: true,
                inner,
                ..Partition::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn a_plan_is_complete_after_two_rounds_and_its_reversal_from_any_step_leaves_nothing(
        partition in any_partition(),
        v1 in proptest::sample::subsequence(Controller::ALL.to_vec(), 0..=5),
        passed in proptest::sample::subsequence(Controller::ALL.to_vec(), 0..=5),
        stop in 0..40usize,
    ) {
        let ground = ground(&v1, &passed);
        let (homes, lacks) = homes(&ground, "x", &partition);
        prop_assert!(lacks.is_empty(), "{lacks:?}");
        let all = wanted(&ground, &homes, &partition, std::slice::from_ref(&partition));
        let origin = before(&all);
        let (mut seen, mut done, mut ours) = (origin.clone(), Vec::new(), BTreeSet::new());
        for _ in 0..2 {
            let next = plan(&seen, &all, &ours, true).unwrap();
            for step in &next.steps {
                ours.insert(step.target.clone());
            }
            take(&mut seen, &all, &next);
            done.extend(next.steps);
        }
        prop_assert!(plan(&seen, &all, &ours, true).unwrap().steps.is_empty());
        prop_assert!(drift(&seen, &all).is_empty());
        // After a kill at any step, everything created is reverted and the rest is unchanged.
        let some = &done[..stop.min(done.len())];
        let mut seen = origin.clone();
        take(&mut seen, &all, &Plan { steps: some.to_vec(), ..Plan::default() });
        let back = revert(&Plan { steps: made(some), ..Plan::default() });
        take(&mut seen, &all, &back);
        prop_assert_eq!(seen, origin);
    }

    #[test]
    fn a_change_of_bounds_is_applied_and_removed_bounds_are_restored(
        first in any_partition(),
        second in any_partition(),
        v1 in proptest::sample::subsequence(Controller::ALL.to_vec(), 0..=5),
        occupied in any::<bool>(),
    ) {
        let ground = ground(&v1, &Controller::ALL);
        let of = |one: &Partition| {
            let (homes, _) = homes(&ground, "x", one);
            (homes.iter().map(|home| home.dir.clone()).collect::<BTreeSet<_>>(), wanted(&ground, &homes, one, std::slice::from_ref(one)))
        };
        let ((had, old), (has, new)) = (of(&first), of(&second));
        let all: Vec<RequestedValue> = old.iter().chain(&new).cloned().collect();
        let origin = before(&all);
        let (mut seen, mut noted) = (origin.clone(), Vec::new());
        let stand = |seen: &mut TargetValues, noted: &mut Vec<Step>, wants: &[RequestedValue]| {
            for _ in 0..2 {
                let ours = noted.iter().map(|step: &Step| step.target.clone()).collect();
                let next = plan(seen, wants, &ours, true).unwrap();
                take(seen, &all, &next);
                noted.extend(next.steps);
            }
        };
        stand(&mut seen, &mut noted, &old);
        let kept = if occupied { had.clone() } else { BTreeSet::new() };
        let back = dropped(&noted, &new, &kept, &seen);
        take(&mut seen, &all, &back);
        prop_assert!(dropped(&noted, &new, &kept, &seen).steps.is_empty(), "a second pass changes nothing");
        for one in old.iter().filter(|one| !new.iter().any(|other| other.target == one.target)) {
            let stays = matches!(&one.target, Target::Dir { path } if kept.contains(path));
            let expected = match &one.target {
                _ if stays => Value::Present,
                Target::File { path, form } if kept.contains(path.rsplit_once('/').unwrap().0) || has.contains(path.rsplit_once('/').unwrap().0) => form.read("max"),
                Target::Sender { path } if kept.contains(path) || has.contains(path) => Value::Text(String::new()),
                other => origin[other].clone(),
            };
            prop_assert_eq!(&seen[&one.target], &expected, "{}", one.target);
        }
        noted.retain(|step| new.iter().any(|one| one.target == step.target) || matches!(&step.target, Target::Dir { path } if kept.contains(path)));
        stand(&mut seen, &mut noted, &new);
        prop_assert!(drift(&seen, &new).is_empty());
    }
}
