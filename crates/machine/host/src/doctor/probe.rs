//! Facts that are in no file: results of trials and measurements.

use proc::chrony::Tracking;
use proc::ptp::CurrentDataSet;
use std::fmt;

/// Result of a probe, or why it was not made.
pub type Probe<T> = Result<T, SkipReason>;

/// Why a probe was not made, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipReason(pub String);

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error number (`errno`) of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const PERM: Self = Self(1);
    /// Would block, or a limit was reached.
    pub const AGAIN: Self = Self(11);
    /// Out of memory, or a memory limit was reached.
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

/// Result of trying an operation: success, or the kernel's error.
pub type Trial = Result<(), Errno>;

/// Permissions of a thread of this process. Each is tried on a thread that then ends.
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

/// Cost of reading `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockCost {
    /// Number of timed reads.
    pub reads: u32,
    /// Median cost of a read.
    pub median_ns: u32,
    /// 99th percentile of the cost of a read.
    pub p99_ns: u32,
    /// Resolution that `clock_getres` reports: 1 ns with high-resolution timers, otherwise one tick.
    pub resolution_ns: u64,
}

/// State of the discipline of `CLOCK_REALTIME` in the kernel, read with `adjtimex`, which sets nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timex {
    /// Whether the clock counts as synchronised.
    pub synchronised: bool,
    /// TAI minus UTC in seconds; 0 if it was never set.
    pub tai_offset_s: i32,
    /// Estimated error.
    pub estimated_error_us: i64,
    /// Upper bound of the error.
    pub maximum_error_us: i64,
    /// Frequency correction in parts per billion.
    pub frequency_ppb: i64,
}

/// Results of all trials and measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Cost of reading the clock.
    pub clock: Probe<ClockCost>,
    /// Discipline of the clock.
    pub timex: Probe<Timex>,
    /// State of the clock, as chrony reports it.
    pub chrony: Probe<Tracking>,
    /// State of its clock, as ptp4l reports it.
    pub ptp: Probe<CurrentDataSet>,
    /// Permissions.
    pub permissions: Probe<Permissions>,
    /// System management interrupts since power on (MSR 0x34 of the first CPU).
    pub smi_count: Probe<u64>,
}

impl Probes {
    /// No probe was made, with one reason for all.
    #[must_use]
    pub fn none(why: &str) -> Self {
        let why = || SkipReason(why.to_owned());
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
