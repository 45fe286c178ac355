//! Reads a [`Snapshot`] below a root directory in one pass.
//!
//! A task that ends during the pass is omitted. Any other file that cannot be read is an error, or absent if some
//! kernels do not have it.

pub mod capture;
pub mod facts;
pub mod probe;
mod tasks;

use base::CpuSet;
use host::knob;
use host::reach::Sample;
use host::snapshot::{Cgroup, Cpus, Form, Irq, IrqKey, Snapshot, Task, TaskKey, Value};
use proc::cgroup::memberships;
use proc::interrupts::{Interrupts, Row};
use proc::mountinfo::{Mount, mounts};
use proc::status;
use proc::task_stat::Stat;
use std::collections::{BTreeMap, BTreeSet};
use sys::Result;
use sys::kernel::Kernel;

/// Maximum cpusets read. Reading stops there.
const CPUSETS_MAX: usize = 1 << 16;

const CPU: &str = "/sys/devices/system/cpu";

/// Reads the machine. Per-CPU knobs are read for `cpus` only.
///
/// # Errors
/// The kernel's error for a file that every machine has.
pub fn snapshot(root: &impl Kernel, cpus: &CpuSet) -> Result<Snapshot> {
    let mut snapshot = Snapshot {
        boot_id: trimmed(root, "/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        kernel: trimmed(root, "/proc/sys/kernel/osrelease").unwrap_or_default(),
        boot_line: trimmed(root, "/proc/cmdline").unwrap_or_default(),
        uptime_s: trimmed(root, "/proc/uptime").and_then(|text| text.split('.').next()?.parse().ok()).unwrap_or(0),
        cpus: read_cpus(root)?,
        ..Snapshot::default()
    };
    snapshot.cgroup = read_cgroup(root);
    read_cpusets(root, &mut snapshot);
    tasks::read(root, &mut snapshot)?;
    snapshot.irqs = read_irqs(root, &snapshot);
    for pattern in knob::patterns(cpus) {
        read_pattern(root, &pattern.path, pattern.form, &mut snapshot.files);
    }
    Ok(snapshot)
}

/// Reads the cpusets, the placement of every task, and new tasks again, a moment after `before`.
///
/// Knobs and interrupts are copied from `before`, because they do not change by themselves and their writer verifies
/// them. Names and classes of known threads are copied as well.
#[must_use]
pub fn look_again(root: &impl Kernel, before: &Snapshot) -> Snapshot {
    let mut snapshot = Snapshot { tasks: BTreeMap::new(), ..before.clone() };
    snapshot.files.retain(|path, _| before.cpuset_of_dir(path).is_none());
    snapshot.dirs.clear();
    read_cpusets(root, &mut snapshot);
    tasks::read_again(root, &mut snapshot, before);
    snapshot
}

fn trimmed(root: &impl Kernel, path: &str) -> Option<String> {
    root.read(path).ok().map(|text| text.trim().to_owned())
}

fn list(root: &impl Kernel, path: &str) -> Option<CpuSet> {
    root.read(path).ok()?.parse().ok()
}

fn read_cpus(root: &impl Kernel) -> Result<Cpus> {
    let online: CpuSet = root.read(&format!("{CPU}/online"))?.parse().unwrap_or_default();
    let mut cpus = Cpus {
        possible: list(root, &format!("{CPU}/possible")).unwrap_or(online),
        online,
        isolated: list(root, &format!("{CPU}/isolated")).unwrap_or_default(),
        nohz_full: list(root, &format!("{CPU}/nohz_full")).unwrap_or_default(),
        ..Cpus::default()
    };
    for cpu in &online {
        if let Some(group) = list(root, &format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"))
            && group.count() > 1
            && !cpus.siblings.contains(&group)
        {
            cpus.siblings.push(group);
        }
    }
    let nodes = "/sys/devices/system/node";
    for name in root.list(nodes).unwrap_or_default() {
        if let Some(number) = name.strip_prefix("node").and_then(|number| number.parse().ok())
            && let Some(here) = list(root, &format!("{nodes}/{name}/cpulist"))
        {
            cpus.nodes.insert(number, here);
        }
    }
    Ok(cpus)
}

/// The hierarchy that has the cpuset controller.
fn read_cgroup(root: &impl Kernel) -> Cgroup {
    let text = root.read("/proc/self/mountinfo").unwrap_or_default();
    let has_cpuset = |mount: &Mount<'_>| match mount.kind {
        "cgroup" => mount.has("cpuset"),
        "cgroup2" => {
            let controllers = root.read(&format!("{}/cgroup.controllers", mount.point)).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == "cpuset")
        }
        _ => false,
    };
    match mounts(&text).find(has_cpuset) {
        None => Cgroup::None,
        Some(Mount { point, kind: "cgroup", .. }) => Cgroup::V1 { mount: point.into_owned() },
        Some(Mount { point, .. }) => {
            Cgroup::V2 { mount: point.into_owned(), systemd: root.exists("/run/systemd/system") }
        }
    }
}

