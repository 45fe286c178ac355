//! Checks what a shield needs: control groups and their owner.

use crate::doctor::{About, Check, Facts, Files, Finding, RemedyKind, Unknown, Use};
use proc::mountinfo::mounts;
use proc::version::Version;

/// The first kernel whose version 2 partitions can be `isolated`.
const ISOLATED_SINCE: Version = Version::new(6, 1);

const PARTITIONS: [&str; 2] = ["/sys/fs/cgroup/*/cpuset.cpus.partition", "/sys/fs/cgroup/*/*/cpuset.cpus.partition"];
const V1_SETS: &str = "/sys/fs/cgroup/cpuset/*/cpuset.cpus";

/// The version of control groups that has the cpuset controller.
pub struct CpusetVersion;

impl Check for CpusetVersion {
    fn about(&self) -> &'static About {
        &About {
            id: "cpuset",
            title: "cpuset controller",
            what: "Which mounted hierarchy has the cpuset controller: cgroup v2 (cgroup.controllers) or v1.",
            why: "A v2 partition of kind \"isolated\" (since 6.1) removes CPUs from load balancing and unbound work at run time, and can return \
                  them. v1 is deprecated and only removes them from load balancing. Without either, each task must be bound by hand.",
            source: "Documentation/admin-guide/cgroup-v2.rst; Documentation/admin-guide/cgroup-v1/cpusets.rst",
            reads: &[],
            decides: &[],
        }
    }

    fn reads_then(&self, files: &Files) -> Vec<String> {
        v2_controllers_path(files).into_iter().collect()
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let text = facts.files.text("/proc/self/mountinfo")?;
        let v2 = v2_controllers_path(&facts.files);
        let has_cpuset =
            |path: &str| Ok::<_, Unknown>(facts.files.text(path)?.split_whitespace().any(|name| name == "cpuset"));
        if let Some(path) = v2
            && has_cpuset(&path)?
        {
            let kernel = facts.kernel()?;
            let point = path.trim_end_matches("/cgroup.controllers");
            return Ok(match kernel >= ISOLATED_SINCE {
                true => Finding::fine(format!("version 2 at {point}")),
                false => Finding::note(format!(
                    "version 2 at {point}, but Linux {kernel} does not support isolated partitions"
                ))
                .reserve(&[Use::Loop10kHz, Use::Polling])
                .remedy(RemedyKind::Kernel, "boot Linux 6.1 or later"),
            });
        }
        if let Some(mount) = mounts(text).find(|mount| mount.kind == "cgroup" && mount.has("cpuset")) {
            return Ok(Finding::note(format!("version 1 at {}: no isolated partition", mount.point))
                .and("only masks keep unbound kernel work away")
                .reserve(&[Use::Loop10kHz, Use::Polling])
                .remedy(RemedyKind::Boot, "boot with systemd.unified_cgroup_hierarchy=1, or mount only cgroup2"));
        }
        Ok(Finding::note("no mounted hierarchy has the cpuset controller: a shield can only bind each task")
            .reserve(&Use::ALL)
            .remedy(
                RemedyKind::Change,
                "mount -t cgroup2 none /sys/fs/cgroup, or run outside the container that hides it",
            ))
    }
}

/// Owner of the cgroup tree, and cgroups that already have exclusive CPUs.
pub struct CpusetOwner;

impl Check for CpusetOwner {
    fn about(&self) -> &'static About {
        &About {
            id: "cpuset-owner",
            title: "owner of the cpusets",
            what: "Whether systemd manages the cgroups (/run/systemd/system), and which cgroups are already partitions or have exclusive CPUs.",
            why: "systemd overwrites changes in the cgroups that it owns. A shield under systemd therefore uses a separate cgroup and informs systemd \
                  of the CPUs to avoid. Partitions of other programs (container engines, virtual machines) can make the shield's partition invalid at \
                  any time.",
            source: "systemd: Control Group APIs and Delegation; Documentation/admin-guide/cgroup-v2.rst",
            reads: &[PARTITIONS[0], PARTITIONS[1], V1_SETS],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let files = &facts.files;
        files.text("/proc/self/mountinfo")?;
        let owner = match files.exists("/run/systemd/system") {
            true => "systemd",
            false => "none (no systemd)",
        };
        let all: Vec<_> = PARTITIONS.iter().flat_map(|pattern| files.each(pattern)).collect();
        let broken = all.iter().filter(|found| found.text.contains("invalid"));
        let broken: Vec<_> = broken.map(|found| format!("{}: {}", group(found.path), found.text)).collect();
        if !broken.is_empty() {
            let finding = Finding::note(owner).reserve(&Use::ALL);
            return Ok(broken.into_iter().fold(finding, Finding::and).remedy(
                RemedyKind::Change,
                "an invalid partition isolates nothing: remove the cause that it names, or the partition",
            ));
        }
        let partitions = all.iter().filter(|found| found.text != "member");
        let partitions = partitions.map(|found| format!("{}: {} partition", group(found.path), found.text));
        let sets = files.each(V1_SETS).filter(|found| !found.text.is_empty());
        let sets = sets.map(|found| format!("{}: CPUs {}", group(found.path), found.text));
        let others: Vec<_> = partitions.chain(sets).collect();
        let finding = if others.is_empty() { Finding::fine(owner) } else { Finding::note(owner) };
        Ok(others.into_iter().fold(finding, Finding::and))
    }
}

fn group(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(group, _)| group)
}

fn v2_controllers_path(files: &Files) -> Option<String> {
    let text = files.text("/proc/self/mountinfo").ok()?;
    let mount = mounts(text).find(|mount| mount.kind == "cgroup2")?;
    Some(format!("{}/cgroup.controllers", mount.point))
}
