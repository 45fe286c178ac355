//! Reasons why a shield is impossible: all at once, each with its remedy.

use base::{CpuId, CpuSet};
use std::fmt;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No CPU was given.
    NoCpus,
    /// CPUs that the machine does not have.
    Impossible {
        /// The missing CPUs.
        cpus: CpuSet,
        /// The CPUs that are online.
        online: CpuSet,
    },
    /// CPUs that are offline.
    Offline {
        /// The offline CPUs.
        cpus: CpuSet,
    },
    /// No CPU would remain for other tasks.
    AllCpus {
        /// All CPUs that are online.
        online: CpuSet,
    },
    /// Another program's cpuset has these CPUs exclusively.
    Overlap {
        /// Directory of that cpuset.
        dir: String,
        /// The CPUs in both.
        cpus: CpuSet,
    },
    /// A cpuset would be left without any CPU.
    OnlyHere {
        /// Directory of that cpuset.
        dir: String,
        /// Its CPUs.
        cpus: CpuSet,
    },
    /// An interrupt is to be placed on a CPU outside of the shield.
    Elsewhere {
        /// Words that identify the interrupt.
        interrupt: String,
        /// The requested CPU.
        cpu: CpuId,
        /// The shield.
        shield: CpuSet,
    },
    /// DEADLINE reservations on these CPUs, which the kernel refuses to move.
    Deadline {
        /// All such reservations.
        tasks: Vec<Reserved>,
    },
}

/// A thread with a DEADLINE reservation and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub comm: String,
    /// Process of the thread: ID and name.
    pub process: (i32, String),
    /// Plant and process name in that plant, if the process belongs to one.
    pub plant: Option<(String, String)>,
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tid, comm, process: (pid, process), plant } = self;
        write!(f, "thread {tid} ({comm}) of process {pid} ({process})")?;
        match plant {
            Some((plant, name)) => write!(
                f,
                ", which is {name} of plant {plant}\n  try: tahti stop --plant {plant} {name}, apply the shield, and start it again; \
                 or declare [shield] in the file of that plant"
            ),
            None => write!(
                f,
                "\n  try: end process {pid}, or give the thread another class (chrt --fifo --pid 50 {tid}), and apply the shield again"
            ),
        }
    }
}

/// All reasons why a shield is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanErrors(pub Vec<PlanError>);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpus => f.write_str("no CPU to shield: name them, such as --cpus 2-3"),
            Self::Impossible { cpus, online } => {
                write!(f, "this machine has no CPU {cpus}: its CPUs are {online}")
            }
            Self::Offline { cpus } => {
                write!(
                    f,
                    "CPUs {cpus} are offline: switch them on (/sys/devices/system/cpu/cpuN/online) or leave them out"
                )
            }
            Self::AllCpus { online } => {
                write!(
                    f,
                    "all CPUs ({online}) would be shielded and none would remain for other tasks: exclude at least one"
                )
            }
            Self::Overlap { dir, cpus } => {
                write!(f, "{dir} already has CPUs {cpus} exclusively: shield other CPUs, or release that cpuset")
            }
            Self::OnlyHere { dir, cpus } => {
                write!(
                    f,
                    "{dir} has only CPUs {cpus}, all to be shielded: give its tasks other CPUs first, or shield others"
                )
            }
            Self::Elsewhere { interrupt, cpu, shield } => write!(
                f,
                "interrupt {interrupt:?} is to go to CPU {cpu}, which is not shielded (the shield is {shield}); name one of its CPUs"
            ),
            Self::Deadline { tasks } => {
                f.write_str("DEADLINE reservations keep these CPUs from being isolated:")?;
                tasks.iter().try_for_each(|task| write!(f, "\n{task}"))
            }
        }
    }
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter();
        if let Some(first) = lines.next() {
            first.fmt(f)?;
        }
        lines.try_for_each(|error| write!(f, "\n{error}"))
    }
}

impl std::error::Error for PlanErrors {}
