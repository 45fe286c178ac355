//! Child processes.

use crate::error::{Doing, Error, Result};
use base::{DurNs, Size};

/// Exit status and resource usage of a child.
#[derive(Clone, Copy, Debug)]
pub struct ChildExit {
    /// The child.
    pub pid: i32,
    /// The wait status, as `wait(2)` encodes it.
    pub status: i32,
    /// Processor time in user mode.
    pub user: DurNs,
    /// Processor time in the kernel.
    pub system: DurNs,
    /// Largest resident set.
    pub resident_max: Size,
    /// Page faults with and without disk.
    pub faults: (u64, u64),
    /// Voluntary and involuntary context switches.
    pub switches: (u64, u64),
}

/// Result of checking the children.
#[derive(Clone, Copy, Debug)]
pub enum Waited {
    /// None has changed.
    Nothing,
    /// There are no children.
    NoChildren,
    /// This child has ended and was reaped.
    Ended(ChildExit),
    /// This child was stopped by this signal.
    Stopped(i32, i32),
    /// This child was continued after a stop.
    Continued(i32),
}

/// Checks without waiting whether `pid` (or any child: -1) has changed.
///
/// # Errors
/// The kernel's, except "no such child", which is a result.
pub fn look(pid: i32, stops: bool) -> Result<Waited> {
    let mut status = 0;
    // SAFETY: a struct of integers; all zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::WNOHANG | if stops { libc::WUNTRACED | libc::WCONTINUED } else { 0 };
    // SAFETY: `status` and `usage` are writable.
    let got = unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) };
    match got {
        0 => Ok(Waited::Nothing),
        pid if pid > 0 && libc::WIFSTOPPED(status) => Ok(Waited::Stopped(pid, libc::WSTOPSIG(status))),
        pid if pid > 0 && libc::WIFCONTINUED(status) => Ok(Waited::Continued(pid)),
        pid if pid > 0 => Ok(Waited::Ended(ended(pid, status, &usage))),
        _ => match Error::last(format!("inspect child {pid}")) {
            error if error.errno == rustix::io::Errno::CHILD => Ok(Waited::NoChildren),
            error => Err(error),
        },
    }
}

fn ended(pid: i32, status: i32, usage: &libc::rusage) -> ChildExit {
    let time = |time: libc::timeval| DurNs(time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000);
    ChildExit {
        pid,
        status,
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        resident_max: Size(usage.ru_maxrss as u64 * 1024),
        faults: (usage.ru_majflt as u64, usage.ru_minflt as u64),
        switches: (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64),
    }
}

/// Makes this process the parent of orphaned descendants.
///
/// # Errors
/// The kernel's.
pub fn become_subreaper() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .doing(|| "become the reaper of orphaned descendants".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_reaped_with_its_resource_usage() {
        let words = |words: &[&str]| words.iter().map(|word| std::ffi::CString::new(*word).unwrap()).collect();
        let argv = words(&["sh", "-c", "kill -9 $$"]);
        let prepared = crate::spawn::Prepared::new(c"/bin/sh".to_owned(), argv, vec![], vec![]);
        let child = prepared.spawn().unwrap().child.unwrap();
        let pid = child.pid();
        let ended = loop {
            match look(pid, false).unwrap() {
                Waited::Ended(ended) => break ended,
                Waited::Nothing => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((ended.pid, libc::WTERMSIG(ended.status)), (pid, libc::SIGKILL));
        assert!(ended.faults.1 > 0);
        assert!(matches!(look(pid, false).unwrap(), Waited::NoChildren));
    }
}
