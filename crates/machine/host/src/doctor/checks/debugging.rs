//! Checks for kernels that are built for debugging, not for speed.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};

/// Expensive options, each with a description.
const COSTLY: &[(&str, &str)] = &[
    ("PROVE_LOCKING", "checks the order of every lock"),
    ("DEBUG_LOCK_ALLOC", "follows every lock"),
    ("LOCK_STAT", "times every lock"),
    ("KASAN", "checks every memory access"),
    ("KCSAN", "detects data races"),
    ("UBSAN_TRAP", "checks arithmetic"),
    ("DEBUG_PAGEALLOC_ENABLE_DEFAULT", "unmaps every freed page"),
    ("SLUB_DEBUG_ON", "checks every freed object"),
    ("DEBUG_OBJECTS", "follows timers and work items"),
    ("DEBUG_PREEMPT", "checks each use of per-CPU data"),
    ("IRQSOFF_TRACER", "slows every switching off of interrupts, even when it does not trace"),
    ("PREEMPT_TRACER", "slows every switching off of preemption, even when it does not trace"),
];

/// Whether the kernel is a debugging one.
pub struct DebugKernel;

impl Check for DebugKernel {
    fn about(&self) -> &'static About {
        &About {
            id: "debug-kernel",
            title: "debugging options",
            what: "Debug options of the kernel's configuration that slow it down.",
            why: "They make the code paths of a wake-up several times longer.",
            source: "Documentation/core-api/real-time/kernel-configuration.rst",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let config = facts.config()?;
        let set: Vec<_> = COSTLY.iter().filter(|(option, _)| config.is_set(option)).collect();
        let Some(((first, what), rest)) = set.split_first() else {
            return Ok(Finding::fine("none of the costly ones"));
        };
        let finding = Finding::note(format!("CONFIG_{first}: {what}"));
        Ok(rest
            .iter()
            .fold(finding, |finding, (option, what)| finding.and(format!("CONFIG_{option}: {what}")))
            .reserve(&[Use::Loop10kHz])
            .remedy(RemedyKind::Kernel, "boot the distribution's ordinary kernel"))
    }
}
