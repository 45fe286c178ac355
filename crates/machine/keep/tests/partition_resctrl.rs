//! Raises partitions on a model of resctrl, kills tahti at every write, and lowers them. The tests need no real resctrl.

mod model;

use host::partition::{Ground, Lack};
use host::plan::Want;
use host::plant::Partition;
use keep::RunDir;
use keep::partition::{PartitionError, lower, raise, resctrl};
use keep::shield::machine::RealMachine;
use keep::shield::{Applied, Released, apply_on, release_on};
use model::{Dir, Killed, Machine, outlive};
use sys::kernel::Kernel as _;

const MACHINE: &str = "\
/proc/sys/kernel/osrelease: 6.12.0
/proc/sys/kernel/random/boot_id: 5b7a
/sys/devices/system/cpu/online: 0-3
/sys/devices/virtual/workqueue/cpumask: f
/proc/irq/default_smp_affinity: f
/proc/self/mountinfo: 23 1 0:22 / / rw - ext4 /dev/vda rw
/sys/devices/system/cpu/cpu2/cache/index3/level: 3
/sys/devices/system/cpu/cpu2/cache/index3/id: 0
/sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list: 0-3
/sys/fs/resctrl/cpus_list: 0-3
/sys/fs/resctrl/schemata:
|    MB:0=100;1=100
|    L3:0=fffff;1=fffff
/sys/fs/resctrl/info/L3/cbm_mask: fffff
/sys/fs/resctrl/info/L3/min_cbm_bits: 2
/sys/fs/resctrl/info/L3/num_closids: 3
/sys/fs/resctrl/info/MB/min_bandwidth: 10
/sys/fs/resctrl/info/MB/bandwidth_gran: 10
";

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
fn a_partition_gets_ways_and_bandwidth_reports_changes_and_leaves_nothing() {
    let (machine, dir) = (Machine::boot(MACHINE), Dir::new());
    let before = machine.0.borrow().state();
    let raised = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap();
    assert_eq!(raised.lacks, [] as [String; 0]);
    let [group] = &raised.partitions.dirs("hmi")[..] else { panic!("one group") };
    let schemata = format!("{}/schemata", group.display());
    assert_eq!((&machine).read(&schemata).unwrap(), "    MB:0= 30;1= 30\n    L3:0=f0000;1=f0000\n");
    assert_eq!(raised.partitions.drift(&mut RealMachine::new(&machine)).unwrap(), []);
    (&machine).write(&schemata, "MB:0=90\n").unwrap();
    let drift = raised.partitions.drift(&mut RealMachine::new(&machine)).unwrap();
    assert_eq!((drift.len(), drift[0].1.found.to_string()), (1, "MB:0=90;1=30".to_owned()));
    assert_eq!(lower(&mut RealMachine::new(&machine), &dir.0).unwrap().left, [] as [String; 0]);
    assert_eq!(machine.0.borrow().state(), before);
}

#[test]
fn a_kill_at_any_write_is_cleaned_up_by_the_next_supervisor() {
    let dir = Dir::new();
    for writes in 0.. {
        let machine = Machine::boot(MACHINE);
        let before = machine.0.borrow().state();
        machine.0.borrow_mut().kill_after(writes);
        let outcome =
            outlive(|| raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).map(drop));
        machine.0.borrow_mut().revive();
        assert_eq!(lower(&mut RealMachine::new(&machine), &dir.0).unwrap().left, [] as [String; 0]);
        assert_eq!(machine.0.borrow().state(), before, "killed after {writes} writes");
        if !matches!(outcome, Err(Killed)) {
            assert!(writes >= 3, "a group, its ways, its bandwidth");
            break;
        }
    }
}

