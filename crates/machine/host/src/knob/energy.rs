//! Energy preference of the processor's internal governor.

use super::{Doc, Knob, text};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Hint to the processor's internal governor.
#[derive(Debug)]
pub(super) struct EnergyPreference;

impl Knob for EnergyPreference {
    fn name(&self) -> &'static str {
        "energy preference"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "hint to the processor's internal governor",
            why: "the processor would save energy between two cycles",
            good: "performance",
            since: "4.10",
            source: "Documentation/admin-guide/pm/intel_pstate.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/cpufreq/energy_performance_preference"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, _: &Value) -> Option<Value> {
        text("performance")
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("with the performance governor the driver sets it")
    }
}
