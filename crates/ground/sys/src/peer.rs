//! Identity of the process at the other end of a Unix socket, as reported by the kernel, and whether it is trusted.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Environment variable with further trusted users, in addition to root and the own user: user ids separated by commas.
/// A plant sets it for its processes.
pub const PEERS: &str = "TAHTI_PEERS";
/// Maximum number of descriptors checked to find the owner of a socket.
const LOOKS_MAX: usize = 100_000;

/// A process at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id. For a listening socket, the process that called `listen`.
    pub pid: i32,
    /// Its user id.
    pub uid: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.uid, self.pid)?;
        match std::fs::read_to_string(format!("/proc/{}/comm", self.pid)) {
            // A process chooses its own name, so control characters are escaped.
            Ok(name) => write!(f, " ({})", name.trim_end().escape_default()),
            Err(_) => f.write_str(" (gone)"),
        }
    }
}

impl Peer {
    /// The process at the other end of a connection.
    ///
    /// # Errors
    /// The kernel's; `ENOTCONN` if it is unknown.
    pub fn of(connection: BorrowedFd<'_>) -> Result<Self> {
        let doing = "learn who is at the other end of a socket";
        let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let at = std::ptr::from_mut(&mut who).cast();
        // SAFETY: `at` points to a `ucred` and `length` is its size, which the kernel does not exceed. (rustix has this
        // call, but requires a non-zero process id. A process in another pid namespace has the id 0.)
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

    /// Whether it runs as this user or root.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        is_ours(self.uid)
    }

    /// Whether it is trusted: it is [ours](Self::is_ours), or [`PEERS`] contains its user.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        is_believed(self.uid)
    }

    /// Checks that it is [trusted](Self::is_believed). Every client must do so, because any account may open an
    /// abstract socket with an unused name.
    ///
    /// # Errors
    /// `EPERM`, with the process and the remedy.
    pub fn must_be_believed(&self, socket: &dyn fmt::Display) -> Result<()> {
        if self.is_believed() {
            return Ok(());
        }
        let own = own_user();
        let expected = if own == 0 { "root".to_owned() } else { format!("user {own} or root") };
        Err(Error {
            doing: format!(
                "connect to {socket}, which belongs to {self}; expected {expected}: end that process, use another name, or set \
                 {PEERS}={} to trust that user",
                self.uid
            ),
            errno: Errno::PERM,
        })
    }
}

/// Remedy for a process that does not answer in time.
#[must_use]
pub fn remedy(pid: i32) -> String {
    match crate::process::is_stopped(pid) {
        true => format!("it is stopped: `kill -CONT {pid}` continues it"),
        false => "the machine may be overloaded: try again".to_owned(),
    }
}

/// Describes the process that did not answer in time, with the remedy; `None` if the kernel does not know it.
#[must_use]
pub fn silence(connection: BorrowedFd<'_>) -> Option<String> {
    let peer = Peer::of(connection).ok().filter(|peer| peer.pid > 0)?;
    Some(format!("process {} does not answer in time; {}", peer.pid, remedy(peer.pid)))
}

/// Replaces a timeout of a request by an error with the process and the remedy.
#[must_use]
pub fn explained(connection: BorrowedFd<'_>, error: std::io::Error) -> std::io::Error {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let silence = silence(connection).filter(|_| matches!(error.kind(), WouldBlock | TimedOut));
    silence.map_or(error, |why| std::io::Error::new(TimedOut, why))
}

/// User id of this process.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a user is that of this process or root.
#[must_use]
pub fn is_ours(uid: u32) -> bool {
    uid == own_user() || uid == 0
}

/// Whether a user is trusted: [ours](is_ours), or contained in [`PEERS`].
#[must_use]
pub fn is_believed(uid: u32) -> bool {
    is_ours(uid) || std::env::var(PEERS).is_ok_and(|users| names(&users, uid))
}

fn names(users: &str, uid: u32) -> bool {
    users.split(',').any(|user| user.trim().parse() == Ok(uid))
}

/// The owner of an abstract socket that cannot be asked directly, as far as visible in `/proc`: processes of other
/// users only to root.
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
    fn a_peer_is_identified_by_the_kernel_and_other_users_are_trusted_only_if_listed() {
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(here.as_fd()).unwrap();
        assert_eq!((peer.uid, peer.pid), (own_user(), std::process::id() as i32));
        assert!(peer.is_believed() && peer.must_be_believed(&"x").is_ok());
        assert!(names("7, 1001", 1001) && !names("1001x,", 1001) && !names("", 0));
        let stranger = Peer { uid: own_user() + 1, ..peer };
        let why = stranger.must_be_believed(&"@tahti-x").unwrap_err();
        assert_eq!(why.errno, Errno::PERM);
        let said = format!("connect to @tahti-x, which belongs to user {}, process {} (", stranger.uid, peer.pid);
        assert!(why.doing.starts_with(&said) && why.doing.contains("TAHTI_PEERS"), "{why}");
    }
}