#[test]
fn a_foreign_group_stays_and_missing_features_of_the_machine_are_reported() {
    let (machine, dir) = (Machine::boot(MACHINE), Dir::new());
    let raised = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap();
    let group = raised.partitions.dirs("hmi")[0].display().to_string();
    lower(&mut RealMachine::new(&machine), &dir.0).unwrap();
    (&machine).make_dir(&group).unwrap();
    let theirs = machine.0.borrow().state();
    let refused = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap_err();
    assert!(
        matches!(&refused, PartitionError::Lacks { lacks, .. } if lacks[..] == [Lack::Foreign(group)]),
        "{refused}"
    );
    assert_eq!(machine.0.borrow().state(), theirs);
    // The processor has no free group left: the kernel reports it, and the partition leaves nothing behind.
    let (machine, dir) = (Machine::boot(&MACHINE.replace("closids: 3", "closids: 1")), Dir::new());
    let before = machine.0.borrow().state();
    let refused = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap_err();
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert_eq!(machine.0.borrow().state(), before);
    let bare = MACHINE
        .lines()
        .filter(|line| !line.contains("resctrl") && !line.starts_with('|'))
        .collect::<Vec<_>>()
        .join("\n");
    let (machine, dir) = (Machine::boot(&bare), Dir::new());
    let refused = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap_err();
    assert!(refused.to_string().contains("mount -t resctrl"), "{refused}");
    let optional = vec![Partition { required: false, ..hmi().remove(0) }];
    let raised = raise(&mut RealMachine::new(&machine), &dir.0, &optional, ground(&machine), false).unwrap();
    assert_eq!((raised.lacks.len(), raised.writes), (1, 0));
}

const TOP: &str = "/sys/fs/resctrl/schemata";
const FULL: &str = "MB:0=100;1=100\n    L3:0=fffff;1=fffff";
/// The schemata for all other tasks if CPU 2 is shielded, which shares cache 0.
const LEFT: &str = "MB:0=100;1=100\n    L3:0=fffe0;1=fffff";

fn shield(machine: &Machine, dir: &RunDir) -> Applied {
    let want = Want { cpus: "2".parse().unwrap(), ..Want::default() };
    let applied = apply_on(&mut RealMachine::new(machine), &want, dir).unwrap();
    assert_eq!(applied.drift, []);
    applied
}

fn release(machine: &Machine, dir: &RunDir) -> Released {
    let released = release_on(&mut RealMachine::new(machine), dir, false).unwrap();
    assert!(released.is_whole(), "{released:?}");
    released
}

fn read(machine: &Machine, path: &str) -> String {
    machine.read(path).unwrap_or_default().trim().to_owned()
}

/// The notes of the shield about the cache's ways.
fn said(applied: &Applied) -> Vec<String> {
    let notes = applied.notes.iter().map(|note| format!("{}: {}", note.about, note.text));
    notes.filter(|note| note.contains("cache ways")).collect()
}

#[test]
fn a_shield_and_a_partition_divide_the_cache_in_any_order_of_start_and_end() {
    for shield_first in [true, false] {
        for shield_leaves_first in [true, false] {
            let (machine, dir) = (Machine::boot(MACHINE), Dir::new());
            let before = machine.0.borrow().state();
            let raised = |partitions: &[Partition]| {
                raise(&mut RealMachine::new(&machine), &dir.0, partitions, ground(&machine), false).unwrap()
            };
            if shield_first {
                shield(&machine, &dir.0);
            }
            let partitions = raised(&hmi()).partitions;
            let group = format!("{}/schemata", partitions.dirs("hmi")[0].display());
            if !shield_first {
                assert_eq!(said(&shield(&machine, &dir.0)), [] as [&str; 0]);
            }
            let stands = |shield: bool, when: &str| {
                assert_eq!(read(&machine, TOP), if shield { LEFT } else { FULL }, "{when}");
                let own = if shield { "L3:0=0001f;1=fffff" } else { "" };
                let found = read(&machine, "/sys/fs/resctrl/tahti.shield/schemata");
                assert!(found.ends_with(own) && found.is_empty() != shield, "{when}: {found}");
            };
            stands(true, "both stand");
            assert_eq!(shield(&machine, &dir.0).writes, 0, "no step remains");
            assert_eq!(read(&machine, &group), "MB:0= 30;1= 30\n    L3:0=f0000;1=f0000");
            if shield_leaves_first {
                release(&machine, &dir.0);
                stands(false, "the partition is unchanged");
                assert_eq!(partitions.drift(&mut RealMachine::new(&machine)).unwrap(), []);
                // Raising it again changes nothing.
                assert_eq!(raised(&hmi()).writes, 0);
                lower(&mut RealMachine::new(&machine), &dir.0).unwrap();
            } else {
                assert_eq!(lower(&mut RealMachine::new(&machine), &dir.0).unwrap().left, [] as [String; 0]);
                stands(true, "the shield is unchanged");
                release(&machine, &dir.0);
            }
            assert_eq!(machine.0.borrow().state(), before, "{shield_first} {shield_leaves_first}");
        }
    }
}

