//! Signals as a pollable descriptor, instead of handlers.

use crate::error::{Doing, Error, Result};
pub use libc::{
    SIGABRT, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that request an end: SIGINT, SIGTERM, and SIGHUP, which a closed terminal sends. Without the signals that this
/// process ignores, so that a program run by `nohup` outlives its terminal. Allocates and reads `/proc`.
#[must_use]
pub fn end_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored_in(&status, *signal)).collect()
}

/// Whether a process ignores a signal, by its `/proc/PID/status`.
fn is_ignored_in(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 != 0
}

/// A descriptor that becomes readable when one of its signals arrives.
///
/// Its signals are blocked in the calling thread and in threads that it starts afterwards. A program started through
/// `std::process::Command` gets an empty mask.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

/// A signal that arrived, with its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The signal's number.
    pub signal: i32,
    /// The process that sent it; 0 for the kernel.
    pub sender: i32,
}

impl SignalFd {
    /// Blocks `signals` for the calling thread and makes them readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(signals: &[i32]) -> Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the whole set at the pointer.
        let _ = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised just above.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: `set` is an initialised signal set; an invalid number returns -1.
            if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
                return Err(Error::last(format!("name signal {signal}")));
            }
        }
        // SAFETY: the kernel reads `set`; the old mask is not requested.
        let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if answer != 0 {
            return Err(Error { doing: "block signals".into(), errno: Errno::from_raw_os_error(answer) });
        }
        // SAFETY: `set` is an initialised signal set, which the kernel only reads.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last("open a signalfd"));
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal that has arrived, if any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> Result<Option<Arrived>> {
        // `signalfd_siginfo` begins with the signal's number (u32), errno, code and the sender's pid (u32).
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut bytes)) {
            Ok(_) => {
                let word = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                Ok(Some(Arrived { signal: word(0), sender: word(12) }))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno).doing(|| "read a signalfd".into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Blocks all signals from other processes or timers in the calling thread, so that another thread of the process
/// handles them or waits for them. Signals that the thread causes itself (faults, `abort`) still reach it.
///
/// # Errors
/// The kernel's.
pub fn block_all() -> Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the whole set at the pointer.
    let _ = unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: initialised just above.
    let mut set = unsafe { set.assume_init() };
    for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, SIGABRT, libc::SIGSYS] {
        // SAFETY: `set` is an initialised signal set, and the numbers are signals.
        let _ = unsafe { libc::sigdelset(&raw mut set, own) };
    }
    // SAFETY: the kernel reads `set`; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(Error { doing: "block signals".into(), errno: Errno::from_raw_os_error(errno) }),
    }
}

/// Restores the default action of `SIGPIPE`: the process ends when it writes to a pipe without a reader. (Rust programs
/// start with `SIGPIPE` ignored.)
pub fn end_at_closed_pipe() {
    // SAFETY: setting a signal to its default action runs no code of this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status = "Name:\ttahti\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|signal| is_ignored_in(status, signal)), [true, false, false]);
    }

    #[test]
    fn a_blocked_signal_can_be_read_with_its_sender() {
        std::thread::spawn(|| {
            let signals = SignalFd::new(&[libc::SIGURG]).unwrap();
            assert_eq!(signals.read(), Ok(None));
            // SAFETY: raises a signal that this thread has blocked.
            assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
            let arrived = signals.read().unwrap().unwrap();
            assert_eq!((arrived.signal, arrived.sender), (libc::SIGURG, std::process::id() as i32));
            assert_eq!(signals.read(), Ok(None));
        })
        .join()
        .unwrap();
    }
}
