//! Hardware counter of the clock.

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Hardware counter of the clock.
#[derive(Debug)]
pub(super) struct Clocksource;

impl Knob for Clocksource {
    fn name(&self) -> &'static str {
        "clock source"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "hardware counter of the clock",
            why: "reading the HPET or the ACPI timer costs a microsecond and a system call each time",
            good: "tsc instead of a slow one, if the kernel offers it",
            since: "2.6.18",
            source: "Documentation/timers/timekeeping.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/clocksource/clocksource0/current_clocksource"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[(AVAILABLE, Form::Text)]
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        {
            let offered = context.snapshot.file_text(AVAILABLE)?;
            let slow = matches!(now.text()?, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies");
            (slow && offered.split_whitespace().any(|name| name == "tsc")).then(|| Value::Text("tsc".to_owned()))
        }
    }
}
