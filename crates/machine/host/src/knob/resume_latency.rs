//! Maximum exit latency of a CPU's idle states.

use super::{Doc, Knob, at_most, text};
use crate::plan::{Context, Profile};
use crate::snapshot::{Form, Value};

/// Maximum exit latency of idle states in microseconds: 0 is no limit, n/a disables idle states; one value for all user programs.
#[derive(Debug)]
pub(super) struct ResumeLatency;

/// The idle state of a guest's driver that returns the CPU to the hypervisor. It claims a latency of 1 us. The real
/// latency is the time to enter and leave the hypervisor, plus whatever else the hypervisor runs on the CPU before.
const LEAVES_THE_GUEST: &str = "haltpoll idle";

impl Knob for ResumeLatency {
    fn name(&self) -> &'static str {
        "wake-up latency limit"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "maximum exit latency of idle states in microseconds: 0 is no limit, n/a disables idle states; one value for all user programs",
            why: "a CPU in a deep idle state responds late",
            good: "at most 10; n/a for polling, and if an idle CPU leaves the guest",
            since: "4.15",
            source: "Documentation/admin-guide/pm/cpuidle.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state*/name", Form::Text)]
    }

    fn good(&self, context: &Context<'_>, path: &str, now: &Value) -> Option<Value> {
        match (context.want.profile, now.text()?) {
            (_, "n/a") => None,
            (Profile::Polling, _) => text("n/a"),
            _ if leaves_the_guest(context, path) => text("n/a"),
            (Profile::ControlLoop, "0") => text("10"),
            (Profile::ControlLoop, _) => at_most(now, 10),
        }
    }
}

/// Whether the CPU with its limit in `path` is idle outside the guest.
fn leaves_the_guest(context: &Context<'_>, path: &str) -> bool {
    let Some(cpu) = path.strip_suffix("/power/pm_qos_resume_latency_us") else { return false };
    let states = super::matching(context, &format!("{cpu}/cpuidle/state*/name"));
    states.iter().any(|(_, name)| name.text() == Some(LEAVES_THE_GUEST))
}
