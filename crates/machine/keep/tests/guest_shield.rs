//! The shield on kernels with more CPUs, cgroup v2 and systemd, in the guests of `cargo xtask test-vm`.
//!
//! Each guest runs the modules that its row in the table names. CPUs 2-3 are shielded, CPUs 0-1 are for housekeeping.

use base::CpuSet;
use host::plan::{PlanError, Want};
use host::snapshot::{Cgroup, IrqKey, Snapshot, Value};
use keep::RunDir;
use keep::shield::{self, Applied, Error, Released};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use sys::root::RootDir;
use testkit::guest;

/// Mount point of cgroup v2 in guests.
const TOP: &str = "/sys/fs/cgroup";

/// Processes that are killed on drop.
struct Crowd(Vec<Child>);

impl Crowd {
    fn start(count: usize, script: &str) -> Self {
        let start = |_| Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().expect("sh can be run");
        Self((0..count).map(start).collect())
    }

    fn id(&self, index: usize) -> i32 {
        i32::try_from(self.0[index].id()).expect("pids are small")
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A second cgroup next to the shield's, removed on drop.
struct Neighbour;

impl Neighbour {
    const DIR: &str = "/sys/fs/cgroup/neighbour";

    fn with_cpus(list: &str) -> Self {
        guest::write(&format!("{TOP}/cgroup.subtree_control"), "+cpuset");
        fs::create_dir(Self::DIR).expect("a cgroup can be made");
        let neighbour = Self;
        neighbour.write("cpuset.cpus", list);
        neighbour
    }

    fn write(&self, name: &str, value: &str) {
        guest::write(&format!("{}/{name}", Self::DIR), value);
    }

    fn read(&self, name: &str) -> String {
        guest::read(&format!("{}/{name}", Self::DIR))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = fs::write(format!("{}/cpuset.cpus.partition", Self::DIR), "member");
        // The cgroup of an ended task becomes empty a moment later.
        for _ in 0..100 {
            if fs::remove_dir(Self::DIR).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("the test's own list")
}

fn want(list: &str) -> Want {
    Want { cpus: cpus(list), ..Want::default() }
}

/// Requires a guest, and releases a shield that a failed test left.
fn begin() {
    guest::required();
    if let Err(error) = shield::release(&root(), &dir(), true) {
        panic!("a shield that another test left cannot be released: {error}");
    }
}

fn root() -> RootDir {
    RootDir::machine()
}

/// The run directory of the tests' shields.
fn dir() -> RunDir {
    RunDir::at("/run/tahti-test")
}

#[track_caller]
fn apply(list: &str) -> Applied {
    shield::apply(&root(), &want(list), &dir()).expect("the shield can be applied")
}

#[track_caller]
fn release() -> Released {
    let released = shield::release(&root(), &dir(), false).expect("the shield can be released");
    assert!(released.is_whole(), "{released:#?}");
    released
}

fn snapshot() -> Snapshot {
    keep::machine::snapshot(&root(), &cpus("0-3")).expect("the machine can be read")
}

fn mask(tid: i32) -> CpuSet {
    sys::sched::affinity(tid).expect("the task lives")
}

fn pin(tid: i32, list: &str) {
    sys::sched::set_affinity(tid, &cpus(list)).expect("the task may be bound");
}

/// Thread id of a task called `name`. The kernel keeps only the first 15 letters of a name.
fn named(name: &str) -> Option<i32> {
    snapshot().tasks.iter().find(|(_, task)| task.comm == name).map(|(key, _)| key.tid)
}

/// Previous values, written back on drop.
struct Undo(Vec<(String, String)>);

impl Drop for Undo {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            let _ = fs::write(path, value);
        }
    }
}

/// Writes values that differ from the kernel's defaults. A release that writes defaults would then fail the test.
fn make_unusual() -> Undo {
    let unusual = [
        ("/proc/sys/vm/stat_interval", "7"),
        ("/proc/sys/kernel/timer_migration", "1"),
        ("/proc/sys/vm/swappiness", "33"),
    ];
    let mut undo = Undo(Vec::new());
    for (path, value) in unusual.into_iter().filter(|(path, _)| fs::exists(path).unwrap_or(false)) {
        undo.0.push((path.to_owned(), guest::read(path)));
        guest::write(path, value);
    }
    undo
}

/// Compares the state before and after: files, cgroups, and the masks and interrupts of everything that exists in both.
#[track_caller]
fn assert_same(before: &Snapshot, after: &Snapshot) {
    let files = |snapshot: &Snapshot| -> BTreeMap<String, Value> {
        // If the boot line isolates CPUs, the kernel itself loses that list when a remote partition is dissolved.
        let keep = |path: &&String| !path.ends_with("/cpuset.cpus.isolated");
        snapshot
            .files
            .iter()
            .filter(|(path, _)| keep(path))
            .map(|(path, value)| (path.clone(), value.clone()))
            .collect()
    };
    let (old, new) = (files(before), files(after));
    let changed: Vec<_> = old
        .iter()
        .filter(|(path, value)| new.get(*path) != Some(value))
        .map(|(path, value)| (path, value, new.get(path)))
        .collect();
    assert!(changed.is_empty(), "files: {changed:#?}");
    assert_eq!(before.dirs, after.dirs);
    for (key, task) in &before.tasks {
        if let Some(now) = after.tasks.get(key) {
            // The kernel controls bound threads, and handler threads follow their interrupts.
            if !task.bound && task.handles_irq().is_none() {
                assert_eq!((&now.cpuset, now.cpus), (&task.cpuset, task.cpus), "{} ({})", key.tid, task.comm);
            }
        }
    }
    let requested = |snapshot: &Snapshot| -> BTreeMap<IrqKey, CpuSet> {
        snapshot.irqs.iter().map(|(key, irq)| (key.clone(), irq.requested)).collect()
    };
    assert_eq!(requested(before), requested(after));
}

/// Checks that everything that can be moved is off the shield.
#[track_caller]
fn assert_empty(shield: &CpuSet, place: Option<&str>) {
    let snapshot = snapshot();
    for (key, task) in &snapshot.tasks {
        let own = place.is_some() && task.cpuset.as_deref() == place;
        // Under version 1 kthreadd stays, because its child threads inherit its mask. A handler thread follows its interrupt.
        let stays = task.bound
            || task.handles_irq().is_some()
            || (key.tid == 2 && matches!(snapshot.cgroup, Cgroup::V1 { .. }));
        assert!(stays || own || !task.cpus.intersects(shield), "{} ({}) may run on {}", key.tid, task.comm, task.cpus);
    }
}

mod everywhere {
    use super::*;

    #[test]
    fn a_released_shield_leaves_nothing_behind() {
        begin();
        // The test below runs this test as a child and kills it. The values are unusual already then.
        let alone = std::env::var_os("TAHTI_TEST_RUN").is_none();
        let undo = if alone { make_unusual() } else { Undo(Vec::new()) };
        let crowd = alone.then(|| Crowd::start(3, "exec sleep 1000"));
        if let Some(crowd) = &crowd {
            pin(crowd.id(1), "1-2");
            pin(crowd.id(2), "3");
        }
        let before = snapshot();
        let applied = apply("2-3");
        assert!(applied.writes > 0, "{applied:#?}");
        assert!(applied.drift.is_empty(), "{:#?}", applied.drift);
        assert_empty(&cpus("2-3"), None);
        let again = apply("2-3");
        assert_eq!(again.writes, 0, "{again:#?}");
        release();
        if let Some(crowd) = &crowd {
            assert_eq!(mask(crowd.id(1)), cpus("1-2"));
            assert_eq!(mask(crowd.id(2)), cpus("3"));
        }
        assert_same(&before, &snapshot());
        drop(undo);
    }

    #[test]
    fn a_task_in_the_shield_runs_there_and_is_moved_back_by_the_release() {
        begin();
        let before = snapshot();
        let crowd = Crowd::start(2, "exec sleep 1000");
        let applied = apply("2-3");
        applied.place.enter(&root(), crowd.id(0)).expect("the shield accepts its own tasks");
        pin(crowd.id(0), "3");
        assert_eq!(mask(crowd.id(0)), cpus("3"));
        assert_eq!(mask(crowd.id(1)), cpus("0-1"));
        release();
        // The process had no mask before. A mask that it got inside stays, or is released with the shield.
        let cgroup = guest::read(&format!("/proc/{}/cgroup", crowd.id(0)));
        assert!(!cgroup.contains("tahti.shield"), "{cgroup}");
        drop(crowd);
        assert_same(&before, &snapshot());
    }

    #[test]
    fn interrupts_move_or_are_named() {
        begin();
        let before = snapshot();
        let movable =
            before.irqs.iter().find(|(key, _)| key.0.contains("-input.0")).expect("the network card has interrupts");
        let number = movable.1.number;
        guest::write(&format!("/proc/irq/{number}/smp_affinity_list"), "1,3");
        let before = snapshot();
        let applied = apply("2-3");
        assert_eq!(guest::read(&format!("/proc/irq/{number}/smp_affinity_list")), "1");
        let refused: Vec<&str> = applied.refused.iter().map(|refused| refused.label.as_str()).collect();
        assert!(refused.iter().any(|label| label.contains("-req.")), "the disk's queues are managed: {refused:?}");
        release();
        assert_same(&before, &snapshot());
    }
}

mod whole {
    use super::*;

    #[test]
    fn a_whole_machine_is_shielded_while_it_forks() {
        begin();
        let before = snapshot();
        let crowd = Crowd::start(2, "while :; do sleep 0.2; done");
        let applied = apply("1-3");
        assert!(applied.drift.is_empty(), "{:#?}", applied.drift);
        assert_empty(&cpus("1-3"), None);
        release();
        drop(crowd);
        assert_same(&before, &snapshot());
    }
}

mod killed {
    use super::*;

    /// The tests on the model kill at every write. Here it is every thirteenth write, with a different start in each guest.
    #[test]
    fn the_next_release_restores_a_machine_after_a_kill() {
        begin();
        let undo = make_unusual();
        let crowd = Crowd::start(2, "exec sleep 1000");
        pin(crowd.id(0), "1-2");
        let before = snapshot();
        let run = dir();
        let itself = std::env::current_exe().expect("the path of the test program");
        let first = guest::name().bytes().map(usize::from).sum::<usize>() % 13 + 1;
        let mut kills = 0;
        for write in (first..).step_by(13) {
            let status = Command::new(&itself)
                .args(["--exact", "everywhere::a_released_shield_leaves_nothing_behind"])
                .env("TAHTI_TEST_RUN", "")
                .env("TAHTI_DIE_AT_WRITE", write.to_string())
                .stdout(Stdio::null())
                .status()
                .expect("the test can run itself");
            if status.signal() != Some(9) {
                assert!(status.success(), "{status} at write {write}");
                break;
            }
            kills += 1;
            let released = shield::release(&root(), &run, false).expect("the shield can be released");
            assert!(released.is_whole(), "killed at write {write}: {released:#?}");
            assert_same(&before, &snapshot());
        }
        assert!(kills > 1, "only {kills} kills");
        println!("killed {kills} times");
        drop(undo);
    }
}

mod irqbalance {
    use super::*;
    use keep::shield::machine::{Machine, RealMachine};
    use std::time::Duration;

    fn banned() -> Option<CpuSet> {
        let seen = RealMachine::at(&root()).snapshot(&cpus("2-3")).expect("the machine can be read");
        seen.irqbalance.map(|irqbalance| irqbalance.banned)
    }

    /// Debian's irqbalance, which scans every second.
    #[test]
    fn a_real_irqbalance_obeys_the_shield_and_is_restored() {
        begin();
        let program = std::env::var("IRQBALANCE").expect("the list of tests sets IRQBALANCE");
        // Debian's package creates this folder for the socket. Without it irqbalance uses an abstract name.
        fs::create_dir_all("/run/irqbalance").expect("/run");
        let daemon = Command::new(program).args(["--foreground", "--interval=1"]).stdout(Stdio::null()).spawn();
        let _daemon = Crowd(vec![daemon.expect("irqbalance runs")]);
        let mut looks = 0;
        while banned().is_none() {
            looks += 1;
            assert!(looks < 300, "irqbalance does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(banned(), Some(CpuSet::EMPTY));
        let applied = apply("2-3");
        assert_eq!(applied.drift, []);
        assert_eq!(banned(), Some(cpus("2-3")));
        // After several of its scans no interrupt is back on the shielded CPUs.
        std::thread::sleep(Duration::from_secs(5));
        for (key, irq) in snapshot().irqs {
            let refused = applied.refused.iter().any(|refused| refused.label.contains(&key.0));
            assert!(refused || !irq.requested.intersects(&cpus("2-3")), "{key:?} goes to {}", irq.requested);
        }
        // irqbalance may have spread interrupts over the other CPUs meanwhile. Everything else is restored.
        let released = shield::release(&root(), &dir(), false).expect("the shield can be released");
        assert_eq!(released.refused, []);
        assert_eq!(released.kept, [], "changes of irqbalance are no faults");
        assert_eq!(banned(), Some(CpuSet::EMPTY));
    }
}

mod v2 {
    use super::*;

    #[test]
    fn a_task_follows_its_cgroup_after_the_release() {
        begin();
        let group = Neighbour::with_cpus("1-2");
        let crowd = Crowd::start(1, "exec sleep 1000");
        group.write("cgroup.procs", &crowd.id(0).to_string());
        apply("2-3");
        assert_eq!(mask(crowd.id(0)), cpus("1"));
        release();
        assert_eq!(mask(crowd.id(0)), cpus("1-2"));
        group.write("cpuset.cpus", "0-3");
        assert_eq!(mask(crowd.id(0)), cpus("0-3"), "no mask remains");
        drop(crowd);
    }

    #[test]
    fn a_cgroup_with_nothing_but_shielded_cpus_is_named_before_the_first_write() {
        begin();
        let group = Neighbour::with_cpus("3");
        let before = snapshot();
        let refusal = || {
            let error = shield::apply(&root(), &want("2-3"), &dir()).expect_err("another cpuset has the CPU");
            let Error::Plan(errors) = error else { panic!("{error}") };
            errors.0
        };
        let dir = Neighbour::DIR.to_owned();
        assert_eq!(refusal(), [PlanError::OnlyHere { dir: dir.clone(), cpus: cpus("3") }]);
        group.write("cpuset.cpus.partition", "isolated");
        assert_eq!(refusal(), [PlanError::Overlap { dir, cpus: cpus("3") }]);
        group.write("cpuset.cpus.partition", "member");
        assert_eq!(before.files, snapshot().files);
    }

    #[test]
    fn a_deadline_task_is_named_before_the_first_write() {
        begin();
        let crowd = Crowd::start(1, "exec sleep 1000");
        let tid = crowd.id(0).to_string();
        let status = Command::new("chrt")
            .args(["-d", "-T", "1000000", "-D", "10000000", "-P", "10000000", "-p", "0", &tid])
            .status();
        assert!(status.expect("chrt can be run").success());
        let before = snapshot();
        let error = shield::apply(&root(), &want("2-3"), &dir()).expect_err("the reservation prevents it");
        assert!(error.to_string().contains("DEADLINE"), "{error}");
        assert_same(&before, &snapshot());
    }

    #[test]
    fn the_cpuset_controller_cannot_be_switched_off_under_the_shield() {
        begin();
        apply("2-3");
        assert!(guest::try_write(&format!("{TOP}/cgroup.subtree_control"), "-cpuset").is_err());
        assert_eq!(guest::read(&format!("{TOP}/cpuset.cpus.effective")), "0-1");
        release();
    }

    #[test]
    fn a_spared_task_keeps_its_cpus_and_there_is_no_partition() {
        begin();
        let before = snapshot();
        let crowd = Crowd::start(2, "exec sleep 1000");
        pin(crowd.id(0), "2");
        let want = Want { spare: vec![host::plan::Spared::alone(crowd.id(0))], ..want("2-3") };
        let applied = shield::apply(&root(), &want, &dir()).expect("the shield can be applied");
        assert_eq!(applied.backend, "plain affinity");
        assert_eq!(mask(crowd.id(0)), cpus("2"));
        assert_eq!(mask(crowd.id(1)), cpus("0-1"));
        // Reading the host's files causes interrupts: the kernel moves the handler's thread to one CPU. The release is still whole.
        for _ in 0..20 {
            assert!(!guest::read("/out/run.sh").is_empty());
        }
        release();
        assert_eq!(mask(crowd.id(1)), before.cpus.online);
    }
}

mod remote {
    use super::*;

    #[test]
    fn a_neighbour_that_takes_shielded_cpus_breaks_nothing() {
        begin();
        let group = Neighbour::with_cpus("1-3");
        let before = snapshot();
        let applied = apply("2-3");
        let shield::ShieldGroup::CgroupV2 { dir } = &applied.place else { panic!("{:?}", applied.place) };
        assert_eq!(group.read("cpuset.cpus.effective"), "1");
        group.write("cpuset.cpus", "0-3");
        assert_eq!(guest::read(&format!("{dir}/cpuset.cpus.partition")), "isolated");
        assert_eq!(group.read("cpuset.cpus.effective"), "0-1");
        group.write("cpuset.cpus", "1-3");
        release();
        assert_same(&before, &snapshot());
    }
}

mod local {
    use super::*;

    #[test]
    fn the_cpus_of_a_neighbour_group_shrink_and_are_restored() {
        begin();
        let group = Neighbour::with_cpus("1-3");
        let before = snapshot();
        apply("2-3");
        assert_eq!(group.read("cpuset.cpus"), "1");
        // The neighbour takes a shielded CPU again: the partition becomes invalid. tahti detects and repairs this.
        group.write("cpuset.cpus", "1-2");
        let state = || guest::read(&format!("{TOP}/tahti.shield/cpuset.cpus.partition"));
        assert!(state().starts_with("isolated invalid"), "{}", state());
        let repaired = apply("2-3");
        assert!(repaired.drift.is_empty(), "{:#?}", repaired.drift);
        assert_eq!(state(), "isolated");
        release();
        assert_same(&before, &snapshot());
    }

    #[test]
    fn a_task_that_moves_to_the_top_group_is_moved_out_again() {
        begin();
        let crowd = Crowd::start(1, "exec sleep 1000");
        let applied = apply("2-3");
        applied.place.enter(&root(), crowd.id(0)).expect("the shield accepts its own tasks");
        guest::write(&format!("{TOP}/cgroup.procs"), &crowd.id(0).to_string());
        assert_eq!(mask(crowd.id(0)), cpus("0-3"), "behaviour of kernels before 6.7");
        apply("2-3");
        assert_eq!(mask(crowd.id(0)), cpus("0-1"));
        release();
    }
}

mod isolcpus {
    use super::*;

    #[test]
    fn masks_of_the_boot_line_are_restored() {
        begin();
        let before = snapshot();
        let kthreadd = mask(2);
        assert_eq!(kthreadd, cpus("0-1"), "as on the boot line");
        apply("2-3");
        release();
        assert_eq!(mask(2), kthreadd, "6.12 resets it to every CPU");
        assert_same(&before, &snapshot());
    }
}

mod numa {
    use super::*;

    #[test]
    fn the_numa_masks_of_kernel_threads_are_restored() {
        begin();
        let thread = named("kswapd1").expect("each node has one");
        assert_eq!(mask(thread), cpus("2-3"));
        apply("2-3");
        assert_eq!(mask(thread), cpus("0-1"));
        release();
        assert_eq!(mask(thread), cpus("2-3"), "kernels before 7.0 give it every CPU");
    }
}

mod hotplug {
    use super::*;

    #[test]
    fn cpus_are_unplugged_and_replugged_under_a_shield() {
        begin();
        let before = snapshot();
        let applied = apply("2-3");
        let shield::ShieldGroup::CgroupV2 { dir } = &applied.place else { panic!("{:?}", applied.place) };
        guest::write("/sys/devices/system/cpu/cpu3/online", "0");
        guest::write("/sys/devices/system/cpu/cpu3/online", "1");
        let effective = || guest::read(&format!("{dir}/cpuset.cpus.effective"));
        for _ in 0..100 {
            if effective() == "2-3" {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(effective(), "2-3");
        // Hotplug moves some kernel threads back onto the CPUs. A second apply moves them away.
        apply("2-3");
        assert_empty(&cpus("2-3"), None);
        let released = shield::release(&root(), &crate::dir(), true).expect("the shield can be released");
        assert!(released.is_whole(), "{released:#?}");
        assert_eq!(before.dirs, snapshot().dirs);
        assert_eq!(guest::read("/sys/fs/cgroup/cpuset.cpus.effective"), "0-3");
    }
}

mod systemd {
    use super::*;
    use std::time::{Duration, Instant};

    fn systemctl(words: &[&str]) {
        let status = Command::new("systemctl").args(words).stdin(Stdio::null()).status();
        assert!(status.expect("systemctl can be run").success(), "systemctl {words:?}");
    }

    /// A unit's property, from `systemctl show`.
    fn property(unit: &str, name: &str) -> String {
        let output = Command::new("systemctl").args(["show", unit, "--value", "--property", name]).output();
        String::from_utf8(output.expect("systemctl can be run").stdout).expect("it speaks UTF-8").trim().to_owned()
    }

    #[test]
    fn the_shield_outlives_changes_of_systemd_to_its_tree() {
        begin();
        let applied = apply("2-3");
        let shield::ShieldGroup::CgroupV2 { dir } = &applied.place else { panic!("{:?}", applied.place) };
        let stands = |after: &str| {
            assert_eq!(guest::read(&format!("{dir}/cpuset.cpus.partition")), "isolated", "after {after}");
            assert_eq!(guest::read(&format!("{TOP}/cpuset.cpus.effective")), "0-1", "after {after}");
        };
        stands("apply");
        systemctl(&["daemon-reload"]);
        stands("daemon-reload");
        // systemd answers again as soon as it has read its state. The cgroup tree is then as the new instance sets it up.
        systemctl(&["daemon-reexec"]);
        stands("daemon-reexec");
        systemctl(&["set-property", "--runtime", "system.slice", "AllowedCPUs=0-3"]);
        stands("AllowedCPUs=");
        // Without the default dependencies, which would start the rest of booting. That reads all of the host's files first.
        let unit = ["--unit=visitor", "--property=DefaultDependencies=no", "--quiet", "sleep", "1000"];
        assert!(Command::new("systemd-run").args(unit).status().expect("systemd-run can be run").success());
        let visitor = guest::read("/sys/fs/cgroup/system.slice/visitor.service/cgroup.procs");
        assert_eq!(mask(visitor.parse().expect("one process")), cpus("0-1"), "a service that starts meanwhile");
        systemctl(&["stop", "visitor"]);
        systemctl(&["set-property", "--runtime", "system.slice", "AllowedCPUs="]);
        stands("a service has come and gone");
        release();
        assert_eq!(guest::read(&format!("{TOP}/cpuset.cpus.effective")), "0-3");
    }

    /// Runs the unit of `contrib` with this test's program and a plant of one process on the shield.
    #[test]
    fn a_plant_is_a_unit_that_is_ready_restarted_and_stopped_in_order() {
        begin();
        let program = std::env::var("TAHTI").expect("the list of tests sets TAHTI");
        let unit = include_str!("../../../../contrib/tahti@.service");
        // In the guest, booting continues in parallel with the tests and takes long.
        let unit = unit.replace("/usr/bin/tahti", &program).replace("After=network.target", "DefaultDependencies=no");
        fs::write("/run/systemd/system/tahti@.service", unit).expect("/run");
        fs::create_dir_all("/etc/tahti").expect("the overlay is writable");
        let plant = "[plant]\nname = \"boot\"\n[dashboard]\nenabled = false\n[shield]\ncpus = \"2-3\"\n[[process]]\nname = \"loop\"\n\
                     command = [\"/bin/sleep\", \"1000\"]\ncpus = \"3\"\nready = { file = \"/run/ready\", within = \"60s\" }\n";
        fs::write("/etc/tahti/boot.toml", plant).expect("the overlay is writable");
        systemctl(&["daemon-reload"]);
        systemctl(&["start", "--no-block", "tahti@boot"]);
        let until = |what: &str, done: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !done() {
                assert!(start.elapsed() < Duration::from_secs(60), "{what}: {}", property("tahti@boot", "StatusText"));
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        until("it reports its start", &|| property("tahti@boot", "StatusText") == "starting: 0 of 1 processes run");
        assert_eq!(property("tahti@boot", "ActiveState"), "activating", "its process is not ready yet");
        fs::write("/run/ready", "").expect("/run");
        until("ready", &|| property("tahti@boot", "ActiveState") == "active");
        assert_eq!(property("tahti@boot", "StatusText"), "up: 1 of 1 processes run");
        assert_eq!(guest::read("/sys/fs/cgroup/tahti.shield/rt/cpuset.cpus.partition"), "isolated");
        let sleeper = named("sleep").expect("the plant's process runs");
        assert_eq!(mask(sleeper), cpus("3"));
        let environment = fs::read(format!("/proc/{sleeper}/environ")).expect("it lives");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG_"), "{environment}");

        // After a kill of the supervisor, the process continues. systemd starts a new supervisor, which takes it over.
        let first = property("tahti@boot", "MainPID");
        systemctl(&["kill", "--kill-who=main", "--signal=KILL", "tahti@boot"]);
        let again = || property("tahti@boot", "ActiveState") == "active" && property("tahti@boot", "MainPID") != first;
        until("restarted", &again);
        assert_eq!(named("sleep"), Some(sleeper), "the process continues");
        assert_eq!(mask(sleeper), cpus("3"));

        systemctl(&["stop", "tahti@boot"]);
        assert_eq!(named("sleep"), None);
        // In a slow emulation the plant may be without a supervisor for more than two intervals. It then fails as not observed.
        let (result, status) = (property("tahti@boot", "Result"), property("tahti@boot", "ExecMainStatus"));
        assert!(result == "success" || (result == "exit-code" && status == "3"), "{result}, {status}");
        assert_eq!(guest::read(&format!("{TOP}/cpuset.cpus.effective")), "0-3");
        fs::remove_file("/run/systemd/system/tahti@.service").expect("it exists");
        systemctl(&["daemon-reload"]);
    }
}
