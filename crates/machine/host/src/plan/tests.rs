//! Property tests on generated machines, and tables for cases that the properties do not cover.

use super::*;
use crate::snapshot::{Class, Form, Irq, IrqKey, Irqbalance, Target, Task, TaskKey, Value};
use base::{CpuId, Policy};
use proc::version::Version;
use proptest::prelude::*;

const MOUNT: &str = "/sys/fs/cgroup/cpuset";

/// Placement of tasks on the generated machines.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    V1,
    V2,
}

impl Kind {
    fn cgroup(self) -> Cgroup {
        match self {
            Self::Plain => Cgroup::None,
            Self::V1 => Cgroup::V1 { mount: MOUNT.into() },
            Self::V2 => Cgroup::V2 { mount: MOUNT.into(), systemd: false },
        }
    }
}

/// A machine with this number of CPUs, a few tasks and interrupts, and every kind of knob.
fn machine(count: usize, cgroup: Cgroup) -> Snapshot {
    let online = CpuSet::first(count);
    let mut snapshot = Snapshot { boot_id: "boot".into(), kernel: "6.12.1".into(), cgroup, ..Snapshot::default() };
    snapshot.cpus.possible = CpuSet::first(count + 2);
    snapshot.cpus.online = online;
    if let Cgroup::V1 { mount } = &snapshot.cgroup {
        let mount = mount.clone();
        cpuset(&mut snapshot, &mount, online);
        snapshot.files.insert(format!("{mount}/cpuset.cpu_exclusive"), Value::Text("1".into()));
        snapshot.files.insert(format!("{mount}/cpuset.mems"), Value::Text("0".into()));
    }
    if let Cgroup::V2 { mount, .. } = &snapshot.cgroup {
        let mount = mount.clone();
        snapshot.dirs.insert(mount.clone());
        snapshot.files.insert(format!("{mount}/cgroup.subtree_control"), Value::Text("-cpuset".into()));
        snapshot.files.insert(format!("{mount}/cpuset.cpus.effective"), Value::Cpus(online));
    }
    let mut file = |path: &str, form: Form, text: &str| snapshot.files.insert(path.into(), form.read(text));
    let all = online.to_string();
    file("/proc/irq/default_smp_affinity", Form::List, &all);
    file("/sys/devices/virtual/workqueue/cpumask", Form::List, &all);
    file("/sys/devices/virtual/workqueue/writeback/cpumask", Form::List, &all);
    file("/proc/sys/kernel/watchdog_cpumask", Form::List, &all);
    file("/proc/sys/vm/stat_interval", Form::Text, "1");
    file("/proc/sys/vm/swappiness", Form::Text, "60");
    file("/proc/sys/vm/compact_unevictable_allowed", Form::Text, "1");
    file("/sys/kernel/mm/ksm/run", Form::Text, "1");
    file("/sys/kernel/mm/transparent_hugepage/enabled", Form::Choice, "[always] madvise never");
    file("/sys/class/net/eth0/queues/rx-0/rps_cpus", Form::List, &all);
    file("/proc/sys/net/core/rps_default_mask", Form::List, &all);
    file("/sys/block/vda/queue/rq_affinity", Form::Text, "1");
    file("/sys/block/sdb/queue/rq_affinity", Form::Text, "0");
    file("/sys/kernel/debug/sched/preempt", Form::Choice, "none (voluntary) full");
    file("/proc/sys/net/core/busy_poll", Form::Text, "0");
    file("/sys/kernel/realtime", Form::Text, "1");
    file("/sys/fs/resctrl/schemata", Form::Cache, "MB:0=100\nL3:0=fff;1=fff");
    file("/sys/fs/resctrl/info/L3/cbm_mask", Form::Text, "fff");
    file("/sys/fs/resctrl/info/L3/min_cbm_bits", Form::Text, "1");
    file("/sys/fs/resctrl/info/L3/num_closids", Form::Text, "16");
    for package in 0..2 {
        let dir = format!("/sys/devices/system/cpu/intel_uncore_frequency/package_0{package}_die_00");
        file(&format!("{dir}/min_freq_khz"), Form::Text, "800000");
        file(&format!("{dir}/max_freq_khz"), Form::Text, "2400000");
    }
    file("/sys/devices/system/clocksource/clocksource0/current_clocksource", Form::Text, "hpet");
    file("/sys/devices/system/clocksource/clocksource0/available_clocksource", Form::Text, "tsc hpet");
    for cpu in &online {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        file(&format!("{dir}/power/pm_qos_resume_latency_us"), Form::Text, "0");
        file(&format!("{dir}/power/energy_perf_bias"), Form::Text, "6");
        // Two packages, each with a cache for half of the CPUs.
        let half = usize::from(usize::from(cpu) >= count / 2);
        let (first, rest) = (CpuSet::first(count / 2), online.minus(&CpuSet::first(count / 2)));
        file(&format!("{dir}/topology/physical_package_id"), Form::Text, &half.to_string());
        file(&format!("{dir}/cache/index3/level"), Form::Text, "3");
        file(&format!("{dir}/cache/index3/id"), Form::Text, &half.to_string());
        file(&format!("{dir}/cache/index3/shared_cpu_list"), Form::List, &[first, rest][half].to_string());
        file(&format!("{dir}/cpufreq/scaling_governor"), Form::Text, "powersave");
        file(&format!("{dir}/cpufreq/scaling_available_governors"), Form::Text, "performance powersave");
        file(&format!("{dir}/cpufreq/scaling_min_freq"), Form::Text, "800000");
        file(&format!("{dir}/cpufreq/scaling_max_freq"), Form::Text, "3000000");
        for (state, latency) in [(0, 0), (1, 2), (2, 120)] {
            file(&format!("{dir}/cpuidle/state{state}/latency"), Form::Text, &latency.to_string());
            file(&format!("{dir}/cpuidle/state{state}/disable"), Form::Text, "0");
        }
    }
    for number in 0..4 {
        let key = IrqKey(format!("PCI-MSI {number}-edge eth0-{number}"));
        snapshot.irqs.insert(key, Irq { number: 24 + number, requested: online, ..Irq::default() });
    }
    snapshot.irqbalance = Some(Irqbalance { pid: 7, banned: CpuSet::EMPTY });
    // Every other knob with a single number.
    for pattern in knob::patterns(&CpuSet::EMPTY) {
        let is_number = pattern.form == Form::Text && !pattern.path.contains('*');
        if is_number && !snapshot.files.contains_key(&pattern.path) {
            snapshot.files.insert(pattern.path, Form::Text.read("1"));
        }
    }
    snapshot
}

