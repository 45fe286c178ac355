//! Interval between folds of the per-CPU memory counters.

use super::{Doc, Knob, at_least};
use crate::plan::{Context, Profile, ShieldPart};
use crate::snapshot::{Form, Value};

/// Seconds between two folds of the per-CPU memory counters into the global ones.
#[derive(Debug)]
pub(super) struct StatInterval;

impl Knob for StatInterval {
    fn name(&self) -> &'static str {
        "vmstat interval"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "seconds between two folds of the per-CPU memory counters into the global ones",
            why: "each fold is a work item on the CPU whose counters changed",
            good: "at least 10; polling: 120",
            since: "2.6.24",
            source: "Documentation/admin-guide/sysctl/vm.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Timers
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/vm/stat_interval"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_least(
            now,
            match context.want.profile {
                Profile::ControlLoop => 10,
                Profile::Polling => 120,
            },
        )
    }
}
