//! Controllers of control groups, and their counter files.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A controller of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// Counts processor time, in version 1 only.
    Account,
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Block devices.
    Io,
}

/// A version of the kernel's control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
    /// No control groups: groups of resctrl, which divide cache and memory bandwidth.
    Resctrl,
}

/// Files of a limit with a usage counter.
#[derive(Debug)]
pub struct Counted {
    /// The limit.
    pub max: &'static str,
    /// Present use.
    pub used: &'static str,
    /// Peak use.
    pub peak: &'static str,
    /// The file that counts how often the limit took effect, and the name of that counter.
    pub met: (&'static str, &'static str),
}

static MEMORY: [Counted; 2] = [
    Counted { max: "memory.max", used: "memory.current", peak: "memory.peak", met: ("memory.events", "oom_kill") },
    Counted {
        max: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        peak: "memory.max_usage_in_bytes",
        met: ("memory.oom_control", "oom_kill"),
    },
];

static PIDS: [Counted; 1] =
    [Counted { max: "pids.max", used: "pids.current", peak: "pids.peak", met: ("pids.events", "max") }];

impl Controller {
    /// All.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Account, Self::Memory, Self::Pids, Self::Io];

    /// Name in a version.
    #[must_use]
    pub const fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Cpu, _) => "cpu",
            (Self::Account, _) => "cpuacct",
            (Self::Memory, _) => "memory",
            (Self::Pids, _) => "pids",
            (Self::Io, Version::V1) => "blkio",
            (Self::Io, Version::V2 | Version::Resctrl) => "io",
        }
    }

    /// Its counter files in both versions, version 2 first; empty if it has none.
    #[must_use]
    pub fn counted(self) -> &'static [Counted] {
        match self {
            Self::Memory => &MEMORY,
            Self::Pids => &PIDS,
            Self::Cpu | Self::Account | Self::Io => &[],
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name(Version::V2))
    }
}

impl FromStr for Controller {
    type Err = &'static str;

    /// Accepts the name of either version.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is = |one: &Self| text == one.name(Version::V1) || text == one.name(Version::V2);
        Self::ALL.into_iter().find(is).ok_or("a controller: cpu, cpuacct, memory, pids, io or blkio")
    }
}
