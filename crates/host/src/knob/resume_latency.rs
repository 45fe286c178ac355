//! The wake-up latency that a CPU's idle states may have.

use super::{Doc, Knob, at_most, text};
use crate::plan::{Context, Profile};
use crate::snapshot::{Form, Value};

/// Limit in microseconds on leaving an idle state: 0 is no limit, n/a no idle state at all; one slot for all of user space.
#[derive(Debug)]
pub(super) struct ResumeLatency;

impl Knob for ResumeLatency {
    fn name(&self) -> &'static str {
        "wake-up latency limit"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "limit in microseconds on leaving an idle state: 0 is no limit, n/a no idle state at all; one slot for all of user space",
            why: "a CPU in deep sleep answers late",
            good: "at most 10; polling: n/a",
            since: "4.15",
            source: "Documentation/admin-guide/pm/cpuidle.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        match (context.want.profile, now.text()?) {
            (_, "n/a") => None,
            (Profile::Polling, _) => text("n/a"),
            (Profile::ControlLoop, "0") => text("10"),
            (Profile::ControlLoop, _) => at_most(now, 10),
        }
    }
}
