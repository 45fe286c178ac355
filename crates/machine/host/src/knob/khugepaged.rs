//! Creation of huge pages in the background.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Allows khugepaged to compact memory for huge pages.
#[derive(Debug)]
pub(super) struct Khugepaged;

impl Knob for Khugepaged {
    fn name(&self) -> &'static str {
        "khugepaged defrag"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "allows khugepaged to compact memory for huge pages",
            why: "moving pages interrupts every CPU that runs the process",
            good: "0",
            since: "2.6.38",
            source: "Documentation/admin-guide/mm/transhuge.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 0)
    }
}