#[test]
fn a_partition_of_all_the_cache_gets_the_part_left_by_a_shield_and_blocks_a_later_one() {
    let all = vec![Partition { cache: Some(100), memory_bandwidth: None, ..hmi().remove(0) }];
    let (machine, dir) = (Machine::boot(MACHINE), Dir::new());
    let before = machine.0.borrow().state();
    let raised = || raise(&mut RealMachine::new(&machine), &dir.0, &all, ground(&machine), false).unwrap();
    shield(&machine, &dir.0);
    let group = format!("{}/schemata", raised().partitions.dirs("hmi")[0].display());
    assert!(read(&machine, &group).ends_with("L3:0=fffe0;1=fffff"));
    release(&machine, &dir.0);
    // The partition's ways are not the shield's: the partition can be raised again during the shield.
    assert_eq!(said(&shield(&machine, &dir.0)), [] as [&str; 0]);
    assert_eq!(read(&machine, TOP), LEFT);
    release(&machine, &dir.0);
    // Raised again without a shield, the partition gets all ways.
    raised();
    assert!(read(&machine, &group).ends_with("L3:0=fffff;1=fffff"), "{}", read(&machine, &group));
    let told = said(&shield(&machine, &dir.0));
    assert!(
        told.len() == 1 && told[0].contains(&group) && told[0].contains("lower the partition's `cache`"),
        "{told:?}"
    );
    assert_eq!(read(&machine, TOP), FULL, "the cache is left as it is");
    release(&machine, &dir.0);
    lower(&mut RealMachine::new(&machine), &dir.0).unwrap();
    assert_eq!(machine.0.borrow().state(), before);
}

#[test]
fn a_foreign_cache_group_prevents_the_division_by_a_shield_but_not_a_partition() {
    let (machine, dir) = (Machine::boot(MACHINE), Dir::new());
    (&machine).make_dir("/sys/fs/resctrl/theirs").unwrap();
    (&machine).write("/sys/fs/resctrl/theirs/schemata", "L3:0=c0000").unwrap();
    let before = machine.0.borrow().state();
    let told = said(&shield(&machine, &dir.0));
    assert!(told.len() == 1 && told[0].contains("/sys/fs/resctrl/theirs/schemata"), "{told:?}");
    let raised = raise(&mut RealMachine::new(&machine), &dir.0, &hmi(), ground(&machine), false).unwrap();
    assert_eq!(raised.lacks, [] as [String; 0]);
    assert_eq!(read(&machine, "/sys/fs/resctrl/theirs/schemata"), "MB:0=100;1=100\n    L3:0=c0000;1=fffff");
    assert_eq!(read(&machine, TOP), FULL);
    assert_eq!(lower(&mut RealMachine::new(&machine), &dir.0).unwrap().left, [] as [String; 0]);
    release(&machine, &dir.0);
    assert_eq!(machine.0.borrow().state(), before);
}
