//! CPU on which block devices complete requests.

use super::{Doc, Knob, text};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// The CPU that completes a request of a block device.
#[derive(Debug)]
pub(super) struct BlockCompletion;

impl Knob for BlockCompletion {
    fn name(&self) -> &'static str {
        "block completions"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPU that completes a request: 0 the interrupt's CPU, 1 a CPU that shares a cache with the requesting CPU, 2 the requesting CPU",
            why: "an interrupt that cannot be moved would complete the requests of all CPUs on the shielded CPU, up to a millisecond at a time",
            good: "2",
            since: "3.0",
            source: "Documentation/ABI/stable/sysfs-block",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Interrupts
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/block/*/queue/rq_affinity"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, _: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        if now.text()? == "2" { None } else { text("2") }
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("the device has no request queue, or is being removed")
    }
}
