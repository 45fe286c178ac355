//! Checks this user's permissions by trying each action, and finds the cause and remedy of each refusal.

use crate::doctor::{About, Check, Errno, Facts, Finding, Remedy, RemedyKind, Unknown, Use, named};
use proc::limits::limit;
use proc::status;

/// Removes the limit of locked memory.
pub(super) const CAP_IPC_LOCK: u32 = 14;
/// Removes the limit of real-time priority. DEADLINE needs it.
pub(super) const CAP_SYS_NICE: u32 = 23;

/// Tries `SCHED_FIFO`.
pub struct Fifo;

impl Check for Fifo {
    fn about(&self) -> &'static About {
        &About {
            id: "permission-fifo",
            title: "may use FIFO",
            what: "Sets SCHED_FIFO at priorities 1 and 80 on a temporary thread.",
            why: "Without a real-time class a loop shares its CPU with every program. A program that ignores the kernel's error runs without the \
                  class, and the user does not notice.",
            source: "sched(7); Documentation/scheduler/sched-rt-group.rst",
            reads: &["/sys/fs/cgroup/cgroup.controllers"],
            decides: &Use::LOOPS,
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let tried = facts.probes.permissions.clone()?;
        Ok(match (tried.fifo_1, tried.fifo_80) {
            (Ok(()), Ok(())) => Finding::fine("priorities 1 and 80 were granted"),
            (Ok(()), Err(errno)) => Finding::note(format!("priority 1 was granted, 80 refused ({errno})"))
                .reserve(&[Use::Loop10kHz])
                .remedy(RemedyKind::Change, RAISE_RTPRIO),
            (Err(errno), _) => {
                let finding = Finding::note(format!("refused: {errno}")).unfit(&Use::LOOPS).reserve(&[Use::Polling]);
                with_cause(finding, class_refused(facts, errno))
            }
        })
    }
}

/// Tries `SCHED_RR`.
pub struct RoundRobin;

impl Check for RoundRobin {
    fn about(&self) -> &'static About {
        &About {
            id: "permission-rr",
            title: "may use RR",
            what: "Sets SCHED_RR at priority 1 on a temporary thread.",
            why: "Only in this class do real-time threads of equal priority on one CPU share it by time slice.",
            source: "sched(7)",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        Ok(match facts.probes.permissions.clone()?.rr_1 {
            Ok(()) => Finding::fine("priority 1 was granted"),
            Err(errno) => with_cause(Finding::note(format!("refused: {errno}")), class_refused(facts, errno)),
        })
    }
}

/// Tries `SCHED_DEADLINE`.
pub struct Deadline;

impl Check for Deadline {
    fn about(&self) -> &'static About {
        &About {
            id: "permission-deadline",
            title: "may use DEADLINE",
            what: "Reserves 100 us in every 100 ms with SCHED_DEADLINE on a temporary thread.",
            why: "A reservation limits the CPU time of a runaway loop. It needs CAP_SYS_NICE (a resource limit is not enough), all CPUs of its root \
                  domain in the thread's mask, and free bandwidth.",
            source: "Documentation/scheduler/sched-deadline.rst",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        Ok(match facts.probes.permissions.clone()?.deadline {
            Ok(()) => Finding::fine("100 us in every 100 ms were granted"),
            Err(errno) => {
                let finding = Finding::note(format!("refused: {errno}"));
                match errno {
                    Errno::BUSY => finding.remedy(
                        RemedyKind::Change,
                        "other DEADLINE threads hold the bandwidth: see chrt -p on them, or raise \
                         kernel.sched_rt_runtime_us",
                    ),
                    Errno::PERM if has_capability(facts, CAP_SYS_NICE) == Some(true) => finding.remedy(
                        RemedyKind::Change,
                        "this process may not run on all CPUs of its root domain: start it with the full mask, or in a \
                         separate cpuset partition",
                    ),
                    _ => finding.remedy(RemedyKind::Change, give_capability(facts, "SYS_NICE")),
                }
            }
        })
    }
}

/// Tries to lock memory.
pub struct MemoryLock;

impl Check for MemoryLock {
    fn about(&self) -> &'static About {
        &About {
            id: "permission-mlock",
            title: "may lock memory",
            what: "Maps, locks and frees 1 MiB.",
            why: "The first access to a swapped or untouched page delays a real-time thread by microseconds to many milliseconds.",
            source: "mlock(2)",
            reads: &[],
            decides: &Use::LOOPS,
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        Ok(match facts.probes.permissions.clone()?.memory_lock {
            Ok(()) => Finding::fine("1 MiB was locked"),
            Err(errno) => Finding::note(format!("refused: {errno}")).unfit(&Use::LOOPS).reserve(&[Use::Polling]).remedy(
                RemedyKind::Change,
                format!("raise the limit of locked memory (memlock in /etc/security/limits.d, LimitMEMLOCK= of a unit), or {}", give_capability(facts, "IPC_LOCK")),
            ),
        })
    }
}

/// Tries to bind a thread to a CPU.
pub struct Affinity;

