//! The hard lockup detector.

use super::{Doc, Knob, text};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// The hard lockup detector: an NMI from a performance counter on each CPU.
#[derive(Debug)]
pub(super) struct NmiWatchdog;

impl Knob for NmiWatchdog {
    fn name(&self) -> &'static str {
        "nmi watchdog"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "the hard lockup detector: an NMI from a performance counter on each CPU",
            why: "its NMI interrupts any running code",
            good: "0",
            since: "3.7",
            source: "Documentation/admin-guide/lockup-watchdogs.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Timers
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/kernel/nmi_watchdog"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, _: &Value) -> Option<Value> {
        text("0")
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("no performance counter for it: then it does not run")
    }
}
