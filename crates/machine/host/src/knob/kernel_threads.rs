//! Priority of the per-CPU kernel threads.

use super::{Doc, Knob};
use crate::plan::{Context, Draft, Profile};
use crate::snapshot::{Class, Form, Target, Value};
use base::{Policy, Priority, RtLevel};

/// Class and priority of the threads that run a CPU's timers, softirqs and RCU callbacks on a real-time kernel.
#[derive(Debug)]
pub(super) struct KernelThreads;

/// Contains 1 if interrupts, timers and softirqs run in threads (`PREEMPT_RT`).
const REALTIME: &str = "/sys/kernel/realtime";

/// Prefixes of the threads' names, and the minimum FIFO priority of each.
const AT_LEAST: [(&str, Priority); 3] =
    [("ktimers/", Priority(2)), ("ksoftirqd/", Priority(2)), ("rcuc/", Priority(4))];

impl Knob for KernelThreads {
    fn name(&self) -> &'static str {
        "kernel threads"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "class and priority of the threads ktimers/N, ksoftirqd/N and rcuc/N of shielded CPUs (PREEMPT_RT)",
            why: "a loop that never sleeps, at FIFO priority 1, would block the timers and RCU of its CPU forever",
            good: "polling: at least fifo:2, fifo:2 and fifo:4",
            since: "6.1",
            source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst; tuned's profile realtime-virtual-host",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &[]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[(REALTIME, Form::Text)]
    }

    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        if context.want.profile != Profile::Polling || context.snapshot.file_text(REALTIME) != Some("1") {
            return;
        }
        for (key, task) in &context.snapshot.tasks {
            let least = AT_LEAST.iter().find(|(name, _)| task.comm.starts_with(name)).map(|(_, least)| *least);
            let own = task.bound
                && !context.spare.contains(task)
                && !task.cpus.is_empty()
                && task.cpus.is_subset(&context.want.cpus);
            let (Some(least), Class::Of(policy), true) = (least, task.class, own) else { continue };
            if policy.level() < RtLevel::Fixed(least) {
                let to = Value::Text(Policy::Fifo(least).to_string());
                let label = format!("class of {} ({})", key.tid, task.comm);
                draft.step(context, Target::Class { key: *key }, to, &label, self.doc().why);
            }
        }
    }
}
