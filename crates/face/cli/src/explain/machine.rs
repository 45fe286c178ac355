//! What of this machine the explainer must know.

use super::read;
use base::{CpuSet, DurNs};
use trace::{Clocks, Facts, Symbols};

/// A tick of `/proc/stat`.
const TICK: i64 = 10_000_000;

/// The CPUs that are online.
pub(super) fn online() -> Result<CpuSet, String> {
    const ONLINE: &str = "/sys/devices/system/cpu/online";
    let text = read(ONLINE).ok_or_else(|| format!("failed to read {ONLINE}"))?;
    text.trim().parse().map_err(|error| format!("{ONLINE}: {error}"))
}

/// Time that the hypervisor has taken of these CPUs; `None` where it does not tell.
pub(super) fn steal(cpus: &CpuSet) -> Option<DurNs> {
    let times = proc::stat::cpu_times(&read("/proc/stat")?).ok()?;
    let of_ours = times.iter().filter(|(cpu, _)| cpu.is_some_and(|cpu| cpus.contains(cpu)));
    Some(DurNs(of_ours.map(|(_, times)| times.steal as i64 * TICK).sum()))
}

/// The facts.
pub(super) fn facts() -> Facts {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let latency = |state: u32| {
        let us = read(&format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/latency"))?;
        us.trim().parse::<u64>().ok().map(|us| us * 1000)
    };
    let mono = sys::clock::mono_now().0 as i64;
    let wall = sys::clock::wall_ns() as i64 - mono;
    let tai = sys::clock::mono_and_tai().map_or(wall, |(mono, tai)| tai as i64 - mono.0 as i64);
    Facts {
        hypervisor: flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
        idle_exit_ns: (0..).map_while(latency).collect(),
        clocks: Clocks { wall, boot: 0, tai },
        symbols: Symbols::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default()),
    }
}
