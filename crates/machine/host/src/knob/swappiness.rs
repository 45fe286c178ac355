//! How soon memory is swapped out.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// How soon anonymous memory is swapped out; 0 would risk being out of memory early.
#[derive(Debug)]
pub(super) struct Swappiness;

impl Knob for Swappiness {
    fn name(&self) -> &'static str {
        "swappiness"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "how soon anonymous memory is swapped out; 0 would risk being out of memory early",
            why: "a page swapped out comes back by a slow fault",
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
