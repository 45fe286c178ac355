//! Checks the number of CPUs.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};

/// Whether the machine has enough CPUs to shield one.
pub struct Count;

impl Check for Count {
    fn about(&self) -> &'static About {
        &About {
            id: "cpus",
            title: "CPUs",
            what: "The CPUs that are online.",
            why: "A shield needs one CPU for the real-time work and at least one housekeeping CPU for interrupts, daemons and kernel threads. A \
                  thread that never sleeps starves all other tasks on its CPU.",
            source: "Documentation/admin-guide/cpu-isolation.rst",
            reads: &["/sys/devices/system/cpu/online"],
            decides: &[Use::Polling],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let online = facts.online()?;
        if online.count() > 1 {
            return Ok(Finding::fine(format!("{} online: {online}", online.count())));
        }
        Ok(Finding::note("only one CPU is online: no CPU can be reserved")
            .reserve(&Use::LOOPS)
            .unfit(&[Use::Polling])
            .remedy(RemedyKind::Machine, "use a machine with at least two CPUs"))
    }
}
