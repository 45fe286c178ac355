//! Compares the model of the kernel with a real one: the same operations, then each answer and each file.

use base::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command};
use testkit::{FakeKernel, MachineText, guest};

const TOP: &str = "/sys/fs/cgroup";

/// Both kernels.
struct Both {
    model: FakeKernel,
    /// All groups that the test has made.
    groups: Vec<String>,
    sleepers: Vec<Child>,
    done: Vec<String>,
}

impl Drop for Both {
    fn drop(&mut self) {
        for cpu in 1..4 {
            let _ = fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
        }
        for sleeper in &mut self.sleepers {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
        for group in self.groups.iter().rev() {
            let _ = fs::write(format!("{group}/cpuset.cpus.partition"), "member");
            let _ = fs::remove_dir(group);
        }
    }
}

impl Both {
    /// Starts with the guest's present state and `sleepers` idle processes in its root group.
    fn start(sleepers: usize) -> Self {
        guest::required();
        let mut text = MachineText::default();
        guest::write(&format!("{TOP}/cgroup.subtree_control"), "+cpuset");
        for path in [
            "/proc/sys/kernel/osrelease",
            "/sys/devices/system/cpu/online",
            "/sys/devices/system/cpu/possible",
            "/sys/devices/system/cpu/isolated",
            "/sys/devices/virtual/workqueue/cpumask",
            "/sys/fs/cgroup/cgroup.controllers",
            "/sys/fs/cgroup/cgroup.subtree_control",
        ] {
            text.set(path, &guest::read(path));
        }
        let isolated = format!("{TOP}/cpuset.cpus.isolated");
        if let Ok(cpus) = fs::read_to_string(&isolated) {
            text.set(&isolated, cpus.trim_end());
        }
        for cpu in 1..4 {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
            text.set(&path, &guest::read(&path));
        }
        let sleepers: Vec<Child> =
            (0..sleepers).map(|_| Command::new("sleep").arg("1000").spawn().expect("sleep can be run")).collect();
        for sleeper in &sleepers {
            let id = sleeper.id();
            text.set(&format!("/proc/{id}/model"), &format!("{id} sleep user {id} / {}", mask(id)));
        }
        Self { model: FakeKernel::boot(&text), groups: Vec::new(), sleepers, done: Vec::new() }
    }

    fn id(&self, sleeper: usize) -> u32 {
        self.sleepers[sleeper].id()
    }

    /// Checks that both kernels return the same result.
    #[track_caller]
    fn alike(&mut self, what: String, real: std::io::Result<()>, model: Result<(), rustix::io::Errno>) {
        let real =
            real.map_err(|error| rustix::io::Errno::from_io_error(&error).expect("the kernel's errors have numbers"));
        self.done.push(what);
        assert_eq!(model, real, "the model's answer (left) to the last of\n{}", self.done.join("\n"));
        self.compare();
    }

    #[track_caller]
    fn write(&mut self, path: &str, value: &str) {
        let path = format!("{TOP}/{path}");
        let real = guest::try_write(&path, &format!("{value}\n"));
        let model = self.model.write(&path, value);
        self.alike(format!("{path} <- {value}"), real, model);
    }

    #[track_caller]
    fn mkdir(&mut self, group: &str) {
        let path = format!("{TOP}/{group}");
        let real = fs::create_dir(&path);
        let model = self.model.make_dir(&path);
        if real.is_ok() {
            self.groups.push(path.clone());
        }
        self.alike(format!("mkdir {path}"), real, model);
    }

    #[track_caller]
    fn rmdir(&mut self, group: &str) {
        let path = format!("{TOP}/{group}");
        let real = fs::remove_dir(&path);
        let model = self.model.remove_dir(&path);
        if real.is_ok() {
            self.groups.retain(|made| *made != path);
        }
        self.alike(format!("rmdir {path}"), real, model);
    }

    #[track_caller]
    fn pin(&mut self, sleeper: usize, cpus: &str) {
        let cpus: CpuSet = cpus.parse().expect("the test's own list");
        let id = self.id(sleeper);
        let tid = i32::try_from(id).expect("pids are small");
        let real = sys::sched::set_affinity(tid, &cpus);
        let real = real.map_err(|error| std::io::Error::from(error.errno));
        let model = self.model.set_affinity(id, cpus);
        self.alike(format!("affinity of sleeper {sleeper} <- {cpus}"), real, model);
    }

    #[track_caller]
    fn plug(&mut self, cpu: u16, on: &str) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        let real = guest::try_write(&path, on);
        let model = self.model.write(&path, on);
        self.done.push(format!("{path} <- {on}"));
        assert_eq!(model.is_ok(), real.is_ok());
        // A kernel worker updates the cpusets a moment later.
        for _ in 0..100 {
            if self.differences().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        self.compare();
    }

    /// Checks that each file of the model reads as on the real kernel.
    #[track_caller]
    fn compare(&self) {
        let differences = self.differences();
        assert!(differences.is_empty(), "after\n{}\nfile: (model, kernel)\n{differences:#?}", self.done.join("\n"));
    }

