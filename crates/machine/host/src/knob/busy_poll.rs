//! Busy polling of sockets.

use super::{Doc, Knob, at_least};
use crate::plan::{Context, Profile};
use crate::snapshot::{Form, Value};

/// Microseconds for which `read`, `poll` and `select` on a socket poll the network card's queue before they sleep.
#[derive(Debug)]
pub(super) struct BusyPoll;

impl Knob for BusyPoll {
    fn name(&self) -> &'static str {
        "socket busy polling"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "time in microseconds for which read, poll and select on a socket poll the network card's queue before they sleep",
            why: "a polling loop gets a packet without waiting for its interrupt, which goes to another CPU",
            good: "polling: at least 50",
            since: "3.11",
            source: "Documentation/admin-guide/sysctl/net.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/proc/sys/net/core/busy_poll", "/proc/sys/net/core/busy_read"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn good(&self, context: &Context<'_>, _: &str, now: &Value) -> Option<Value> {
        match context.want.profile {
            Profile::Polling => at_least(now, 50),
            // Sockets of all other programs would poll as well, and a loop that sleeps gains nothing.
            Profile::ControlLoop => None,
        }
    }
}