fn v1() -> Cgroup {
    Cgroup::V1 { mount: MOUNT.into() }
}

/// Creates a cpuset with these CPUs.
fn cpuset(snapshot: &mut Snapshot, dir: &str, cpus: CpuSet) {
    snapshot.set(&Target::Dir { path: dir.into() }, &Value::Present);
    snapshot.files.insert(format!("{dir}/cpuset.cpus"), Value::Cpus(cpus));
}

/// Starts a task; `own` is a mask that was set for it.
fn start(snapshot: &mut Snapshot, tid: i32, ppid: i32, cpuset: &str, own: Option<CpuSet>) -> TaskKey {
    let placed = snapshot.cgroup != Cgroup::None;
    let offered = if placed { snapshot.effective(cpuset) } else { snapshot.cpus.online };
    let mut task = Task {
        comm: format!("task-{tid}"),
        tgid: tid,
        ppid,
        kernel: false,
        bound: false,
        class: Class::Of(Policy::OTHER),
        cpus: offered,
        own: own.filter(|own| own.intersects(&offered) && own.and(&offered) != offered).map(|own| own.and(&offered)),
        cpuset: placed.then(|| cpuset.to_owned()),
    };
    task.follow(&offered);
    let key = TaskKey { tid, start: 1000 };
    snapshot.tasks.insert(key, task);
    key
}

