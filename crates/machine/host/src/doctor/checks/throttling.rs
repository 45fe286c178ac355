//! Checks real-time throttling: CPU time that the kernel reserves for other threads.

use super::isolation::isolated;
use super::{DEBUGFS, debugfs_is_missing};
use crate::doctor::{About, Check, Facts, FileMatch, Finding, RemedyKind, Unknown, Use, named};
use base::CpuId;
use proc::version::Version;

const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";
const SERVER_RUNTIME: &str = "/sys/kernel/debug/sched/fair_server/cpu#/runtime";
const SERVER_PERIOD: &str = "/sys/kernel/debug/sched/fair_server/cpu#/period";

/// The first kernel in which the fair server limits FIFO threads and `sched_rt_runtime_us` only controls admission.
const FAIR_SERVER_SINCE: Version = Version::new(6, 12);

/// Real-time throttling.
pub struct Throttling;

impl Check for Throttling {
    fn about(&self) -> &'static About {
        &About {
            id: "rt-throttling",
            title: "real-time throttling",
            what: "kernel.sched_rt_runtime_us and kernel.sched_rt_period_us. The result depends on the kernel's version and CONFIG_RT_GROUP_SCHED.",
            why: "Before 6.12, and later with RT_GROUP_SCHED, the kernel stops all FIFO and RR threads of a CPU when they have used the runtime of a \
                  period. By default a thread that never sleeps then stops for 50 ms in every second. Since 6.12 the value only limits the \
                  reservations of DEADLINE threads; -1 then does not help FIFO threads and removes the admission control.",
            source: "Documentation/scheduler/sched-rt-group.rst; kernel/sched/rt.c of 6.12",
            reads: &[RUNTIME, PERIOD],
            decides: &Use::LOOPS,
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let (runtime_us, period_us) = (facts.files.number(RUNTIME)?, facts.files.number(PERIOD)?);
        let value = format!("sched_rt_runtime_us is {runtime_us}, the period {period_us}");
        if runtime_us == 0 {
            return Ok(Finding::note(format!("{value}: no real-time thread may run"))
                .unfit(&Use::LOOPS)
                .remedy(RemedyKind::Change, "sysctl kernel.sched_rt_runtime_us=950000"));
        }
        let kernel = facts.kernel()?;
        // If the configuration cannot be read, assume that the kernel throttles, and report the assumption.
        let config = facts.config();
        let throttles = kernel < FAIR_SERVER_SINCE || config.as_ref().map_or(true, |it| it.is_set("RT_GROUP_SCHED"));
        let value = match &config {
            Err(_) if throttles && kernel >= FAIR_SERVER_SINCE => {
                format!("{value}; if the kernel has RT_GROUP_SCHED (its configuration is not readable)")
            }
            _ => value,
        };
        if !throttles {
            return Ok(match runtime_us {
                -1 => Finding::note(format!("{value}: in Linux {kernel} this disables the DEADLINE admission control"))
                    .remedy(
                        RemedyKind::Change,
                        "sysctl kernel.sched_rt_runtime_us=950000: FIFO threads are not affected",
                    ),
                _ => Finding::fine(format!("{value}: in Linux {kernel} a limit for DEADLINE threads only")),
            });
        }
        Ok(match runtime_us {
            -1 => {
                Finding::note(format!("{value}: off")).and("a runaway real-time thread blocks its CPU forever").remedy(
                    RemedyKind::Change,
                    "sysctl kernel.sched_rt_runtime_us=950000, unless a supervisor catches such threads",
                )
            }
            _ if runtime_us >= period_us => {
                Finding::note(format!("{value}: the whole period, so no time is reserved for other tasks"))
            }
            _ => Finding::note(format!(
                "{value}: a FIFO thread that never sleeps stops for {} ms in every {} ms",
                (period_us - runtime_us) / 1000,
                period_us / 1000
            ))
            .and("loops that sleep are not affected, and are protected from a runaway loop")
            .reserve(&[Use::Polling])
            .remedy(
                RemedyKind::Change,
                "poll in the time-sharing class on an isolated CPU, or set kernel.sched_rt_runtime_us=-1 while a \
                 supervisor watches the thread",
            ),
        })
    }
}

/// The DEADLINE server that reserves time for time-sharing tasks.
pub struct FairServer;

impl Check for FairServer {
    fn about(&self) -> &'static About {
        &About {
            id: "fair-server",
            title: "fair server",
            what: "The runtime per CPU in /sys/kernel/debug/sched/fair_server.",
            why: "Since 6.12 each CPU reserves 50 ms in every second for time-sharing tasks. If such a task runs on the CPU of a FIFO thread that \
                  never sleeps, the thread stops for that time, and the tick returns on a nohz_full CPU. Without such a task it has no effect.",
            source: "kernel/sched/deadline.c; linux-kernel list, 2026-01-07",
            reads: &[SERVER_RUNTIME, SERVER_PERIOD, DEBUGFS],
            decides: &[Use::Polling],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let kernel = facts.kernel()?;
        if kernel < FAIR_SERVER_SINCE {
            return Ok(Finding::fine(format!("Linux {kernel} has none")));
        }
        let servers = facts.files.some(SERVER_RUNTIME)?;
        if servers.is_empty() {
            return Err(Unknown(debugfs_is_missing(facts, "/sys/kernel/debug/sched/fair_server")));
        }
        let isolated = isolated(facts).unwrap_or_default();
        let on: Vec<_> = servers.iter().filter(|server| server.text != "0").collect();
        let Some(first) = on.first() else {
            return Ok(Finding::note("off on every CPU: a runaway real-time thread starves its CPU forever"));
        };
        let is_isolated =
            |server: &FileMatch<'_>| CpuId::try_from(server.numbers[0]).is_ok_and(|cpu| isolated.contains(cpu));
        if !isolated.is_empty() && !on.iter().any(|server| is_isolated(server)) {
            return Ok(Finding::fine(format!("off on the isolated {}, on elsewhere", named(&isolated))));
        }
        Ok(Finding::note(format!("on for {} of {} CPUs, {} ns a period", on.len(), servers.len(), first.text))
            .reserve(&[Use::Polling])
            .remedy(
                RemedyKind::Shield,
                "keep every other task off the polling CPU c; if one must stay: \
                 echo 0 > /sys/kernel/debug/sched/fair_server/cpuC/runtime",
            ))
    }
}
