//! The guests of the VM tests. Each is a row: the machine and the tests that run in it.

use super::kernel::Kernel;

/// A virtual machine, and the tests that run in it.
pub(crate) struct Guest {
    /// Name for `--only`. The guest's tests also find it in the kernel's command line.
    pub(crate) name: &'static str,
    /// Description, for the list of guests.
    pub(crate) what: &'static str,
    pub(crate) kernel: Kernel,
    /// Boot parameters under test.
    pub(crate) boot: &'static str,
    /// QEMU's `-smp`.
    pub(crate) cpus: &'static str,
    /// QEMU's `-numa` nodes, as lists of CPUs. Empty means one node.
    pub(crate) nodes: &'static [&'static str],
    /// The method by which QEMU runs the guest's CPUs.
    pub(crate) thread: Thread,
    pub(crate) init: Init,
    pub(crate) hardware: Hardware,
    pub(crate) tests: &'static [Tests],
}

/// The method by which QEMU runs a guest's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Alternating on one thread. Needed if the kernel patches its own code (tracing, CPU hotplug).
    Single,
    /// Each on a separate thread. Needed if CPUs spin at the same time. QEMU sometimes loses the race with the kernel's
    /// patching of its own code (`Oops: int3`); such a boot is retried once.
    Multi,
}

/// The guest's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    /// A shell script mounts cgroup v2 and runs the tests.
    CgroupV2,
    /// The same with cgroup v1's `cpuset` and `cpu`.
    CgroupV1,
    /// systemd is PID 1 and runs the tests as a unit.
    Systemd,
}

/// The guest's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hardware {
    /// Disk, network card, watchdog.
    Plain,
    /// As `Plain`, and a parallel port, QEMU's teaching device `edu`, and a doorbell to another machine (`ivshmem`). They are
    /// behind an IOMMU.
    Devices,
    /// As `Plain`, and a second network card that is wired to another guest, which is the PTP master.
    Wire,
    /// As `Plain`, on a board with processors for 64-bit Arm. The kernel must be one for them.
    Arm,
    /// As `Plain`, under Xen. The kernel is that of dom0, with two of the CPUs and half of the memory.
    Xen,
}

impl Init {
    /// The words for `init.sh` in the kernel's command line.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::CgroupV2 => "tahti.cgroup=v2 tahti.init=plain",
            Self::CgroupV1 => "tahti.cgroup=v1 tahti.init=plain",
            Self::Systemd => "tahti.cgroup=v2 tahti.init=systemd",
        }
    }
}

/// Tests of one test binary.
pub(crate) struct Tests {
    /// The crate.
    pub(crate) package: &'static str,
    /// The integration test, or `lib` for the crate's unit tests.
    pub(crate) target: &'static str,
    /// Only tests whose path begins with this prefix. Empty selects all tests.
    pub(crate) prefix: &'static str,
}

const fn tests(package: &'static str, target: &'static str, prefix: &'static str) -> Tests {
    Tests { package, target, prefix }
}

/// Default values of a guest.
const USUAL: Guest = Guest {
    name: "",
    what: "",
    kernel: Kernel::Rt6_12,
    boot: "",
    cpus: "4,sockets=1,cores=2,threads=2",
    nodes: &[],
    thread: Thread::Single,
    init: Init::CgroupV2,
    hardware: Hardware::Plain,
    tests: &[],
};