fn want(cpus: CpuSet) -> Want {
    Want { cpus, ..Want::default() }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// The CPUs that a step affects.
fn touched(step: &Step) -> CpuSet {
    let cpus = |value: &Value| match value {
        Value::Cpus(cpus) => *cpus,
        Value::Place(place) => place.cpus,
        _ => CpuSet::EMPTY,
    };
    let per_cpu = match &step.target {
        Target::File { path, .. } => path.strip_prefix("/sys/devices/system/cpu/cpu"),
        _ => None,
    };
    if let Some(rest) = per_cpu {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return CpuSet::single(digits.parse::<CpuId>().unwrap());
    }
    cpus(&step.from).minus(&cpus(&step.to))
}

prop_compose! {
    fn any_machine()(
        count in 2usize..9,
        kind in prop_oneof![Just(Kind::Plain), Just(Kind::V1), Just(Kind::V2)],
        kernel in prop_oneof![Just("6.1.0"), Just("6.3.0"), Just("6.12.1"), Just("7.0.0")],
        groups in proptest::collection::vec((any::<u16>(), 0usize..4), 0..4),
        tasks in proptest::collection::vec((any::<u16>(), 0usize..5, any::<bool>(), 0u8..8), 0..24),
        irqs in proptest::collection::vec(any::<u16>(), 4),
        (enabled, old) in any::<(bool, bool)>(),
    ) -> Snapshot {
        let mut snapshot = machine(count, kind.cgroup());
        // Kernels before 6.1 have no isolated partition.
        snapshot.kernel = if old && !matches!(kind, Kind::V2) { "5.10.0".into() } else { kernel.into() };
        if matches!(kind, Kind::V2) {
            if snapshot.version() >= Version::new(6, 7) {
                snapshot.files.insert(format!("{MOUNT}/cpuset.cpus.isolated"), Value::Cpus(CpuSet::EMPTY));
            }
            if enabled {
                let control = Target::File { path: format!("{MOUNT}/cgroup.subtree_control"), form: Form::Controller };
                snapshot.set(&control, &Value::Text("+cpuset".into()));
            }
        }
        let some = |bits: u16, of: &CpuSet| {
            let cpus: CpuSet = of.iter().filter(|cpu| bits >> cpu & 1 == 1).collect();
            if cpus.is_empty() { *of } else { cpus }
        };
        let mut places = vec!["/".to_owned()];
        if !matches!(kind, Kind::Plain) {
            for (index, (bits, parent)) in groups.into_iter().enumerate() {
                let parent = places[parent % places.len()].clone();
                let path = if parent == "/" { format!("/g{index}") } else { format!("{parent}/g{index}") };
                let cpus = some(bits, &snapshot.effective(&parent));
                if matches!(kind, Kind::V1) {
                    cpuset(&mut snapshot, &format!("{MOUNT}{path}"), cpus);
                } else {
                    snapshot.set(&Target::Dir { path: format!("{MOUNT}{path}") }, &Value::Present);
                    let list = format!("{MOUNT}{path}/cpuset.cpus");
                    if bits & 1 == 1 && snapshot.files.contains_key(&list) {
                        snapshot.set(&Target::File { path: list, form: Form::List }, &Value::Cpus(cpus));
                    }
                }
                places.push(path);
            }
        }
        for (index, (bits, place, has_own, kind)) in tasks.into_iter().enumerate() {
            let place = places[place % places.len()].clone();
            let own = has_own.then(|| some(bits, &snapshot.cpus.online));
            let key = start(&mut snapshot, 10 + index as i32, 1, &place, own);
            let task = snapshot.tasks.get_mut(&key).unwrap();
            (task.kernel, task.bound) = (kind < 3, kind == 0);
            if task.bound {
                task.comm = format!("ktimers/{index}");
            }
        }
        for (irq, bits) in snapshot.irqs.values_mut().zip(irqs) {
            irq.requested = some(bits, &CpuSet::first(count));
        }
        snapshot
    }
}

prop_compose! {
    fn machine_and_want()(snapshot in any_machine())(
        bits in any::<u16>(),
        polling in any::<bool>(),
        spare in proptest::collection::vec((10i32..34, any::<bool>()), 0..3),
        snapshot in Just(snapshot),
    ) -> (Snapshot, Want) {
        let cpus = snapshot.cpus.online.iter().filter(|cpu| bits >> cpu & 1 == 1).collect();
        let profile = if polling { Profile::Polling } else { Profile::ControlLoop };
        let spare = spare.into_iter().map(|(pid, descendants)| Spared { pid, descendants }).collect();
        (snapshot, Want { cpus, profile, spare, ..Want::default() })
    }
}

proptest! {
    #[test]
    fn reverting_restores_the_machine((snapshot, want) in machine_and_want()) {
        if let Ok(plan) = plan(&snapshot, &want) {
            let after = model(&snapshot, &plan);
            prop_assert_eq!(model(&after, &revert(&plan)), snapshot);
        }
    }

    #[test]
    fn releasing_restores_the_machine_from_any_point((snapshot, want) in machine_and_want(), cut in 0usize..60) {
        if let Ok(plan) = plan(&snapshot, &want) {
            let mut broken = plan.clone();
            broken.steps.truncate(cut);
            let after = model(&snapshot, &broken);
            // An active partition narrows masks, and dissolving it may remove them. The remaining steps are known only
            // afterwards.
            let back = (0..3).fold(after, |now, _| model(&now, &release(&now, &plan.steps, false).plan));
            prop_assert_eq!(&release(&back, &plan.steps, false), &Release::default());
            prop_assert_eq!(back, snapshot);
        }
    }

    #[test]
    fn planning_again_is_empty((snapshot, want) in machine_and_want()) {
        if let Ok(first) = plan(&snapshot, &want) {
            let after = model(&snapshot, &first);
            prop_assert_eq!(verify(&after, &first.steps), vec![]);
            prop_assert_eq!(plan(&after, &want).unwrap().steps, vec![]);
        }
    }

    #[test]
    fn each_step_finds_the_value_that_the_plan_expects((snapshot, want) in machine_and_want()) {
        if let Ok(plan) = plan(&snapshot, &want) {
            let mut now = snapshot;
            for step in &plan.steps {
                let found = now.get(&step.target);
                prop_assert!(found.agrees(&step.from) || found.agrees(&step.to), "{:?} found {:?}", step, found);
                now.set(&step.target, &step.to);
            }
        }
    }

    #[test]
    fn no_step_touches_a_foreign_cpu((snapshot, want) in machine_and_want()) {
        if let Ok(plan) = plan(&snapshot, &want) {
            for step in &plan.steps {
                // From the value before the first step to the value after the last step on the same target.
                let first = plan.steps.iter().find(|it| it.target == step.target).unwrap_or(step);
                let net = Step { from: first.from.clone(), ..step.clone() };
                let last = plan.steps.iter().rfind(|it| it.target == step.target) == Some(step);
                prop_assert!(!last || touched(&net).is_subset(&want.cpus), "{:?}", net);
            }
        }
    }

    #[test]
    fn every_task_keeps_a_cpu_and_no_other_task_uses_the_shield((snapshot, want) in machine_and_want()) {
        if let Ok(plan) = plan(&snapshot, &want) {
            let after = model(&snapshot, &plan);
            prop_assert!(!housekeeping(&after, &want.cpus).is_empty());
            let context = Context::new(&snapshot, &want, backend(&snapshot, &want));
            let kind = &snapshot.cgroup;
            for (key, task) in &after.tasks {
                let before = &snapshot.tasks[key];
                prop_assert!(!task.cpus.is_empty());
                if context.spare.contains(before) {
                    // Before 6.2 the kernel forgets masks when a partition is created, before 7.0 those of kernel
                    // threads. The release sets them again.
                    let until = if task.kernel { Version::new(7, 0) } else { Version::new(6, 2) };
                    let forgets = matches!(kind, Cgroup::V2 { .. }) && snapshot.version() < until;
                    prop_assert!(forgets || task.place().agrees(&before.place()), "{:?}", task);
                    prop_assert_eq!((&task.cpuset, task.class), (&before.cpuset, before.class));
                } else if before.bound {
                    prop_assert_eq!(task.place(), before.place());
                } else if snapshot.cgroup != Cgroup::None && context.spare.is_empty() {
                    prop_assert!(!task.cpus.intersects(&want.cpus), "{:?}", task);
                }
            }
            for irq in after.irqs.values() {
                prop_assert!(!irq.requested.is_empty() && !irq.requested.intersects(&want.cpus));
            }
        }
    }

    #[test]
    fn a_task_created_under_the_shield_is_restored_like_its_parent((snapshot, want) in machine_and_want(), nth in 0usize..24) {
        if let (Ok(plan), Cgroup::V1 { .. }) = (plan(&snapshot, &want), &snapshot.cgroup) {
            let mut after = model(&snapshot, &plan);
            let Some(key) = snapshot.tasks.keys().nth(nth).copied() else { return Ok(()) };
            let mut child = after.tasks[&key].clone();
            // With the other back-ends a task stays in its cpuset, and the kernel determines its mask.
            if !child.cpuset.as_deref().is_some_and(|cpuset| cpuset.starts_with("/tahti")) {
                return Ok(());
            }
            (child.ppid, child.tgid) = (key.tid, 900);
            let born = TaskKey { tid: 900, start: 9000 };
            after.tasks.insert(born, child);
            let back = model(&after, &release(&after, &plan.steps, false).plan);
            prop_assert_eq!(&back.tasks[&born].cpuset, &snapshot.tasks[&key].cpuset);
            prop_assert_eq!(back.tasks[&born].cpus, snapshot.tasks[&key].cpus);
        }
    }
}

#[test]
fn an_impossible_shield_is_refused_with_the_reason_before_any_write() {
    let mut snapshot = machine(4, v1());
    cpuset(&mut snapshot, &format!("{MOUNT}/docker"), set("3"));
    start(&mut snapshot, 10, 1, "/docker", None);
    cpuset(&mut snapshot, &format!("{MOUNT}/other"), set("2"));
    snapshot.files.insert(format!("{MOUNT}/other/cpuset.cpu_exclusive"), Value::Text("1".into()));
    for (cpus, expected) in [
        ("", "no CPU to shield"),
        ("0-3", "all CPUs (0-3) would be shielded"),
        ("7", "this machine has no CPU 7"),
        ("5", "CPUs 5 are offline"),
        ("3", "/sys/fs/cgroup/cpuset/docker has only CPUs 3"),
        ("2", "/sys/fs/cgroup/cpuset/other already has CPUs 2 exclusively"),
    ] {
        let error = plan(&snapshot, &want(set(cpus))).unwrap_err().to_string();
        assert!(error.contains(expected), "{cpus}: {error}");
    }
}

#[test]
fn a_conflicting_deadline_reservation_is_reported_with_a_remedy() {
    for cgroup in [v1(), Cgroup::None] {
        let mut snapshot = machine(4, cgroup);
        let key = start(&mut snapshot, 10, 1, "/", None);
        snapshot.tasks.get_mut(&key).unwrap().class = Class::Deadline;
        let error = plan(&snapshot, &want(set("1"))).unwrap_err();
        let (tid, comm) = (10, "task-10".to_owned());
        let process = (snapshot.tasks[&key].tgid, snapshot.tasks[&key].comm.clone());
        let reserved = Reserved { tid, comm, process, plant: None };
        assert_eq!(error.0, [PlanError::Deadline { tasks: vec![reserved.clone()] }]);
        let text = error.to_string();
        assert!(text.contains("thread 10 (task-10) of process ") && text.contains("chrt --fifo --pid 50 10"), "{text}");
        let plant = Some(("ao".to_owned(), "loop".to_owned()));
        let text = Reserved { plant, ..reserved }.to_string();
        assert!(text.contains("loop of plant ao") && text.contains("tahti stop --plant ao loop"), "{text}");
        // The reservation of a guard is suspended while a shield changes.
        snapshot.tasks.get_mut(&key).unwrap().comm = GUARD.to_owned();
        assert!(plan(&snapshot, &want(set("1"))).is_ok());
    }
}

#[test]
fn the_nearest_listed_ancestor_decides_which_tasks_are_spared() {
    let mut snapshot = machine(4, v1());
    // 1 ── 20 (spared) ── 21 ── 22 (own) ── 23
    for (tid, ppid) in [(1, 0), (20, 1), (21, 20), (22, 21), (23, 22), (30, 1)] {
        start(&mut snapshot, tid, ppid, "/", None);
    }
    let spared = |spare: &str| {
        let spare = Spared::list(spare).unwrap();
        let spare = Spare::new(&snapshot, &Want { spare, own: vec![22], ..want(set("1")) });
        snapshot.tasks.values().filter(|task| spare.contains(task)).map(|task| task.tgid).collect::<Vec<i32>>()
    };
    assert_eq!(spared("20+"), [20, 21]);
    // Sparing a process alone does not spare its descendants: PID 1 does not mean all processes.
    assert_eq!(spared("20"), [20]);
    assert_eq!(spared("1"), [1]);
    assert_eq!(spared("1+, 23"), [1, 20, 21, 23, 30]);
    // An empty variable has no effect.
    assert_eq!(
        ["", " "].map(|none| none.parse::<SparedList>().unwrap()),
        [SparedList::default(), SparedList::default()]
    );
    for wrong in ["0", "-1", "1++", "+", "x"] {
        assert!(Spared::list(wrong).unwrap_err().to_string().contains("expected a process id"), "{wrong}");
    }
}

#[test]
fn spared_tasks_in_a_thousand_containers_are_found_and_containers_shrunk_or_kept() {
    let mut snapshot = machine(4, v1());
    let mut spare = Vec::new();
    for group in 0..1000 {
        let path = format!("/pods/p{}/c{group}", group % 50);
        for dir in ["/pods", &path[..path.rfind('/').unwrap()], &path] {
            if !snapshot.dirs.contains(&format!("{MOUNT}{dir}")) {
                cpuset(&mut snapshot, &format!("{MOUNT}{dir}"), set("0-3"));
            }
        }
        for nth in 0..50 {
            start(&mut snapshot, 100_000 + group * 50 + nth, 1, &path, None);
        }
        if group % 10 == 3 {
            spare.push(Spared::alone(100_000 + group * 50 + 49));
        }
    }
    let plan = plan(&snapshot, &Want { spare, ..want(set("1")) }).unwrap();
    let shrunk = plan.steps.iter().filter(|step| step.label.starts_with(&format!("{MOUNT}/pods/"))).count();
    let left = plan.notes.iter().filter(|note| note.text.contains("it holds tasks that are to be spared")).count();
    // 100 containers, their 5 pods and the group above them; 900 and 45 others.
    assert_eq!((left, shrunk), (106, 945));
}

#[test]
fn a_task_that_followed_its_cpuset_follows_it_again() {
    let mut snapshot = machine(2, v1());
    let key = start(&mut snapshot, 10, 1, "/", None);
    let plan = plan(&snapshot, &want(set("1"))).unwrap();
    let mut after = model(&snapshot, &plan);
    assert_eq!(after.tasks[&key].cpus, set("0"));
    // A CPU is added while the shield is active. The task has it after the release, and no mask was ever written.
    after.cpus.online = CpuSet::first(3);
    after.files.insert(format!("{MOUNT}/cpuset.cpus"), Value::Cpus(CpuSet::first(3)));
    let way = release(&after, &plan.steps, false);
    let back = model(&after, &way.plan);
    assert_eq!((back.tasks[&key].cpus, back.tasks[&key].own), (CpuSet::first(3), None));
}

#[test]
fn a_handlers_thread_that_followed_its_interrupt_is_restored_completely() {
    let mut snapshot = machine(4, Cgroup::None);
    let key = start(&mut snapshot, 10, 2, "/", None);
    let thread = snapshot.tasks.get_mut(&key).unwrap();
    (thread.kernel, thread.comm) = (true, "irq/25-eth0-1".into());
    let plan = plan(&snapshot, &want(set("2-3"))).unwrap();
    let mut after = model(&snapshot, &plan);
    assert_eq!(after.tasks[&key].cpus, set("0-1"));
    // The interrupt was moved as well, and has occurred since: the kernel moves the thread to the interrupt's CPU.
    after.tasks.get_mut(&key).unwrap().cpus = set("1");
    assert_eq!(verify(&after, &plan.steps), []);
    let way = release(&after, &plan.steps, false);
    assert!(way.kept.is_empty(), "{:?}", way.kept);
    assert_eq!(model(&after, &way.plan).tasks[&key].cpus, set("0-3"));
    // On a CPU that the interrupt never uses, another program placed the thread.
    after.tasks.get_mut(&key).unwrap().cpus = set("3");
    assert_eq!(release(&after, &plan.steps, false).kept.len(), 1);
}

#[test]
fn a_value_changed_by_another_program_is_kept_unless_forced() {
    let snapshot = machine(4, v1());
    let plan = plan(&snapshot, &want(set("1"))).unwrap();
    let mut after = model(&snapshot, &plan);
    let path = "/proc/sys/vm/stat_interval";
    after.files.insert(path.into(), Value::Text("77".into()));
    let way = release(&after, &plan.steps, false);
    let kept: Vec<&str> = way.kept.iter().map(|kept| kept.label.as_str()).collect();
    assert_eq!(kept, [path]);
    let back = model(&after, &way.plan);
    assert_eq!(back.file_text(path), Some("77"));
    let forced = release(&after, &plan.steps, true);
    assert_eq!(model(&after, &forced.plan), snapshot);
}

#[test]
fn a_task_that_another_program_moved_stays_in_its_cpuset() {
    let mut snapshot = machine(4, v1());
    cpuset(&mut snapshot, &format!("{MOUNT}/other"), set("0"));
    let key = start(&mut snapshot, 10, 1, "/", None);
    let plan = plan(&snapshot, &want(set("1"))).unwrap();
    let mut after = model(&snapshot, &plan);
    let task = after.tasks.get_mut(&key).unwrap();
    (task.cpuset, task.cpus) = (Some("/other".into()), set("0"));
    let way = release(&after, &plan.steps, false);
    assert_eq!(way.kept.len(), 1);
    assert_eq!(model(&after, &way.plan).tasks[&key].cpuset.as_deref(), Some("/other"));
}

#[test]
fn hardware_threads_of_a_shielded_core_are_named() {
    let mut snapshot = machine(4, v1());
    snapshot.cpus.siblings = vec![set("0,2"), set("1,3")];
    let plan = plan(&snapshot, &want(set("1"))).unwrap();
    assert!(plan.notes.iter().any(|note| note.text.contains("--cpus 1,3")), "{:?}", plan.notes);
}

#[test]
fn boot_parameters_that_are_set_are_not_suggested() {
    let mut snapshot = machine(4, v1());
    snapshot.boot_line = "isolcpus=managed_irq,1 rcu_nocbs=1 skew_tick=1".into();
    assert_eq!(plan(&snapshot, &want(set("1"))).unwrap().boot, []);
    snapshot.boot_line = "isolcpus=managed_irq,2".into();
    let boot = plan(&snapshot, &want(set("1"))).unwrap().boot;
    let names: Vec<&str> = boot.iter().map(|note| note.about.as_str()).collect();
    assert_eq!(names, ["isolcpus=managed_irq,1", "rcu_nocbs=1", "skew_tick=1"]);
}

#[test]
fn interrupts_that_a_running_irqbalance_moves_are_neither_drift_nor_kept_values() {
    let before = machine(4, v1());
    let plan = plan(&before, &want("2-3".parse().unwrap())).unwrap();
    let mut now = model(&before, &plan);
    let key = now.irqs.keys().next().unwrap().clone();
    now.irqs.get_mut(&key).unwrap().requested = "1".parse().unwrap();
    assert_eq!(verify(&now, &plan.steps), []);
    assert_eq!(release(&now, &plan.steps, false).kept, []);
    // It must not move to the shield.
    now.irqs.get_mut(&key).unwrap().requested = "2".parse().unwrap();
    assert_eq!(verify(&now, &plan.steps).len(), 1);
    // Without irqbalance another program moved it.
    now.irqbalance = None;
    assert_eq!((verify(&now, &plan.steps).len(), release(&now, &plan.steps, false).kept.len()), (1, 1));
}

#[test]
fn parts_of_a_shield_are_applied_separately_and_add_up_to_the_whole() {
    let mut snapshot = machine(4, v1());
    start(&mut snapshot, 10, 1, "/", None);
    let steps = |parts: &str| {
        let plan = plan(&snapshot, &Want { parts: parts.parse().unwrap(), ..want(set("1")) }).unwrap();
        assert_eq!(model(&model(&snapshot, &plan), &revert(&plan)), snapshot, "{parts}");
        plan.steps
    };
    let whole = plan(&snapshot, &want(set("1"))).unwrap().steps;
    let parts = ["tasks", "interrupts", "timers", "settings"].map(steps);
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), whole.len());
    assert!(whole.iter().all(|step| parts.iter().filter(|part| part.contains(step)).count() == 1));
    let moved = |steps: &[Step]| steps.iter().any(|step| matches!(step.target, Target::Task { .. }));
    let irq = |steps: &[Step]| steps.iter().any(|step| matches!(step.target, Target::Irq { .. } | Target::Irqbalance));
    assert_eq!(
        parts.each_ref().map(|part| (moved(part), irq(part))),
        [(true, false), (false, true), (false, false), (false, false)]
    );
    assert_eq!(steps("interrupts,tasks").len(), parts[0].len() + parts[1].len());
    assert!("".parse::<ShieldParts>().is_err() && "all".parse::<ShieldParts>().is_err());
}

