//! Plain files, which only normalise the written text.

use super::{Answer, cpus, line, mask};
use base::{CpuId, CpuSet};
use rustix::io::Errno;

/// Text of the file after `value` was written, or the error of the kernel.
pub(super) fn normalised(path: &str, now: &str, value: &str, online: &CpuSet) -> Answer<String> {
    let usable = |set: CpuSet| if set.intersects(online) { Ok(set) } else { Err(Errno::INVAL) };
    if path == "/proc/irq/default_smp_affinity" || (path.contains("/workqueue/") && path.ends_with("/cpumask")) {
        return Ok(mask(&usable(CpuSet::from_mask(value).map_err(|_| Errno::INVAL)?)?));
    }
    if path.ends_with("/rps_cpus") || path.ends_with("/xps_cpus") {
        return Ok(mask(&CpuSet::from_mask(value).map_err(|_| Errno::INVAL)?));
    }
    if path == "/proc/sys/kernel/watchdog_cpumask" {
        return Ok(line(&cpus(value)?));
    }
    if now.contains('[') {
        return choose(now, value, ['[', ']']);
    }
    if now.contains('(') {
        return choose(now, value, ['(', ')']);
    }
    if path.ends_with("/power/pm_qos_resume_latency_us") {
        // `n/a` permits no idle state. This file uses it for a limit of 0 microseconds.
        let known = value == "n/a" || value.parse::<i32>().is_ok_and(|limit| (0..i32::MAX).contains(&limit));
        return if known { Ok(format!("{value}\n")) } else { Err(Errno::INVAL) };
    }
    if let Ok(old) = now.trim().parse::<i64>() {
        let new: i64 = value.parse().map_err(|_| Errno::INVAL)?;
        // Switches accept only 0 and 1.
        let switch = matches!(path, "/proc/sys/kernel/timer_migration" | "/proc/sys/kernel/soft_watchdog");
        let register = path.ends_with("/energy_perf_bias") && !(0..=15).contains(&new);
        if register || (switch && !(0..=1).contains(&new)) || (new < -1 && old >= 0) {
            return Err(Errno::INVAL);
        }
        return Ok(format!("{new}\n"));
    }
    Ok(format!("{value}\n"))
}

/// `always [madvise] never`: the brackets move to the written word.
fn choose(now: &str, value: &str, [open, close]: [char; 2]) -> Answer<String> {
    let words: Vec<&str> = now.split_whitespace().map(|word| word.trim_matches([open, close])).collect();
    if !words.contains(&value) {
        return Err(Errno::INVAL);
    }
    let shown = words.iter().map(|&word| if word == value { format!("{open}{word}{close}") } else { word.to_owned() });
    Ok(shown.collect::<Vec<_>>().join(" ") + "\n")
}

/// The CPU that this file switches on and off.
pub(super) fn online_switch(path: &str) -> Option<CpuId> {
    path.strip_prefix("/sys/devices/system/cpu/cpu")?.strip_suffix("/online")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, now: &str, value: &str, expected: Answer<&str>) {
        let found = normalised(path, now, value, &CpuSet::first(4));
        assert_eq!(found, expected.map(str::to_owned), "{path} <- {value}");
    }

    #[test]
    fn each_kind_of_file_reads_back_in_the_form_of_the_kernel() {
        check("/sys/devices/virtual/workqueue/cpumask", "f\n", "0003", Ok("3\n"));
        check("/sys/devices/virtual/workqueue/cpumask", "f\n", "0", Err(Errno::INVAL));
        check("/proc/irq/default_smp_affinity", "f\n", "f0", Err(Errno::INVAL));
        check("/proc/sys/kernel/watchdog_cpumask", "0-3\n", "0,1", Ok("0-1\n"));
        check(
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
            "never",
            Ok("always madvise [never]\n"),
        );
        check("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "no", Err(Errno::INVAL));
        check("/proc/sys/vm/stat_interval", "1\n", "10", Ok("10\n"));
        check("/proc/sys/vm/stat_interval", "1\n", "ten", Err(Errno::INVAL));
        check("/proc/sys/kernel/timer_migration", "1\n", "7", Err(Errno::INVAL));
        check("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "0\n", "n/a", Ok("n/a\n"));
        check("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "n/a\n", "50", Ok("50\n"));
        check("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "0\n", "-1", Err(Errno::INVAL));
        check("/sys/devices/system/cpu/cpu0/power/energy_perf_bias", "6\n", "16", Err(Errno::INVAL));
        check("/sys/kernel/debug/sched/preempt", "(none) voluntary full\n", "full", Ok("none voluntary (full)\n"));
        check("/sys/kernel/debug/sched/preempt", "(none) voluntary full\n", "rt", Err(Errno::INVAL));
    }
}
