//! Invented machines, for hardware that the developers do not have, as the files that the kernel would show.

use base::{CpuId, CpuSet};
use host::doctor::{FileContent, Files};

fn file(files: &mut Files, path: impl Into<String>, text: impl Into<String>) {
    files.insert(path, FileContent::Text(text.into() + "\n"));
}

fn mask(cpus: &CpuSet) -> String {
    let mut text = String::new();
    cpus.write_mask(&mut text).unwrap();
    text
}

/// `PF_KTHREAD`, alone and with `PF_NO_SETAFFINITY`.
const KERNEL: u64 = 0x0020_0000;
const BOUND: u64 = 0x0420_0000;

/// Adds the files of a task.
fn task(files: &mut Files, tid: u32, comm: &str, flags: u64, cpus: &str, cgroup: &str) {
    let zeros = |count: usize| vec!["0"; count].join(" ");
    let parent = if flags == 0 { 1 } else { 2 };
    let (head, middle, tail) = (zeros(9), zeros(16), zeros(11));
    let start = 100 + tid;
    let stat = format!("{tid} ({comm}) S {parent} 0 0 0 -1 {flags} {head} 0 0 0 {start} {middle} 0 0 0 {tail}");
    file(files, format!("/proc/{tid}/stat"), stat);
    file(files, format!("/proc/{tid}/status"), format!("Cpus_allowed_list:\t{cpus}"));
    file(files, format!("/proc/{tid}/cgroup"), format!("0::{cgroup}"));
}

/// Files of every machine with cgroup v2 and systemd.
fn with_systemd(release: &str, count: usize, groups: &[&str]) -> Files {
    let mut files = Files::new(true);
    let all = CpuSet::first(count);
    let cgroup = "/sys/fs/cgroup";
    let list = all.to_string();
    for (path, text) in [
        ("/proc/sys/kernel/osrelease", release),
        ("/proc/sys/kernel/random/boot_id", "00000000-0000-0000-0000-000000000000"),
        ("/proc/cmdline", "quiet"),
        ("/proc/self/mountinfo", "34 31 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"),
        ("/sys/devices/system/cpu/online", &list),
        ("/sys/devices/system/cpu/possible", &list),
        ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids"),
        ("/sys/fs/cgroup/cgroup.subtree_control", "cpu memory pids"),
        ("/sys/fs/cgroup/cpuset.cpus.effective", &list),
        ("/sys/fs/cgroup/cpuset.cpus.isolated", ""),
        ("/sys/devices/virtual/workqueue/cpumask", &mask(&all)),
        ("/proc/irq/default_smp_affinity", &mask(&all)),
        ("/proc/sys/vm/stat_interval", "1"),
    ] {
        file(&mut files, path, text);
    }
    files.insert("/run/systemd/system", FileContent::Directory);
    for group in groups {
        file(&mut files, format!("{cgroup}{group}/cgroup.subtree_control"), "memory pids");
    }
    task(&mut files, 1, "systemd", 0, &list, "/init.scope");
    task(&mut files, 2, "kthreadd", KERNEL, &list, "/");
    for cpu in 0..count as u32 {
        task(&mut files, 10 + cpu, &format!("ksoftirqd/{cpu}"), BOUND, &cpu.to_string(), "/");
    }
    files
}

/// Adds a network card with a queue and an interrupt for each CPU.
fn card(files: &mut Files, count: usize, device: &str) {
    let columns: Vec<String> = (0..count).map(|cpu| format!("CPU{cpu}")).collect();
    let mut table = format!("      {}\n", columns.join(" "));
    for queue in 0..count {
        let number = 40 + queue;
        let counts = vec!["7"; count].join(" ");
        table += &format!(" {number}: {counts} PCI-MSIX-0000:01:00.0 {queue}-edge {device}-{queue}\n");
        for name in ["smp_affinity_list", "effective_affinity_list"] {
            file(files, format!("/proc/irq/{number}/{name}"), queue.to_string());
        }
        let own = mask(&CpuSet::single(queue as CpuId));
        file(files, format!("/sys/class/net/{device}/queues/tx-{queue}/xps_cpus"), own);
        file(files, format!("/sys/class/net/{device}/queues/rx-{queue}/rps_cpus"), "0");
    }
    files.insert("/proc/interrupts", FileContent::Text(table));
}

