//! Events of the kernel's tracepoints.

use base::{CpuId, CpuSet, MonoNs};
use serde::{Deserialize, Serialize};

/// Name of a task, as in `/proc/PID/comm`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// Makes a name, truncated to 15 bytes.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let mut name = [0; 16];
        name.iter_mut().zip(text.iter().take(15)).for_each(|(to, from)| *to = *from);
        Self(name)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(16);
        write!(f, "{}", base::OneLine(&String::from_utf8_lossy(&self.0[..end])))
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A task, as described by an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its thread id.
    pub tid: i32,
    /// The kernel's priority: below 0 deadline, 0–98 real-time (99 minus the FIFO or RR priority), 100–139 time sharing.
    pub prio: i32,
    /// Its name.
    pub name: Name,
}

/// An interrupt vector other than a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vector {
    /// The CPU's own timer.
    LocalTimer,
    /// Another CPU requests a reschedule.
    Reschedule,
    /// Another CPU requests a function call.
    CallFunction,
    /// The same, sent to a single CPU.
    CallFunctionSingle,
    /// Work deferred until interrupts are enabled.
    IrqWork,
    /// Thermal event.
    Thermal,
    /// Error of the interrupt controller.
    Controller,
}

impl Vector {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LocalTimer => "local timer",
            Self::Reschedule => "reschedule",
            Self::CallFunction | Self::CallFunctionSingle => "function call",
            Self::IrqWork => "irq work",
            Self::Thermal => "thermal",
            Self::Controller => "interrupt controller",
        }
    }
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A CPU switches from one task to another.
    Switch {
        /// Previous task.
        from: Task,
        /// Its state: 0 runnable; bit 0 interruptible sleep, bit 1 uninterruptible sleep, bits 2 and 3 stopped, bit 8 preempted.
        state: u64,
        /// Next task.
        to: Task,
    },
    /// A task is woken.
    Waking {
        /// The task.
        task: Task,
        /// The CPU it last ran on.
        cpu: CpuId,
    },
    /// A task is moved to another CPU.
    Migrate {
        /// Its thread id.
        tid: i32,
        /// The new CPU.
        cpu: CpuId,
    },
    /// A task ends.
    Exit {
        /// Its thread id.
        tid: i32,
    },
    /// A task's priority changes because of a lock that it holds.
    Lent {
        /// Its thread id.
        tid: i32,
        /// Previous priority.
        from: i32,
        /// New priority.
        to: i32,
    },
    /// A timer is initialized.
    TimerSetup {
        /// Its address.
        timer: u64,
        /// Its clock: 0 wall time, 1 monotonic, 7 since boot, 11 TAI.
        clock: i32,
        /// Whether it will be armed with a relative time, which makes wall time monotonic.
        relative: bool,
    },
    /// A timer is armed.
    TimerStart {
        /// Its address.
        timer: u64,
        /// Its callback.
        function: u64,
        /// Latest expiry, in its clock's nanoseconds.
        expires: i64,
        /// Earliest expiry, in its clock's nanoseconds.
        soft: i64,
    },
    /// A timer is cancelled.
    TimerCancel {
        /// Its address.
        timer: u64,
    },
    /// A timer expires.
    TimerFire {
        /// Its address.
        timer: u64,
        /// Its callback.
        function: u64,
    },
    /// A timer's callback returns.
    TimerFired {
        /// Its address.
        timer: u64,
    },
    /// Entry of an interrupt other than a device's.
    VectorEntry(Vector),
    /// Exit of such an interrupt.
    VectorExit(Vector),
    /// Entry of a device's interrupt handler.
    IrqEntry {
        /// Its number.
        irq: i32,
        /// Its name, truncated.
        name: Name,
    },
    /// Exit of a device's interrupt handler.
    IrqExit {
        /// Its number.
        irq: i32,
    },
    /// Entry of a softirq.
    SoftirqEntry {
        /// Its number.
        vec: u32,
    },
    /// Exit of a softirq.
    SoftirqExit {
        /// Its number.
        vec: u32,
    },
    /// A kernel worker starts a work item.
    WorkStart {
        /// Its function.
        function: u64,
    },
    /// The work item ends.
    WorkEnd,
    /// Page fault.
    PageFault {
        /// Whether it occurred in user mode.
        user: bool,
    },
    /// A CPU enters or leaves an idle state.
    Idle {
        /// The idle state; `None`: leaves it.
        state: Option<u32>,
    },
    /// A non-maskable interrupt (NMI) was handled.
    Nmi {
        /// Its handler.
        handler: u64,
        /// Its duration in nanoseconds.
        ns: i64,
    },
    /// An inter-processor interrupt is sent.
    IpiSent {
        /// The target CPUs.
        cpus: CpuSet,
        /// The function to be called there.
        callback: u64,
    },
    /// A function call is queued for a CPU, which then receives an interrupt.
    CallQueued {
        /// The target CPU.
        cpu: CpuId,
        /// The function.
        function: u64,
    },
    /// A system call starts.
    SyscallEntry {
        /// Its number.
        number: i64,
    },
    /// A system call ends.
    SyscallExit,
    /// An event that the program itself reported.
    Program {
        /// Its name.
        name: Name,
        /// Its number.
        value: i64,
    },
    /// Kernel stack at the previous event, innermost function first.
    Stack {
        /// Code addresses.
        callers: Vec<u64>,
    },
}

/// An event with time and place.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time.
    pub at: MonoNs,
    /// CPU.
    pub cpu: CpuId,
    /// The thread that was running there; 0: idle.
    pub tid: i32,
    /// Whether it happened in an interrupt (hard or soft), and not on behalf of that thread.
    pub interrupt: bool,
    /// Content.
    pub what: EventKind,
}

/// An event that a thread itself reported, as stored and displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEvent {
    /// Time.
    #[serde(rename = "at_ns")]
    pub at: MonoNs,
    /// The CPU that the thread had.
    pub cpu: CpuId,
    /// The thread.
    pub tid: i32,
    /// Name.
    pub name: String,
    /// Number.
    pub value: i64,
}

impl From<&ProgramEvent> for Event {
    fn from(of: &ProgramEvent) -> Self {
        let what = EventKind::Program { name: Name::of(of.name.as_bytes()), value: of.value };
        Self { at: of.at, cpu: of.cpu, tid: of.tid, interrupt: false, what }
    }
}
