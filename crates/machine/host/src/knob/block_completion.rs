//! Where block devices complete their requests.

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
            what: "the CPU that completes a request: 0 that of the interrupt, 1 one that shares its cache with the asking \
                   one, 2 the asking one",
            why: "an interrupt that cannot be moved would complete everybody's requests on the shielded CPU, a millisecond at a time",
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
        Some("the device has no queue of requests, or is going")
    }
}
