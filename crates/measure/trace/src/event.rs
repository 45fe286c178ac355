//! What happened, in the words of the kernel's tracepoints.

use base::{CpuId, CpuSet, MonoNs};

/// A task's name: what `/proc/PID/comm` says.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// As much of a name as fits.
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

/// A task, as an event names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its thread id.
    pub tid: i32,
    /// The kernel's priority: below 0 a deadline, 0–98 real time (99 less FIFO's or RR's number), 100–139 time sharing.
    pub prio: i32,
    /// Its name.
    pub name: Name,
}

/// An interrupt vector that is no device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vector {
    /// The CPU's own timer.
    LocalTimer,
    /// Another CPU asks it to look what to run.
    Reschedule,
    /// Another CPU has it call a function.
    CallFunction,
    /// The same, asked of one CPU.
    CallFunctionSingle,
    /// Work that was put off until interrupts were possible.
    IrqWork,
    /// The CPU's temperature.
    Thermal,
    /// One of the interrupt controller's own.
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A CPU goes from one task to another.
    Switch {
        /// Who leaves.
        from: Task,
        /// In which state: 0 runnable, bit 0 asleep, bit 1 asleep for good, bits 2 and 3 stopped, bit 8 preempted.
        state: u64,
        /// Who comes.
        to: Task,
    },
    /// A task is to run again.
    Waking {
        /// Who.
        task: Task,
        /// Where it ran last.
        cpu: CpuId,
    },
    /// A task is taken to another CPU.
    Migrate {
        /// Who.
        tid: i32,
        /// Where to.
        cpu: CpuId,
    },
    /// A task ends.
    Exit {
        /// Who.
        tid: i32,
    },
    /// A task gets another priority because of a lock that it holds.
    Lent {
        /// Who.
        tid: i32,
        /// What it had.
        from: i32,
        /// What it has.
        to: i32,
    },
    /// A timer is made.
    TimerSetup {
        /// Which.
        timer: u64,
        /// Its clock: 0 wall time, 1 monotonic, 7 since boot, 11 TAI.
        clock: i32,
        /// Whether it will be armed with a span, which makes wall time monotonic.
        relative: bool,
    },
    /// A timer is armed.
    TimerStart {
        /// Which.
        timer: u64,
        /// What is called when it fires.
        function: u64,
        /// When it fires at the latest, in its clock.
        expires: i64,
        /// When it may fire.
        soft: i64,
    },
    /// A timer is disarmed.
    TimerCancel {
        /// Which.
        timer: u64,
    },
    /// A timer fires.
    TimerFire {
        /// Which.
        timer: u64,
        /// What is called.
        function: u64,
    },
    /// What it calls has ended.
    TimerFired {
        /// Which.
        timer: u64,
    },
    /// An interrupt that is no device's begins.
    VectorEntry(Vector),
    /// It ends.
    VectorExit(Vector),
    /// A device's interrupt handler begins.
    IrqEntry {
        /// Its number.
        irq: i32,
        /// Its name, as far as it fits.
        name: Name,
    },
    /// It ends.
    IrqExit {
        /// Its number.
        irq: i32,
    },
    /// A soft interrupt begins.
    SoftirqEntry {
        /// Which.
        vec: u32,
    },
    /// It ends.
    SoftirqExit {
        /// Which.
        vec: u32,
    },
    /// A worker begins an item.
    WorkStart {
        /// What it calls.
        function: u64,
    },
    /// It ends.
    WorkEnd,
    /// A page is not there.
    PageFault {
        /// Whether the program asked for it, not the kernel.
        user: bool,
    },
    /// A CPU goes idle, or wakes from it.
    Idle {
        /// How deep; `None`: it wakes.
        state: Option<u32>,
    },
    /// An interrupt that cannot be masked was handled.
    Nmi {
        /// By which function.
        handler: u64,
        /// How long that took, in nanoseconds.
        ns: i64,
    },
    /// An interrupt is sent to CPUs.
    IpiSent {
        /// Which.
        cpus: CpuSet,
        /// What is to be called there.
        callback: u64,
    },
    /// A function is queued for a CPU, which an interrupt then has it call.
    CallQueued {
        /// Which CPU.
        cpu: CpuId,
        /// Which function.
        function: u64,
    },
    /// A system call begins.
    SyscallEntry {
        /// Its number.
        number: i64,
    },
    /// It ends.
    SyscallExit,
    /// Where the kernel was at the event before this one, innermost first.
    Stack {
        /// Addresses of code.
        callers: Vec<u64>,
    },
}

/// Something that happened, when and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: MonoNs,
    /// Where.
    pub cpu: CpuId,
    /// Whose turn it was there (0: nobody's).
    pub tid: i32,
    /// Whether it happened in an interrupt (hard or soft), so that it is no doing of that task.
    pub interrupt: bool,
    /// What.
    pub what: What,
}
