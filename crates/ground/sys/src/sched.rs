//! Scheduling classes and CPU affinity of threads.
//!
//! `sched_setattr` is called raw: neither rustix nor nix wraps it, and musl's libc answers `ENOSYS`.

use crate::error::{Error, Result};
use base::{CPUS_MAX, CpuSet, Deadline, DurNs, Policy, Priority};

/// A kernel thread id; 0 is the calling thread.
pub type Tid = i32;

/// A class as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The class with its parameters.
    pub policy: Policy,
    /// Whether children start as `other` (`SCHED_FLAG_RESET_ON_FORK`).
    pub reset_on_fork: bool,
}

/// Gives thread `tid` a scheduling class.
///
/// # Errors
/// The kernel's: `EPERM` (no privilege, or a `RT_GROUP_SCHED` group without runtime), `EBUSY` (DEADLINE
/// admission), `ESRCH`.
///
/// # Real-time
/// One system call; allocates only for an error.
pub fn set_scheduling(tid: Tid, scheduling: Scheduling) -> Result<()> {
    try_set_scheduling(tid, scheduling).map_err(|errno| {
        let thread = if tid == 0 { "the calling thread".to_owned() } else { format!("thread {tid}") };
        Error { doing: format!("set {thread} to {}", scheduling.policy), errno }
    })
}

/// Like [`set_scheduling`], for callers that must not allocate even for an error.
///
/// # Errors
/// The kernel's.
pub fn try_set_scheduling(tid: Tid, scheduling: Scheduling) -> std::result::Result<(), rustix::io::Errno> {
    let attr = attributes(scheduling);
    // SAFETY: `attr` is a valid sched_attr with its length in the size field; the kernel only reads it.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0u32) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> rustix::io::Errno {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    rustix::io::Errno::from_raw_os_error(code)
}

/// Whether thread `tid` is FIFO or RR now; `None` if there is no such thread.
///
/// Real-time: one system call, no allocation.
#[must_use]
pub fn has_fixed_priority(tid: Tid) -> Option<bool> {
    // SAFETY: numbers only.
    match unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) } {
        -1 => None,
        policy => {
            let class = policy as i32 & !libc::SCHED_RESET_ON_FORK;
            Some(class == libc::SCHED_FIFO || class == libc::SCHED_RR)
        }
    }
}

/// The kernel's form of a class. Async-signal-safe: pure arithmetic.
pub(crate) fn attributes(scheduling: Scheduling) -> libc::sched_attr {
    let mut attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: if scheduling.reset_on_fork { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 },
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    match scheduling.policy {
        Policy::Other { nice } => attr.sched_nice = nice.into(),
        Policy::Batch { nice } => (attr.sched_policy, attr.sched_nice) = (libc::SCHED_BATCH as u32, nice.into()),
        Policy::Idle => attr.sched_policy = libc::SCHED_IDLE as u32,
        Policy::Fifo(priority) => {
            (attr.sched_policy, attr.sched_priority) = (libc::SCHED_FIFO as u32, priority.0.into());
        }
        Policy::Rr(priority) => (attr.sched_policy, attr.sched_priority) = (libc::SCHED_RR as u32, priority.0.into()),
        Policy::Deadline(Deadline { runtime, deadline, period }) => {
            attr.sched_policy = libc::SCHED_DEADLINE as u32;
            (attr.sched_runtime, attr.sched_deadline, attr.sched_period) =
                (runtime.0 as u64, deadline.0 as u64, period.0 as u64);
        }
    }
    attr
}

/// Reads the scheduling class of thread `tid`.
///
/// # Errors
/// The kernel's; `EINVAL` for a class that this build does not know (`ext`).
pub fn scheduling(tid: Tid) -> Result<Scheduling> {
    let mut attr = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: `attr` is writable for the `size` bytes passed to the kernel.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0u32) };
    let doing = || format!("read the scheduling class of thread {tid}");
    if answer != 0 {
        return Err(Error::last(doing()));
    }
    let nice = attr.sched_nice as i8;
    let priority = Priority(attr.sched_priority as u8);
    let policy = match attr.sched_policy as i32 {
        libc::SCHED_OTHER => Policy::Other { nice },
        libc::SCHED_BATCH => Policy::Batch { nice },
        libc::SCHED_IDLE => Policy::Idle,
        libc::SCHED_FIFO => Policy::Fifo(priority),
        libc::SCHED_RR => Policy::Rr(priority),
        libc::SCHED_DEADLINE => Policy::Deadline(Deadline {
            runtime: DurNs(attr.sched_runtime as i64),
            deadline: DurNs(attr.sched_deadline as i64),
            period: DurNs(attr.sched_period as i64),
        }),
        _ => return Err(Error { doing: doing(), errno: rustix::io::Errno::INVAL }),
    };
    Ok(Scheduling { policy, reset_on_fork: attr.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0 })
}

/// Restricts thread `tid` to `cpus`.
///
/// Since Linux 6.2 a mask once set sticks to the thread (`user_cpus_ptr`) and cannot be read back or
/// unset: prefer moving the thread's cpuset where it must later follow its cpuset again.
///
/// # Errors
/// The kernel's: `EINVAL` (no such CPU in the thread's cpuset, or a thread bound by the kernel), `EPERM`,
/// `EBUSY` (a DEADLINE thread that needs its whole root domain), `ESRCH`.
pub fn set_affinity(tid: Tid, cpus: &CpuSet) -> Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads `size_of_val(words)` bytes at the pointer, which the slice owns.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(words), words.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(Error::last(format!("restrict thread {tid} to CPUs {cpus}"))) }
}

/// Reads the CPUs on which thread `tid` may run.
///
/// # Errors
/// The kernel's.
pub fn affinity(tid: Tid) -> Result<CpuSet> {
    let mut words = [0u64; CPUS_MAX / 64];
    // SAFETY: the kernel writes at most `size_of_val(&words)` bytes at the pointer, which the array owns.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&words), words.as_mut_ptr()) };
    if answer < 0 {
        return Err(Error::last(format!("read the CPUs of thread {tid}")));
    }
    Ok(CpuSet::from_words(&words).expect("as many words as a CpuSet has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_and_affinity_of_a_thread_read_back_as_set() {
        std::thread::spawn(|| {
            let set = Scheduling { policy: Policy::Batch { nice: 7 }, reset_on_fork: true };
            set_scheduling(0, set).unwrap();
            assert_eq!(scheduling(0), Ok(set));
            let cpus = affinity(0).unwrap();
            let one = CpuSet::single(cpus.lowest().unwrap());
            set_affinity(0, &one).unwrap();
            assert_eq!(affinity(0), Ok(one));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_impossible_cpu_is_refused_by_name() {
        let error = set_affinity(0, &CpuSet::single(1023)).unwrap_err();
        assert_eq!(error.errno, rustix::io::Errno::INVAL);
        assert!(error.to_string().contains("CPUs 1023"), "{error}");
    }
}