    fn differences(&self) -> BTreeMap<String, (Option<String>, Option<String>)> {
        let mut differences = BTreeMap::new();
        let names = [
            "cpuset.cpus",
            "cpuset.cpus.effective",
            "cpuset.cpus.exclusive",
            "cpuset.cpus.partition",
            "cpuset.cpus.isolated",
            "cgroup.subtree_control",
        ];
        let files = self
            .groups
            .iter()
            .map(String::as_str)
            .chain([TOP])
            .flat_map(|group| names.map(|name| format!("{group}/{name}")));
        for path in files.chain(["/sys/devices/virtual/workqueue/cpumask".to_owned()]) {
            let trim = |text: String| text.trim_end().to_owned();
            let (model, real) = (self.model.read(&path).ok().map(trim), fs::read_to_string(&path).ok().map(trim));
            if model != real {
                differences.insert(path, (model, real));
            }
        }
        for sleeper in &self.sleepers {
            let id = sleeper.id();
            let model = self.model.task(id).map(|task| task.mask.to_string());
            let real = mask(id);
            if model.as_deref() != Some(&real) {
                differences.insert(format!("mask of {id}"), (model, Some(real)));
            }
        }
        differences
    }
}

/// The CPUs on which a task may run.
fn mask(id: u32) -> String {
    let status = guest::read(&format!("/proc/{id}/status"));
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    mask.expect("a status has Cpus_allowed_list").to_owned()
}

/// Whether the kernel has `cpuset.cpus.exclusive` and remote partitions.
fn has_exclusive(both: &Both) -> bool {
    !both.groups.is_empty()
        && fs::exists(format!("{}/cpuset.cpus.exclusive", both.groups[0])).expect("a stat cannot fail")
}

#[test]
fn a_local_partition_is_created_and_removed() {
    let mut both = Both::start(3);
    both.pin(1, "1-3");
    both.pin(2, "2");
    both.mkdir("s");
    both.write("s/cpuset.cpus", "3,2");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("s/cpuset.cpus.partition", "member");
    both.write("s/cpuset.cpus", "1");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("s/cpuset.cpus.partition", "member");
    both.rmdir("s");
}

#[test]
fn impossible_partitions_are_accepted_and_read_as_invalid() {
    let mut both = Both::start(0);
    both.mkdir("s");
    both.write("s/cpuset.cpus.partition", "nonsense");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("s/cpuset.cpus.partition", "member");
    both.write("s/cpuset.cpus", "0-3");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("s/cpuset.cpus.partition", "member");
    both.mkdir("o");
    both.write("o/cpuset.cpus", "1");
    both.write("s/cpuset.cpus", "0-1");
    both.write("s/cpuset.cpus.partition", "isolated");
}

#[test]
fn a_neighbour_that_takes_its_cpus_invalidates_a_partition() {
    let mut both = Both::start(0);
    both.mkdir("s");
    both.mkdir("o");
    both.write("s/cpuset.cpus", "1");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("o/cpuset.cpus", "0-1");
    both.write("o/cpuset.cpus", "0");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.write("s/cpuset.cpus.partition", "member");
    both.write("s/cpuset.cpus.partition", "isolated");
}

#[test]
fn tasks_move_between_groups() {
    let mut both = Both::start(2);
    both.mkdir("s");
    both.write("s/cpuset.cpus", "1");
    both.write("s/cpuset.cpus.partition", "isolated");
    let id = both.id(0).to_string();
    both.write("s/cgroup.procs", &id);
    both.pin(0, "0");
    both.pin(0, "0-1");
    both.rmdir("s");
    both.write("s/cgroup.subtree_control", "+cpuset");
    both.write("cgroup.procs", &id);
    both.write("cgroup.procs", "4194303");
    both.write("s/cpuset.cpus.partition", "member");
    both.rmdir("s");
}

#[test]
fn a_remote_partition_needs_exclusive_cpus_all_the_way_down() {
    let mut both = Both::start(1);
    both.mkdir("a");
    both.write("a/cgroup.subtree_control", "+cpuset");
    both.mkdir("a/b");
    if has_exclusive(&both) {
        both.write("a/cpuset.cpus.exclusive", "2-3");
        both.write("a/b/cpuset.cpus.exclusive", "2-3");
    }
    both.write("a/b/cpuset.cpus.partition", "isolated");
    both.write("a/b/cpuset.cpus.partition", "member");
    both.write("a/b/cpuset.cpus.partition", "isolated");
    both.write("a/b/cpuset.cpus.partition", "member");
    both.rmdir("a");
    both.rmdir("a/b");
    both.rmdir("a");
}

#[test]
fn exclusive_cpus_belong_to_one_sibling() {
    let mut both = Both::start(0);
    both.mkdir("a");
    both.mkdir("o");
    if !has_exclusive(&both) {
        both.write("a/cpuset.cpus", "2");
        both.write("o/cpuset.cpus", "2");
        return;
    }
    both.write("a/cpuset.cpus.exclusive", "2-3");
    both.write("o/cpuset.cpus.exclusive", "3");
    both.write("a/cpuset.cpus.exclusive", "");
    both.write("o/cpuset.cpus", "2");
    both.write("a/cpuset.cpus.exclusive", "2-3");
}

#[test]
fn cpus_are_unplugged_under_a_partition() {
    let mut both = Both::start(1);
    both.mkdir("s");
    both.write("s/cpuset.cpus", "1");
    both.write("s/cpuset.cpus.partition", "isolated");
    both.plug(3, "0");
    both.plug(1, "0");
    both.plug(1, "1");
    both.plug(3, "1");
    both.write("s/cpuset.cpus.partition", "member");
}
