//! The machine, its kernel and their settings, which a comparison of figures needs.

use base::{CpuSet, DurNs};
use host::plan::{self, Want};
use keep::shield::machine::{Machine as _, RealMachine};
use report::Machine;
use sys::root::RootDir;

/// Files with settings that affect latency.
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
/// Facts from `/proc/cpuinfo` about the first CPU.
const CPU_FACTS: &[&str] = &["model name", "cpu family", "model", "stepping", "microcode", "cpu MHz"];
/// Files with the firmware's name of the machine, and thus of the hypervisor.
const NAMES: [&str; 2] = ["/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"];

/// The current machine, and the time that its hypervisor took since `before`.
pub(crate) fn take(before: &Steal) -> Machine {
    let root = RootDir::machine();
    let read = |path: &str| root.read(path).ok().map(|text| text.trim().to_owned());
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let facts = first.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
    let cpu = facts.filter(|(key, _)| CPU_FACTS.contains(key));
    let guest = proc::cpuinfo::has_hypervisor(&cpuinfo);
    let name: Vec<String> = NAMES.iter().filter_map(|path| read(path)).collect();
    Machine {
        tahti: env!("CARGO_PKG_VERSION").into(),
        kernel: read("/proc/version").unwrap_or_else(|| "unknown".into()),
        cpu: cpu.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        hypervisor: guest.then(|| if name.is_empty() { "unknown".into() } else { name.join(" ") }),
        knobs: KNOBS.iter().filter_map(|path| Some(((*path).to_owned(), read(path)?))).collect(),
        off_profile: off_profile().unwrap_or_default(),
        steal_percent: before.since(),
        clock_read_ns: clock_cost(),
    }
}

/// Knobs that a shield of the highest CPU would change; nothing if that is unknown.
fn off_profile() -> Option<Vec<String>> {
    let cpus = CpuSet::single(sys::sched::affinity(0).ok()?.iter().last()?);
    let snapshot = RealMachine::at(&RootDir::machine()).snapshot(&cpus).ok()?;
    let names = host::knob::ALL.iter().map(|knob| knob.name());
    let differs = |name: &&str| {
        let want = Want { cpus, only: Some((*name).to_owned()), ..Want::default() };
        plan::plan(&snapshot, &want).is_ok_and(|plan| !plan.steps.is_empty())
    };
    Some(names.filter(differs).map(str::to_owned).collect())
}

/// The kernel's counters of the time of all CPUs and of steal.
pub(crate) struct Steal(Option<[u64; 2]>);

impl Steal {
    pub(crate) fn read() -> Self {
        let text = RootDir::machine().read("/proc/stat").ok();
        Self(text.as_deref().and_then(all_and_stolen))
    }

    /// Ticks that the hypervisor has taken from all CPUs; nothing if the kernel does not report them.
    pub(crate) fn ticks(&self) -> Option<u64> {
        self.0.map(|[_, stolen]| stolen)
    }

    /// In percent; nothing if the kernel does not report it, or too little time has passed.
    fn since(&self) -> Option<f64> {
        let ([all, stolen], [all_now, stolen_now]) = (self.0?, Self::read().0?);
        let all = all_now.checked_sub(all).filter(|all| *all > 0)?;
        Some(stolen_now.checked_sub(stolen)? as f64 * 100.0 / all as f64)
    }
}

/// All ticks and stolen ticks from the first line of `/proc/stat`: user nice system idle iowait irq softirq steal, guests included.
fn all_and_stolen(text: &str) -> Option<[u64; 2]> {
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    (ticks.len() == 8).then(|| [ticks.iter().fold(0, |sum: u64, tick| sum.saturating_add(*tick)), ticks[7]])
}

/// Cost of a clock reading in ns: minimum, median, maximum.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_the_first_line() {
        assert_eq!(all_and_stolen("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some([36, 8]));
        assert_eq!(all_and_stolen("cpu  1 2 3\n"), None);
        assert_eq!(all_and_stolen(""), None);
    }
}
