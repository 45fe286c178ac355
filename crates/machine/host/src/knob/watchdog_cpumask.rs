//! CPUs of the lockup detectors.

use super::{Doc, Knob, without_shield};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// CPUs that the lockup detectors watch.
#[derive(Debug)]
pub(super) struct WatchdogCpumask;

impl Knob for WatchdogCpumask {
    fn name(&self) -> &'static str {
        "watchdog cpumask"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPUs that the lockup detectors watch",
            why: "their timers would wake the shielded CPU",
            good: "without the shielded CPUs",
            since: "4.3",
            source: "Documentation/admin-guide/lockup-watchdogs.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Timers
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/kernel/watchdog_cpumask"]
    }

    fn form(&self) -> Form {
        Form::List
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        without_shield(context, now)
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("the hypervisor or lockdown may forbid it")
    }
}
