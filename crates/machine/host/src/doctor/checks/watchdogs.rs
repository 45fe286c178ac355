//! Checks watchdogs: the kernel's own, which cost time, and hardware watchdogs, which reset a hung machine.

use super::isolation::isolated;
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};

const NMI: &str = "/proc/sys/kernel/nmi_watchdog";
const SOFT: &str = "/proc/sys/kernel/soft_watchdog";
const MASK: &str = "/proc/sys/kernel/watchdog_cpumask";
const THRESHOLD: &str = "/proc/sys/kernel/watchdog_thresh";
const HARDWARE: &str = "/sys/class/watchdog/watchdog#/identity";

/// The kernel's lockup detectors.
pub struct Lockup;

impl Check for Lockup {
    fn about(&self) -> &'static About {
        &About {
            id: "watchdogs",
            title: "lockup detectors",
            what: "kernel.soft_watchdog, kernel.nmi_watchdog and the CPUs that they watch (kernel.watchdog_cpumask).",
            why: "The soft detector runs a timer and a thread of the highest priority on each watched CPU, every two fifths of its threshold. The \
                  hard detector raises an NMI, which cannot be masked. Each takes a few microseconds. They are useful on the housekeeping CPUs.",
            source: "Documentation/admin-guide/lockup-watchdogs.rst",
            reads: &[NMI, SOFT, MASK, THRESHOLD],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let files = &facts.files;
        let on = |path: &str| Ok::<_, Unknown>(files.optional_number(path)?.unwrap_or(0) != 0);
        let (soft, nmi) = (on(SOFT)?, on(NMI)?);
        if !soft && !nmi {
            return Ok(Finding::fine("off"));
        }
        let (watched, online) = (files.cpus(MASK)?, facts.online()?);
        let which = match (soft, nmi) {
            (true, true) => "soft and NMI detectors",
            (true, false) => "soft detector",
            _ => "NMI detector",
        };
        let threshold_s = files.number(THRESHOLD)?;
        let evidence = format!("{which} on CPUs {}, threshold {threshold_s} s", watched.and(&online));
        let isolated = isolated(facts).unwrap_or_default();
        if !isolated.is_empty() && !watched.intersects(&isolated) {
            return Ok(Finding::fine(format!("{evidence}; not on the isolated {}", named(&isolated))));
        }
        Ok(Finding::note(evidence).reserve(&[Use::Loop10kHz, Use::Polling]).remedy(
            RemedyKind::Shield,
            "remove the isolated CPUs from kernel.watchdog_cpumask, and disable the NMI detector",
        ))
    }
}

/// A watchdog that resets the machine.
pub struct Hardware;

impl Check for Hardware {
    fn about(&self) -> &'static About {
        &About {
            id: "hardware-watchdog",
            title: "hardware watchdog",
            what: "The devices of /sys/class/watchdog.",
            why: "If a real-time thread or the kernel hangs the machine, only hardware can put the plant into its safe state.",
            source: "Documentation/watchdog/watchdog-api.rst",
            reads: &[HARDWARE],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let mut all: Vec<_> = facts.files.some(HARDWARE)?.iter().map(|found| found.text.to_owned()).collect();
        all.dedup();
        if all.is_empty() {
            return Ok(Finding::note("none: a machine that hangs is not reset").remedy(
                RemedyKind::Change,
                "load the driver of the board's watchdog (iTCO_wdt, sp5100_tco, i6300esb ...), or softdog",
            ));
        }
        Ok(Finding::fine(all.join(", ")))
    }
}
