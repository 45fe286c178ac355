//! Settings that need a boot parameter: prints the exact parameter to add.

use crate::plan::{Context, Note, Profile};
use crate::snapshot::Cgroup;
use proc::boot_line::BootLine;
use proc::version::Version;

/// Parameters that would help this shield and are not on the boot line.
#[must_use]
pub fn parameters(context: &Context<'_>) -> Vec<Note> {
    let line = BootLine::parse(&context.snapshot.boot_line);
    let (shield, mut out) = (&context.want.cpus, Vec::new());
    let mut add = |about: String, text: &str| out.push(Note { about, text: text.to_owned() });
    let possible = &context.snapshot.cpus.possible;
    let last = possible.iter().last().unwrap_or(0);
    let covers = |name: &str| line.cpus(name, last).flatten().is_some_and(|cpus| shield.is_subset(&cpus));
    let managed =
        line.isolcpus(last).is_some_and(|it| it.managed_irq && it.cpus.is_some_and(|cpus| shield.is_subset(&cpus)));
    if !managed {
        add(
            format!("isolcpus=managed_irq,{shield}"),
            "interrupts that the kernel manages (NVMe, virtio queues) also stay away",
        );
    }
    let nohz = shield.is_subset(&context.snapshot.cpus.nohz_full);
    if context.want.profile == Profile::Polling && !nohz {
        add(format!("nohz_full={shield}"), "the timer tick stops while a single task runs (needs CONFIG_NO_HZ_FULL)");
    }
    if context.want.profile == Profile::Polling
        && nohz
        && context.snapshot.version() >= Version::new(6, 11)
        && line.value("rcutree.nohz_full_patience_delay").is_none()
    {
        add(
            "rcutree.nohz_full_patience_delay=1000".to_owned(),
            "RCU waits one second before it starts the tick on a CPU that runs kernel code",
        );
    }
    if !nohz && !covers("rcu_nocbs") {
        add(format!("rcu_nocbs={shield}"), "RCU callbacks run on the housekeeping CPUs (needs CONFIG_RCU_NOCB_CPU)");
    }
    let realtime = context.snapshot.file_text("/sys/kernel/realtime") == Some("1");
    if !realtime
        && !context.snapshot.files.contains_key("/sys/kernel/debug/sched/preempt")
        && line.value("preempt").is_none()
    {
        add(
            "preempt=full".to_owned(),
            "a real-time task can preempt kernel code (needs CONFIG_PREEMPT_DYNAMIC; if debugfs is mounted, a knob sets it)",
        );
    }
    if context.want.profile == Profile::ControlLoop && !realtime && !line.has("threadirqs") {
        add(
            "threadirqs".to_owned(),
            "handlers of interrupts that cannot be moved become threads at fifo:50, which do not disturb a loop of higher priority",
        );
    }
    if context.want.profile == Profile::ControlLoop && line.value("skew_tick") != Some("1") {
        add("skew_tick=1".to_owned(), "the CPUs have their ticks at different times");
    }
    if matches!(context.snapshot.cgroup, Cgroup::None) {
        add(format!("isolcpus=domain,{shield}"), "without cpusets only this excludes the CPUs from load balancing");
    }
    out
}