/// Reads every cpuset with its files.
fn read_cpusets(root: &impl Kernel, snapshot: &mut Snapshot) {
    let (mount, files): (_, &[(&str, Form)]) = match &snapshot.cgroup {
        Cgroup::None => return,
        Cgroup::V1 { mount } => (
            mount.clone(),
            &[
                ("cpuset.cpus", Form::List),
                ("cpuset.mems", Form::Text),
                ("cpuset.cpu_exclusive", Form::Text),
                ("cpuset.sched_load_balance", Form::Text),
            ],
        ),
        Cgroup::V2 { mount, .. } => (
            mount.clone(),
            &[
                ("cpuset.cpus", Form::List),
                ("cpuset.cpus.effective", Form::List),
                ("cpuset.cpus.exclusive", Form::List),
                ("cpuset.cpus.exclusive.effective", Form::List),
                ("cpuset.cpus.isolated", Form::List),
                ("cpuset.cpus.partition", Form::Text),
                ("cpuset.mems", Form::Text),
                ("cgroup.subtree_control", Form::Controller),
            ],
        ),
    };
    let mut waiting = vec![mount];
    while let Some(dir) = waiting.pop() {
        if snapshot.dirs.len() >= CPUSETS_MAX {
            return;
        }
        for (name, form) in files {
            let path = format!("{dir}/{name}");
            if let Ok(text) = root.read_setting(&path) {
                snapshot.files.insert(path, form.read(&text));
            }
        }
        for name in root.subdirs(&dir).unwrap_or_default() {
            waiting.push(format!("{dir}/{name}"));
        }
        snapshot.dirs.insert(dir);
    }
}

/// The cpuset of a task, from the text of its `cgroup` file.
#[must_use]
pub fn cpuset_path<'a>(text: &'a str, cgroup: &Cgroup) -> Option<&'a str> {
    let mut all = memberships(text);
    let found = match cgroup {
        Cgroup::None => None,
        Cgroup::V1 { .. } => all.find(|membership| membership.has("cpuset")),
        Cgroup::V2 { .. } => all.find(|membership| membership.is_v2()),
    };
    found.map(|membership| membership.path)
}

/// A name for each interrupt that stays the same if its number changes. Interrupts of the same name get a suffix in
/// table order. Those that each CPU has for itself, such as its timer on Arm, are left out: no CPU can have another's.
#[must_use]
pub fn irq_keys(table: &Interrupts<'_>) -> BTreeMap<IrqKey, u32> {
    let mut keys = BTreeMap::new();
    for row in &table.rows {
        let Some(number) = row.number().filter(|_| !row.is_private()) else { continue };
        let name = row.device_and_action();
        let mut key = IrqKey(name.clone());
        let mut copy = 2;
        while keys.contains_key(&key) {
            key = IrqKey(format!("{name} #{copy}"));
            copy += 1;
        }
        keys.insert(key, number);
    }
    keys
}

/// Reads the interrupts. The effective affinity is read only if a thread follows the interrupt, or if the interrupt
/// cannot be moved.
fn read_irqs(root: &impl Kernel, snapshot: &Snapshot) -> BTreeMap<IrqKey, Irq> {
    let text = root.read("/proc/interrupts").unwrap_or_default();
    let Ok(table) = Interrupts::parse(&text) else { return BTreeMap::new() };
    let followed: BTreeSet<u32> = snapshot.tasks.values().filter_map(Task::handles_irq).collect();
    let rows: BTreeMap<u32, &Row<'_>> = table.rows.iter().filter_map(|row| Some((row.number()?, row))).collect();
    let file = |number: u32| format!("/proc/irq/{number}/smp_affinity_list");
    // Newer kernels mark unmovable interrupts as read-only. On older kernels only driver names identify them.
    let told = rows.keys().any(|number| root.is_writable(&file(*number)) == Some(false));
    let read = |(key, number)| {
        let requested: CpuSet = root.read_setting(&file(number)).ok()?.parse().ok()?;
        let effective = || list(root, &format!("/proc/irq/{number}/effective_affinity_list"));
        let row = rows.get(&number)?;
        let stuck = if told { root.is_writable(&file(number)) == Some(false) } else { row.is_known_to_be_managed() };
        let stuck = stuck.then(|| effective().filter(|cpus| !cpus.is_empty()).unwrap_or(requested));
        let stuck = stuck.unwrap_or_default().iter().map(|cpu| (cpu, table.count(row, cpu))).collect();
        let effective = followed.contains(&number).then(effective).flatten();
        Some((key, Irq { number, requested, effective, stuck }))
    };
    irq_keys(&table).into_iter().filter_map(read).collect()
}

/// Reads the files that match `path`; `*` matches part of one component.
fn read_pattern(root: &impl Kernel, path: &str, form: Form, files: &mut BTreeMap<String, Value>) {
    let Some(star) = path.find('*') else {
        if let Ok(text) = root.read_setting(path) {
            files.insert(path.to_owned(), form.read(&text));
        }
        return;
    };
    let dir_end = path[..star].rfind('/').unwrap_or(0);
    let name_end = path[star..].find('/').map_or(path.len(), |at| star + at);
    for name in root.list(&path[..dir_end]).unwrap_or_default() {
        if knob::is_match(&path[dir_end + 1..name_end], &name) {
            read_pattern(root, &format!("{}/{name}{}", &path[..dir_end], &path[name_end..]), form, files);
        }
    }
}

/// Reads the interrupt and softirq counters, and the context switches of the threads in `tasks`.
#[must_use]
pub fn sample<'a>(root: &impl Kernel, tasks: impl Iterator<Item = &'a TaskKey>) -> Sample {
    let mut sample = Sample {
        interrupts: root.read("/proc/interrupts").unwrap_or_default(),
        softirqs: root.read("/proc/softirqs").unwrap_or_default(),
        ..Sample::default()
    };
    for key in tasks {
        let read = |name: &str| root.read(&format!("/proc/{}/{name}", key.tid)).ok();
        let (Some(stat), Some(text)) = (read("stat").and_then(|text| Stat::parse(&text)), read("status")) else {
            continue;
        };
        let switches = |name: &str| status::field(&text, name).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        let count = switches("voluntary_ctxt_switches").saturating_add(switches("nonvoluntary_ctxt_switches"));
        if stat.start == key.start {
            sample.switches.insert(*key, (count, stat.last_cpu));
        }
    }
    sample
}
