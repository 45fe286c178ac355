//! Forced RCU grace periods.

use super::{Doc, Knob, at_least};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Wait for grace periods instead of forcing them.
#[derive(Debug)]
pub(super) struct RcuNormal;

impl Knob for RcuNormal {
    fn name(&self) -> &'static str {
        "normal RCU"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "wait for grace periods instead of forcing them",
            why: "forcing one interrupts every CPU",
            good: "1",
            since: "4.4",
            source: "Documentation/admin-guide/kernel-parameters.txt",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/rcu_normal"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_least(now, 1)
    }
}
