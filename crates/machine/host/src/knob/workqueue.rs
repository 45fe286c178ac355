//! CPUs of unbound work items.

use super::{Doc, Knob, without_shield};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// CPUs for unbound work items, globally and per workqueue.
#[derive(Debug)]
pub(super) struct Workqueue;

impl Knob for Workqueue {
    fn name(&self) -> &'static str {
        "workqueue cpumask"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPUs for unbound work items, globally and per workqueue",
            why: "the kernel's unbound work stays on the housekeeping CPUs",
            good: "without the shielded CPUs",
            since: "4.2",
            source: "Documentation/core-api/workqueue.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Tasks
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/virtual/workqueue/cpumask", "/sys/devices/virtual/workqueue/*/cpumask"]
    }

    fn form(&self) -> Form {
        Form::Mask
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        without_shield(context, now)
    }
}