#[test]
fn a_better_choice_of_cpus_is_noted_in_the_plan() {
    let mut snapshot = machine(4, v1());
    let key = snapshot.irqs.keys().next().unwrap().clone();
    snapshot.irqs.get_mut(&key).unwrap().stuck = [(2, 5000)].into();
    let notes = |cpus: &str| plan(&snapshot, &want(set(cpus))).unwrap().notes;
    let said = notes("2").into_iter().find(|note| note.about == "choice of CPUs").unwrap().text;
    assert!(
        said.contains("eth0-0) cannot be moved, 5000 times since boot") && said.contains("--cpus 1, or auto:1"),
        "{said}"
    );
    assert!(!notes("3").iter().any(|note| note.about == "choice of CPUs"));
}

#[test]
fn a_cpu_of_a_guest_that_idles_through_the_hypervisor_polls() {
    let mut snapshot = machine(4, v1());
    let limit = "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
    let wanted = |snapshot: &Snapshot| {
        let plan = plan(snapshot, &want(set("1"))).unwrap();
        let step = plan.steps.iter().find(|step| matches!(&step.target, Target::File { path, .. } if path == limit));
        step.map(|step| step.to.clone())
    };
    snapshot.files.insert("/sys/devices/system/cpu/cpu1/cpuidle/state1/name".into(), Value::Text("C1".into()));
    assert_eq!(wanted(&snapshot), Some(Value::Text("10".into())));
    snapshot
        .files
        .insert("/sys/devices/system/cpu/cpu1/cpuidle/state1/name".into(), Value::Text("haltpoll idle".into()));
    assert_eq!(wanted(&snapshot), Some(Value::Text("n/a".into())));
}

