//! Culprits: the cause and size of each part of a thread's delay.

use crate::event::ProgramEvent;
use base::{CpuId, MonoNs};
use serde::Serialize;
use std::fmt;

/// Cause of a part of a delay. Equal causes share a line of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Culprit {
    /// The hypervisor did not run this CPU, with evidence.
    Host {
        /// The evidence.
        evidence: &'static str,
    },
    /// The timer's interrupt came late while a task ran: either the host took the CPU, or interrupts were masked.
    HostOrMasked {
        /// The running task or softirq.
        under: String,
    },
    /// An interrupt handler took longer than usual: either the host took the CPU during it, or it really is that long.
    HostOrHandler {
        /// The handler.
        handler: String,
    },
    /// Interrupts were masked, with evidence.
    Masked {
        /// The kernel function that masked them.
        function: String,
        /// The running task.
        task: String,
    },
    /// An idle CPU woke late although there is no hypervisor: hardware or firmware.
    Hardware,
    /// A CPU left an idle state.
    IdleExit,
    /// Timer slack of ordinary threads.
    TimerSlack,
    /// The timer's own interrupt.
    Timer,
    /// Callback of another timer.
    TimerCallback {
        /// The kernel function.
        function: String,
    },
    /// Interrupt of a device.
    Interrupt {
        /// Number of the interrupt.
        irq: i32,
        /// Name of the handler.
        name: String,
    },
    /// Inter-processor interrupt, or one of the CPU's own.
    Vector {
        /// Name of the vector.
        vector: &'static str,
        /// The sender, if recorded.
        from: Option<String>,
    },
    /// A softirq.
    Softirq {
        /// Name of the softirq.
        name: String,
    },
    /// Non-maskable interrupt (NMI).
    Nmi {
        /// Its handler.
        handler: String,
    },
    /// Another thread of higher or equal priority ran.
    Preempted {
        /// The other thread.
        task: String,
        /// Its class and priority.
        class: String,
    },
    /// Another time-sharing thread ran first.
    SameClass {
        /// The other thread.
        task: String,
    },
    /// Another thread ran with a priority inherited through a lock.
    Lent {
        /// The other thread.
        task: String,
    },
    /// A less urgent thread was in non-preemptible kernel code.
    Kernel {
        /// The other thread.
        task: String,
        /// Its activity there, if known.
        doing: String,
    },
    /// The scheduler ran a less urgent thread (real-time throttling, a quota, the fair server).
    Throttled {
        /// The other thread.
        task: String,
    },
    /// The thread waited for another one.
    Blocked {
        /// The thread that woke it.
        waker: String,
    },
    /// The thread was stopped by a signal or a debugger.
    Stopped,
    /// The thread itself ran.
    Own {
        /// It was faulting pages in during that time.
        faulting: bool,
    },
    /// Nothing in the recording explains this part.
    Unexplained,
}

impl Culprit {
    /// Whether the host certainly caused this part.
    #[must_use]
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// Whether the host may have caused this part, but the recording cannot distinguish it from the guest kernel.
    #[must_use]
    pub fn may_be_host(&self) -> bool {
        matches!(self, Self::HostOrMasked { .. } | Self::HostOrHandler { .. })
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { evidence } => write!(f, "host ({evidence})"),
            Self::HostOrMasked { under } => write!(f, "host or masked interrupts, under {under}"),
            Self::HostOrHandler { handler } => write!(f, "host or {handler}"),
            Self::Masked { function, task } => write!(f, "interrupts masked in {function} by {task}"),
            Self::Hardware => f.write_str("hardware or firmware (idle CPU woke late)"),
            Self::IdleExit => f.write_str("idle exit"),
            Self::TimerSlack => f.write_str("timer slack"),
            Self::Timer => f.write_str("timer interrupt"),
            Self::TimerCallback { function } => write!(f, "timer {function}"),
            Self::Interrupt { irq, name } => write!(f, "interrupt {irq} ({name})"),
            Self::Vector { vector, from: Some(from) } => write!(f, "{vector} interrupt from {from}"),
            Self::Vector { vector, from: None } => write!(f, "{vector} interrupt"),
            Self::Softirq { name } => write!(f, "softirq {name}"),
            Self::Nmi { handler } => write!(f, "NMI {handler}"),
            Self::Preempted { task, class } => write!(f, "preempted by {task} ({class})"),
            Self::SameClass { task } => write!(f, "{task} ran first (time sharing)"),
            Self::Lent { task } => write!(f, "{task}, with a priority lent through a lock"),
            Self::Kernel { task, doing } if doing.is_empty() => {
                write!(f, "non-preemptible kernel code of {task}")
            }
            Self::Kernel { task, doing } => write!(f, "non-preemptible kernel code of {task} ({doing})"),
            Self::Throttled { task } => write!(f, "throttled: the scheduler ran {task}"),
            Self::Blocked { waker } => write!(f, "waited for {waker}"),
            Self::Stopped => f.write_str("stopped by a signal"),
            Self::Own { faulting: false } => f.write_str("own code"),
            Self::Own { faulting: true } => f.write_str("own code, faulting pages in"),
            Self::Unexplained => f.write_str("unexplained"),
        }
    }
}

/// One part of a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DelayPart {
    /// Start.
    #[serde(rename = "from_ns")]
    pub from: MonoNs,
    /// Length in nanoseconds.
    #[serde(rename = "part_ns")]
    pub ns: u64,
    /// Cause.
    pub culprit: Culprit,
}

/// The kind of delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// Late wake-up by a timer.
    Timer,
    /// Late wake-up by another thread or an interrupt.
    Event,
    /// The time from wake-up to the next sleep exceeded its limit.
    Cycle,
}

/// A late wake-up or a long cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Late {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The kind of delay.
    pub occasion: Occasion,
    /// The CPU it finally ran on.
    pub cpu: CpuId,
    /// When it should have run; for a cycle, its start.
    #[serde(rename = "due_ns")]
    pub due: MonoNs,
    /// When it ran; for a cycle, its end.
    #[serde(rename = "ran_ns")]
    pub ran: MonoNs,
    /// Causes, contiguous from `due` to `ran`.
    pub parts: Vec<DelayPart>,
    /// Page faults of the thread during the delay.
    pub faults: u32,
    /// Kernel stack at the timer's interrupt, innermost function first, if recorded.
    pub stack: Vec<String>,
    /// The last events that the thread itself reported before `ran`, in order.
    pub program_events: Vec<ProgramEvent>,
}

impl Late {
    /// The whole delay in nanoseconds; equals the sum of its parts.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        self.ran.0 - self.due.0
    }

    /// The culprit with the largest total.
    #[must_use]
    pub fn worst(&self) -> Option<&Culprit> {
        self.by_culprit().into_iter().next().map(|(culprit, _)| culprit)
    }

    /// Each culprit with the sum of its parts, largest first.
    #[must_use]
    pub fn by_culprit(&self) -> Vec<(&Culprit, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        self.parts.iter().for_each(|part| *sums.entry(&part.culprit).or_insert(0) += part.ns);
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        sums
    }
}
