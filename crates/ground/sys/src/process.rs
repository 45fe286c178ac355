//! A process identified by a descriptor (`pidfd_open(2)`), which refers to the same process as long as it is open.
//!
//! A process id is valid only until the process is reaped; then the kernel may reuse it. Signals are therefore sent
//! through a [`Process`], which is opened while the id is certain: it is a child that has not been reaped, or its start
//! time is compared after the opening. Only this module converts ids to handles.

use crate::error::{Error, Result};
use crate::root::RootDir;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Sends to the process group instead of the process (Linux 6.9).
const SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
/// `SO_PEERPIDFD` (Linux 6.5).
const SO_PEERPIDFD: i32 = 77;

/// A handle for one process. Signals through it never reach a later process with the same id.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    fd: OwnedFd,
}

impl Process {
    /// Opens the process with the id `pid`. The caller must ensure that the id still belongs to the intended process: a
    /// child that it has not reaped. For other processes use [`started_at`](Self::started_at).
    ///
    /// # Errors
    /// The kernel's: `ESRCH` (no such process), `EMFILE`, `ENOSYS` (before Linux 5.3).
    pub fn open(pid: i32) -> Result<Self> {
        let open = || pidfd_open(Pid::from_raw(pid.max(0)).ok_or(Errno::SRCH)?, PidfdFlags::empty());
        match open() {
            Ok(fd) => Ok(Self { pid, fd }),
            Err(errno) => Err(Error { doing: format!("open process {pid}"), errno }),
        }
    }

    /// Opens the process with the id `pid` that started at `start_ticks` (field 22 of `/proc/PID/stat`).
    ///
    /// # Errors
    /// The kernel's; `ESRCH` if another process has the id.
    pub fn started_at(pid: i32, start_ticks: u64) -> Result<Self> {
        let process = Self::open(pid)?;
        // Compared after the opening, because the handle then refers to a fixed process.
        if self::start_ticks(pid) == Some(start_ticks) {
            return Ok(process);
        }
        Err(Error { doing: format!("open process {pid}: another process has its number"), errno: Errno::SRCH })
    }

    /// A duplicate of descriptor `number` of the process, with its access mode.
    ///
    /// # Errors
    /// The kernel's: `EBADF` (no such descriptor), `EPERM` (the caller may not trace the process), `ENOSYS` (before Linux 5.6).
    pub fn descriptor(&self, number: i32) -> Result<OwnedFd> {
        let fd = pidfd_getfd(&self.fd, number, PidfdGetfdFlags::empty());
        fd.map_err(|errno| Error { doing: format!("duplicate descriptor {number} of process {}", self.pid), errno })
    }

    /// Opens the process at the other end of a Unix socket. `pid` is its id from `SO_PEERCRED`.
    ///
    /// # Errors
    /// The kernel's; `ESRCH` if that process has ended.
    pub fn of_peer(connection: BorrowedFd<'_>, pid: i32) -> Result<Self> {
        let mut fd: libc::c_int = -1;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        let at = std::ptr::from_mut(&mut fd).cast();
        let socket = connection.as_raw_fd();
        // SAFETY: `at` points to an int and `length` is its size, which the kernel does not exceed.
        let answer = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, at, &raw mut length) };
        if answer == 0 && fd >= 0 {
            // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
            return Ok(Self { pid, fd: unsafe { OwnedFd::from_raw_fd(fd) } });
        }
        // Before Linux 6.5. When a process ends, its connections are closed, so an open connection means that the
        // process is alive.
        let process = Self::open(pid)?;
        let mut fds = [PollFd::from_borrowed_fd(connection, PollFlags::RDHUP)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(0) => Ok(process),
            _ => Err(Error { doing: format!("open process {pid}, which has hung up"), errno: Errno::SRCH }),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends `signal` to it. 0 checks whether it exists (also as a zombie).
    ///
    /// # Errors
    /// The kernel's: `ESRCH` (it has ended and was reaped), `EPERM`.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.try_signal(signal)
            .map_err(|errno| Error { doing: format!("send signal {signal} to process {}", self.pid), errno })
    }

    /// Like [`signal`](Self::signal), for threads that must not allocate even for an error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_signal(&self, signal: i32) -> std::result::Result<(), Errno> {
        send(self.fd.as_fd(), signal, 0)
    }

    /// Sends `signal` to its process group. The process must be a child of the calling thread's process.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` (the process was reaped, or its group is empty), `EPERM`.
    pub fn signal_group(&self, signal: i32) -> Result<()> {
        let sent = match send(self.fd.as_fd(), signal, SIGNAL_PROCESS_GROUP) {
            // Before Linux 6.9. The id is reserved until the process is reaped, which only its parent does: this
            // process.
            Err(Errno::INVAL) => self.try_signal(0).and_then(|()| by_number(-self.pid, signal)),
            sent => sent,
        };
        sent.map_err(|errno| Error {
            doing: format!("send signal {signal} to the process group of process {}", self.pid),
            errno,
        })
    }

    /// Whether it has ended: it is a zombie, or was reaped.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Whether it is alive and `tid` is one of its threads. Then the number belongs to that thread and to no other
    /// process.
    #[must_use]
    pub fn has_thread(&self, tid: i32) -> bool {
        let listed = RootDir::machine().exists(&format!("/proc/{}/task/{tid}", self.pid));
        // Checked afterwards: a process that is alive now still had its id when the thread was found.
        listed && !self.has_ended()
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A thread identified by its number and start time, for calls that take only a number (`sched_setaffinity(2)`). The
/// number is verified directly before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadId {
    tid: i32,
    start_ticks: u64,
}

