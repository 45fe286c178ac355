//! Machines with four CPUs and each cgroup version, for tests of shields.
#![allow(dead_code, reason = "each test uses what it needs")]

use super::Machine;
use testkit::FakeKernel;
use testkit::kernel::TaskKind;

/// Four CPUs, values that differ from the defaults, tasks of every kind, and an interrupt that cannot be moved.
pub(crate) const MACHINE: &str = "\
/proc/sys/kernel/osrelease: RELEASE
/proc/sys/kernel/random/boot_id: this-boot
/proc/cmdline: quiet
/sys/devices/system/cpu/online: 0-3
/sys/devices/system/cpu/possible: 0-3
/proc/1/model: 1 init user 1 / -
/proc/2/model: 2 kthreadd kernel 1 / -
/proc/9/model: 9 ksoftirqd/2 bound 1 / 2
/proc/8/model: 8 ktimers/2 bound 1 / 2 fifo:1
/proc/11/model: 11 kswapd0 kernel 1 / 1-3
/proc/12/model: 12 rcu_preempt kernel 1 / -
/proc/100/model: 100 shell user 50 / -
/proc/101/model: 100 shell user 51 / -
/proc/102/model: 102 pinned user 52 / 2 set
/proc/103/model: 103 ranged user 53 / 1-2 set
/proc/interrupts:
|           CPU0       CPU1       CPU2       CPU3
| 24:          1          0          0          0  PCI-MSI 1-edge      eth0
| 25:          1          0          0          0  PCI-MSI 2-edge      nvme0q1
/proc/irq/24/smp_affinity_list: 1-3
/proc/irq/25/smp_affinity_list: 0-3
/proc/irq/25/managed: 1
/proc/irq/default_smp_affinity: f
/sys/devices/virtual/workqueue/cpumask: e
/proc/sys/vm/stat_interval: 3
/proc/sys/vm/swappiness: 33
/sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us: 50
/sys/devices/system/cpu/cpu2/power/energy_perf_bias: 6
/sys/devices/system/cpu/cpu2/topology/physical_package_id: 0
/sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/min_freq_khz: 800000
/sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/max_freq_khz: 2400000
/sys/kernel/debug/sched/preempt: none (voluntary) full
/sys/kernel/realtime: 1
/proc/sys/net/core/busy_poll: 7
/proc/sys/net/core/busy_read: 0
/sys/devices/system/cpu/cpu2/cache/index3/level: 3
/sys/devices/system/cpu/cpu2/cache/index3/id: 0
/sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list: 0-3
/sys/fs/resctrl/cpus_list: 0-3
/sys/fs/resctrl/schemata:
|    MB:0=100;1=100
|    L3:0=fffff;1=fffff
/sys/fs/resctrl/info/L3/cbm_mask: fffff
/sys/fs/resctrl/info/L3/min_cbm_bits: 2
/sys/fs/resctrl/info/L3/num_closids: 4
";

pub(crate) const V1: &str = "\
/proc/self/mountinfo: 34 31 0:31 / /cg rw,relatime - cgroup cgroup rw,cpuset
/cg/cpuset.cpus: 0-3
/cg/cpuset.mems: 0
/cg/cpuset.cpu_exclusive: 1
/cg/cpuset.sched_load_balance: 1
/cg/box/cpuset.cpus: 1-3
/cg/box/cpuset.mems: 0
/cg/box/cpuset.cpu_exclusive: 0
/cg/box/cpuset.sched_load_balance: 1
/proc/104/model: 104 boxed user 54 /box 1-3
/proc/105/model: 105 picky user 55 /box 3 set
";

pub(crate) const V2: &str = "\
/proc/self/mountinfo: 34 31 0:31 / /cg rw,relatime - cgroup2 cgroup2 rw
/cg/cgroup.controllers: cpuset cpu memory pids
/cg/cgroup.subtree_control: cpu
/cg/box/cgroup.subtree_control:
/cg/box/deep/cgroup.subtree_control:
/proc/104/model: 104 boxed user 54 /box -
/proc/105/model: 105 picky user 55 /box/deep 2-3 set
";

pub(crate) const NO_CGROUP: &str = "/proc/self/mountinfo: 23 1 0:22 / / rw - ext4 /dev/vda rw\n";

pub(crate) fn boot(release: &str, rest: &str) -> Machine {
    let mut text = MACHINE.replace("RELEASE", release) + rest;
    if release.starts_with('5') || release.starts_with("6.1.") {
        // Kernels before 6.2 do not record that a mask was set by a user.
        text = text.replace(" set\n", "\n");
    }
    Machine::boot(&text)
}

/// The expected state after a release, as far as it can be observed. The kernel records that a mask was set, which cannot be
/// read or undone, so a released task keeps that mark. This concerns kernel threads with private CPUs, and all tasks if there is
/// no cpuset controller. With cpusets, a task that follows its cpuset never gets a mask.
pub(crate) fn as_can_be_told(machine: &Machine, rest: &str, before: &FakeKernel) -> FakeKernel {
    let mut expected = before.clone();
    for (tid, task) in machine.0.borrow().tasks() {
        let Some(old) = before.task(tid) else { continue };
        let unavoidable = old.kind != TaskKind::User || rest != V1;
        if unavoidable && old.set.is_none() && task.set == Some(old.mask) {
            expected.set_affinity(tid, old.mask).unwrap();
        }
    }
    expected.state()
}
