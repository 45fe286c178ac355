//! Events that reached each CPU between two samples. They prove that a shield works, and name what it cannot keep away.

use crate::snapshot::{Snapshot, Task, TaskKey};
use base::{CpuId, CpuSet};
use proc::interrupts::Interrupts;
use serde::Serialize;
use std::collections::BTreeMap;

/// The counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// `/proc/interrupts`.
    pub interrupts: String,
    /// `/proc/softirqs`.
    pub softirqs: String,
    /// Per thread, the number of context switches and the CPU on which it last ran.
    pub switches: BTreeMap<TaskKey, (u64, CpuId)>,
}

/// Events that reached one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReach {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it is shielded.
    pub shielded: bool,
    /// The shielded CPUs whose core this unshielded CPU shares. Anything that runs here slows them down.
    pub beside: CpuSet,
    /// User threads that may run here and do not belong to the shield.
    pub tasks: usize,
    /// Kernel threads that may run here.
    pub kernel_threads: usize,
    /// Interrupts from devices and other sources, without timer ticks and interprocessor interrupts.
    pub interrupts: u64,
    /// Local timer ticks.
    pub ticks: u64,
    /// Softirqs of every class.
    pub softirqs: u64,
    /// Interprocessor interrupts: rescheduling, function calls, TLB shootdowns.
    pub ipis: u64,
    /// The events by name, the most frequent first. Listed for shielded CPUs; for a CPU that shares the core of a
    /// shielded one, only the threads are listed.
    pub names: Vec<EventSource>,
}

/// A source of events on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventSource {
    /// Kind of source.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Number of events in the window; for threads, the number of context switches.
    pub count: u64,
}

/// Kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A user thread that does not belong to the shield.
    Task,
    /// A kernel thread.
    KernelThread,
    /// A device interrupt, or a processor exception.
    Interrupt,
    /// The local timer.
    Tick,
    /// A softirq.
    Softirq,
    /// An interprocessor interrupt.
    Ipi,
}

impl Kind {
    /// Name for users.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::KernelThread => "kernel thread",
            Self::Interrupt => "interrupt",
            Self::Tick => "timer tick",
            Self::Softirq => "softirq",
            Self::Ipi => "from another CPU",
        }
    }
}

/// The kind of a row of `/proc/interrupts`.
fn kind(name: &str, meaning: &str) -> Kind {
    match name {
        "LOC" => Kind::Tick,
        _ if meaning.contains("arch_timer") => Kind::Tick,
        "RES" | "CAL" | "TLB" | "IWI" | "RTR" => Kind::Ipi,
        name if name.starts_with("IPI") => Kind::Ipi,
        _ => Kind::Interrupt,
    }
}