impl ThreadId {
    /// The thread with this number; `None` if there is none.
    #[must_use]
    pub fn of(tid: i32) -> Option<Self> {
        Some(Self { tid, start_ticks: start_ticks(tid)? })
    }

    /// Its number, if it still belongs to this thread. Use it immediately.
    #[must_use]
    pub fn tid(self) -> Option<i32> {
        (start_ticks(self.tid) == Some(self.start_ticks)).then_some(self.tid)
    }
}

/// Sends `signal` to the process of a descriptor: a pidfd, or an open directory `/proc/PID`.
///
/// # Errors
/// The kernel's; `ESRCH` if it has ended.
///
/// # Real-time
/// One system call, no allocation.
pub fn try_signal(process: BorrowedFd<'_>, signal: i32) -> std::result::Result<(), Errno> {
    send(process, signal, 0)
}

fn send(process: BorrowedFd<'_>, signal: i32, flags: u32) -> std::result::Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: numbers and a null pointer, which selects the same signal information as kill(2).
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, flags) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// kill(2). The callers have verified the id.
fn by_number(pid: i32, signal: i32) -> std::result::Result<(), Errno> {
    // SAFETY: numbers only.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Sends `signal` to the calling process itself.
///
/// # Errors
/// The kernel's.
pub fn signal_self(signal: i32) -> Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    by_number(own, signal).map_err(|errno| Error { doing: format!("send signal {signal} to this process"), errno })
}

/// Whether a process is stopped by a signal or a debugger.
#[must_use]
pub fn is_stopped(id: i32) -> bool {
    matches!(state(id), Some('T' | 't'))
}

/// The state of a process as the letter in `/proc/PID/stat`; `None` if there is none.
#[must_use]
pub fn state(id: i32) -> Option<char> {
    let stat = RootDir::machine().read(&format!("/proc/{id}/stat")).ok()?;
    // The name before it may contain any characters.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The start time of a process or thread in clock ticks since boot; `None` if there is none.
#[must_use]
pub fn start_ticks(id: i32) -> Option<u64> {
    let text = RootDir::machine().read(&format!("/proc/{id}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn a_signal_reaches_the_process_and_none_once_it_was_reaped() {
        let mut child = sleeper();
        let process = Process::open(child.id() as i32).unwrap();
        assert!(!process.has_ended() && process.has_thread(process.pid()));
        process.signal(libc::SIGTERM).unwrap();
        assert!(crate::poll::is_readable(process.as_fd(), base::DurNs::from_secs(60)));
        // A zombie still exists, but has ended.
        assert!(process.has_ended() && process.signal(0).is_ok() && !process.has_thread(process.pid()));
        child.wait().unwrap();
        assert_eq!(process.signal(libc::SIGTERM).unwrap_err().errno, Errno::SRCH);
    }

    #[test]
    fn a_process_with_another_start_time_is_not_opened() {
        let own = std::process::id() as i32;
        let started = start_ticks(own).unwrap();
        assert_eq!(Process::started_at(own, started).unwrap().pid(), own);
        assert_eq!(Process::started_at(own, started + 1).unwrap_err().errno, Errno::SRCH);
        assert_eq!(Process::open(0).unwrap_err().errno, Errno::SRCH);
        assert_eq!(Process::open(-1).unwrap_err().errno, Errno::SRCH);
    }

    #[test]
    fn a_group_gets_a_signal_as_a_whole_and_none_after_its_leader_was_reaped() {
        use std::os::unix::process::CommandExt as _;
        let mut leader = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let group = leader.id() as i32;
        let mut member = Command::new("sleep").arg("1000").process_group(group).spawn().unwrap();
        let process = Process::open(group).unwrap();
        process.signal_group(libc::SIGTERM).unwrap();
        assert!(!leader.wait().unwrap().success() && !member.wait().unwrap().success());
        assert_eq!(process.signal_group(libc::SIGTERM).unwrap_err().errno, Errno::SRCH);
    }

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_opened() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = std::process::id() as i32;
        assert_eq!(Process::of_peer(ours.as_fd(), own).unwrap().pid(), own);
        drop(theirs);
    }

    #[test]
    fn a_thread_has_its_number_until_it_ends() {
        let mut child = sleeper();
        let pid = child.id() as i32;
        let thread = ThreadId::of(pid).unwrap();
        assert_eq!(thread.tid(), Some(pid));
        assert_eq!(
            ThreadId { start_ticks: thread.start_ticks + 1, ..thread }.tid(),
            None,
            "a later thread with the same number"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((thread.tid(), ThreadId::of(-1)), (None, None));
    }

    #[test]
    fn an_open_folder_of_proc_identifies_its_process() {
        let mut child = sleeper();
        let folder = std::fs::File::open(format!("/proc/{}", child.id())).unwrap();
        try_signal(folder.as_fd(), libc::SIGKILL).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(try_signal(folder.as_fd(), libc::SIGKILL), Err(Errno::SRCH));
    }
}
