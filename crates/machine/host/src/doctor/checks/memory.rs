//! Checks kernel features that change a program's memory while it runs.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const KSM: &str = "/sys/kernel/mm/ksm/run";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// Transparent huge pages.
pub struct HugePages;

impl Check for HugePages {
    fn about(&self) -> &'static About {
        &About {
            id: "thp",
            title: "transparent huge pages",
            what: "The mode in /sys/kernel/mm/transparent_hugepage/enabled.",
            why: "With \"always\" the kernel merges small pages into huge ones while the program runs, also in locked memory. Meanwhile accesses of \
                  the program wait, and every CPU that runs it is interrupted.",
            source: "Documentation/admin-guide/mm/transhuge.rst",
            reads: &[THP],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let Some(text) = facts.files.optional(THP)? else { return Ok(Finding::fine("not built in")) };
        let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
        match mode {
            Some("always") => Ok(Finding::note("always").reserve(&Use::LOOPS).remedy(
                RemedyKind::Shield,
                format!("echo madvise > {THP}, or let the program set PR_SET_THP_DISABLE"),
            )),
            Some(mode) => Ok(Finding::fine(mode)),
            None => Err(Unknown(format!("{THP}: expected a mode in brackets, found {text:?}"))),
        }
    }
}

/// Kernel same-page merging.
pub struct SamePages;

impl Check for SamePages {
    fn about(&self) -> &'static About {
        &About {
            id: "ksm",
            title: "same-page merging",
            what: "/sys/kernel/mm/ksm/run.",
            why: "The scanner uses CPU time and write-protects pages, which interrupts every CPU of the program. A write to a merged page needs a copy.",
            source: "Documentation/admin-guide/mm/ksm.rst",
            reads: &[KSM],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        Ok(match facts.files.optional_number(KSM)? {
            None => Finding::fine("not built in"),
            Some(1) => Finding::note("runs").reserve(&[Use::Loop10kHz]).remedy(
                RemedyKind::Shield,
                format!("echo 0 > {KSM} (2 also unmerges all pages, which cannot be undone)"),
            ),
            Some(_) => Finding::fine("does not run"),
        })
    }
}

/// Automatic NUMA balancing.
pub struct NumaBalancing;

impl Check for NumaBalancing {
    fn about(&self) -> &'static About {
        &About {
            id: "numa-balancing",
            title: "NUMA balancing",
            what: "kernel.numa_balancing.",
            why: "The kernel unmaps pages of a program to detect, by page faults, which node uses them. It moves pages and threads between nodes. \
                  Each fault is in the middle of a cycle.",
            source: "Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
            reads: &[BALANCING],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        Ok(match facts.files.optional_number(BALANCING)? {
            None => Finding::fine("not built in"),
            Some(0) => Finding::fine("off"),
            Some(mode) => Finding::note(format!("on ({mode})"))
                .reserve(&Use::LOOPS)
                .remedy(RemedyKind::Shield, "sysctl kernel.numa_balancing=0"),
        })
    }
}
