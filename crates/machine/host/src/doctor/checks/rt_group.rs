//! Checks whether `RT_GROUP_SCHED` refuses real-time classes.

use super::permissions::fifo_was_granted;
use crate::doctor::{About, Check, Facts, Files, Finding, RemedyKind, Unknown, Use};
use proc::cgroup::memberships;
use proc::mountinfo::mounts;

/// Whether a cgroup needs a separate real-time runtime before its threads can use the real-time classes.
pub struct RtGroupSched;

impl Check for RtGroupSched {
    fn about(&self) -> &'static About {
        &About {
            id: "rt-group-sched",
            title: "RT_GROUP_SCHED trap",
            what: "CONFIG_RT_GROUP_SCHED, rt_group_sched= on the boot line, cpu.rt_runtime_us of this process' group, and whether the kernel granted \
                   SCHED_FIFO.",
            why: "With this option, every cgroup except the root starts with a real-time runtime of 0, and SCHED_FIFO fails with EPERM even for \
                  root. cgroup v2 has no file to change that.",
            source: "Documentation/scheduler/sched-rt-group.rst; systemd #27893, runc #2431, LinuxCNC #2821",
            reads: &[],
            decides: &Use::LOOPS,
        }
    }

    fn reads_then(&self, files: &Files) -> Vec<String> {
        own_runtime_path(files).into_iter().collect()
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let granted = fifo_was_granted(facts);
        let config = match facts.config() {
            Ok(config) => config,
            Err(_) if granted == Some(true) => {
                return Ok(Finding::fine(
                    "the kernel's configuration is not readable, but SCHED_FIFO was granted here",
                ));
            }
            Err(why) => return Err(why),
        };
        if !config.is_set("RT_GROUP_SCHED") {
            return Ok(Finding::fine("not built in"));
        }
        let by_default = !config.is_set("RT_GROUP_SCHED_DEFAULT_DISABLED");
        let on = match facts.boot_line()?.value("rt_group_sched") {
            Some(value) => !matches!(value, "0" | "n" | "no" | "off"),
            None => by_default,
        };
        if !on {
            return Ok(Finding::fine("built in and disabled"));
        }
        let (group, runtime_us) = match own_runtime_path(&facts.files) {
            Some(path) => {
                let runtime = facts.files.number(&path);
                (path, Some(runtime?))
            }
            None => ("a cgroup v2 group, which has no cpu.rt_runtime_us".to_owned(), None),
        };
        let evidence = match runtime_us {
            Some(runtime_us) => format!("enabled; {group} is {runtime_us}"),
            None => format!("enabled; this process is in {group}"),
        };
        // A group that has a runtime does not refuse. With version 2, only the root group has one.
        let trapped = match runtime_us {
            Some(runtime_us) => runtime_us == 0,
            None => granted != Some(true),
        };
        let finding = match trapped {
            false => Finding::note(evidence).and("this group may use SCHED_FIFO, but a new group may not"),
            true => Finding::note(evidence).unfit(&Use::LOOPS),
        };
        let switch_off = match config.knows("RT_GROUP_SCHED_DEFAULT_DISABLED") {
            true => (RemedyKind::Boot, "add rt_group_sched=0 to the boot line"),
            false => (RemedyKind::Kernel, "boot a kernel built without CONFIG_RT_GROUP_SCHED"),
        };
        Ok(match own_runtime_path(&facts.files).filter(|_| trapped) {
            Some(path) => {
                let (_, permanent) = switch_off;
                finding.remedy(
                    RemedyKind::Change,
                    format!("echo 100000 > {path}, first in the groups above it; permanently: {permanent}"),
                )
            }
            None => finding.remedy(switch_off.0, switch_off.1),
        })
    }
}

/// Path of `cpu.rt_runtime_us` of this process's group in the version 1 hierarchy of `cpu`.
fn own_runtime_path(files: &Files) -> Option<String> {
    let text = files.text("/proc/self/mountinfo").ok()?;
    let mount = mounts(text).find(|mount| mount.kind == "cgroup" && mount.has("cpu"))?;
    let groups = files.text("/proc/self/cgroup").ok()?;
    let group = memberships(groups).find(|group| group.has("cpu"))?;
    let below = group.path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(group.path).trim_end_matches('/');
    // The names come from the kernel, but a group may have any name. The path must not leave the tree.
    (!below.split('/').any(|part| part == "..")).then(|| format!("{}{below}/cpu.rt_runtime_us", mount.point))
}
