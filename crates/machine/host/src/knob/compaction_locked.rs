//! Compaction of locked memory.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Allows compaction to move locked pages.
#[derive(Debug)]
pub(super) struct CompactionLocked;

impl Knob for CompactionLocked {
    fn name(&self) -> &'static str {
        "compaction of locked memory"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "allows compaction to move locked pages",
            why: "locked memory must not fault, but a page that is being moved faults; the move interrupts every CPU that runs the process",
            good: "0",
            since: "4.2",
            source: "Documentation/admin-guide/sysctl/vm.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/vm/compact_unevictable_allowed"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 0)
    }
}
