//! Deep idle states of a CPU.

use super::{Doc, Knob, at_least};
use crate::plan::{Context, Profile};
use crate::snapshot::{Form, Value};

/// Disables one idle state of a CPU; shallower states stay enabled.
#[derive(Debug)]
pub(super) struct IdleState;

impl Knob for IdleState {
    fn name(&self) -> &'static str {
        "idle states"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "disables one idle state of a CPU; shallower states stay enabled",
            why: "the exit from a deep state takes longer than a cycle may wait",
            good: "1 for states with an exit latency above 10 us; polling: for all with an exit latency above 0",
            since: "3.5",
            source: "Documentation/admin-guide/pm/cpuidle.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/cpuidle/state*/disable"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state*/latency", Form::Text)]
    }

    fn good(&self, context: &Context<'_>, path: &str, now: &Value) -> Option<Value> {
        {
            let latency_us: u64 = context.snapshot.file_text(&path.replace("/disable", "/latency"))?.parse().ok()?;
            let limit_us = match context.want.profile {
                Profile::ControlLoop => 10,
                Profile::Polling => 0,
            };
            if latency_us > limit_us { at_least(now, 1) } else { None }
        }
    }
}