/// All guests, the most informative first.
pub(crate) const GUESTS: &[Guest] = &[
    Guest {
        name: "rt",
        what: "6.12 PREEMPT_RT, 4 CPUs, two threads a core, cgroup v2, no init system",
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("testkit", "guest_machine", "plain::"),
            tests("sys", "lib", ""),
            tests("keep", "guest_shield", "everywhere::"),
            tests("keep", "guest_shield", "whole::"),
            tests("keep", "guest_shield", "killed::"),
            tests("keep", "guest_shield", "irqbalance::"),
            tests("keep", "guest_shield", "v2::"),
            tests("keep", "guest_shield", "remote::"),
            tests("keep", "guest_shield", "hotplug::"),
            tests("keep", "guest_partition", ""),
            tests("keep", "guest_watchdog", ""),
            tests("keep", "guest_guard", ""),
            tests("capi", "guest_frames", ""),
            tests("cli", "guest_host", ""),
            tests("cli", "guest_within", ""),
            tests("cli", "guest_orders", ""),
            tests("cli", "guest_plant", ""),
            tests("cli", "guest_stream", ""),
            tests("testkit", "guest_model", ""),
            // It resets the machine, so it must be the last.
            tests("cli", "guest_reset", ""),
        ],
        ..USUAL
    },
    Guest {
        name: "old",
        what: "6.1 PREEMPT_RT, cgroup v2: no exclusive CPUs, no remote partitions",
        kernel: Kernel::Rt6_1,
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("testkit", "guest_machine", "plain::"),
            tests("keep", "guest_shield", "everywhere::"),
            tests("keep", "guest_shield", "killed::"),
            tests("keep", "guest_shield", "v2::"),
            tests("keep", "guest_shield", "local::"),
            tests("keep", "guest_shield", "hotplug::"),
            tests("keep", "guest_partition", ""),
            tests("testkit", "guest_model", ""),
        ],
        ..USUAL
    },
    Guest {
        name: "isolcpus",
        what: "6.12 PREEMPT_RT, CPUs 2-3 isolated at boot with isolcpus= and nohz_full=, cgroup v2",
        boot: "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1",
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("keep", "guest_shield", "everywhere::"),
            tests("cli", "guest_isolcpus", ""),
            tests("keep", "guest_shield", "isolcpus::"),
            tests("keep", "guest_shield", "remote::"),
        ],
        ..USUAL
    },
    Guest {
        // Linux 6.12 loses the list of boot-isolated CPUs once a remote partition is dissolved. The model is therefore compared
        // with a freshly booted kernel that has not run the shield's tests. The tick stops only while the kernel trusts its
        // clock. On a busy host it would stop trusting it after minutes.
        name: "isolcpus-model",
        what: "as isolcpus, freshly booted: quiet sections, and comparison with the model of the kernel",
        boot: "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1 tsc=reliable",
        tests: &[tests("rt", "guest_quiet", ""), tests("cli", "guest_quiet", ""), tests("testkit", "guest_model", "")],
        ..USUAL
    },
    Guest {
        name: "numa",
        what: "6.12 PREEMPT_RT, two sockets with a NUMA node each, nohz_full= without isolcpus=, cgroup v2",
        boot: "nohz_full=2-3",
        cpus: "4,sockets=2,cores=2,threads=1",
        nodes: &["0-1", "2-3"],
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("testkit", "guest_machine", "numa::"),
            tests("keep", "guest_shield", "everywhere::"),
            tests("keep", "guest_shield", "numa::"),
            tests("keep", "guest_shield", "hotplug::"),
            tests("testkit", "guest_model", ""),
        ],
        ..USUAL
    },
    Guest {
        name: "v1",
        what: "6.1 PREEMPT_RT, cgroup v1's cpuset and cpu, isolcpus on the last CPU",
        kernel: Kernel::Rt6_1,
        boot: "isolcpus=3",
        init: Init::CgroupV1,
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("testkit", "guest_machine", "v1::"),
            tests("keep", "guest_shield", "everywhere::"),
        ],
        ..USUAL
    },
    Guest {
        name: "systemd",
        what: "6.12 PREEMPT_RT, systemd is PID 1",
        init: Init::Systemd,
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("testkit", "guest_machine", "systemd::"),
            tests("keep", "guest_shield", "everywhere::"),
            tests("keep", "guest_shield", "systemd::"),
        ],
        ..USUAL
    },
    Guest {
        name: "devices",
        what: "6.12 PREEMPT_RT, devices for user space behind an IOMMU",
        // The kernel first tests its timer through the IOMMU, and that test fails on a busy host.
        boot: "intel_iommu=on iommu=pt no_timer_check",
        cpus: "4",
        hardware: Hardware::Devices,
        tests: &[
            tests("rt", "guest_devices", ""),
            tests("rt", "guest_edges", ""),
            tests("capi", "guest_device", ""),
            tests("cli", "guest_interrupts", ""),
        ],
        ..USUAL
    },
    Guest {
        name: "xen",
        what: "Xen 4.17 with 6.1 as dom0",
        kernel: Kernel::Generic6_1,
        cpus: "4",
        hardware: Hardware::Xen,
        tests: &[tests("cli", "guest_xen", "")],
        ..USUAL
    },
    Guest {
        name: "ptp",
        what: "6.12 PREEMPT_RT, clock synchronised to a second guest by PTP",
        // As for `devices`: two guests that boot at the same time load the host.
        boot: "no_timer_check",
        cpus: "2",
        hardware: Hardware::Wire,
        tests: &[tests("cli", "guest_ptp", "")],
        ..USUAL
    },
    Guest {
        name: "arm",
        what: "6.12 PREEMPT_RT on four 64-bit Arm processors",
        kernel: Kernel::RtArm6_12,
        cpus: "4",
        hardware: Hardware::Arm,
        tests: &[
            tests("testkit", "guest_machine", "all::"),
            tests("sys", "lib", ""),
            tests("keep", "guest_shield", "everywhere::"),
            // The others need programs that busybox lacks.
            tests("keep", "guest_shield", "v2::a_spared"),
            tests("keep", "guest_shield", "v2::a_task"),
            tests("cli", "guest_plant", ""),
        ],
        ..USUAL
    },
    Guest {
        name: "hog",
        what: "6.12 PREEMPT_RT, CPUs that spin at the same time",
        cpus: "4",
        thread: Thread::Multi,
        tests: &[tests("keep", "guest_hog", "")],
        ..USUAL
    },
];
