//! Migration of timers from idle CPUs.

use super::{Doc, Knob, at_most};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};
use proc::version::Version;

/// Moves timers that are armed on an idle CPU to a busy CPU; since 6.9 the expiring CPU does this, which is harmless.
#[derive(Debug)]
pub(super) struct TimerMigration;

impl Knob for TimerMigration {
    fn name(&self) -> &'static str {
        "timer migration"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "moves timers that are armed on an idle CPU to a busy CPU; since 6.9 the expiring CPU does this, which is harmless",
            why: "before 6.9 a busy shielded CPU would collect the timers of idle ones",
            good: "0 before 6.9",
            since: "2.6.31",
            source: "Documentation/admin-guide/sysctl/kernel.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Timers
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/kernel/timer_migration"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        (context.snapshot.version() < Version::new(6, 9)).then(|| at_most(now, 0))?
    }
}