#[test]
fn an_interrupt_is_moved_to_the_cpu_of_its_handler_and_restored() {
    let before = machine(4, v1());
    let placed = |text: &str| Want { irqs: vec![text.parse().unwrap()], ..want(set("2-3")) };
    let plan_of = |want: &Want| plan(&before, want).unwrap();
    let steps = plan_of(&placed("eth0-1=3"));
    let after = model(&before, &steps);
    for (key, irq) in &after.irqs {
        assert_eq!(irq.requested, if key.0.ends_with("eth0-1") { set("3") } else { set("0-1") }, "{key}");
    }
    assert!(plan(&after, &placed("eth0-1=3")).unwrap().steps.is_empty(), "and it remains there");
    assert_eq!(model(&after, &revert(&steps)), before);
    let absent = plan_of(&placed("0000:00:09.0=3"));
    assert!(absent.notes.iter().any(|note| note.text.contains("apply again")), "{:?}", absent.notes);
    let wrong = plan(&before, &placed("eth0-1=1")).unwrap_err().to_string();
    assert!(wrong.contains("CPU 1, which is not shielded (the shield is 2-3)"), "{wrong}");
    for text in ["eth0", "=2", "eth0=two", ""] {
        assert!(text.parse::<Placed>().unwrap_err().to_string().contains("expected WORDS=CPU"), "{text}");
    }
}
