//! Interrupts. The requested mask can be written; the effective mask changes when the interrupt fires next.

use super::{Answer, FakeKernel, cpus, line, mask};
use base::CpuSet;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// An interrupt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Irq {
    affinity: CpuSet,
    effective: CpuSet,
    /// The kernel spreads it by itself, or it belongs to one CPU. User space cannot change its mask.
    managed: bool,
}

/// Reads the interrupts from files `/proc/irq/N/smp_affinity_list`. The fixture's file `managed` marks managed interrupts.
pub(super) fn from_files(files: &BTreeMap<String, String>, online: &CpuSet) -> BTreeMap<u32, Irq> {
    let mut irqs = BTreeMap::new();
    for (path, text) in files {
        let Some((number, "smp_affinity_list")) = split(path) else { continue };
        let affinity = cpus(text).expect(path);
        let file = |name: &str| files.get(&format!("/proc/irq/{number}/{name}"));
        let told = file("effective_affinity_list").map(|text| cpus(text).expect(path));
        let effective = told.unwrap_or_else(|| target(&affinity, online));
        irqs.insert(number, Irq { affinity, effective, managed: file("managed").is_some() });
    }
    irqs
}

/// Number of the interrupt, and name of the file.
fn split(path: &str) -> Option<(u32, &str)> {
    let (number, name) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
    Some((number.parse().ok()?, name))
}

/// CPU to which the hardware delivers an interrupt with this mask: in this model the lowest.
fn target(affinity: &CpuSet, online: &CpuSet) -> CpuSet {
    let usable = affinity.and(online);
    usable.lowest().or(online.lowest()).map_or(CpuSet::EMPTY, CpuSet::single)
}

impl FakeKernel {
    /// Fires every interrupt once, so that requested masks take effect.
    pub fn interrupts_fire(&mut self) {
        for irq in self.irqs.values_mut().filter(|irq| !irq.managed) {
            irq.effective = target(&irq.affinity, &self.online);
        }
    }

    /// Requested and effective CPUs of an interrupt.
    #[must_use]
    pub fn interrupt(&self, number: u32) -> Option<(CpuSet, CpuSet)> {
        self.irqs.get(&number).map(|irq| (irq.affinity, irq.effective))
    }

    pub(super) fn read_irq(&self, path: &str) -> Option<Answer<String>> {
        let (number, name) = split(path)?;
        let irq = self.irqs.get(&number)?;
        Some(Ok(match name {
            "smp_affinity_list" => line(&irq.affinity),
            "smp_affinity" => mask(&irq.affinity),
            "effective_affinity_list" => line(&irq.effective),
            "effective_affinity" => mask(&irq.effective),
            // The fixture's mark is not visible in the kernel's files.
            "managed" => return Some(Err(Errno::NOENT)),
            _ => return None,
        }))
    }

    pub(super) fn write_irq(&mut self, path: &str, value: &str) -> Option<Answer<()>> {
        let (number, name) = split(path)?;
        let (online, version) = (self.online, self.version);
        let irq = self.irqs.get_mut(&number)?;
        let wanted = match name {
            "smp_affinity_list" => cpus(value),
            "smp_affinity" => CpuSet::from_mask(value).map_err(|_| Errno::INVAL),
            "effective_affinity_list" | "effective_affinity" => return Some(Err(Errno::ACCESS)),
            _ => return None,
        };
        Some(match wanted {
            // Observed on 6.1 and 6.12.
            _ if irq.managed => Err(if version < (6, 12) { Errno::IO } else { Errno::PERM }),
            Ok(wanted) if wanted.intersects(&online) => {
                irq.affinity = wanted;
                Ok(())
            }
            Ok(_) => Err(Errno::INVAL),
            Err(errno) => Err(errno),
        })
    }

    pub(super) fn irq_files(&self) -> impl Iterator<Item = String> + '_ {
        let names = ["smp_affinity", "smp_affinity_list", "effective_affinity", "effective_affinity_list"];
        self.irqs.keys().flat_map(move |number| names.map(|name| format!("/proc/irq/{number}/{name}")))
    }
}
