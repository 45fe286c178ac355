//! The bias between energy and speed of processors without a speed preference of their own.

use super::{Doc, Knob, at_most};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Tells the processor what to prefer: 0 is speed, 15 is saving energy.
#[derive(Debug)]
pub(super) struct EnergyBias;

impl Knob for EnergyBias {
    fn name(&self) -> &'static str {
        "energy bias"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "tells the processor what to prefer: 0 is speed, 15 is saving energy",
            why: "a processor that saves energy is slow to speed up",
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
        Some("the firmware or the hypervisor keeps this register")
    }
}
