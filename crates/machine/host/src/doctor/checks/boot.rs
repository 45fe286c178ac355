//! Checks the boot line for parameters without effect.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown};

/// Parameters from guides that no mainline kernel has or that do harm.
const MYTHS: &[(&str, &str)] = &[
    ("kthread_cpus", "was proposed in 2020 and never merged: kernel threads stay where they are"),
    (
        "workqueue.cpumask",
        "is no parameter: write /sys/devices/virtual/workqueue/cpumask, or use workqueue.unbound_cpus=",
    ),
    ("irqpoll", "polls all interrupt handlers at every tick: it is for broken hardware, and costs latency"),
    ("rcu_nocbs_poll", "is misspelt: the parameter is rcu_nocb_poll"),
    ("nohz_full_cpus", "is no parameter: write nohz_full="),
    ("isolcpu", "is misspelt: the parameter is isolcpus="),
    ("irq_affinity", "is misspelt: the parameter is irqaffinity="),
    ("sched_rt_runtime_us", "is a sysctl, not a boot parameter: kernel.sched_rt_runtime_us"),
    ("intel_idle.max_cstates", "is misspelt: the parameter is intel_idle.max_cstate="),
    ("processor.max_cstates", "is misspelt: the parameter is processor.max_cstate="),
    ("elevator", "does nothing since Linux 5.0: choose the I/O scheduler in /sys/block/*/queue/scheduler"),
];

/// Parameters that do nothing.
pub struct Myths;

impl Check for Myths {
    fn about(&self) -> &'static About {
        &About {
            id: "boot-myths",
            title: "boot parameters without effect",
            what: "Finds parameters on the boot line that no mainline kernel has although many guides list them, that are misspelt, or that do harm.",
            why: "They have no effect, or a harmful one, and the kernel does not report it.",
            source: "kthread_cpus=: LKML 2020, never merged; Documentation/admin-guide/kernel-parameters.txt",
            reads: &["/proc/cmdline"],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let line = facts.boot_line()?;
        let found: Vec<_> = MYTHS.iter().filter_map(|(name, what)| Some((line.last(name)?, *what))).collect();
        let Some(((first, what), rest)) = found.split_first() else {
            return Ok(Finding::fine("none"));
        };
        let finding = rest.iter().fold(Finding::note(format!("{} {what}", first.text)), |finding, (next, what)| {
            finding.and(format!("{} {what}", next.text))
        });
        let names = found.iter().map(|(parameter, _)| parameter.text.as_str()).collect::<Vec<_>>().join(" ");
        Ok(finding.remedy(RemedyKind::Boot, format!("remove {names} from the boot line")))
    }
}
