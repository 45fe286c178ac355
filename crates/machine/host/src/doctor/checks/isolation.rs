//! Checks CPUs that are isolated from tasks, from the tick and from RCU callbacks.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};
use base::CpuSet;

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
const PARTITIONED: &str = "/sys/fs/cgroup/cpuset.cpus.isolated";

/// Whether some CPUs are isolated and some are not.
pub struct Isolation;

impl Check for Isolation {
    fn about(&self) -> &'static About {
        &About {
            id: "isolation",
            title: "isolated CPUs",
            what: "CPUs isolated at boot (isolcpus=) and by partitions at run time.",
            why: "On a shared CPU a loop of any priority waits for interrupts, softirqs, kernel threads and non-preemptible kernel sections.",
            source: "Documentation/admin-guide/cpu-isolation.rst",
            reads: &[ISOLATED, PARTITIONED],
            decides: &[Use::Polling],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let online = facts.online()?;
        let (boot, partitioned) = (facts.files.cpus(ISOLATED)?, facts.files.cpus(PARTITIONED).unwrap_or_default());
        let isolated = boot.or(&partitioned).and(&online);
        if !online.is_empty() && online.is_subset(&isolated) {
            return Ok(Finding::note(format!("every CPU is isolated ({isolated}): no housekeeping CPU is left"))
                .unfit(&Use::ALL)
                .remedy(RemedyKind::Boot, "remove at least one CPU from isolcpus="));
        }
        if isolated.is_empty() {
            return Ok(Finding::note(format!("none of {}", named(&online)))
                .reserve(&Use::ALL)
                .remedy(RemedyKind::Shield, "isolate CPUs while they are needed"));
        }
        let by_partition = partitioned.minus(&boot);
        Ok(match (boot.is_empty(), by_partition.is_empty()) {
            (false, true) => Finding::fine(format!("{} since boot", named(&boot))),
            (true, _) => Finding::fine(format!("{} by a partition", named(&by_partition))),
            _ => Finding::fine(format!("{} since boot and {by_partition} by a partition", named(&boot))),
        })
    }
}

/// Whether some CPUs can run without the tick.
pub struct NohzFull;

impl Check for NohzFull {
    fn about(&self) -> &'static About {
        &About {
            id: "nohz-full",
            title: "CPUs without tick",
            what: "/sys/devices/system/cpu/nohz_full, CONFIG_NO_HZ_FULL and CONFIG_HZ.",
            why: "The tick interrupts a thread that never sleeps 100 to 1000 times a second, unless its CPU is in nohz_full=, a boot parameter. A \
                  periodic loop gains nothing from it, and each system call and interrupt takes longer: exclude its CPU.",
            source: "Documentation/timers/no_hz.rst; Documentation/core-api/real-time/kernel-configuration.rst",
            reads: &[NOHZ_FULL],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let cpus = facts.files.cpus(NOHZ_FULL)?;
        if !cpus.is_empty() {
            return Ok(Finding::fine(format!("{}; keep periodic loops off them", named(&cpus))));
        }
        let config = facts.config();
        let ticks = match config.as_ref().ok().and_then(|config| config.get("HZ")) {
            Some(hz) => format!("no CPU is in nohz_full: {hz} ticks a second"),
            None => "no CPU is in nohz_full".to_owned(),
        };
        let finding = Finding::note(ticks).reserve(&[Use::Polling]);
        // The file exists only if the kernel was built with the option.
        Ok(match facts.files.optional(NOHZ_FULL)? {
            Some(_) => finding.remedy(RemedyKind::Boot, "add nohz_full=LIST to the boot line for the CPUs that poll"),
            None => finding
                .and("the kernel is built without CONFIG_NO_HZ_FULL")
                .remedy(RemedyKind::Kernel, "boot a kernel built with CONFIG_NO_HZ_FULL=y, with nohz_full=LIST"),
        })
    }
}

/// Whether RCU callbacks can run on other CPUs.
pub struct RcuCallbacks;

impl Check for RcuCallbacks {
    fn about(&self) -> &'static About {
        &About {
            id: "rcu-callbacks",
            title: "RCU callbacks",
            what: "rcu_nocbs= and nohz_full= on the boot line (the second implies the first).",
            why: "The kernel frees memory after a grace period in a softirq of the requesting CPU, thousands of objects at once after a burst. For \
                  CPUs in rcu_nocbs=, threads do this work, and can run on other CPUs.",
            source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
            reads: &[NOHZ_FULL],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let line = facts.boot_line()?;
        let last = last_cpu(facts)?;
        let listed = line.cpus("rcu_nocbs", last).flatten().unwrap_or_default();
        let cpus = listed.or(&facts.files.cpus(NOHZ_FULL)?);
        if !cpus.is_empty() {
            return Ok(Finding::fine(format!("threads on {} run them", named(&cpus))));
        }
        let config = facts.config();
        let is_set = |option: &str| config.as_ref().is_ok_and(|config| config.is_set(option));
        if is_set("RCU_NOCB_CPU_DEFAULT_ALL") {
            return Ok(Finding::fine("threads run them for all CPUs (CONFIG_RCU_NOCB_CPU_DEFAULT_ALL)"));
        }
        // Without a readable configuration, the threads' names show it.
        if facts.files.each("/proc/#/comm").any(|task| task.text.starts_with("rcuo")) {
            return Ok(Finding::fine("threads run them for some CPUs (rcuo...)"));
        }
        let finding = Finding::note("they run on the CPUs that requested them");
        Ok(match config.is_err() || is_set("RCU_NOCB_CPU") {
            true => finding.remedy(RemedyKind::Boot, "add rcu_nocbs=LIST to the boot line for the isolated CPUs"),
            false => finding
                .remedy(RemedyKind::Kernel, "boot a kernel built with CONFIG_RCU_NOCB_CPU=y, with rcu_nocbs=LIST"),
        })
    }
}

/// CPUs that are isolated by any method, at boot or by a partition.
pub(super) fn isolated(facts: &Facts) -> Result<CpuSet, Unknown> {
    Ok(facts.files.cpus(ISOLATED)?.or(&facts.files.cpus(PARTITIONED).unwrap_or_default()))
}

/// The CPUs whose settings matter to a loop: the isolated ones, or all if none are isolated.
pub(super) fn in_question(facts: &Facts) -> Result<CpuSet, Unknown> {
    let (isolated, online) = (isolated(facts).unwrap_or_default(), facts.online()?);
    Ok(if isolated.intersects(&online) { isolated.and(&online) } else { online })
}

/// The online CPU with the highest number.
pub(super) fn last_cpu(facts: &Facts) -> Result<base::CpuId, Unknown> {
    Ok(facts.online()?.iter().last().unwrap_or(0))
}
