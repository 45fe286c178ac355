//! Checks the limits of this login: locked memory and real-time priority.

use super::permissions::{CAP_IPC_LOCK, CAP_SYS_NICE, RAISE_RTPRIO, has_capability};
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};
use base::Size;
use proc::limits::limit;

const LIMITS: &str = "/proc/self/limits";

/// A lower limit is soon reached: locking a small threaded program takes 100 MiB with its stacks.
const MEMLOCK_BYTES_ENOUGH: u64 = 256 << 20;

/// Maximum locked memory.
pub struct Memlock;

impl Check for Memlock {
    fn about(&self) -> &'static About {
        &About {
            id: "memlock-limit",
            title: "limit of locked memory",
            what: "The limit \"Max locked memory\" of this process, and whether CAP_IPC_LOCK overrides it.",
            why: "mlockall also locks stacks and arenas: a program of 20 MB became 106 MB. Most distributions allow 8 MiB. Above the limit mlockall \
                  fails, or with MCL_FUTURE a later allocation.",
            source: "getrlimit(2); ros2_controllers #1389, ros2-realtime-examples #12",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let limit = facts.files.parse(LIMITS, |text| limit(text, "Max locked memory"))?;
        let Some(bytes) = limit.soft else { return Ok(Finding::fine("unlimited")) };
        let evidence = Size(bytes).to_string();
        if has_capability(facts, CAP_IPC_LOCK) == Some(true) {
            return Ok(Finding::fine(format!("{evidence}, overridden by CAP_IPC_LOCK")));
        }
        if bytes >= MEMLOCK_BYTES_ENOUGH {
            return Ok(Finding::fine(evidence));
        }
        Ok(Finding::note(evidence).reserve(&Use::LOOPS).remedy(
            RemedyKind::Change,
            "\"@realtime - memlock unlimited\" in /etc/security/limits.d and log in again, or LimitMEMLOCK=infinity of a unit",
        ))
    }
}

/// Maximum priority in the real-time classes without a capability.
pub struct Rtprio;

impl Check for Rtprio {
    fn about(&self) -> &'static About {
        &About {
            id: "rtprio-limit",
            title: "limit of real-time priority",
            what: "The limit \"Max realtime priority\" of this process, and whether CAP_SYS_NICE overrides it.",
            why: "Without the capability, the kernel grants SCHED_FIFO and SCHED_RR up to this priority and refuses higher ones. The check \
                  permission-fifo tries it.",
            source: "getrlimit(2); sched(7)",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let limit = facts.files.parse(LIMITS, |text| limit(text, "Max realtime priority"))?;
        let priority = limit.soft.unwrap_or(99);
        if has_capability(facts, CAP_SYS_NICE) == Some(true) {
            return Ok(Finding::fine(format!("{priority}, overridden by CAP_SYS_NICE")));
        }
        if priority >= 80 {
            return Ok(Finding::fine(priority.to_string()));
        }
        Ok(Finding::note(priority.to_string()).remedy(RemedyKind::Change, RAISE_RTPRIO))
    }
}
