//! Bias between energy and speed, for processors without an energy preference.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Preference of the processor: 0 is speed, 15 is saving energy.
#[derive(Debug)]
pub(super) struct EnergyBias;

impl Knob for EnergyBias {
    fn name(&self) -> &'static str {
        "energy bias"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "preference of the processor: 0 is speed, 15 is saving energy",
            why: "a processor that saves energy takes longer to speed up",
            good: "0",
            since: "5.2",
            source: "Documentation/admin-guide/pm/intel_epb.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        at_most(now, 0)
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("the firmware or the hypervisor controls this register")
    }
}
