//! The lowest frequency of a CPU.

use super::{Doc, Knob, at_least};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Lowest frequency, in kHz, that the governor may set.
#[derive(Debug)]
pub(super) struct ScalingMin;

impl Knob for ScalingMin {
    fn name(&self) -> &'static str {
        "lowest frequency"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "lowest frequency, in kHz, that the governor may set",
            why: "at a fixed frequency equal work takes equal time",
            good: "its scaling_max_freq",
            since: "2.6",
            source: "Documentation/admin-guide/pm/cpufreq.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_min_freq"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_max_freq", Form::Text)]
    }

    fn good(&self, context: &Context<'_>, path: &str, now: &Value) -> Option<Value> {
        {
            let highest = context.snapshot.file_text(&path.replace("scaling_min_freq", "scaling_max_freq"))?;
            at_least(now, highest.parse().ok()?)
        }
    }
}
