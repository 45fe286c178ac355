//! Checks whether a hypervisor or the firmware takes CPU time from the kernel.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};
use proc::stat::cpu_times;

const TYPE: &str = "/sys/hypervisor/type";
const VENDOR: &str = "/sys/class/dmi/id/sys_vendor";
const PRODUCT: &str = "/sys/class/dmi/id/product_name";
const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Whether this is a virtual machine.
pub struct Guest;

impl Check for Guest {
    fn about(&self) -> &'static About {
        &About {
            id: "hypervisor",
            title: "hypervisor",
            what: "The CPU flag \"hypervisor\", /sys/hypervisor, the product name, a paravirtual clock source.",
            why: "A guest's CPU is a thread of its host and stops while the host runs another task. The guest sees this as steal time or not at all. \
                  No setting in the guest helps.",
            source: "measured on a shared host: all CPUs of a guest stopped together for 25 ms",
            reads: &[TYPE, VENDOR, PRODUCT, CLOCKS],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        match guest(facts)? {
            None => Ok(Finding::fine("none seen")),
            Some(evidence) => Ok(Finding::note(evidence).reserve(&Use::ALL).remedy(
                RemedyKind::Machine,
                "run on the bare machine, or pin each CPU of the guest to a dedicated isolated CPU of the host",
            )),
        }
    }
}

/// CPU time that the hypervisor took.
pub struct Steal;

impl Check for Steal {
    fn about(&self) -> &'static About {
        &About {
            id: "steal",
            title: "steal time",
            what: "The column \"steal\" of /proc/stat: time since boot in which this guest was ready to run but its host ran another task.",
            why: "In stolen time no deadline is met. A percentage hides the length of each pause: 0.1 % of an hour may be one pause of 3.6 s.",
            source: "proc_stat(5)",
            reads: &["/proc/stat"],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let times = facts.files.parse("/proc/stat", cpu_times)?;
        let all =
            times.iter().find(|(cpu, _)| cpu.is_none()).ok_or_else(|| Unknown("/proc/stat has no line cpu".into()))?.1;
        if all.steal == 0 {
            return Ok(match guest(facts) {
                Ok(Some(_)) => Finding::note("none reported; a host can hide it"),
                _ => Finding::fine("none"),
            });
        }
        let share_ppm = u128::from(all.steal) * 1_000_000 / u128::from(all.total().max(1));
        let evidence =
            format!("{}.{:03} % since boot, {} s in all", share_ppm / 10_000, share_ppm % 10_000 / 10, all.steal / 100);
        let finding = Finding::note(evidence);
        let finding = match share_ppm {
            0..1_000 => finding.reserve(&[Use::Loop10kHz]),
            1_000..10_000 => finding.reserve(&Use::ALL),
            10_000..50_000 => finding.reserve(&Use::ALL).unfit(&[Use::Loop10kHz, Use::Polling]),
            _ => finding.unfit(&Use::ALL),
        };
        Ok(finding.remedy(RemedyKind::Machine, "give this guest dedicated CPUs on the host"))
    }
}

/// System management interrupts.
pub struct Smi;

impl Check for Smi {
    fn about(&self) -> &'static About {
        &About {
            id: "smi",
            title: "SMI counter",
            what: "System management interrupts since power-on: register 0x34 of Intel processors, read through /dev/cpu/0/msr.",
            why: "The firmware stops all CPUs during each one, from about ten microseconds to milliseconds. The kernel cannot see or prevent it. \
                  Common causes: USB keyboard emulation, fan control, memory error logging.",
            source: "Intel SDM volume 4, MSR_SMI_COUNT; hwlatdetect(8)",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if let Ok(Some(_)) = guest(facts) {
            return Err(Unknown("a guest cannot see the interrupts that stop its host".into()));
        }
        let cpuinfo = facts.files.text("/proc/cpuinfo")?;
        if !cpuinfo.contains("GenuineIntel") {
            return Err(Unknown("this processor has no SMI counter; measure with hwlatdetect".into()));
        }
        let count = match facts.probes.smi_count.clone() {
            Ok(count) => count,
            Err(why) => return Err(Unknown(format!("{why} (modprobe msr, as root)"))),
        };
        if count == 0 {
            return Ok(Finding::fine("none since power-on"));
        }
        let uptime_s = facts.files.parse("/proc/uptime", |text| {
            text.split('.').next().and_then(|whole| whole.parse::<u64>().ok()).ok_or("no uptime")
        })?;
        let an_hour = count.saturating_mul(3600) / uptime_s.max(1);
        let finding = Finding::note(format!("{count} since power-on, {an_hour} per hour of uptime"));
        let finding = match an_hour {
            0..=3 => finding,
            4..=3600 => finding.reserve(&Use::ALL),
            _ => finding.reserve(&Use::ALL).unfit(&[Use::Loop10kHz]),
        };
        Ok(finding.remedy(
            RemedyKind::Firmware,
            "switch off USB legacy support, fan control by SMI and patrol scrubbing in the firmware's setup; find the \
             length of each with hwlatdetect",
        ))
    }
}

/// Evidence of a hypervisor; `None` if there is no evidence.
fn guest(facts: &Facts) -> Result<Option<String>, Unknown> {
    let files = &facts.files;
    let line = |path: &str| files.optional(path).ok().flatten().map(str::trim).filter(|text| !text.is_empty());
    if let Some(kind) = line(TYPE) {
        return Ok(Some(format!("{kind} ({TYPE})")));
    }
    let flagged = proc::cpuinfo::has_hypervisor(files.text("/proc/cpuinfo")?);
    let clock = line(CLOCKS).and_then(|all| {
        all.split_whitespace().find(|name| matches!(*name, "kvm-clock" | "xen" | "hyperv_clocksource_tsc_page"))
    });
    let product = match (line(VENDOR), line(PRODUCT)) {
        (Some(vendor), Some(product)) => Some(format!("{vendor} {product}")),
        (vendor, product) => vendor.or(product).map(str::to_owned),
    };
    let known =
        ["QEMU", "KVM", "VMware", "VirtualBox", "Bochs", "Xen", "Amazon EC2", "Virtual Machine", "Google Compute"];
    let virtual_product = product.as_ref().is_some_and(|name| known.iter().any(|word| name.contains(word)));
    let mut evidence = Vec::new();
    if flagged {
        evidence.push("the CPU's flag \"hypervisor\"".to_owned());
    }
    if let Some(clock) = clock {
        evidence.push(format!("clock source {clock}"));
    }
    if let Some(product) = product.filter(|_| flagged || virtual_product) {
        evidence.push(format!("product {product}"));
    }
    Ok((!evidence.is_empty()).then(|| format!("a virtual machine: {}", evidence.join(", "))))
}
