//! Checks interrupts: the program that moves them, and the interrupts that cannot be moved.

use super::isolation::{isolated, last_cpu};
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};
use proc::interrupts::Interrupts;

const TABLE: &str = "/proc/interrupts";
const AFFINITY: &str = "/proc/irq/#/smp_affinity_list";
const EFFECTIVE: &str = "/proc/irq/#/effective_affinity_list";
const DEBUG: &str = "/sys/kernel/debug/irq/irqs/#";
const BOOT_ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// Whether irqbalance runs.
pub struct Irqbalance;

impl Check for Irqbalance {
    fn about(&self) -> &'static About {
        &About {
            id: "irqbalance",
            title: "irqbalance",
            what: "Whether irqbalance runs, and whether CPUs are isolated at boot.",
            why: "It moves interrupts every ten seconds. It avoids CPUs isolated at boot, but not CPUs of partitions created at run time unless \
                  configured.",
            source: "irqbalance(1); irqbalance cputree.c",
            reads: &[BOOT_ISOLATED],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        // A capture without any task's name cannot answer this.
        facts.files.some("/proc/#/comm").and_then(|tasks| match tasks.is_empty() {
            true => Err(Unknown("no /proc/PID/comm can be read to find it".into())),
            false => Ok(()),
        })?;
        let Some((pid, _)) = facts.running(&["irqbalance"]).first().copied() else {
            return Ok(Finding::fine("does not run"));
        };
        let boot = facts.files.cpus(BOOT_ISOLATED)?;
        if !boot.is_empty() {
            return Ok(Finding::note(format!(
                "runs (process {pid}) and leaves {} alone, isolated at boot",
                named(&boot)
            )));
        }
        Ok(Finding::note(format!("runs (process {pid}); no CPU is isolated at boot, so it uses all CPUs"))
            .reserve(&[Use::Loop10kHz, Use::Polling])
            .remedy(RemedyKind::Shield, "set the CPUs to avoid through its socket"))
    }
}

/// Interrupts whose CPUs the kernel alone decides.
pub struct Managed;

impl Check for Managed {
    fn about(&self) -> &'static About {
        &About {
            id: "managed-interrupts",
            title: "managed interrupts",
            what: "Interrupts that the kernel distributes: by the flag in debugfs if readable, else by the names of drivers known to use them (nvme, \
                   virtio-blk, SAS and RAID controllers).",
            why: "Their CPUs cannot be changed: a write to smp_affinity fails with EIO. They avoid isolated CPUs only with isolcpus=managed_irq on \
                  the boot line, or if no queue of the device is served there.",
            source: "kernel/irq/affinity.c; Documentation/admin-guide/kernel-parameters.txt, isolcpus=managed_irq; \
                     irqbalance #336, tuned #296",
            reads: &[TABLE, AFFINITY, EFFECTIVE, DEBUG],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let table = Interrupts::parse(facts.files.text(TABLE)?).map_err(|why| Unknown(format!("{TABLE}: {why}")))?;
        let flags = |number: u32| facts.files.text(&DEBUG.replace('#', &number.to_string())).ok();
        let mut by_name = false;
        let mut managed = Vec::new();
        for row in &table.rows {
            let Some(number) = row.number() else { continue };
            let is_managed = match flags(number) {
                Some(text) => text.contains("IRQD_AFFINITY_MANAGED"),
                None => {
                    let known = row.is_known_to_be_managed();
                    by_name |= known;
                    known
                }
            };
            if is_managed {
                let cpus = |path: &str| facts.files.cpus(&path.replace('#', &number.to_string())).unwrap_or_default();
                // The kernel delivers an interrupt to one of the CPUs that it may go to.
                let effective = cpus(EFFECTIVE);
                let cpus = if effective.is_empty() { cpus(AFFINITY) } else { effective };
                managed.push((number, row.actions().next().unwrap_or("?"), cpus));
            }
        }
        if managed.is_empty() {
            return Ok(Finding::fine("none"));
        }
        let list = managed
            .iter()
            .take(4)
            .map(|(number, name, cpus)| format!("{number} {name} ({})", named(cpus)))
            .collect::<Vec<_>>();
        let more = if managed.len() > 4 { format!(" and {} more", managed.len() - 4) } else { String::new() };
        let how = if by_name { ", identified by name" } else { "" };
        let evidence = format!("{} that cannot be moved{how}: {}{more}", managed.len(), list.join(", "));
        let kept_away = facts.boot_line()?.isolcpus(last_cpu(facts)?).filter(|isolcpus| isolcpus.managed_irq);
        if let Some(cpus) = kept_away.and_then(|isolcpus| isolcpus.cpus) {
            return Ok(Finding::fine(format!("{evidence}; isolcpus=managed_irq keeps them off {}", named(&cpus))));
        }
        let isolated = isolated(facts).unwrap_or_default();
        if !isolated.is_empty() && managed.iter().all(|(_, _, cpus)| !cpus.is_empty() && !cpus.intersects(&isolated)) {
            return Ok(Finding::fine(format!("{evidence}; none reaches the isolated {}", named(&isolated))));
        }
        Ok(Finding::note(evidence)
            .reserve(&[Use::Loop10kHz, Use::Polling])
            .remedy(RemedyKind::Boot, "shield CPUs that they do not reach (tahti shield suggest), or add isolcpus=managed_irq,LIST to the boot line"))
    }
}
