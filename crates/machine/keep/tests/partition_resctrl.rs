//! Partitions on a model of resctrl: raised, killed at every write, taken back. No machine that this was written on has it.

mod model;

use host::partition::{Ground, Lack};
use host::plant::Partition;
use keep::RunDir;
use keep::partition::{PartitionError, lower, raise, resctrl};
use keep::shield::machine::RealMachine;
use model::{Killed, Machine, outlive};
use sys::kernel::Kernel as _;

const MACHINE: &str = "\
/proc/sys/kernel/osrelease: 6.12.0
/proc/sys/kernel/random/boot_id: 5b7a
/sys/devices/system/cpu/online: 0-3
/sys/devices/virtual/workqueue/cpumask: f
/proc/irq/default_smp_affinity: f
/sys/fs/resctrl/cpus_list: 0-3
/sys/fs/resctrl/schemata:
|    MB:0=100;1=100
|    L3:0=fffe0;1=fffff
/sys/fs/resctrl/info/L3/cbm_mask: fffff
/sys/fs/resctrl/info/L3/min_cbm_bits: 2
/sys/fs/resctrl/info/L3/num_closids: 3
/sys/fs/resctrl/info/MB/min_bandwidth: 10
/sys/fs/resctrl/info/MB/bandwidth_gran: 10
";

fn folder(name: &str) -> RunDir {
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    RunDir::at(path)
}

fn ground(machine: &Machine) -> Ground {
    Ground { resctrl: resctrl(&|path| machine.read(path).ok()), ..Ground::default() }
}

fn hmi() -> Vec<Partition> {
    vec![Partition {
        name: "hmi".into(),
        cache: Some(20),
        memory_bandwidth: Some(25),
        required: true,
        ..Partition::default()
    }]
}

#[test]
fn a_partition_gets_ways_and_bandwidth_is_seen_when_written_over_and_leaves_nothing() {
    let (machine, dir) = (Machine::boot(MACHINE), folder("resctrl"));
    let before = machine.0.borrow().state();
    let raised = raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).unwrap();
    assert_eq!(raised.lacks, [] as [String; 0]);
    let [group] = &raised.partitions.dirs("hmi")[..] else { panic!("one group") };
    let schemata = format!("{}/schemata", group.display());
    assert_eq!((&machine).read(&schemata).unwrap(), "    MB:0= 30;1= 30\n    L3:0=f0000;1=f0000\n");
    assert_eq!(raised.partitions.drift(&mut RealMachine::new(&machine)).unwrap(), []);
    (&machine).write(&schemata, "MB:0=90\n").unwrap();
    let drift = raised.partitions.drift(&mut RealMachine::new(&machine)).unwrap();
    assert_eq!((drift.len(), drift[0].1.found.to_string()), (1, "MB:0=90;1=30".to_owned()));
    assert_eq!(lower(&mut RealMachine::new(&machine), &dir).unwrap().left, [] as [String; 0]);
    assert_eq!(machine.0.borrow().state(), before);
}

#[test]
fn killed_at_every_write_the_next_one_leaves_nothing() {
    let dir = folder("resctrl-kill");
    for writes in 0.. {
        let machine = Machine::boot(MACHINE);
        let before = machine.0.borrow().state();
        machine.0.borrow_mut().kill_after(writes);
        let outcome =
            outlive(|| raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).map(drop));
        machine.0.borrow_mut().revive();
        assert_eq!(lower(&mut RealMachine::new(&machine), &dir).unwrap().left, [] as [String; 0]);
        assert_eq!(machine.0.borrow().state(), before, "killed after {writes} writes");
        if !matches!(outcome, Err(Killed)) {
            assert!(writes >= 3, "a group, its ways, its bandwidth");
            break;
        }
    }
}

#[test]
fn a_group_of_somebody_else_stays_and_what_the_machine_lacks_is_told() {
    let (machine, dir) = (Machine::boot(MACHINE), folder("resctrl-foreign"));
    let raised = raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).unwrap();
    let group = raised.partitions.dirs("hmi")[0].display().to_string();
    lower(&mut RealMachine::new(&machine), &dir).unwrap();
    (&machine).make_dir(&group).unwrap();
    let theirs = machine.0.borrow().state();
    let refused = raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).unwrap_err();
    assert!(
        matches!(&refused, PartitionError::Lacks { lacks, .. } if lacks[..] == [Lack::Foreign(group)]),
        "{refused}"
    );
    assert_eq!(machine.0.borrow().state(), theirs);
    // The last of the processor's groups is taken: the kernel says so, and nothing is left.
    let (machine, dir) = (Machine::boot(&MACHINE.replace("closids: 3", "closids: 1")), folder("resctrl-full"));
    let before = machine.0.borrow().state();
    let refused = raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).unwrap_err();
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert_eq!(machine.0.borrow().state(), before);
    let bare = MACHINE
        .lines()
        .filter(|line| !line.contains("resctrl") && !line.starts_with('|'))
        .collect::<Vec<_>>()
        .join("\n");
    let (machine, dir) = (Machine::boot(&bare), folder("resctrl-none"));
    let refused = raise(&mut RealMachine::new(&machine), &dir, &hmi(), ground(&machine), false).unwrap_err();
    assert!(refused.to_string().contains("mount -t resctrl"), "{refused}");
    let optional = vec![Partition { required: false, ..hmi().remove(0) }];
    let raised = raise(&mut RealMachine::new(&machine), &dir, &optional, ground(&machine), false).unwrap();
    assert_eq!((raised.lacks.len(), raised.writes), (1, 0));
}
