//! The share of a CPU kept for time sharing.

use super::{Doc, Knob, at_most};
use crate::plan::{Context, Profile};
use crate::snapshot::{Form, Value};

/// Nanoseconds per second for time sharing on a CPU that a real-time task fills.
#[derive(Debug)]
pub(super) struct FairServer;

impl Knob for FairServer {
    fn name(&self) -> &'static str {
        "fair server"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "nanoseconds per second for time sharing on a CPU that a real-time task fills",
            why: "a stray task would interrupt a polling loop for 50 ms per second",
            good: "polling: 0",
            since: "6.12",
            source: "Documentation/scheduler/sched-deadline.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        (context.want.profile == Profile::Polling).then(|| at_most(now, 0))?
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("kernel lockdown may forbid it")
    }
}
