//! What of this machine the explainer must know.

use base::{CpuSet, DurNs};
use sys::root::RootDir;
use trace::{Clocks, Facts, Symbols};

/// A tick of `/proc/stat`.
const TICK: i64 = 10_000_000;

/// Time that the hypervisor has taken of these CPUs since boot, in steps of 10 ms; `None` where it does not tell.
#[must_use]
pub fn steal(cpus: &CpuSet) -> Option<DurNs> {
    let times = proc::stat::cpu_times(&read("/proc/stat")?).ok()?;
    let of_ours = times.iter().filter(|(cpu, _)| cpu.is_some_and(|cpu| cpus.contains(cpu)));
    Some(DurNs(of_ours.map(|(_, times)| times.steal as i64 * TICK).sum()))
}

/// The facts, as they are now.
#[must_use]
pub fn facts() -> Facts {
    let latency = |state: u32| {
        let us = read(&format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/latency"))?;
        us.trim().parse::<u64>().ok().map(|us| us * 1000)
    };
    let mono = sys::clock::mono_now().0 as i64;
    let wall = sys::clock::wall_ns() as i64 - mono;
    let tai = sys::clock::mono_and_tai().map_or(wall, |(mono, tai)| tai as i64 - mono.0 as i64);
    Facts {
        hypervisor: proc::cpuinfo::has_hypervisor(&read("/proc/cpuinfo").unwrap_or_default()),
        idle_exit_ns: (0..).map_while(latency).collect(),
        clocks: Clocks { wall, boot: sys::clock::boot_offset().0, tai },
        symbols: Symbols::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default()),
    }
}

fn read(path: &str) -> Option<String> {
    RootDir::machine().read(path).ok()
}
