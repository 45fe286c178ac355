//! Settings of a process at its start: plain values that can be stored as JSON.

use base::{CpuSet, DurNs, Policy};
use host::plant::Sandbox;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A process to be started. Settings at their default are inherited from the starter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Name in messages and file names.
    pub name: String,
    /// Program and arguments. The program is searched in `PATH` (of `env`, else of the starter) unless it contains a
    /// `/`.
    #[serde(with = "words")]
    pub argv: Vec<OsString>,
    /// Variables added to the starter's environment, or replacing it with `env_clear`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the environment starts empty.
    #[serde(default)]
    pub env_clear: bool,
    /// Patterns of the starter's variables that the process gets (`*` matches any text), in addition to `PATH`, the
    /// language, the time zone and `TERM`. Variables of systemd's protocol with the starter are then never passed. `None`
    /// passes all variables.
    #[serde(default)]
    pub env_pass: Option<Vec<String>>,
    /// Working directory.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Permission bits that new files do not get.
    #[serde(default)]
    pub umask: Option<u32>,
    /// Whether the process and its descendants can never gain privileges by `exec` (setuid bits, file capabilities).
    #[serde(default)]
    pub no_new_privileges: bool,
    /// Visible and writable parts of the file system; `None` changes nothing.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// User, by name or number. Also sets its supplementary groups.
    #[serde(default)]
    pub user: Option<String>,
    /// Group, by name or number; default is the user's group.
    #[serde(default)]
    pub group: Option<String>,
    /// The only capabilities that the process and its descendants can have (bounding and ambient sets). `None` leaves
    /// them as a plain `exec` would.
    #[serde(default)]
    pub capabilities: Option<Vec<Capability>>,
    /// Resource limits.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Scheduling class; `None` keeps the starter's.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Nice value of time-sharing threads, as systemd's `Nice=`. It has no effect on a real-time class.
    #[serde(default)]
    pub nice: Option<i8>,
    /// Whether its children start as `other`. Always set for DEADLINE, because the kernel refuses `fork` otherwise.
    #[serde(default)]
    pub reset_on_fork: bool,
    /// CPUs on which the process may run.
    #[serde(default)]
    pub cpus: Option<CpuSet>,
    /// Directories of control groups (a cpuset, a freezer) that the process joins before anything else is set.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// NUMA node that its memory is bound to.
    #[serde(default)]
    pub numa_node: Option<u16>,
    /// Whether all its present and future memory is locked.
    #[serde(default)]
    pub mlock: bool,
    /// `oom_score_adj`, -1000 to 1000.
    #[serde(default)]
    pub oom_score: Option<i16>,
    /// Standard streams.
    #[serde(default)]
    pub terminal: Terminal,
    /// File to which output is appended, for [`Terminal::Null`].
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// Heartbeat timeout. The process is asked for heartbeats in systemd's way (`WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[serde(default)]
    pub watchdog: Option<DurNs>,
    /// Descriptors passed to the process.
    #[serde(default)]
    pub inherit: Vec<InheritedFd>,
    /// Whether a refused class, CPU list or memory lock is an error. Otherwise it is a [`Shortfall`].
    #[serde(default)]
    pub require_rt: bool,
}

impl LaunchSpec {
    /// A process that inherits everything.
    #[must_use]
    pub fn new(name: impl Into<String>, argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
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

/// Words of a command in JSON: as text, or as a list of bytes where they are not UTF-8.
mod words {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Word {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(words: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        let word = |word: &OsString| match word.to_str() {
            Some(text) => Word::Text(text.to_owned()),
            None => Word::Bytes(word.as_bytes().to_vec()),
        };
        words.iter().map(word).collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        let words = Vec::<Word>::deserialize(from)?;
        let word = |word| match word {
            Word::Text(text) => OsString::from(text),
            Word::Bytes(bytes) => OsString::from_vec(bytes),
        };
        Ok(words.into_iter().map(word).collect())
    }
}

/// Standard input, output and error of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Terminal {
    /// Those of the starter.
    #[default]
    Inherit,
    /// A separate terminal (pty). The keeper holds the other end; a console needs this.
    Pty,
    /// A pty that does not control the session. When the session's first process ends, the kernel sends no SIGHUP to the
    /// others, so one of them may be the main process. If the starter ends, the first process still gets SIGHUP.
    FreePty,
    /// Output and error go through pipes to the keeper; input is empty.
    Pipes,
    /// `/dev/null`.
    Null,
}

/// An open descriptor of the starter that the process inherits. An environment variable contains its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InheritedFd {
    /// Environment variable with the number, such as `TAHTI_LOOP_FD`.
    pub variable: String,
    /// The starter's descriptor.
    pub fd: i32,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The limited resource.
    pub resource: Resource,
    /// The soft and hard limit; `None` is unlimited. Unit: the resource's (bytes, files, microseconds).
    pub value: Option<u64>,
}

/// Resources that can be limited (`setrlimit(2)`).
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
    /// Maximum real-time priority.
    RtPriority,
    /// Processor time of a real-time thread without a blocking call, in microseconds. The kernel sends SIGXCPU for each
    /// second beyond the limit, and SIGKILL at the hard limit.
    RtTime,
    /// Stack of the first thread, bytes.
    Stack,
}

/// A request that was not fulfilled although the process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shortfall {
    /// The request: `class fifo:80`.
    pub wanted: String,
    /// The kernel's error, or the missing thing.
    pub found: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}; {}", self.wanted, self.found, self.remedy)
    }
}

/// A Linux capability in the notation of `capabilities(7)`: `CAP_SYS_NICE` (case and prefix are optional).
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
    /// Allows locking memory beyond the limit.
    pub const IPC_LOCK: Self = Self(14);
    /// Allows real-time classes, and CPU masks of other processes.
    pub const SYS_NICE: Self = Self(23);

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
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn a_spec_survives_a_round_trip_through_json() {
        let mut spec = LaunchSpec::new("llrf", ["/bin/true", "--flag"]);
        spec.policy = Some("fifo:80".parse().unwrap());
        spec.cpus = Some("2-3".parse().unwrap());
        spec.capabilities = Some(vec![Capability::SYS_NICE, Capability::IPC_LOCK]);
        spec.limits = vec![Limit { resource: Resource::Locked, value: None }];
        spec.terminal = Terminal::Pty;
        spec.argv.push(OsString::from_vec(b"caf\xe9".to_vec()));
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains(r#""/bin/true","--flag",[99,97,102,233]"#), "{text}");
        assert_eq!(serde_json::from_str::<LaunchSpec>(&text).unwrap(), spec, "{text}");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = serde_json::from_str::<LaunchSpec>(r#"{"name":"a","argv":["b"],"prority":1}"#).unwrap_err();
        assert!(error.to_string().contains("prority"), "{error}");
    }

    #[test]
    fn capabilities_are_parsed_in_their_common_forms() {
        for text in ["CAP_SYS_NICE", "sys_nice", "cap_sys_nice"] {
            assert_eq!(text.parse(), Ok(Capability::SYS_NICE), "{text}");
        }
        assert_eq!("CAP_IPC_LOCK".parse(), Ok(Capability::IPC_LOCK));
        assert_eq!("CAP_CHECKPOINT_RESTORE".parse::<Capability>().unwrap().number(), 40);
        assert!("CAP_NICE".parse::<Capability>().unwrap_err().to_string().contains("CAP_NICE"));
    }
}
