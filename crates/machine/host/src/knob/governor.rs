//! Frequency governor of a CPU.

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Policy that sets the CPU's frequency.
#[derive(Debug)]
pub(super) struct Governor;

impl Knob for Governor {
    fn name(&self) -> &'static str {
        "frequency governor"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "policy that sets the CPU's frequency",
            why: "a change of frequency changes all execution times",
            good: "performance",
            since: "2.6",
            source: "Documentation/admin-guide/pm/cpufreq.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_available_governors", Form::Text)]
    }

    fn good(&self, context: &Context<'_>, path: &str, _: &Value) -> Option<Value> {
        {
            let offered =
                context.snapshot.file_text(&path.replace("scaling_governor", "scaling_available_governors"))?;
            offered.split_whitespace().any(|name| name == "performance").then(|| Value::Text("performance".to_owned()))
        }
    }
}
