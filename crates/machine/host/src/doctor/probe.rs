//! Facts that no file holds: results of trials and measurements.

use proc::chrony::Tracking;
use proc::ptp::CurrentDataSet;
use std::fmt;

/// A probe's result, or why it was not made.
pub type Probe<T> = Result<T, NotTried>;

/// Why a probe was not made, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTried(pub String);

impl fmt::Display for NotTried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const PERM: Self = Self(1);
    /// Would block, or a limit reached.
    pub const AGAIN: Self = Self(11);
    /// No memory, or a limit of it reached.
    pub const NOMEM: Self = Self(12);
    /// Access denied.
    pub const ACCES: Self = Self(13);
    /// Busy: no bandwidth left.
    pub const BUSY: Self = Self(16);
    /// Invalid argument.
    pub const INVAL: Self = Self(22);
    /// No such system call.
    pub const NOSYS: Self = Self(38);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PERM => f.write_str("EPERM"),
            Self::AGAIN => f.write_str("EAGAIN"),
            Self::NOMEM => f.write_str("ENOMEM"),
            Self::ACCES => f.write_str("EACCES"),
            Self::BUSY => f.write_str("EBUSY"),
            Self::INVAL => f.write_str("EINVAL"),
            Self::NOSYS => f.write_str("ENOSYS"),
            Self(number) => write!(f, "error {number}"),
        }
    }
}

/// One thing really tried: allowed, or the kernel's answer.
pub type Trial = Result<(), Errno>;

/// What a thread of this process may do, each tried on a thread that was then thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// `SCHED_FIFO` at priority 1.
    pub fifo_1: Trial,
    /// `SCHED_FIFO` at priority 80.
    pub fifo_80: Trial,
    /// `SCHED_RR` at priority 1.
    pub rr_1: Trial,
    /// `SCHED_DEADLINE`, 100 us in every 100 ms.
    pub deadline: Trial,
    /// Locking 1 MiB of memory.
    pub memory_lock: Trial,
    /// Binding the thread to a single one of its CPUs.
    pub affinity: Trial,
}

/// What reading `CLOCK_MONOTONIC` costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockCost {
    /// How many reads were timed.
    pub reads: u32,
    /// Median cost of a read.
    pub median_ns: u32,
    /// 99 % of the reads cost no more.
    pub p99_ns: u32,
    /// Resolution that `clock_getres` reports: 1 ns with high-resolution timers, a tick without.
    pub resolution_ns: u64,
}

/// The kernel's view of the discipline of `CLOCK_REALTIME` (`adjtimex`, nothing set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timex {
    /// Whether the clock counts as synchronised.
    pub synchronised: bool,
    /// TAI minus UTC in seconds; 0 when nobody set it.
    pub tai_offset_s: i32,
    /// Estimated error.
    pub estimated_error_us: i64,
    /// Bound of the error.
    pub maximum_error_us: i64,
    /// Frequency correction in parts per billion.
    pub frequency_ppb: i64,
}

/// All that was tried and measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// What reading the clock costs.
    pub clock: Probe<ClockCost>,
    /// Discipline of the clock.
    pub timex: Probe<Timex>,
    /// What chrony says of the clock.
    pub chrony: Probe<Tracking>,
    /// What ptp4l says of its clock.
    pub ptp: Probe<CurrentDataSet>,
    /// Permissions.
    pub permissions: Probe<Permissions>,
    /// System management interrupts since power on (MSR 0x34 of the first CPU).
    pub smi_count: Probe<u64>,
}

impl Probes {
    /// None made, all for the same reason.
    #[must_use]
    pub fn none(why: &str) -> Self {
        let why = || NotTried(why.to_owned());
        Self {
            clock: Err(why()),
            timex: Err(why()),
            chrony: Err(why()),
            ptp: Err(why()),
            permissions: Err(why()),
            smi_count: Err(why()),
        }
    }
}
