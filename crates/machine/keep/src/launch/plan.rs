//! Converts a spec to the steps between `fork` and `exec`.

use super::lock::lockable;
use super::users::{self, Identity};
use super::{Capability, InheritedFd, LaunchError, LaunchSpec, Resource, Shortfall, Terminal};
use base::Policy;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::root::RootDir;
use sys::sched::Scheduling;
use sys::signal::SIGHUP;
use sys::spawn::{PlannedStep, Step, above};

/// Above the highest capability number of any kernel so far.
const CAPABILITY_MAX: u8 = 63;

/// Steps in the order that the kernel requires, and descriptors that must stay open until the fork.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<PlannedStep>,
    /// Variables with the numbers of inherited descriptors.
    pub(super) variables: Vec<(String, String)>,
    /// Variables of the process's user.
    pub(super) user_variables: Vec<(&'static str, String)>,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) pty: Option<OwnedFd>,
    pub(super) pipes: Option<[OwnedFd; 2]>,
    open: Vec<OwnedFd>,
}

impl Plan {
    /// Order: groups before CPUs (a cpuset limits them); classes and limits before the change of user (which removes
    /// the right); descriptors last.
    pub(super) fn of(spec: &LaunchSpec, program: &Path) -> Result<Self, LaunchError> {
        let refuse = |wanted: &str, found: String, remedy: &str| LaunchError {
            process: spec.name.clone(),
            wanted: wanted.to_owned(),
            found,
            remedy: remedy.to_owned(),
        };
        let mut plan = Self::default();
        let zero = |_| refuse("path", "it holds a zero byte".to_owned(), "remove it");
        plan.must(Step::ResetSignals);
        if spec.terminal != Terminal::Inherit {
            plan.must(Step::NewSession);
        }
        for dir in &spec.cgroups {
            // Version 1 lists threads; version 2 lists only processes.
            let tasks = dir.join("tasks");
            let file = if tasks.exists() { tasks } else { dir.join("cgroup.procs") };
            plan.must(Step::Write(c_string(file.as_os_str()).map_err(zero)?, b"0".to_vec()));
        }
        if let Some(score) = spec.oom_score {
            plan.must(Step::Write(c"/proc/self/oom_score_adj".to_owned(), score.to_string().into_bytes()));
        }
        for limit in &spec.limits {
            let value = limit.value.unwrap_or(u64::MAX);
            plan.must(Step::Limit(kernel_resource(limit.resource), value, value));
        }
        // From here on the process could take a CPU away from others, so a guard must know it first.
        plan.must(Step::Hold);
        if let Some(cpus) = spec.cpus {
            plan.want(spec, Step::Affinity(cpus));
        }
        if let Some(policy) = spec.policy {
            let reset_on_fork = spec.reset_on_fork || matches!(policy, Policy::Deadline(_));
            plan.want(spec, Step::Scheduling(Scheduling { policy, reset_on_fork }));
        }
        if let Some(nice) = spec.nice {
            // After the class, because setting a class sets a nice value.
            plan.want(spec, Step::Nice(nice));
        }
        if let Some(node) = spec.numa_node {
            if node >= 64 {
                return Err(refuse(&format!("NUMA node {node}"), "64 nodes are supported".into(), "choose another"));
            }
            plan.want(spec, Step::MemoryNodes(1 << node));
        }
        let identity = users::identity(spec.user.as_deref(), spec.group.as_deref()).map_err(|found| {
            let remedy = "name a user and group of /etc/passwd and /etc/group, or give numbers";
            refuse("such user", found.to_string(), remedy)
        })?;
        let locked = spec.mlock && plan.may_lock(spec, program, &identity)?;
        if let Some(sandbox) = &spec.sandbox {
            // Here the process still has the right to mount.
            let steps = super::sandbox::steps(sandbox, &RootDir::machine());
            steps
                .map_err(|found| refuse("sandbox", found.to_string(), "correct the path"))?
                .into_iter()
                .for_each(|it| plan.must(it));
        }
        if let Some(mask) = spec.umask {
            plan.must(Step::Umask(mask));
        }
        plan.privileges(spec, &identity);
        if spec.no_new_privileges {
            plan.must(Step::NoNewPrivileges);
        }
        plan.user_variables = identity.variables;
        if let Some(dir) = &spec.dir {
            plan.must(Step::Directory(c_string(dir.as_os_str()).map_err(zero)?));
        }
        plan.must(Step::CloseFrom(3));
        plan.descriptors(spec)
            .map_err(|cause| refuse("descriptors", cause.to_string(), "close some, or raise the limit (ulimit -n)"))?;
        if locked {
            plan.want(spec, Step::TraceMe);
        }
        Ok(plan)
    }

    fn must(&mut self, step: Step) {
        self.steps.push(PlannedStep { step, required: true });
    }

