//! What a figure must carry with it to be compared: the machine, its kernel, and how they are set.

use base::DurNs;
use serde::Serialize;
use std::collections::BTreeMap;
use sys::root::RootDir;

/// Files that decide about latency, as they are.
const KNOBS: &[&str] = &[
    "/proc/cmdline",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/sched_rt_period_us",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/vm/stat_interval",
    "/sys/kernel/realtime",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/cpu/cpuidle/current_governor",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/control",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];
/// What `/proc/cpuinfo` tells of the first CPU.
const CPU_FACTS: &[&str] = &["model name", "cpu family", "model", "stepping", "microcode", "cpu MHz"];

/// A machine as a report carries it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fingerprint {
    pub(crate) tahti: &'static str,
    pub(crate) kernel: String,
    pub(crate) cpu: BTreeMap<String, String>,
    pub(crate) hypervisor: bool,
    pub(crate) knobs: BTreeMap<String, String>,
    /// What one reading of the clock costs: least, median, and largest of some thousands.
    pub(crate) clock_read_ns: [i64; 3],
}

impl Fingerprint {
    pub(crate) fn take() -> Self {
        let root = RootDir::machine();
        let read = |path: &str| root.read(path).ok().map(|text| text.trim().to_owned());
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let first = cpuinfo.split("\n\n").next().unwrap_or_default();
        let facts =
            first.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
        let cpu = facts.clone().filter(|(key, _)| CPU_FACTS.contains(key));
        Self {
            tahti: env!("CARGO_PKG_VERSION"),
            kernel: read("/proc/version").unwrap_or_else(|| "unknown".into()),
            cpu: cpu.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            hypervisor: facts.clone().any(|(key, value)| key == "flags" && value.split(' ').any(|f| f == "hypervisor")),
            knobs: KNOBS.iter().filter_map(|path| Some(((*path).to_owned(), read(path)?))).collect(),
            clock_read_ns: clock_cost(),
        }
    }

    /// The lines that a reader of a table needs.
    pub(crate) fn lines(&self) -> Vec<String> {
        let fact = |key: &str| self.cpu.get(key).map_or("unknown", String::as_str);
        let knob = |path: &str| self.knobs.get(path).map_or("-", String::as_str);
        let [least, median, largest] = self.clock_read_ns;
        vec![
            format!(
                "machine: {}, microcode {}, CPUs {}{}",
                fact("model name"),
                fact("microcode"),
                knob("/sys/devices/system/cpu/online"),
                if self.hypervisor { ", under a hypervisor" } else { "" },
            ),
            format!("kernel: {}", self.kernel.split(" (").next().unwrap_or_default()),
            format!(
                "clock: {}; reading it costs {median} ns (least {least}, largest {largest})",
                knob("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ),
        ]
    }
}

/// Between two readings one after the other.
fn clock_cost() -> [i64; 3] {
    let mut costs: Vec<i64> = (0..10_000)
        .map(|_| {
            let before = sys::clock::mono_now();
            let DurNs(cost) = sys::clock::mono_now() - before;
            cost
        })
        .collect();
    costs.sort_unstable();
    [costs[0], costs[costs.len() / 2], costs[costs.len() - 1]]
}
