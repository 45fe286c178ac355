//! Checks resources that CPUs share: cores and memory.

use super::isolation::isolated;
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};
use base::CpuSet;
use std::collections::BTreeSet;

const SMT_ACTIVE: &str = "/sys/devices/system/cpu/smt/active";
const SIBLINGS: &str = "/sys/devices/system/cpu/cpu#/topology/thread_siblings_list";
const NODES: &str = "/sys/devices/system/node/node#/cpulist";

/// Whether two CPUs share a core.
pub struct Smt;

impl Check for Smt {
    fn about(&self) -> &'static About {
        &About {
            id: "smt",
            title: "SMT siblings",
            what: "Which CPUs are threads of one core (thread_siblings_list).",
            why: "Two threads of a core share its units and caches. Work on the sibling can double the loop's computing time. A shield must take \
                  whole cores.",
            source: "ESO, VxWorks on Intel: hyper-threading not useful for real time; \
                     Documentation/admin-guide/cpu-isolation.rst",
            reads: &[SMT_ACTIVE, SIBLINGS],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if facts.files.optional_number(SMT_ACTIVE)? == Some(0) {
            return Ok(Finding::fine("off or unavailable"));
        }
        let mut cores = BTreeSet::new();
        for found in facts.files.some(SIBLINGS)? {
            let siblings = facts.files.parse(found.path, |text| text.trim().parse::<CpuSet>())?;
            if siblings.count() > 1 {
                cores.insert(siblings);
            }
        }
        if cores.is_empty() {
            return Ok(Finding::fine("no two CPUs share a core"));
        }
        let isolated = isolated(facts).unwrap_or_default();
        let torn: Vec<_> =
            cores.iter().filter(|core| core.intersects(&isolated) && !core.is_subset(&isolated)).collect();
        let list = cores.iter().take(8).map(|core| format!("({core})")).collect::<Vec<_>>().join(" ");
        let more = if cores.len() > 8 { " ..." } else { "" };
        let evidence = format!("{} cores of two or more threads: {list}{more}", cores.len());
        if !isolated.is_empty() && torn.is_empty() {
            return Ok(Finding::fine(format!("{evidence}; isolated by whole cores: {}", named(&isolated))));
        }
        let finding = match torn.first() {
            Some(core) => {
                Finding::note(evidence).and(format!("only CPUs {} of core ({core}) are isolated", core.and(&isolated)))
            }
            None => Finding::note(evidence),
        };
        Ok(finding.reserve(&[Use::Loop10kHz, Use::Polling]).remedy(
            RemedyKind::Change,
            format!("shield whole cores and leave the sibling idle, or switch SMT off: echo off > {}", SMT_CONTROL),
        ))
    }
}

const SMT_CONTROL: &str = "/sys/devices/system/cpu/smt/control";

/// Whether memory is nearer to some CPUs than to others (NUMA).
pub struct Numa;

impl Check for Numa {
    fn about(&self) -> &'static About {
        &About {
            id: "numa",
            title: "NUMA nodes",
            what: "The memory nodes and their CPUs.",
            why: "Access to memory and devices of another node uses a shared link between the sockets and takes 1.5 to 2 times as long. Put a loop, \
                  its memory, its device and the device's interrupt on one node.",
            source: "Documentation/admin-guide/mm/numaperf.rst; ESO, VxWorks on Intel: shared data beyond one socket",
            reads: &[NODES],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let mut nodes = Vec::new();
        for found in facts.files.some(NODES)? {
            let cpus = facts.files.cpus(found.path)?;
            if !cpus.is_empty() {
                nodes.push((found.numbers[0], cpus));
            }
        }
        nodes.sort_unstable();
        match nodes.len() {
            0 => return Ok(Finding::fine("one (a kernel without NUMA)")),
            1 => return Ok(Finding::fine("one")),
            _ => {}
        }
        let list = nodes.iter().map(|(node, cpus)| format!("{node}: {}", named(cpus))).collect::<Vec<_>>().join("; ");
        Ok(Finding::note(format!("{} nodes; {list}", nodes.len()))
            .remedy(RemedyKind::Change, "choose CPUs of the node of the loop's device (its numa_node in /sys)"))
    }
}
