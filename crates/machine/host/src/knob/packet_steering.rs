//! Receive and transmit packet steering.

use super::{Doc, Knob};
use crate::plan::{Context, ShieldPart};
use crate::snapshot::{Form, Value};

/// CPUs that process received packets.
#[derive(Debug)]
pub(super) struct Receive;

/// Initial mask of the queues of devices added later.
#[derive(Debug)]
pub(super) struct ReceiveLater;

/// CPUs that send through a queue.
#[derive(Debug)]
pub(super) struct Transmit;

const REFUSES: &str = "devices without hardware queues refuse it";

impl Knob for Receive {
    fn name(&self) -> &'static str {
        "receive packet steering"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPUs that process the received packets of a queue",
            why: "network work stays on the housekeeping CPUs",
            good: "without the shielded CPUs",
            since: "2.6.35",
            source: "Documentation/networking/scaling.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Interrupts
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/class/net/*/queues/rx-*/rps_cpus"]
    }

    fn form(&self) -> Form {
        Form::Mask
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        steered(context, now)
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some(REFUSES)
    }
}

impl Knob for ReceiveLater {
    fn name(&self) -> &'static str {
        "receive packet steering of later devices"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPUs that process the received packets of devices added later",
            why: "devices added later also stay off the shielded CPUs",
            good: "without the shielded CPUs",
            since: "6.3",
            source: "Documentation/admin-guide/sysctl/net.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Interrupts
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/net/core/rps_default_mask"]
    }

    fn form(&self) -> Form {
        Form::Mask
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        steered(context, now)
    }
}

impl Knob for Transmit {
    fn name(&self) -> &'static str {
        "transmit packet steering"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "CPUs that send through a private queue",
            why: "the shielded CPU would handle completions of packets from other CPUs",
            good: "without the shielded CPUs",
            since: "2.6.38",
            source: "Documentation/networking/scaling.rst",
        }
    }

    fn part(&self) -> ShieldPart {
        ShieldPart::Interrupts
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/class/net/*/queues/tx-*/xps_cpus"]
    }

    fn form(&self) -> Form {
        Form::Mask
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        steered(context, now)
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some(REFUSES)
    }
}

/// An empty mask disables steering, which keeps packets away as well.
fn steered(context: &Context<'_>, now: &Value) -> Option<Value> {
    let now = now.cpus()?;
    now.intersects(&context.want.cpus).then(|| Value::Cpus(now.minus(&context.want.cpus)))
}
