//! The preemption model of a kernel that can change it.

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Places where a more urgent task can preempt kernel code (`PREEMPT_DYNAMIC`).
#[derive(Debug)]
pub(super) struct Preemption;

impl Knob for Preemption {
    fn name(&self) -> &'static str {
        "preemption model"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "points at which a more urgent task can preempt kernel code (needs debugfs)",
            why: "otherwise a real-time task waits for the end of another task's system call",
            good: "full",
            since: "5.12",
            source: "kernel/sched/core.c, sched_dynamic_mode",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/debug/sched/preempt"]
    }

    fn form(&self) -> Form {
        Form::Choice
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        // A model that this build does not know may be better.
        matches!(now.text()?, "none" | "voluntary" | "lazy").then(|| Value::Text("full".into()))
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("this kernel was not built to change its preemption model")
    }
}
