//! Polling for corrected memory errors.

use super::{Doc, Knob, text};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// Seconds between two polls of each CPU for corrected errors; one value for all CPUs.
#[derive(Debug)]
pub(super) struct MachineCheck;

impl Knob for MachineCheck {
    fn name(&self) -> &'static str {
        "machine check polling"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "seconds between two polls of each CPU for corrected errors; one value for all CPUs",
            why: "a timer on every CPU",
            good: "0",
            since: "2.6",
            source: "Documentation/arch/x86/x86_64/machinecheck.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Timers
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/machinecheck/machinecheck0/check_interval"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, _: &Value) -> Option<Value> {
        text("0")
    }
}
