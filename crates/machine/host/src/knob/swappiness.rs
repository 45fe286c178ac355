//! Swapping of anonymous memory.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Tendency to swap out anonymous memory; 0 risks early out-of-memory kills.
#[derive(Debug)]
pub(super) struct Swappiness;

impl Knob for Swappiness {
    fn name(&self) -> &'static str {
        "swappiness"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "tendency to swap out anonymous memory; 0 risks early out-of-memory kills",
            why: "access to a swapped page needs a slow page fault",
            good: "at most 10",
            since: "2.6",
            source: "Documentation/admin-guide/sysctl/vm.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/vm/swappiness"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 10)
    }
}