/// Compares two samples. `shield` contains the shielded CPUs; `resident` is true for tasks that belong to the shield.
#[must_use]
pub fn reach(
    snapshot: &Snapshot,
    shield: &CpuSet,
    resident: impl Fn(&Task) -> bool,
    before: &Sample,
    after: &Sample,
) -> Vec<CpuReach> {
    let rows = |before: &str, after: &str| -> Vec<(String, String, BTreeMap<CpuId, u64>)> {
        let (Ok(before), Ok(after)) = (Interrupts::parse(before), Interrupts::parse(after)) else { return Vec::new() };
        let counts = |row: &proc::interrupts::Row<'_>| {
            let old = before.row(row.name);
            let delta = |cpu: CpuId| {
                let was = old.map_or(0, |old| before.count(old, cpu));
                after.count(row, cpu).saturating_sub(was)
            };
            let by_cpu = after.cpus.iter().map(|&cpu| (cpu, delta(cpu))).filter(|(_, count)| *count > 0);
            (row.name.to_owned(), row.device_and_action(), by_cpu.collect())
        };
        // Rows without one column per CPU (ERR, MIS) belong to no CPU.
        after.rows.iter().filter(|row| row.counts.len() == after.cpus.len()).map(counts).collect()
    };
    let interrupts = rows(&before.interrupts, &after.interrupts);
    let softirqs = rows(&before.softirqs, &after.softirqs);
    let mut out = Vec::new();
    for cpu in &snapshot.cpus.online {
        let mut here = CpuReach {
            cpu,
            shielded: shield.contains(cpu),
            beside: match shield.contains(cpu) {
                true => CpuSet::EMPTY,
                false => snapshot.cpus.siblings_of(&CpuSet::single(cpu)).and(shield),
            },
            tasks: 0,
            kernel_threads: 0,
            interrupts: 0,
            ticks: 0,
            softirqs: 0,
            ipis: 0,
            names: Vec::new(),
        };
        for (name, meaning, counts) in &interrupts {
            let count = counts.get(&cpu).copied().unwrap_or(0);
            let kind = kind(name, meaning);
            *match kind {
                Kind::Tick => &mut here.ticks,
                Kind::Ipi => &mut here.ipis,
                _ => &mut here.interrupts,
            } += count;
            here.names.push(EventSource { kind, name: format!("{name} {meaning}"), count });
        }
        for (name, _, counts) in &softirqs {
            let count = counts.get(&cpu).copied().unwrap_or(0);
            here.softirqs += count;
            here.names.push(EventSource { kind: Kind::Softirq, name: name.clone(), count });
        }
        for (key, task) in &snapshot.tasks {
            if !task.cpus.contains(cpu) || resident(task) {
                continue;
            }
            *if task.kernel { &mut here.kernel_threads } else { &mut here.tasks } += 1;
            let (Some(was), Some(&(now, last))) = (before.switches.get(key), after.switches.get(key)) else { continue };
            if last == cpu {
                let kind = if task.kernel { Kind::KernelThread } else { Kind::Task };
                let name = format!("{} {}", key.tid, task.comm);
                here.names.push(EventSource { kind, name, count: now.saturating_sub(was.0) });
            }
        }
        let runs =
            |named: &EventSource| matches!(named.kind, Kind::Task | Kind::KernelThread) && !here.beside.is_empty();
        here.names.retain(|named| named.count > 0 && (here.shielded || runs(named)));
        here.names.sort_by_key(|named| (std::cmp::Reverse(named.count), named.kind));
        out.push(here);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Class;

    fn sample(nvme: u64, tick: u64, sched: u64, switches: u64) -> Sample {
        let switches = [(TaskKey { tid: 40, start: 1 }, (switches, 1))].into();
        Sample {
            interrupts: format!(
                "    CPU0 CPU1\n 36: 5 {nvme} PCI-MSI 1-edge nvme0q1\nLOC: 9 {tick} Local timer interrupts\nERR: 7\n"
            ),
            softirqs: format!("    CPU0 CPU1\n TIMER: 0 0\n SCHED: 3 {sched}\n"),
            switches,
        }
    }

    #[test]
    fn interrupts_and_tasks_that_reached_a_shielded_cpu_are_named_and_counted() {
        let mut snapshot = Snapshot::default();
        snapshot.cpus.online = CpuSet::first(2);
        let task = Task {
            comm: "intruder".into(),
            tgid: 40,
            ppid: 1,
            kernel: false,
            bound: false,
            class: Class::Of(base::Policy::OTHER),
            cpus: CpuSet::first(2),
            own: None,
            cpuset: None,
        };
        snapshot.tasks.insert(TaskKey { tid: 40, start: 1 }, task);
        let shield = CpuSet::single(1);
        let reach = reach(&snapshot, &shield, |_| false, &sample(10, 100, 4, 7), &sample(13, 350, 4, 8));
        assert_eq!((reach[0].interrupts, reach[0].ticks, &reach[0].names), (0, 0, &vec![]));
        let names: Vec<(&str, u64)> = reach[1].names.iter().map(|named| (named.name.as_str(), named.count)).collect();
        assert_eq!(names, [("LOC Local timer interrupts", 250), ("36 PCI-MSI 1-edge nvme0q1", 3), ("40 intruder", 1)]);
        assert_eq!(reach[0].beside, CpuSet::EMPTY);
        assert_eq!((reach[1].tasks, reach[1].interrupts, reach[1].ticks, reach[1].softirqs), (1, 3, 250, 0));
        // A CPU that shares the core of a shielded one lists the threads that ran there.
        snapshot.cpus.siblings = vec![CpuSet::first(2)];
        let reach =
            super::reach(&snapshot, &CpuSet::single(0), |_| false, &sample(10, 100, 4, 7), &sample(13, 350, 4, 8));
        assert_eq!((reach[0].beside, reach[1].beside), (CpuSet::EMPTY, CpuSet::single(0)));
        let names: Vec<&str> = reach[1].names.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["40 intruder"]);
    }
}
