//! Explains steps that the kernel refused: cause and remedy.

use super::{Capability, LaunchSpec, Shortfall};
use base::{Policy, RtLevel};
use rustix::io::Errno;
use std::path::Path;
use sys::root::RootDir;
use sys::spawn::Step;

/// The shortfall behind a refused step (`None`: `exec` itself).
pub(super) fn explain(spec: &LaunchSpec, program: &Path, step: Option<&Step>, errno: Errno) -> Shortfall {
    let answer = std::io::Error::from(errno).to_string();
    let root = RootDir::machine();
    let (wanted, found, remedy): (String, String, String) = match step {
        None => {
            let remedy = match errno {
                Errno::NOEXEC => "it is neither an ELF program nor a script with a #! line: add one",
                Errno::NOENT => "its interpreter (#! line or ELF loader) is missing: install it",
                Errno::ACCESS | Errno::PERM => "check its mode, that of its directories, and the noexec mount option",
                _ => "see execve(2)",
            };
            (format!("execution of {}", program.display()), answer, remedy.into())
        }
        Some(Step::Scheduling(scheduling)) => {
            let (found, remedy) = class_refused(&root, spec, scheduling.policy, errno);
            (format!("class {}", scheduling.policy), found, remedy)
        }
        Some(Step::Nice(nice)) => {
            let remedy =
                "a value below the starter's needs CAP_SYS_NICE or a higher RLIMIT_NICE: set a higher nice value"
                    .to_owned();
            (format!("nice value {nice}"), answer, remedy)
        }
        Some(Step::Affinity(cpus)) => {
            let allowed = field(&root.read("/proc/self/status").unwrap_or_default(), "Cpus_allowed_list:");
            let remedy = "choose CPUs that are online and in its cpuset".to_owned();
            (format!("CPUs {cpus}"), format!("{answer} (the starter may use CPUs {allowed})"), remedy)
        }
        Some(Step::MemoryNodes(mask)) => {
            let wanted = format!("memory of NUMA node {}", mask.trailing_zeros());
            (wanted, answer, "choose a node of /sys/devices/system/node/online".into())
        }
        Some(Step::TraceMe) => (
            "memory lock".into(),
            format!("ptrace: {answer}"),
            "allow ptrace (kernel.yama.ptrace_scope, seccomp filters), or let the program call mlockall itself".into(),
        ),
        Some(Step::Write(path, value)) => {
            let wanted = format!("{:?} written to {}", String::from_utf8_lossy(value), path.to_string_lossy());
            let remedy = match errno {
                Errno::NOSPC => "the cpuset has no CPUs or memory nodes yet: set cpuset.cpus and cpuset.mems",
                Errno::NOENT => "the control group does not exist: apply the shield first",
                Errno::INVAL => "the group cannot accept it: a real-time task needs cpu.rt_runtime_us in a cpu group",
                _ => "check that you may write there (root, or a delegated control group)",
            };
            (wanted, answer, remedy.into())
        }
        Some(Step::Limit(..)) => (
            "resource limit".into(),
            answer,
            "only CAP_SYS_RESOURCE raises hard limits: set a lower limit, or raise the starter's".into(),
        ),
        Some(Step::Directory(dir)) => {
            (format!("working directory {}", dir.to_string_lossy()), answer, "create it, or correct `dir`".into())
        }
        Some(Step::User(_) | Step::Group(_) | Step::Groups(_)) => (
            "change of user".into(),
            answer,
            "only root may run processes as another user: run as root, or remove `user`".into(),
        ),
        Some(
            Step::MountNamespace | Step::BindHere(_) | Step::BindOver(..) | Step::EmptyAt(..) | Step::ReadOnly { .. },
        ) => {
            let remedy = match errno {
                Errno::PERM => "only root (CAP_SYS_ADMIN) may mount: run as root, or remove `sandbox`",
                Errno::NOSYS => "read-only parts need Linux 5.12: remove `protect_system` and `protect_home`",
                _ => "see the paths of `sandbox`, and mount(2)",
            };
            ("sandbox".into(), format!("{}: {answer}", sandbox_step(step)), remedy.into())
        }
        Some(Step::DropBounding(_) | Step::Capabilities(_) | Step::RaiseAmbient(_) | Step::KeepCapabilities) => {
            let wanted = "set of capabilities".to_owned();
            (wanted, answer, "the starter itself must have each one, and CAP_SETPCAP".into())
        }
        Some(other) => (format!("{other:?}"), answer, "see the kernel's documentation".into()),
    };
    Shortfall { wanted, found, remedy }
}

/// A readable name of a sandbox step.
fn sandbox_step(step: Option<&Step>) -> String {
    match step {
        Some(Step::ReadOnly { path, .. }) => format!("{} read-only", path.to_string_lossy()),
        Some(Step::BindHere(path) | Step::BindOver(_, path) | Step::EmptyAt(path, _)) => {
            format!("mount at {}", path.to_string_lossy())
        }
        _ => "private mounts".to_owned(),
    }
}