impl Check for Affinity {
    fn about(&self) -> &'static About {
        &About {
            id: "permission-affinity",
            title: "may bind to a CPU",
            what: "Binds a temporary thread to one of its CPUs, and compares the CPUs that this process may use with those online.",
            why: "A real-time thread that moves between CPUs loses its caches. A shield without binding has no effect.",
            source: "sched_setaffinity(2); cpuset(7)",
            reads: &[],
            decides: &Use::ALL,
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if let Err(errno) = facts.probes.permissions.clone()?.affinity {
            return Ok(Finding::note(format!("refused: {errno}")).unfit(&Use::ALL).remedy(
                RemedyKind::Change,
                "a seccomp filter or a container forbids sched_setaffinity: change its profile",
            ));
        }
        let online = facts.online()?;
        let allowed = facts.files.parse("/proc/self/status", status::cpus_allowed)?;
        let missing = online.minus(&allowed);
        if missing.is_empty() {
            return Ok(Finding::fine("one CPU was granted; this process may use all online CPUs"));
        }
        Ok(Finding::note(format!("one CPU was granted, but this process may not use {}", named(&missing))))
    }
}

/// Remedy that gives a user real-time priorities.
pub(super) const RAISE_RTPRIO: &str = "raise the limit of real-time priority: \"@realtime - rtprio 98\" in /etc/security/limits.d \
                            and log in again, or LimitRTPRIO=98 of a unit";

/// Why a real-time class was refused, and the remedy.
fn class_refused(facts: &Facts, errno: Errno) -> (Option<String>, Remedy) {
    let change = |text: String| Remedy::new(RemedyKind::Change, text);
    if errno != Errno::PERM {
        return (
            None,
            change("the kernel or a seccomp filter refuses the call itself: see the container's profile".into()),
        );
    }
    let status = facts.files.text("/proc/self/status").unwrap_or_default();
    if has_capability(facts, CAP_SYS_NICE) == Some(true) {
        if facts.config().is_ok_and(|config| config.is_set("RT_GROUP_SCHED")) {
            let cause =
                "CAP_SYS_NICE is set and the kernel has RT_GROUP_SCHED: this group may have no real-time runtime";
            return (Some(cause.into()), change("see rt-group-sched".into()));
        }
        if status::field(status, "Seccomp") == Some("2") {
            let cause = "CAP_SYS_NICE is set, but a seccomp filter is active";
            return (
                Some(cause.into()),
                change("allow sched_setattr and sched_setscheduler in the container's profile".into()),
            );
        }
        return (None, change("a security module refuses it: see the audit log".into()));
    }
    let priority = facts.files.parse("/proc/self/limits", |text| limit(text, "Max realtime priority"));
    let cause = match priority {
        Ok(limit) => format!("no CAP_SYS_NICE, and the limit of real-time priority is {}", limit.soft.unwrap_or(99)),
        Err(why) => format!("no CAP_SYS_NICE, and the limit of real-time priority is unknown: {why}"),
    };
    let remedy = match container(facts) {
        Some(_) => give_capability(facts, "SYS_NICE"),
        None => format!("{RAISE_RTPRIO}; or {}", give_capability(facts, "SYS_NICE")),
    };
    (Some(cause), change(remedy))
}

fn with_cause(finding: Finding, (cause, remedy): (Option<String>, Remedy)) -> Finding {
    let finding = match cause {
        Some(cause) => finding.and(cause),
        None => finding,
    };
    finding.remedy(remedy.how, remedy.text)
}

/// How to give a capability to the container or to the program.
fn give_capability(facts: &Facts, name: &str) -> String {
    match container(facts) {
        Some(kind) => format!("start the container ({kind}) with --cap-add {name}"),
        None => format!(
            "give the program the capability: setcap cap_{}+ep PROGRAM, or AmbientCapabilities=CAP_{name} of a unit",
            name.to_lowercase()
        ),
    }
}

/// Kind of the container; `None` outside a container.
fn container(facts: &Facts) -> Option<String> {
    let files = &facts.files;
    // A process that sees kernel threads is in the first process namespace, whatever its files look like.
    if files.text("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        return None;
    }
    if files.exists("/.dockerenv") {
        return Some("docker".into());
    }
    if files.exists("/run/.containerenv") {
        return Some("podman".into());
    }
    if let Ok(Some(kind)) = files.optional("/run/systemd/container") {
        return Some(kind.trim().to_owned());
    }
    let groups = files.text("/proc/self/cgroup").unwrap_or_default();
    ["kubepods", "docker", "libpod", "lxc", "containerd"]
        .into_iter()
        .find(|word| groups.contains(word))
        .map(str::to_owned)
}

/// Whether this process has an effective capability; `None` if unknown.
pub(super) fn has_capability(facts: &Facts, capability: u32) -> Option<bool> {
    let mask = facts.files.parse("/proc/self/status", status::effective_capabilities).ok()?;
    Some(mask >> capability & 1 == 1)
}

/// Whether `SCHED_FIFO` was granted; `None` if it was not tried.
pub(super) fn fifo_was_granted(facts: &Facts) -> Option<bool> {
    facts.probes.permissions.as_ref().ok().map(|tried| tried.fifo_1.is_ok())
}
