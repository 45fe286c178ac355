//! Plans the shield on captured, invented and hostile machines, from their files, and checks the properties of every plan.

mod invented;

use base::{CpuId, CpuSet};
use host::doctor::{Facts, FileContent, Files, Probes, Use, examine};
use host::plan::{self, Plan, Profile, Release, Spared, Step, Want};
use host::snapshot::{Cgroup, Snapshot, Target, Value};
use keep::machine::capture::Captured;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

/// All machines by name.
static MACHINES: LazyLock<BTreeMap<String, Files>> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../machine/host/tests/fixtures");
    let mut machines = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".txt") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            machines.insert(name.to_owned(), Files::from_capture(&text).unwrap());
        }
    }
    machines.insert("invented-server".into(), invented::server());
    machines.insert("invented-laptop".into(), invented::laptop());
    machines
});

/// The machines with all files that a shield reads. The others hold only the files of single checks of the doctor.
fn whole_machines() -> impl Iterator<Item = (&'static String, &'static Files)> {
    MACHINES.iter().filter(|(name, _)| name.starts_with("captured-") || name.starts_with("invented-"))
}

/// Any of the whole machines.
fn any_machine() -> impl Strategy<Value = Files> {
    let machines: Vec<&Files> = whole_machines().map(|(_, files)| files).collect();
    any::<prop::sample::Index>().prop_map(move |nth| (*nth.get(&machines)).clone())
}

fn snapshot(files: &Files, cpus: &CpuSet) -> sys::Result<Snapshot> {
    keep::machine::snapshot(&Captured(files.clone()), cpus)
}

/// The CPUs that a step adds or removes.
fn touched(first: &Value, last: &Step) -> CpuSet {
    let cpus = |value: &Value| match value {
        Value::Cpus(cpus) => *cpus,
        Value::Place(place) => place.cpus,
        _ => CpuSet::EMPTY,
    };
    let per_cpu = match &last.target {
        Target::File { path, .. } => path.strip_prefix("/sys/devices/system/cpu/cpu"),
        _ => None,
    };
    if let Some(rest) = per_cpu {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return CpuSet::single(digits.parse::<CpuId>().unwrap());
    }
    cpus(first).minus(&cpus(&last.to))
}

/// The machine after all steps were taken back, in up to three rounds, as the executor may need them. Dissolving a partition
/// may change masks, which a later round restores.
fn given_back(after: Snapshot, plan: &Plan) -> Snapshot {
    (0..3).fold(after, |now, _| plan::model(&now, &plan::release(&now, &plan.steps, false).plan))
}

/// Properties of every plan on a machine.
fn holds(snapshot: &Snapshot, want: &Want, plan: &Plan) -> Result<(), TestCaseError> {
    let after = plan::model(snapshot, plan);
    prop_assert!(!plan::housekeeping(&after, &want.cpus).is_empty());
    prop_assert_eq!(plan::verify(&after, &plan.steps), vec![]);
    prop_assert_eq!(plan::plan(&after, want).map(|plan| plan.steps), Ok(vec![]));
    let mut net: BTreeMap<&Target, (&Value, &Step)> = BTreeMap::new();
    for step in &plan.steps {
        net.entry(&step.target).or_insert((&step.from, step)).1 = step;
    }
    // Boot-isolated CPUs are not housekeeping CPUs: tasks that are moved away do not go there either.
    let ours = want.cpus.or(&snapshot.cpus.isolated);
    for (first, last) in net.values() {
        prop_assert!(touched(first, last).is_subset(&ours), "{:?}", last);
    }
    for (key, task) in &after.tasks {
        prop_assert!(!task.cpus.is_empty() || snapshot.tasks[key].cpus.is_empty(), "{:?}", task);
    }
    let back = given_back(after, plan);
    prop_assert_eq!(&plan::release(&back, &plan.steps, false), &Release::default());
    prop_assert!(back == *snapshot, "{:?}", difference(&back, snapshot));
    Ok(())
}

