//! Interrupts: the wanted mask can be set, the effective one follows when the interrupt fires next.

use super::{Answer, FakeKernel, cpus, line, mask};
use base::CpuSet;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// One interrupt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Irq {
    affinity: CpuSet,
    effective: CpuSet,
    /// The kernel spreads it itself (or it belongs to one CPU): user space may not.
    managed: bool,
}

/// The interrupts that `/proc/irq/N/smp_affinity_list` files tell; the file `managed` marks those that refuse.
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

/// The interrupt's number and the file's name.
fn split(path: &str) -> Option<(u32, &str)> {
    let (number, name) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
    Some((number.parse().ok()?, name))
}

/// Where the hardware delivers an interrupt with this mask: one CPU, the lowest here.
fn target(affinity: &CpuSet, online: &CpuSet) -> CpuSet {
    let usable = affinity.and(online);
    usable.lowest().or(online.lowest()).map_or(CpuSet::EMPTY, CpuSet::single)
}

impl FakeKernel {
    /// Every interrupt fires once: what was set before takes effect now.
    pub fn interrupts_fire(&mut self) {
        for irq in self.irqs.values_mut().filter(|irq| !irq.managed) {
            irq.effective = target(&irq.affinity, &self.online);
        }
    }

    /// The kernel's own view of an interrupt: wanted and effective CPUs.
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
            // The mark of a fixture is nothing that the kernel shows.
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
            // Seen so on 6.1 and on 6.12.
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
