//! What is wanted of a process at its start: plain values that survive a trip through JSON.

use base::{CpuSet, DurNs, Policy};
use host::plant::Sandbox;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A process to be started. Everything left at its default is inherited from the starter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// What people call it; appears in messages and file names.
    pub name: String,
    /// Program and arguments; the program is searched in `PATH` (of `env`, else of the starter) unless it
    /// holds a `/`.
    pub argv: Vec<String>,
    /// Variables added to the starter's environment, or replacing it where `env_clear`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether to start from an empty environment.
    #[serde(default)]
    pub env_clear: bool,
    /// Patterns of the starter's variables that it gets (`*` stands for any text), beside `PATH`, the language, the time
    /// zone and `TERM`, but never those by which systemd speaks to the starter; `None` passes all on.
    #[serde(default)]
    pub env_pass: Option<Vec<String>>,
    /// Working directory.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Permissions that new files do not get.
    #[serde(default)]
    pub umask: Option<u32>,
    /// Whether it and its descendants may never gain rights by `exec` (setuid bits, capabilities of files).
    #[serde(default)]
    pub no_new_privileges: bool,
    /// What of the file system it sees, and where it may write; `None` leaves it as it is.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// User, by name or number; also sets its supplementary groups.
    #[serde(default)]
    pub user: Option<String>,
    /// Group, by name or number; else the user's own.
    #[serde(default)]
    pub group: Option<String>,
    /// The only capabilities that it and its descendants may ever have (bounding and ambient sets);
    /// `None` leaves them as a plain `exec` would.
    #[serde(default)]
    pub capabilities: Option<Vec<Capability>>,
    /// Resource limits.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Scheduling class; `None` leaves the starter's.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Nice value, as systemd's `Nice=`: of time-sharing threads; one in a real-time class has no use for it.
    #[serde(default)]
    pub nice: Option<i8>,
    /// Whether its children start as `other`. Always set for DEADLINE (the kernel refuses `fork` without).
    #[serde(default)]
    pub reset_on_fork: bool,
    /// CPUs on which it may run.
    #[serde(default)]
    pub cpus: Option<CpuSet>,
    /// Control group directories that it joins before anything else is set (a cpuset, a freezer).
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// NUMA node to which its memory is bound.
    #[serde(default)]
    pub numa_node: Option<u16>,
    /// Whether all its memory, present and future, is locked.
    #[serde(default)]
    pub mlock: bool,
    /// `oom_score_adj`, -1000 to 1000.
    #[serde(default)]
    pub oom_score: Option<i16>,
    /// What its standard streams are.
    #[serde(default)]
    pub terminal: Terminal,
    /// File to which its output is added, for [`Terminal::Null`].
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// Longest silence of its heartbeat: it is asked for signs of life as systemd asks (`WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[serde(default)]
    pub watchdog: Option<DurNs>,
    /// Descriptors handed over.
    #[serde(default)]
    pub inherit: Vec<InheritedFd>,
    /// Whether a refused class, CPU list or memory lock is an error (else a [`Shortfall`]).
    #[serde(default)]
    pub require_rt: bool,
}

impl LaunchSpec {
    /// A process that inherits everything.
    #[must_use]
    pub fn new(name: impl Into<String>, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name: name.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            env_clear: false,
            env_pass: None,
            dir: None,
            umask: None,
            no_new_privileges: false,
            sandbox: None,
            user: None,
            group: None,
            capabilities: None,
            limits: Vec::new(),
            policy: None,
            nice: None,
            reset_on_fork: false,
            cpus: None,
            cgroups: Vec::new(),
            numa_node: None,
            mlock: false,
            oom_score: None,
            terminal: Terminal::Inherit,
            output: None,
            watchdog: None,
            inherit: Vec::new(),
            require_rt: false,
        }
    }
}