/// Cause and remedy of a refused scheduling class.
fn class_refused(root: &RootDir, spec: &LaunchSpec, policy: Policy, errno: Errno) -> (String, String) {
    let answer = std::io::Error::from(errno).to_string();
    match (policy.level(), errno) {
        (RtLevel::Deadline, Errno::BUSY) => (
            format!("{answer}: the CPUs have no room for this reservation"),
            "reduce the runtime, or check other DEADLINE tasks and kernel.sched_rt_runtime_us".into(),
        ),
        (RtLevel::Deadline, Errno::PERM) if has_capability(root, Capability::SYS_NICE) => (
            format!("{answer}: its CPUs are not exactly those of a root domain"),
            "DEADLINE needs a separate partition: `tahti shield apply` and --cpus shield, or no CPU list at all".into(),
        ),
        (RtLevel::Fixed(_), Errno::PERM) => {
            if let Some(group) = group_without_runtime(root, spec) {
                return (
                    format!("{answer}: its cpu control group {group} has cpu.rt_runtime_us = 0 (RT_GROUP_SCHED)"),
                    format!("echo 950000 > {group}/cpu.rt_runtime_us, or start tahti from the root of that hierarchy"),
                );
            }
            (
                format!("{answer}: neither CAP_SYS_NICE nor a sufficient RLIMIT_RTPRIO"),
                "run as root, add CAP_SYS_NICE, or raise rtprio (/etc/security/limits.conf, LimitRTPRIO=)".into(),
            )
        }
        (RtLevel::Deadline, Errno::PERM) => (answer, "run as root, or add CAP_SYS_NICE".into()),
        (RtLevel::None, Errno::PERM | Errno::ACCESS) => {
            (answer, "a lower nice value needs CAP_SYS_NICE or RLIMIT_NICE".into())
        }
        _ => (answer, "see sched(7)".into()),
    }
}

fn field(status: &str, name: &str) -> String {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned()
}

fn has_capability(root: &RootDir, capability: Capability) -> bool {
    let effective = field(&root.read("/proc/self/status").unwrap_or_default(), "CapEff:");
    u64::from_str_radix(&effective, 16).is_ok_and(|mask| mask & capability.bit() != 0)
}

/// The process's group in the v1 `cpu` hierarchy, if it has no real-time runtime.
fn group_without_runtime(root: &RootDir, spec: &LaunchSpec) -> Option<String> {
    let runtime = |dir: &str| root.read(&format!("{dir}/cpu.rt_runtime_us")).ok();
    let zero = |dir: &String| runtime(dir).is_some_and(|text| text.trim() == "0");
    if let Some(joined) = spec.cgroups.iter().map(|dir| dir.display().to_string()).find(|dir| runtime(dir).is_some()) {
        return Some(joined).filter(zero);
    }
    let cgroups = root.read("/proc/self/cgroup").ok()?;
    let own = cgroups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|one| one == "cpu").then(|| path.to_owned())
    })?;
    let mounts = root.read("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let v1 = fields.get(2) == Some(&"cgroup");
        (v1 && fields.get(3)?.split(',').any(|option| option == "cpu")).then(|| fields[1].to_owned())
    })?;
    Some(format!("{mount}{}", own.trim_end_matches('/'))).filter(zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine on which the starter sits in cpu group `/job` with this runtime.
    fn machine(name: &str, runtime: &str) -> (RootDir, std::path::PathBuf) {
        let dir = std::env::temp_dir().join(format!("tahti-explain-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        fs::create_dir_all(dir.join("sys/fs/cgroup/cpu/job")).unwrap();
        fs::write(dir.join("proc/self/cgroup"), "3:cpuset:/\n1:cpu,cpuacct:/job\n0::/\n").unwrap();
        fs::write(dir.join("proc/self/mounts"), "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n")
            .unwrap();
        fs::write(dir.join("proc/self/status"), "CapEff:\t0000000000800000\nCpus_allowed_list:\t0-1\n").unwrap();
        fs::write(dir.join("sys/fs/cgroup/cpu/job/cpu.rt_runtime_us"), runtime).unwrap();
        (RootDir::at(&dir), dir)
    }

    #[test]
    fn a_group_without_runtime_is_named_with_the_remedy() {
        let spec = LaunchSpec::new("x", ["x"]);
        let fifo: Policy = "fifo:10".parse().unwrap();
        let (root, dir) = machine("zero", "0\n");
        let (found, remedy) = class_refused(&root, &spec, fifo, Errno::PERM);
        assert!(found.contains("/sys/fs/cgroup/cpu/job has cpu.rt_runtime_us = 0"), "{found}");
        assert!(remedy.contains("echo 950000 > /sys/fs/cgroup/cpu/job/cpu.rt_runtime_us"), "{remedy}");
        fs::remove_dir_all(dir).unwrap();
        let (root, dir) = machine("some", "100000\n");
        let (found, remedy) = class_refused(&root, &spec, fifo, Errno::PERM);
        assert!(found.contains("RLIMIT_RTPRIO") && remedy.contains("CAP_SYS_NICE"), "{found} {remedy}");
        let (_, remedy) = class_refused(&root, &spec, "deadline:1ms/2ms/2ms".parse().unwrap(), Errno::PERM);
        assert!(remedy.contains("partition"), "{remedy}");
        fs::remove_dir_all(dir).unwrap();
    }
}
