//! Who made a thread late, and by how much.

use base::{CpuId, MonoNs};
use serde::Serialize;
use std::fmt;

/// Who or what took a part of a delay. Equal ones are one line of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Culprit {
    /// The hypervisor did not run this CPU, and there is evidence.
    Host {
        /// Which evidence.
        evidence: &'static str,
    },
    /// The timer's interrupt came late while something ran: the host took the CPU, or interrupts were masked.
    HostOrMasked {
        /// What ran.
        under: String,
    },
    /// A handler of an interrupt took longer than such a one does: the host took the CPU in its middle, or it is really that long.
    HostOrHandler {
        /// Which handler.
        handler: String,
    },
    /// Interrupts were masked, and there is evidence.
    Masked {
        /// The kernel's function that masked them.
        function: String,
        /// Whose turn it was.
        task: String,
    },
    /// An idle CPU woke late although no host is there: hardware or firmware.
    Hardware,
    /// A CPU left its idle state.
    IdleExit,
    /// The kernel may let timers of ordinary threads fire late.
    TimerSlack,
    /// The timer's own interrupt.
    Timer,
    /// What another timer called.
    TimerCallback {
        /// The kernel's function.
        function: String,
    },
    /// A device's interrupt.
    Interrupt {
        /// Its number.
        irq: i32,
        /// Its name.
        name: String,
    },
    /// An interrupt from another CPU, or of the CPU's own.
    Vector {
        /// Which.
        vector: &'static str,
        /// Who sent it, where that was seen.
        from: Option<String>,
    },
    /// A soft interrupt.
    Softirq {
        /// Which.
        name: String,
    },
    /// An interrupt that cannot be masked.
    Nmi {
        /// Its handler.
        handler: String,
    },
    /// Another thread ran, by right of its priority.
    Preempted {
        /// Which.
        task: String,
        /// Its class and priority.
        class: String,
    },
    /// Another thread of time sharing ran first.
    SameClass {
        /// Which.
        task: String,
    },
    /// Another thread ran by a priority that it had from a lock.
    Lent {
        /// Which.
        task: String,
    },
    /// A less urgent thread was in kernel code that does not give way.
    Kernel {
        /// Which.
        task: String,
        /// What it did there, as far as is known.
        doing: String,
    },
    /// The scheduler gave the time to a less urgent thread (real-time throttling, a quota, the fair server).
    Throttled {
        /// Which.
        task: String,
    },
    /// The thread waited for another one.
    Blocked {
        /// Who woke it.
        waker: String,
    },
    /// The thread was stopped by a signal or a debugger.
    Stopped,
    /// The thread itself ran.
    Own {
        /// Whether it faulted pages in all the while.
        faulting: bool,
    },
    /// Nothing that was recorded tells.
    Unexplained,
}

impl Culprit {
    /// Whether this part was the host's for certain.
    #[must_use]
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// Whether this part may have been the host's, and nothing tells it from this kernel's own doing.
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
                write!(f, "kernel code of {task} that does not give way")
            }
            Self::Kernel { task, doing } => write!(f, "kernel code of {task} that does not give way ({doing})"),
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
    /// From when.
    #[serde(rename = "from_ns")]
    pub from: MonoNs,
    /// How long.
    #[serde(rename = "part_ns")]
    pub ns: u64,
    /// Who.
    pub culprit: Culprit,
}

/// On what occasion something was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// A timer was to wake the thread.
    Timer,
    /// Another thread or an interrupt woke it.
    Event,
    /// It ran longer from its wake-up to its next sleep than it may.
    Cycle,
}

/// One late wake-up, or one long cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Late {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// On what occasion.
    pub occasion: Occasion,
    /// Where it ran at last.
    pub cpu: CpuId,
    /// When it was to run; of a cycle, when it began.
    #[serde(rename = "due_ns")]
    pub due: MonoNs,
    /// When it ran; of a cycle, when it ended.
    #[serde(rename = "ran_ns")]
    pub ran: MonoNs,
    /// Who took it: without a gap from `due` to `ran`.
    pub parts: Vec<DelayPart>,
    /// Pages that it faulted in meanwhile.
    pub faults: u32,
    /// Where the kernel was when the timer's interrupt came, innermost first, where that was asked for.
    pub stack: Vec<String>,
}

impl Late {
    /// The whole delay in nanoseconds: exactly the sum of its parts.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        self.ran.0 - self.due.0
    }

    /// The culprit with the largest part.
    #[must_use]
    pub fn worst(&self) -> Option<&Culprit> {
        self.by_culprit().into_iter().next().map(|(culprit, _)| culprit)
    }

    /// Each culprit with the sum of its parts, the largest first.
    #[must_use]
    pub fn by_culprit(&self) -> Vec<(&Culprit, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        self.parts.iter().for_each(|part| *sums.entry(&part.culprit).or_insert(0) += part.ns);
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        sums
    }
}
