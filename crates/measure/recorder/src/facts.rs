//! Properties of this machine that the explainer needs.

use base::{CpuSet, DurNs};
use sys::root::RootDir;
use trace::{Clocks, Facts, Symbols};

/// Length of a tick in `/proc/stat`, in nanoseconds.
const TICK: i64 = 10_000_000;

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Time stolen from these CPUs by the hypervisor since boot, with a resolution of 10 ms; `None` if unavailable.
#[must_use]
pub fn steal(cpus: &CpuSet) -> Option<DurNs> {
    let times = proc::stat::cpu_times(&read("/proc/stat")?).ok()?;
    let of_ours = times.iter().filter(|(cpu, _)| cpu.is_some_and(|cpu| cpus.contains(cpu)));
    Some(DurNs(of_ours.map(|(_, times)| times.steal as i64 * TICK).sum()))
}

/// Reads the present properties.
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

/// Conditions that must not change during a measurement. Otherwise its figures do not belong to one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    clock_source: String,
    online: String,
}

impl Conditions {
    /// Reads the present conditions.
    #[must_use]
    pub fn look() -> Self {
        let of = |path| read(path).map_or_else(|| "unknown".into(), |text| text.trim().to_owned());
        Self { clock_source: of(CLOCK_SOURCE), online: of(ONLINE) }
    }

    /// Describes the changes since `self` was read.
    #[must_use]
    pub fn changed(&self, now: &Self) -> Vec<String> {
        let changes = [
            ("the clock source", &self.clock_source, &now.clock_source, "times of one are not times of the other"),
            ("the CPUs that are online", &self.online, &now.online, "it was not one machine all the while"),
        ];
        let changes = changes.into_iter().filter(|(_, was, is, _)| was != is);
        changes
            .map(|(what, was, is, so)| format!("{what} changed meanwhile, from {was} to {is}: {so}; measure again"))
            .collect()
    }
}

fn read(path: &str) -> Option<String> {
    RootDir::machine().read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_clock_source_or_online_cpus_is_reported() {
        let kept = |clock: &str, cpus: &str| Conditions { clock_source: clock.into(), online: cpus.into() };
        assert_eq!(kept("tsc", "0-3").changed(&kept("tsc", "0-3")), Vec::<String>::new());
        let said = kept("tsc", "0-3").changed(&kept("hpet", "0-2"));
        assert!(said[0].starts_with("the clock source changed meanwhile, from tsc to hpet: "), "{said:?}");
        assert!(said[1].starts_with("the CPUs that are online changed meanwhile, from 0-3 to 0-2: "), "{said:?}");
        assert_eq!(Conditions::look().changed(&Conditions::look()), Vec::<String>::new());
    }
}