    fn want(&mut self, spec: &LaunchSpec, step: Step) {
        self.steps.push(PlannedStep { step, required: spec.require_rt });
    }

    fn may_lock(&mut self, spec: &LaunchSpec, program: &Path, identity: &Identity) -> Result<bool, LaunchError> {
        match lockable(spec, program, identity) {
            Ok(()) => Ok(true),
            Err(Shortfall { wanted, found, remedy }) if spec.require_rt => {
                Err(LaunchError { process: spec.name.clone(), wanted, found, remedy })
            }
            Err(shortfall) => {
                self.shortfalls.push(shortfall);
                Ok(false)
            }
        }
    }

    /// User and capabilities. The bounding set comes first: dropping from it needs `CAP_SETPCAP`.
    fn privileges(&mut self, spec: &LaunchSpec, identity: &Identity) {
        let kept = spec.capabilities.as_ref().map(|kept| kept.iter().fold(0, |all, one: &Capability| all | one.bit()));
        if let Some(kept) = kept {
            for number in (0..=CAPABILITY_MAX).filter(|number| kept >> number & 1 == 0) {
                self.must(Step::DropBounding(number));
            }
            self.must(Step::KeepCapabilities);
        }
        if let Some(groups) = &identity.groups {
            self.must(Step::Groups(groups.clone()));
        }
        if let Some(gid) = identity.gid {
            self.must(Step::Group(gid));
        }
        if let Some(uid) = identity.uid {
            self.must(Step::User(uid));
        }
        if let Some(kept) = kept {
            self.must(Step::Capabilities(kept));
            for capability in spec.capabilities.iter().flatten() {
                self.must(Step::RaiseAmbient(capability.number()));
            }
        }
    }

    /// Streams at 0 to 2, inherited descriptors from 3 on.
    fn descriptors(&mut self, spec: &LaunchSpec) -> sys::Result<()> {
        match spec.terminal {
            Terminal::Inherit => {}
            Terminal::Null => {
                let null = self.open_null()?;
                let output = match &spec.output {
                    Some(path) => self.open_output(path)?,
                    None => null,
                };
                for (from, to) in [(null, 0), (output, 1), (output, 2)] {
                    self.must(Step::Descriptor(from, to));
                }
            }
            Terminal::Pipes => {
                let null = self.open_null()?;
                let (out, out_child) = pipe()?;
                let (error, error_child) = pipe()?;
                self.pipes = Some([out, error]);
                for (from, to) in [(null, 0), (self.keep(&out_child)?, 1), (self.keep(&error_child)?, 2)] {
                    self.must(Step::Descriptor(from, to));
                }
            }
            Terminal::Pty | Terminal::FreePty => {
                let (master, slave) = open_pty()?;
                let slave = self.keep(&slave)?;
                self.pty = Some(master);
                self.must(match spec.terminal {
                    Terminal::FreePty => Step::DeathSignal(SIGHUP),
                    _ => Step::ControllingTerminal(slave),
                });
                (0..3).for_each(|to| self.must(Step::Descriptor(slave, to)));
            }
        }
        for (to, InheritedFd { variable, fd }) in (3..).zip(&spec.inherit) {
            let high = above(*fd)?;
            self.must(Step::Descriptor(high.as_raw_fd(), to));
            self.open.push(high);
            self.variables.push((variable.clone(), to.to_string()));
        }
        Ok(())
    }

    /// Duplicates a descriptor to a number above all targets of the steps. It stays open until the fork.
    fn keep(&mut self, fd: &OwnedFd) -> sys::Result<RawFd> {
        let high = above(fd.as_raw_fd())?;
        let number = high.as_raw_fd();
        self.open.push(high);
        Ok(number)
    }

    fn open_output(&mut self, path: &Path) -> sys::Result<RawFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| sys::Error { doing: format!("open {}", path.display()), errno })?;
        self.keep(&file)
    }

    fn open_null(&mut self) -> sys::Result<RawFd> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| sys::Error { doing: "open /dev/null".to_owned(), errno })?;
        self.keep(&null)
    }
}

fn c_string(text: &OsStr) -> Result<CString, std::ffi::NulError> {
    CString::new(text.as_bytes())
}

fn pipe() -> sys::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| sys::Error { doing: "make a pipe".to_owned(), errno })
}

/// A new pseudo-terminal: the keeper's end and the child's.
fn open_pty() -> sys::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let open = || {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((master, slave))
    };
    open().map_err(|errno| sys::Error { doing: "open a pseudo-terminal".to_owned(), errno })
}

/// The kernel's `RLIMIT_…` number.
fn kernel_resource(resource: Resource) -> u32 {
    match resource {
        Resource::AddressSpace => 9,
        Resource::Core => 4,
        Resource::Files => 7,
        Resource::Locked => 8,
        Resource::RtPriority => 14,
        Resource::RtTime => 15,
        Resource::Stack => 3,
    }
}
