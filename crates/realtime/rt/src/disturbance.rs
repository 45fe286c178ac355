//! Disturbances of a spinning thread: what can take its CPU away, and how often it did.

use base::{CpuId, CpuSet};
use proc::interrupts::Interrupts;
use proc::{stat, timer_list};
use sys::root::RootDir;
use sys::{Errno, Error, Result};

/// Counters of one CPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Interrupts with their name and count, in the kernel's order.
    pub(crate) interrupts: Vec<(String, u64)>,
    /// Time taken by the hypervisor, in ticks of 10 ms; `None` if the kernel does not report it.
    pub(crate) steal_ticks: Option<u64>,
}

impl Counts {
    /// Reads the counters.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for a table that cannot be parsed.
    pub(crate) fn of(root: &RootDir, cpu: CpuId) -> Result<Self> {
        const TABLE: &str = "/proc/interrupts";
        let text = root.read(TABLE)?;
        let table = Interrupts::parse(&text)
            .map_err(|why| Error { doing: format!("read {TABLE}: {why}"), errno: Errno::INVAL })?;
        let name = |row: &proc::interrupts::Row<'_>| match row.number() {
            Some(number) => format!("interrupt {number} ({})", row.device_and_action()),
            None => row.device_and_action(),
        };
        let interrupts = table.rows.iter().map(|row| (name(row), table.count(row, cpu))).collect();
        let times = root.read("/proc/stat").ok().and_then(|text| stat::cpu_times(&text).ok()).unwrap_or_default();
        let steal_ticks = times.iter().find(|(of, _)| *of == Some(cpu)).map(|(_, times)| times.steal);
        Ok(Self { interrupts, steal_ticks })
    }

    /// Interrupts since `before`, most frequent first.
    #[must_use]
    pub(crate) fn since(&self, before: &Self) -> Vec<(String, u64)> {
        let was = |name: &str| before.interrupts.iter().find(|(of, _)| of == name).map_or(0, |(_, count)| *count);
        let moved = self.interrupts.iter().map(|(name, count)| (name.clone(), count.saturating_sub(was(name))));
        let mut moved: Vec<_> = moved.filter(|(_, count)| *count > 0).collect();
        moved.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        moved
    }
}

/// Sources of disturbance that stock Linux leaves on a CPU, as far as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// CPUs whose tick stops while a single task runs (`nohz_full=`); `None` if the kernel does not support it.
    pub(crate) nohz_full: Option<CpuSet>,
    /// Whether the kernel trusts its clock. If it does not, ticks continue in spite of `nohz_full=`. `None` if the kernel
    /// does not report it (only root can read it, in debugfs).
    pub(crate) clock_trusted: Option<bool>,
    /// The clock source, such as `tsc`.
    pub(crate) clock_source: String,
    /// CPUs whose RCU callbacks run on other CPUs, as far as the command line shows.
    pub(crate) rcu_elsewhere: CpuSet,
    /// High-resolution timers that are armed on the CPU; `None` if they cannot be read (only root can).
    pub(crate) timers: Option<Vec<String>>,
    /// Interrupts whose handlers run on the CPU: number and device.
    pub(crate) interrupts: Vec<String>,
    /// Limit in microseconds per second after which the real-time threads of a CPU are throttled; `None` if it cannot be
    /// read or is unlimited.
    pub(crate) throttled_after_us: Option<u64>,
}

impl Remains {
    /// Reads the state of `cpu`. Fields that cannot be read remain empty.
    #[must_use]
    pub(crate) fn of(root: &RootDir, cpu: CpuId) -> Self {
        let cpus = |path: &str| root.read(path).ok().map(|text| text.trim().parse().unwrap_or(CpuSet::EMPTY));
        let nohz_full = cpus("/sys/devices/system/cpu/nohz_full");
        let boot = proc::boot_line::BootLine::parse(&root.read("/proc/cmdline").unwrap_or_default());
        let last = cpus("/sys/devices/system/cpu/possible").and_then(|cpus| cpus.iter().last()).unwrap_or(cpu);
        let listed = boot.cpus("rcu_nocbs", last).flatten().unwrap_or(CpuSet::EMPTY);
        let timers = root.read("/proc/timer_list").ok();
        let throttle = root.read("/proc/sys/kernel/sched_rt_runtime_us").ok();
        let source = root.read("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
        Self {
            clock_trusted: root.read("/sys/kernel/debug/sched/debug").ok().and_then(|text| clock_trusted(&text)),
            clock_source: source.trim().to_owned(),
            rcu_elsewhere: listed.or(&nohz_full.unwrap_or(CpuSet::EMPTY)),
            nohz_full,
            timers: timers.map(|text| timer_list::armed(&text, cpu).into_iter().map(str::to_owned).collect()),
            interrupts: interrupts_on(root, cpu),
            throttled_after_us: throttle.and_then(|text| text.trim().parse().ok()),
        }
    }
}

/// The clock state in the scheduler's debug file.
fn clock_trusted(text: &str) -> Option<bool> {
    let value = text.lines().find_map(|line| line.strip_prefix("sched_clock_stable()"))?;
    match value.trim_start_matches([' ', ':']).trim() {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

fn interrupts_on(root: &RootDir, cpu: CpuId) -> Vec<String> {
    let text = root.read("/proc/interrupts").unwrap_or_default();
    let Ok(table) = Interrupts::parse(&text) else { return Vec::new() };
    let here = |number: &u32| {
        let effective = root.read(&format!("/proc/irq/{number}/effective_affinity_list"));
        effective.is_ok_and(|cpus| cpus.trim().parse().is_ok_and(|cpus: CpuSet| cpus.contains(cpu)))
    };
    let devices = table.rows.iter().filter_map(|row| Some((row.number()?, row)));
    devices
        .filter(|(number, row)| row.actions().next().is_some() && here(number))
        .map(|(number, row)| format!("{number} ({})", row.actions().collect::<Vec<_>>().join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stability_of_the_scheduler_clock_is_parsed() {
        let says = |value: &str| clock_trusted(&format!("ktime  : 12.5\nsched_clock_stable()   : {value}\n\nsysctl\n"));
        assert_eq!((says("1"), says("0"), says("x"), clock_trusted("")), (Some(true), Some(false), None, None));
    }

    #[test]
    fn interrupts_between_two_counts_are_named_with_their_number() {
        let root = |table: &str| {
            let folder = std::env::temp_dir().join(format!("tahti-disturbance-{}-{}", std::process::id(), table.len()));
            std::fs::create_dir_all(folder.join("proc")).unwrap();
            std::fs::write(folder.join("proc/interrupts"), table).unwrap();
            std::fs::write(folder.join("proc/stat"), "cpu  0 0\ncpu1 1 2 3 4 5 6 7 8 9\n").unwrap();
            folder
        };
        let tables = [
            "    CPU0 CPU1\n 4: 1 5 IO-APIC 4-edge  ttyS0\nLOC: 7 90 Local timer interrupts\n",
            "    CPU0 CPU1\n 4: 9 6 IO-APIC 4-edge  ttyS0\nLOC: 7 100 Local timer interrupts\nRES: 1 0 Rescheduling\n",
        ];
        let folders = tables.map(root);
        let [before, after] = [&folders[0], &folders[1]].map(|folder| Counts::of(&RootDir::at(folder), 1).unwrap());
        folders.iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
        let expected =
            [("Local timer interrupts".to_owned(), 10), ("interrupt 4 (IO-APIC 4-edge ttyS0)".to_owned(), 1)];
        assert_eq!(after.since(&before), expected);
        assert_eq!(after.steal_ticks, Some(8));
    }
}
