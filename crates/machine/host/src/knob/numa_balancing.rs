//! Automatic NUMA balancing.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Moves memory to the node that uses it, which it detects by page faults.
#[derive(Debug)]
pub(super) struct NumaBalancing;

impl Knob for NumaBalancing {
    fn name(&self) -> &'static str {
        "NUMA balancing"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "moves memory to the node that uses it, which it detects by page faults",
            why: "real-time work has these page faults too",
            good: "0",
            since: "3.8",
            source: "Documentation/admin-guide/sysctl/kernel.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/kernel/numa_balancing"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 0)
    }
}
