//! Kernel same-page merging (KSM).

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Merges equal pages; 0 stops it and keeps merged pages (2 would unmerge them, which cannot be undone).
#[derive(Debug)]
pub(super) struct Ksm;

impl Knob for Ksm {
    fn name(&self) -> &'static str {
        "same-page merging"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "merges equal pages; 0 stops it and keeps merged pages (2 would unmerge them, which cannot be undone)",
            why: "a write to a merged page faults, and merging interrupts every CPU that runs the process",
            good: "0 instead of 1",
            since: "2.6.32",
            source: "Documentation/admin-guide/mm/ksm.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/mm/ksm/run"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        (now.text()? == "1").then(|| Value::Text("0".to_owned()))
    }
}
