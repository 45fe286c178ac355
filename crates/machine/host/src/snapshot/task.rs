//! A thread, as far as plans need it.

use base::{CpuSet, Policy, Priority};
use proc::task_stat::Stat;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Name of the thread.
    pub comm: String,
    /// ID of its process.
    pub tgid: i32,
    /// ID of the parent process.
    pub ppid: i32,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// Whether the kernel bound it and refuses to move it ([`Stat::is_bound`]).
    pub bound: bool,
    /// Scheduling class.
    pub class: Class,
    /// CPUs on which it may run.
    pub cpus: CpuSet,
    /// A mask that was set for this thread, in contrast to the mask of its cpuset. Found by comparison, because the
    /// kernel does not report it.
    pub own: Option<CpuSet>,
    /// Path of its cpuset, `/` at the top; `None` without cpusets.
    pub cpuset: Option<String>,
}

/// A scheduling class, with the parameters that `/proc` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Time sharing or a fixed priority, with its parameters.
    Of(Policy),
    /// A DEADLINE reservation. `/proc` does not report its times.
    Deadline,
    /// A class that this version of tahti does not support.
    Unknown,
}

impl Class {
    /// Parses the class in a task's line of `stat`.
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        let (priority, nice) = (Priority(stat.rt_priority), stat.nice);
        match stat.policy {
            0 => Self::Of(Policy::Other { nice }),
            1 => Self::Of(Policy::Fifo(priority)),
            2 => Self::Of(Policy::Rr(priority)),
            3 => Self::Of(Policy::Batch { nice }),
            5 => Self::Of(Policy::Idle),
            6 => Self::Deadline,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(policy) => policy.fmt(f),
            Self::Deadline => f.write_str("deadline"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// CPUs on which a task may run: its cpuset, and its mask within the cpuset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Path of the cpuset, `/` at the top; `None` without cpusets.
    pub cpuset: Option<String>,
    /// The mask.
    pub cpus: CpuSet,
    /// Whether the mask was set for this task. If not, it is the mask of the cpuset and is never written, so that the
    /// task continues to follow its cpuset.
    pub own: bool,
}

impl Placement {
    /// Whether two placements are equal, as far as the kernel reports them.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        self.cpuset == other.cpuset && self.cpus == other.cpus
    }
}

impl Task {
    /// Placement of the task.
    #[must_use]
    pub fn place(&self) -> Placement {
        Placement { cpuset: self.cpuset.clone(), cpus: self.cpus, own: self.own == Some(self.cpus) }
    }

    /// Number of the interrupt whose handler this kernel thread runs (`irq/25-eth0`). The kernel lets such a thread
    /// follow its interrupt from CPU to CPU.
    #[must_use]
    pub fn handles_irq(&self) -> Option<u32> {
        let rest = self.comm.strip_prefix("irq/").filter(|_| self.kernel)?;
        rest.split('-').next()?.parse().ok()
    }

    /// Applies the mask that the kernel gives the task in a cpuset with the CPUs `effective`: the CPUs of its own mask
    /// that are in `effective`, or all of `effective` if there are none.
    pub fn follow(&mut self, effective: &CpuSet) {
        if self.bound {
            return;
        }
        let own = self.own.map(|own| own.and(effective)).filter(|own| !own.is_empty());
        self.cpus = own.unwrap_or(*effective);
    }
}
