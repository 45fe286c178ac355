//! Checks the clock that times loops.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};

const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// The hardware counter of the kernel's clock.
pub struct Source;

impl Check for Source {
    fn about(&self) -> &'static About {
        &About {
            id: "clocksource",
            title: "clock source",
            what: "The counter that the kernel uses for its clock, and the available counters.",
            why: "A read of a counter in the CPU (tsc, arch_sys_counter) takes about 20 ns, without a system call. The HPET and the ACPI timer are \
                  devices: each read uses a bus, takes up to a few microseconds, and all CPUs queue for it. The kernel switches to them when it \
                  finds the TSC unreliable, often after boot.",
            source: "ESO, VxWorks on Intel for real-time HPC: reading the HPET costs up to 2 us; \
                     Documentation/timers/timekeeping.rst",
            reads: &[CURRENT, AVAILABLE],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let current = facts.files.text(CURRENT)?.trim();
        let available = facts.files.text(AVAILABLE)?.trim();
        let evidence = format!("{current} (available: {available})");
        Ok(match current {
            "tsc"
            | "arch_sys_counter"
            | "kvm-clock"
            | "hyperv_clocksource_tsc_page"
            | "riscv_clocksource"
            | "timebase" => Finding::fine(evidence),
            "jiffies" | "refined-jiffies" => {
                Finding::note(evidence).and("time advances only in whole ticks").unfit(&Use::ALL).remedy(
                    RemedyKind::Machine,
                    "check dmesg for the reason why the kernel accepted no other clock source",
                )
            }
            _ if available.split_whitespace().any(|name| name == "tsc") => {
                Finding::note(evidence).reserve(&[Use::Loop10kHz, Use::Polling]).remedy(
                    RemedyKind::Shield,
                    format!("echo tsc > {CURRENT}; if the kernel refuses, check dmesg for the reason"),
                )
            }
            _ => Finding::note(evidence)
                .and("the kernel does not offer tsc: it is unstable or disabled")
                .reserve(&[Use::Loop10kHz, Use::Polling])
                .remedy(
                    RemedyKind::Boot,
                    "look for \"tsc: Marking TSC unstable\" in dmesg and update the firmware; add tsc=reliable only \
                     if the vendor vouches for it",
                ),
        })
    }
}

/// Measured cost of a clock read.
pub struct Cost;

impl Check for Cost {
    fn about(&self) -> &'static About {
        &About {
            id: "clock-cost",
            title: "cost of the clock",
            what: "The time of one read of CLOCK_MONOTONIC, measured over 25,000 reads.",
            why: "A loop reads the clock several times per cycle, a polling thread continuously. Up to about 100 ns the read stays in user space. A \
                  longer time means a system call, a device or a hypervisor at each read.",
            source: "ESO, VxWorks on Intel for real-time HPC; vdso(7)",
            reads: &[CURRENT],
            decides: &[Use::Loop10kHz],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let cost = facts.probes.clock.clone()?;
        let evidence = format!("{} ns a read (median of {} reads; p99 {} ns)", cost.median_ns, cost.reads, cost.p99_ns);
        let finding = match cost.median_ns {
            0..=150 => return Ok(Finding::fine(evidence)),
            151..=1_000 => Finding::note(evidence).reserve(&[Use::Polling]),
            1_001..=10_000 => Finding::note(evidence).reserve(&[Use::Loop10kHz, Use::Polling]),
            _ => Finding::note(evidence).reserve(&[Use::Loop1kHz, Use::Polling]).unfit(&[Use::Loop10kHz]),
        };
        Ok(match facts.files.text(CURRENT).map(str::trim) {
            Ok("tsc" | "arch_sys_counter") => finding.remedy(
                RemedyKind::Machine,
                "the counter is the CPU's own, so the machine reads it slowly: an emulated guest, or a hypervisor that \
                 catches each read",
            ),
            _ => finding.remedy(RemedyKind::Change, "see clocksource: use the CPU's counter"),
        })
    }
}

/// Whether timers fire with nanosecond resolution or only at the tick.
pub struct Resolution;

impl Check for Resolution {
    fn about(&self) -> &'static About {
        &About {
            id: "high-res-timers",
            title: "timer resolution",
            what: "The resolution that clock_getres reports for CLOCK_MONOTONIC.",
            why: "Without high-resolution timers (CONFIG_HIGH_RES_TIMERS, or highres=off on the boot line) every sleep \
                  ends at the next tick: 1 to 10 ms.",
            source: "Documentation/timers/highres.rst; clock_getres(2)",
            reads: &[],
            decides: &[Use::Loop1kHz, Use::Loop10kHz],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let resolution_ns = facts.probes.clock.clone()?.resolution_ns;
        if resolution_ns == 1 {
            return Ok(Finding::fine("1 ns: high-resolution timers are enabled"));
        }
        let off = facts.boot_line().is_ok_and(|line| line.value("highres") == Some("off"));
        let finding = Finding::note(format!("{resolution_ns} ns: sleeps end only at a tick")).unfit(&Use::LOOPS);
        Ok(match off {
            true => finding.remedy(RemedyKind::Boot, "remove highres=off from the boot line"),
            false => finding.remedy(RemedyKind::Kernel, "boot a kernel built with CONFIG_HIGH_RES_TIMERS=y"),
        })
    }
}
