//! Who is at the other end of a Unix socket, as the kernel knows it, and whether it is believed.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Names users that are believed besides root and one's own: their numbers, with commas between them. A plant gives it to
/// its processes.
pub const PEERS: &str = "TAHTI_PEERS";
/// Most descriptors that are looked at to find out whose a socket is.
const LOOKS_MAX: usize = 100_000;

/// A process at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process: of who listens, the one that began to.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.uid, self.pid)?;
        match std::fs::read_to_string(format!("/proc/{}/comm", self.pid)) {
            // The process names itself: control characters do not reach a terminal.
            Ok(name) => write!(f, " ({})", name.trim_end().escape_default()),
            Err(_) => f.write_str(" (gone)"),
        }
    }
}

impl Peer {
    /// Who has the other end of a connection.
    ///
    /// # Errors
    /// The kernel's; `ENOTCONN` where it does not know.
    pub fn of(connection: BorrowedFd<'_>) -> Result<Self> {
        let doing = "learn who is at the other end of a socket";
        let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let at = std::ptr::from_mut(&mut who).cast();
        // SAFETY: `at` and `length` are a `ucred` and its size, which the kernel fills at most. (rustix has this call, but its
        // process is never 0, which one of another process name space is.)
        let failed = unsafe {
            libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut length)
        } != 0;
        match who.uid {
            _ if failed => Err(Error::last(doing)),
            // There is no peer.
            u32::MAX => Err(Error { doing: doing.to_owned(), errno: Errno::NOTCONN }),
            uid => Ok(Self { pid: who.pid, uid }),
        }
    }

    /// Whether it runs as our user or root.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        is_ours(self.uid)
    }

    /// Whether what it says is believed: it is [ours](Self::is_ours), or [`PEERS`] names its user.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        is_believed(self.uid)
    }

    /// Looks whether it is [believed](Self::is_believed), which is what everybody does who asks at a socket: anybody may
    /// open an abstract one under a name that nobody has.
    ///
    /// # Errors
    /// `EPERM`, with who it is and what to do.
    pub fn must_be_believed(&self, socket: &dyn fmt::Display) -> Result<()> {
        if self.is_believed() {
            return Ok(());
        }
        let own = own_user();
        let expected = if own == 0 { "root".to_owned() } else { format!("user {own} or root") };
        Err(Error {
            doing: format!(
                "ask at {socket}, which belongs to {self}; expected {expected}: end that process, use another name, or set \
                 {PEERS}={} if it is to be believed",
                self.uid
            ),
            errno: Errno::PERM,
        })
    }
}

/// What to do about a process that does not answer in time.
#[must_use]
pub fn remedy(pid: i32) -> String {
    match crate::process::is_stopped(pid) {
        true => format!("it is stopped: `kill -CONT {pid}` continues it"),
        false => "the machine may be overloaded: try again".to_owned(),
    }
}

/// A process that did not answer in time, and what to do about it; `None` if the kernel does not know it.
#[must_use]
pub fn silence(connection: BorrowedFd<'_>) -> Option<String> {
    let peer = Peer::of(connection).ok().filter(|peer| peer.pid > 0)?;
    Some(format!("process {} does not answer in time; {}", peer.pid, remedy(peer.pid)))
}

/// The error of a request: one that waited in vain names the process, and what to do about it.
#[must_use]
pub fn explained(connection: BorrowedFd<'_>, error: std::io::Error) -> std::io::Error {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let silence = silence(connection).filter(|_| matches!(error.kind(), WouldBlock | TimedOut));
    silence.map_or(error, |why| std::io::Error::new(TimedOut, why))
}

/// Our user.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a user is ours or root.
#[must_use]
pub fn is_ours(uid: u32) -> bool {
    uid == own_user() || uid == 0
}

/// Whether what a user has made is believed: they are [ours](is_ours), or [`PEERS`] names them.
#[must_use]
pub fn is_believed(uid: u32) -> bool {
    is_ours(uid) || std::env::var(PEERS).is_ok_and(|users| names(&users, uid))
}

fn names(users: &str, uid: u32) -> bool {
    users.split(',').any(|user| user.trim().parse() == Ok(uid))
}

/// Who has an abstract socket open that does not say so itself, as far as `/proc` shows it to us: of others' processes to
/// root only.
pub(crate) fn holder(name: &str) -> Option<Peer> {
    let sockets = std::fs::read_to_string("/proc/net/unix").ok()?;
    let inode = sockets.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(6);
        let inode = fields.next()?;
        (fields.next()? == format!("@{name}")).then_some(inode)
    })?;
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let files = pids.flat_map(|pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.map(move |file| (pid, file.path()))
    });
    let (pid, _) = files
        .take(LOOKS_MAX)
        .find(|(_, file)| std::fs::read_link(file).is_ok_and(|to| to.to_str() == Some(wanted.as_str())))?;
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{pid}")).ok()?);
    Some(Peer { pid, uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn the_kernel_says_who_is_at_the_other_end_and_others_are_believed_only_by_name() {
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(here.as_fd()).unwrap();
        assert_eq!((peer.uid, peer.pid), (own_user(), std::process::id() as i32));
        assert!(peer.is_believed() && peer.must_be_believed(&"x").is_ok());
        assert!(names("7, 1001", 1001) && !names("1001x,", 1001) && !names("", 0));
        let stranger = Peer { uid: own_user() + 1, ..peer };
        let why = stranger.must_be_believed(&"@tahti-x").unwrap_err();
        assert_eq!(why.errno, Errno::PERM);
        let said = format!("ask at @tahti-x, which belongs to user {}, process {} (", stranger.uid, peer.pid);
        assert!(why.doing.starts_with(&said) && why.doing.contains("TAHTI_PEERS"), "{why}");
    }
}