/// Two sockets of eight cores with two threads each, a card with 32 queues, a cache that can be partitioned, 300 tasks.
pub(crate) fn server() -> Files {
    let groups = ["/init.scope", "/system.slice", "/system.slice/db.service", "/user.slice"];
    let mut files = with_systemd("6.12.7-rt5", 32, &groups);
    card(&mut files, 32, "ens1f0");
    file(&mut files, "/sys/kernel/realtime", "1");
    file(&mut files, "/sys/fs/resctrl/schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff");
    for (name, text) in [("cbm_mask", "7ff"), ("min_cbm_bits", "1"), ("num_closids", "16")] {
        file(&mut files, format!("/sys/fs/resctrl/info/L3/{name}"), text);
    }
    for cpu in 0..32usize {
        let (core, socket) = (cpu % 16, cpu % 16 / 8);
        let first = socket * 8;
        let half = format!("{first}-{},{}-{}", first + 7, first + 16, first + 23);
        for (name, text) in [
            ("topology/thread_siblings_list", format!("{core},{}", core + 16)),
            ("topology/physical_package_id", socket.to_string()),
            ("cache/index3/level", "3".into()),
            ("cache/index3/id", socket.to_string()),
            ("cache/index3/shared_cpu_list", half.clone()),
            ("power/energy_perf_bias", "6".into()),
            ("power/pm_qos_resume_latency_us", "0".into()),
            ("cpuidle/state3/latency", "133".into()),
            ("cpuidle/state3/disable", "0".into()),
        ] {
            file(&mut files, format!("/sys/devices/system/cpu/cpu{cpu}/{name}"), text);
        }
        file(&mut files, format!("/sys/devices/system/node/node{socket}/cpulist"), half);
        let uncore = format!("/sys/devices/system/cpu/intel_uncore_frequency/package_0{socket}_die_00");
        file(&mut files, format!("{uncore}/min_freq_khz"), "800000");
        file(&mut files, format!("{uncore}/max_freq_khz"), "2400000");
    }
    for nth in 0..300u32 {
        let own = if nth % 7 == 0 { (nth % 32).to_string() } else { "0-31".into() };
        let group = ["/system.slice/db.service", "/user.slice"][nth as usize % 2];
        task(&mut files, 1000 + nth, "db", 0, &own, group);
    }
    task(&mut files, 90, "kswapd0", KERNEL, "0-7,16-23", "/");
    files
}

/// Four fast cores with two threads each and eight small ones, variable frequencies, deep idle states.
pub(crate) fn laptop() -> Files {
    let mut files = with_systemd("7.0.3", 16, &["/init.scope", "/user.slice"]);
    for cpu in 0..16usize {
        let siblings = if cpu < 8 { format!("{}-{}", cpu & !1, cpu | 1) } else { cpu.to_string() };
        for (name, text) in [
            ("topology/thread_siblings_list", siblings.as_str()),
            ("cpufreq/scaling_governor", "powersave"),
            ("cpufreq/scaling_available_governors", "performance powersave"),
            ("cpufreq/scaling_min_freq", "400000"),
            ("cpufreq/scaling_max_freq", if cpu < 8 { "4700000" } else { "3500000" }),
            ("cpufreq/energy_performance_preference", "balance_power"),
            ("cpuidle/state1/latency", "1"),
            ("cpuidle/state1/disable", "0"),
            ("cpuidle/state4/latency", "350"),
            ("cpuidle/state4/disable", "0"),
        ] {
            file(&mut files, format!("/sys/devices/system/cpu/cpu{cpu}/{name}"), text);
        }
    }
    for (path, text) in [
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        ("/sys/kernel/debug/sched/preempt", "none (voluntary) full lazy"),
        ("/sys/module/pcie_aspm/parameters/policy", "[default] performance powersave powersupersave"),
    ] {
        file(&mut files, path, text);
    }
    (0..80).for_each(|nth| task(&mut files, 1000 + nth, "browser", 0, "0-15", "/user.slice"));
    files
}