/// What a process has as standard input, output and error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Terminal {
    /// The starter's own.
    #[default]
    Inherit,
    /// A terminal of its own (pty), whose other end the keeper holds: needed for a console.
    Pty,
    /// Output and error through pipes to the keeper, input empty.
    Pipes,
    /// `/dev/null`.
    Null,
}

/// An open descriptor of the starter that the process gets, under a number told in a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InheritedFd {
    /// The environment variable that tells the process its number, such as `TAHTI_LOOP_FD`.
    pub variable: String,
    /// The starter's descriptor.
    pub fd: i32,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// What is limited.
    pub resource: Resource,
    /// The soft and hard limit; `None` is unlimited. Unit: the resource's (bytes, files, microseconds).
    pub value: Option<u64>,
}

/// What can be limited (`setrlimit(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Address space, bytes.
    AddressSpace,
    /// Core file, bytes.
    Core,
    /// Open files.
    Files,
    /// Locked memory, bytes.
    Locked,
    /// Highest real-time priority that it may ask for.
    RtPriority,
    /// Processor time that a real-time thread may burn without a blocking call, microseconds: SIGXCPU
    /// each second beyond, and SIGKILL at the hard limit.
    RtTime,
    /// Stack of the first thread, bytes.
    Stack,
}

/// Something wanted that could not be had, though the process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shortfall {
    /// What was wanted: `class fifo:80`.
    pub wanted: String,
    /// What the kernel answered, or what is missing.
    pub found: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}; {}", self.wanted, self.found, self.remedy)
    }
}

/// A Linux capability (`capabilities(7)`), written as there: `CAP_SYS_NICE` (case and prefix may be left out).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u8);

const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

impl Capability {
    /// Locking memory beyond the limit.
    pub const IPC_LOCK: Self = Self(14);
    /// Real-time classes, CPU masks of others.
    pub const SYS_NICE: Self = Self(23);
    /// Raising hard limits.
    pub const SYS_RESOURCE: Self = Self(24);
    /// Tracing other processes.
    pub const SYS_PTRACE: Self = Self(19);

    /// Its number in the kernel's sets.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its bit in the kernel's sets.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A capability that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a capability such as CAP_SYS_NICE, found {0:?}")]
pub struct CapabilityError(String);

impl FromStr for Capability {
    type Err = CapabilityError;

    fn from_str(text: &str) -> Result<Self, CapabilityError> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
        match CAPABILITIES.iter().position(|known| *known == name) {
            Some(number) => Ok(Self(number as u8)),
            None => Err(CapabilityError(text.to_owned())),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CAP_{}", CAPABILITIES[usize::from(self.0)])
    }
}

impl Serialize for Capability {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_survives_a_trip_through_json() {
        let mut spec = LaunchSpec::new("llrf", ["/bin/true", "--flag"]);
        spec.policy = Some("fifo:80".parse().unwrap());
        spec.cpus = Some("2-3".parse().unwrap());
        spec.capabilities = Some(vec![Capability::SYS_NICE, Capability::IPC_LOCK]);
        spec.limits = vec![Limit { resource: Resource::Locked, value: None }];
        spec.terminal = Terminal::Pty;
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<LaunchSpec>(&text).unwrap(), spec, "{text}");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = serde_json::from_str::<LaunchSpec>(r#"{"name":"a","argv":["b"],"prority":1}"#).unwrap_err();
        assert!(error.to_string().contains("prority"), "{error}");
    }

    #[test]
    fn capabilities_are_read_as_people_write_them() {
        for text in ["CAP_SYS_NICE", "sys_nice", "cap_sys_nice"] {
            assert_eq!(text.parse(), Ok(Capability::SYS_NICE), "{text}");
        }
        assert_eq!("CAP_IPC_LOCK".parse(), Ok(Capability::IPC_LOCK));
        assert_eq!("CAP_CHECKPOINT_RESTORE".parse::<Capability>().unwrap().number(), 40);
        assert!("CAP_NICE".parse::<Capability>().unwrap_err().to_string().contains("CAP_NICE"));
    }
}
