//! Compaction of memory ahead of need.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Amount of memory compaction in the background.
#[derive(Debug)]
pub(super) struct Compaction;

impl Knob for Compaction {
    fn name(&self) -> &'static str {
        "proactive compaction"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "amount of memory compaction in the background",
            why: "moving pages interrupts every CPU that runs the process",
            good: "0",
            since: "5.9",
            source: "Documentation/admin-guide/sysctl/vm.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/vm/compaction_proactiveness"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 0)
    }
}
