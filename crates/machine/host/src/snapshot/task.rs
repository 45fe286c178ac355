//! A thread as a plan sees it.

use base::{CpuSet, Policy, Priority};
use proc::task_stat::Stat;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its own name.
    pub comm: String,
    /// The process that it belongs to.
    pub tgid: i32,
    /// The parent process.
    pub ppid: i32,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Whether the kernel bound it and refuses to move it ([`Stat::is_bound`]).
    pub bound: bool,
    /// How it is scheduled.
    pub class: Class,
    /// The CPUs on which it may run.
    pub cpus: CpuSet,
    /// A mask that was set for this thread and is not just its cpuset's. Found by comparing, since the
    /// kernel does not tell.
    pub own: Option<CpuSet>,
    /// Its cpuset, `/` at the top; `None` where there are no cpusets.
    pub cpuset: Option<String>,
}

/// A scheduling class, as far as `/proc` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Time sharing or a fixed priority, with its parameters.
    Of(Policy),
    /// A reservation, whose times are not told.
    Deadline,
    /// One that this build does not know.
    Unknown,
}

impl Class {
    /// The class in a task's line of `stat`.
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

/// Where a task may run: its cpuset, and its mask within.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The cpuset, `/` at the top; `None` where there are no cpusets.
    pub cpuset: Option<String>,
    /// The mask.
    pub cpus: CpuSet,
    /// Whether the mask was set for this task, or is just what its cpuset offers: then it is never
    /// written, so that the task goes on following its cpuset.
    pub own: bool,
}

impl Placement {
    /// Whether a task at either place may run on the same CPUs for the same reason, as far as can be read.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        self.cpuset == other.cpuset && self.cpus == other.cpus
    }
}

impl Task {
    /// Where it may run.
    #[must_use]
    pub fn place(&self) -> Placement {
        Placement { cpuset: self.cpuset.clone(), cpus: self.cpus, own: self.own == Some(self.cpus) }
    }

    /// The interrupt whose handler this kernel thread runs (`irq/25-eth0`): the kernel lets the thread follow the
    /// interrupt from CPU to CPU.
    #[must_use]
    pub fn handles_irq(&self) -> Option<u32> {
        let rest = self.comm.strip_prefix("irq/").filter(|_| self.kernel)?;
        rest.split('-').next()?.parse().ok()
    }

    /// Takes the mask that the kernel gives it in a cpuset that offers `effective`: what was set for it as
    /// far as that is offered, else all that is offered.
    pub fn follow(&mut self, effective: &CpuSet) {
        if self.bound {
            return;
        }
        let own = self.own.map(|own| own.and(effective)).filter(|own| !own.is_empty());
        self.cpus = own.unwrap_or(*effective);
    }
}