/// The first difference between two machines, in a short form.
fn difference(a: &Snapshot, b: &Snapshot) -> Option<(String, String)> {
    let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
    a.lines().zip(b.lines()).find(|(a, b)| a != b).map(|(a, b)| (a.to_owned(), b.to_owned()))
}

/// CPUs of a machine, selected by bits.
fn chosen(files: &Files, bits: u64) -> CpuSet {
    let online: CpuSet = files.cpus("/sys/devices/system/cpu/online").unwrap_or_default();
    online.iter().filter(|cpu| bits.rotate_left(u32::from(*cpu)) & 1 == 1).collect()
}

#[test]
fn each_machine_is_read_and_can_be_shielded() {
    let mut seen = BTreeSet::new();
    for (name, files) in whole_machines() {
        let online = files.cpus("/sys/devices/system/cpu/online").unwrap();
        let cpus = CpuSet::single(online.iter().last().unwrap());
        let snapshot = snapshot(files, &cpus).unwrap();
        seen.insert(match snapshot.cgroup {
            Cgroup::None => "plain",
            Cgroup::V1 { .. } => "v1",
            Cgroup::V2 { systemd: true, .. } => "systemd",
            Cgroup::V2 { systemd: false, .. } => "v2",
        });
        assert!(snapshot.tasks.len() > 15 && snapshot.tasks.values().any(|task| task.bound), "{name}");
        for profile in [Profile::ControlLoop, Profile::Polling] {
            let want = Want { cpus, profile, ..Want::default() };
            let plan = plan::plan(&snapshot, &want).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(plan.steps.len() > 3, "{name}: {plan:#?}");
            holds(&snapshot, &want, &plan).unwrap_or_else(|error| panic!("{name}, {profile}: {error}"));
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["systemd", "v1", "v2"]);
}

#[test]
fn one_socket_of_a_server_is_shielded_and_the_other_unchanged() {
    let want = Want { cpus: "15,31".parse().unwrap(), ..Want::default() };
    let plan = plan::plan(&snapshot(&MACHINES["invented-server"], &want.cpus).unwrap(), &want).unwrap();
    let to = |path: &str| {
        let step = plan.steps.iter().find(|step| matches!(&step.target, Target::File { path: it, .. } if it == path));
        step.map(|step| step.to.to_string())
    };
    assert_eq!(to("/sys/fs/resctrl/schemata").as_deref(), Some("L3:0=7ff;1=7fc"));
    assert_eq!(to("/sys/fs/resctrl/tahti.shield/schemata").as_deref(), Some("L3:0=7ff;1=3"));
    let uncore = |package: u8| {
        to(&format!("/sys/devices/system/cpu/intel_uncore_frequency/package_0{package}_die_00/min_freq_khz"))
    };
    assert_eq!((uncore(0), uncore(1).as_deref()), (None, Some("2400000")));
    assert_eq!(to("/sys/class/net/ens1f0/queues/tx-15/xps_cpus").as_deref(), Some("none"));
    assert_eq!(to("/sys/class/net/ens1f0/queues/tx-14/xps_cpus"), None);
}

#[test]
fn tasks_keep_their_cpus_although_the_list_of_the_root_cpuset_is_unreadable() {
    let mut tried = 0;
    for (name, files) in whole_machines() {
        let mut files = files.clone();
        let online = files.cpus("/sys/devices/system/cpu/online").unwrap();
        let want = Want { cpus: CpuSet::single(online.iter().last().unwrap()), ..Want::default() };
        let Cgroup::V1 { mount } = snapshot(&files, &want.cpus).unwrap().cgroup else { continue };
        for list in ["", "1000-1023"] {
            files.insert(format!("{mount}/cpuset.cpus"), FileContent::Text(list.into()));
            let snapshot = snapshot(&files, &want.cpus).unwrap();
            assert_eq!(snapshot.effective("/"), online, "{name}");
            let plan = plan::plan(&snapshot, &want).unwrap();
            let back = given_back(plan::model(&snapshot, &plan), &plan);
            assert_eq!(plan::release(&back, &plan.steps, false).plan.steps, vec![], "{name}");
        }
        tried += 1;
    }
    assert!(tried > 0);
}

/// Texts that no kernel writes, or that contradict the rest of the machine.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("-1".to_owned()),
        Just("0-1023".to_owned()),
        Just("0-4294967295".to_owned()),
        Just("99999999999999999999999".to_owned()),
        Just("ffffffff,".repeat(4000)),
        Just("[a] [b] (c) ]x[".to_owned()),
        Just("isolated invalid (Cpu list in cpuset.cpus not exclusive)".to_owned()),
        Just("34 31 0:31 / / rw - cgroup2 x rw\n35 31 0:31 / /../.. rw - cgroup x cpuset".to_owned()),
        Just("1 (a) ) S -1 0 0 0 -1 4294967296 0".to_owned()),
        Just("    L3:0=0;1=ffffffffffffffff;7=1".to_owned()),
        "[0-9a-f,:;=() \\n-]{0,60}",
        "\\PC{0,30}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_shield_on_every_machine_can_be_released(
        files in any_machine(),
        bits in any::<u64>(),
        polling in any::<bool>(),
        spare in proptest::collection::vec((1000i32..1300, any::<bool>()), 0..2),
    ) {
        let cpus = chosen(&files, bits);
        let profile = if polling { Profile::Polling } else { Profile::ControlLoop };
        let spare = spare.into_iter().map(|(pid, descendants)| Spared { pid, descendants }).collect();
        let want = Want { cpus, profile, spare, ..Want::default() };
        if let Ok(snapshot) = snapshot(&files, &cpus)
            && let Ok(plan) = plan::plan(&snapshot, &want)
        {
            holds(&snapshot, &want, &plan)?;
        }
    }

    #[test]
    fn a_hostile_machine_causes_no_panic_and_its_values_are_restored(
        files in any_machine(),
        bits in any::<u64>(),
        lies in proptest::collection::vec((any::<prop::sample::Index>(), hostile()), 1..8),
    ) {
        let mut files = files;
        let paths: Vec<String> = files.iter().map(|(path, _)| path.to_owned()).collect();
        for (path, lie) in lies {
            files.insert(path.get(&paths).clone(), FileContent::Text(lie));
        }
        let _ = examine(&Facts { files: files.clone(), probes: Probes::none("not tried") }, &Use::ALL);
        let want = Want { cpus: chosen(&files, bits), ..Want::default() };
        if let Ok(snapshot) = snapshot(&files, &want.cpus)
            && let Ok(plan) = plan::plan(&snapshot, &want)
        {
            prop_assert!(!plan::housekeeping(&snapshot, &want.cpus).is_empty());
            // The masks that a kernel computes itself need not match what such a machine claims.
            let back = given_back(plan::model(&snapshot, &plan), &plan);
            prop_assert_eq!(&plan::release(&back, &plan.steps, false).plan.steps, &vec![]);
            for step in plan.steps.iter().filter(|step| !matches!(step.target, Target::Task { .. })) {
                let (found, before) = (back.get(&step.target), snapshot.get(&step.target));
                prop_assert!(found == before, "{:?} was {:?}, is {:?}", step.target, before, found);
            }
        }
    }

    #[test]
    fn a_truncated_capture_causes_no_panic(files in any_machine(), part in 0usize..1000) {
        let text = files.to_capture();
        let mut end = text.len() * part / 1000;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if let Ok(files) = Files::from_capture(&text[..end]) {
            let want = Want { cpus: chosen(&files, u64::MAX / 3), ..Want::default() };
            if let Ok(snapshot) = snapshot(&files, &want.cpus) {
                let _ = plan::plan(&snapshot, &want);
            }
        }
    }
}
