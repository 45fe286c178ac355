//! Huge pages without a request.

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Use of huge pages without a request, and how much work a page fault does to make one.
#[derive(Debug)]
pub(super) struct TransparentHugepage;

impl Knob for TransparentHugepage {
    fn name(&self) -> &'static str {
        "transparent huge pages"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "use of huge pages without a request, and how much work a page fault does to make one",
            why: "page faults that compact memory take milliseconds; programs that call madvise still get huge pages",
            good: "madvise instead of always",
            since: "2.6.38",
            source: "Documentation/admin-guide/mm/transhuge.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag"]
    }

    fn form(&self) -> Form {
        Form::Choice
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        (now.text()? == "always").then(|| Value::Text("madvise".to_owned()))
    }
}
