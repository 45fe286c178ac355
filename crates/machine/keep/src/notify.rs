//! Messages of a program to its `NOTIFY_SOCKET` (`sd_notify(3)`), accepted only from the program's own processes.
//!
//! The socket is a file that only the program's user may write to, and the kernel attaches the sender's identity to each
//! message. Otherwise another process could send heartbeats for a hung program.
//!
//! Accepted are `READY=1`, `STATUS=`, `WATCHDOG=1`, `WATCHDOG=trigger`, `MAINPID=`, `WATCHDOG_USEC=`
//! and `EXTEND_TIMEOUT_USEC=`.

use crate::launch::is_below;
use base::DurNs;
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, recvmsg, socket_with, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::root::RootDir;

/// Longer messages are cut here, as by systemd; their complete lines are used.
const BYTES_MAX: usize = 4096;
/// Maximum extension of a time limit.
const EXTENSION_MAX: DurNs = DurNs::from_secs(24 * 3600);
/// Maximum messages read in one pass, so that a program that floods its socket does not delay others.
const MESSAGES_MAX: usize = 64;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notification {
    /// A message of the program or of its descendants.
    Message(String),
    /// Report of the first message of another process, or the first that is too long. Later ones are ignored.
    Fault(String),
}

/// Failure to create the notify socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the notify socket {}: {error}", .path.display())]
pub struct NotifyError {
    /// The path of the socket.
    pub path: PathBuf,
    /// The kernel's error.
    pub error: std::io::Error,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: OwnedFd,
    path: PathBuf,
    /// The program's user.
    user: u32,
    stranger_told: bool,
    cut_told: bool,
}

impl Notify {
    /// Creates the socket file for a program of user `user`. Replaces a file left by an earlier process.
    ///
    /// # Errors
    /// The socket cannot be created; the error has its path.
    pub(crate) fn open(path: PathBuf, user: Option<u32>) -> Result<Self, NotifyError> {
        let failed = |errno: Errno| NotifyError { path: path.clone(), error: errno.into() };
        sys::whole::remove(&path).map_err(|error| NotifyError { path: path.clone(), error })?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(failed)?;
        sockopt::set_socket_passcred(&socket, true).map_err(failed)?;
        bind(&socket, &SocketAddrUnix::new(&path).map_err(failed)?).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        let user = user.unwrap_or(own);
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o600)).map_err(failed)?;
        if user != own {
            rustix::fs::chown(&path, Some(Uid::from_raw(user)), None::<Gid>).map_err(failed)?;
        }
        Ok(Self { socket, path, user, stranger_told: false, cut_told: false })
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a bounded number of messages without blocking. A message is accepted if its sender runs as the program's
    /// user, as this process's user or as root, or descends from this process.
    pub(crate) fn hear(&mut self) -> Vec<Notification> {
        let mut heard = Vec::new();
        for _ in 0..MESSAGES_MAX {
            let mut bytes = [0u8; BYTES_MAX];
            // There is no space for descriptors, so the kernel closes descriptors that a sender attaches.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut extra = RecvAncillaryBuffer::new(&mut space);
            let taken = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut extra, RecvFlags::empty());
            let (got, is_cut) = match taken {
                Ok(got) => (got.bytes, got.flags.contains(ReturnFlags::TRUNC)),
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let sender = extra.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(sender) => Some(sender),
                _ => None,
            });
            let sender = sender.map(|sender| (sender.pid.as_raw_nonzero().get(), sender.uid.as_raw()));
            match sender {
                Some((pid, uid)) if self.belongs(pid, uid) => {
                    let mut text = &bytes[..got];
                    if is_cut {
                        // A truncated line may have another meaning than the complete one.
                        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                        text = &text[..end];
                        if !std::mem::replace(&mut self.cut_told, true) {
                            heard.push(Notification::Fault(format!(
                                "process {pid} sent a notification of more than {BYTES_MAX} bytes to {}: its last line was \
                                 not heard; send shorter ones",
                                self.path.display()
                            )));
                        }
                    }
                    heard.push(Notification::Message(String::from_utf8_lossy(text).into_owned()));
                }
                _ if std::mem::replace(&mut self.stranger_told, true) => {}
                stranger => {
                    let who = stranger
                        .map_or("an unknown process".to_owned(), |(pid, uid)| format!("process {pid} of user {uid}"));
                    heard.push(Notification::Fault(format!(
                        "{who} sent a message to {}, but this program did not start it: message ignored",
                        self.path.display()
                    )));
                }
            }
        }
        heard
    }

    fn belongs(&self, pid: i32, uid: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || uid == own || uid == self.user {
            return true;
        }
        // The process may have changed its user. Its PID is trusted only if the user matches.
        let status = RootDir::machine().read(&format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let same = line.and_then(|line| line.split_whitespace().next()?.parse().ok()) == Some(uid);
        same && is_below(pid, rustix::process::getpid().as_raw_nonzero().get())
    }
}

/// Whether a process reports that it hangs (`WATCHDOG=trigger`). It is then treated as one without a heartbeat.
pub(crate) fn hangs(text: &str) -> bool {
    text.lines().any(|line| line == "WATCHDOG=trigger")
}

/// PID of the main process in a message (`MAINPID=`).
pub(crate) fn main_process(text: &str) -> Option<i32> {
    let pid = text.lines().find_map(|line| line.strip_prefix("MAINPID="))?;
    pid.parse().ok().filter(|pid| *pid > 0)
}

/// Extension of the running time limit, counted from now (`EXTEND_TIMEOUT_USEC=`).
pub(crate) fn extension(text: &str) -> Option<DurNs> {
    let us: i64 = text.lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="))?.parse().ok()?;
    Some(DurNs(us.checked_mul(1000)?).min(EXTENSION_MAX)).filter(|more| *more > DurNs::ZERO)
}

/// New heartbeat interval of a process (`WATCHDOG_USEC=`), at most 24 h; 0: it no longer sends heartbeats.
pub(crate) fn interval(text: &str) -> Option<DurNs> {
    let us: u64 = text.lines().find_map(|line| line.strip_prefix("WATCHDOG_USEC="))?.parse().ok()?;
    Some(DurNs(i64::try_from(us.saturating_mul(1000)).unwrap_or(i64::MAX)).min(EXTENSION_MAX))
}

/// Maximum silence of a process with this heartbeat interval.
pub(crate) fn silence_of(interval: DurNs) -> DurNs {
    if interval == DurNs::ZERO { DurNs(i64::MAX) } else { interval }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        // A stale file would mislead; a missing one is fine.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    fn socket(name: &str) -> (Notify, UnixDatagram) {
        let path = std::env::temp_dir().join(format!("tahti-notify-{name}-{}", std::process::id()));
        let notify = Notify::open(path.clone(), None).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect(path).unwrap();
        sender.set_nonblocking(true).unwrap();
        (notify, sender)
    }

    #[test]
    fn messages_of_the_same_user_are_received_and_a_flood_in_parts() {
        let (mut notify, sender) = socket("flood");
        assert_eq!(notify.hear(), []);
        let mut sent = 0;
        let mut heard = 0;
        while sent < 3 * MESSAGES_MAX {
            // When the queue is full, sending fails until messages are read.
            while sent < 3 * MESSAGES_MAX && sender.send(b"WATCHDOG=1").is_ok() {
                sent += 1;
            }
            let part = notify.hear();
            assert!(!part.is_empty() && part.len() <= MESSAGES_MAX);
            assert!(part.iter().all(|one| *one == Notification::Message("WATCHDOG=1".to_owned())));
            heard += part.len();
        }
        while heard < sent {
            heard += notify.hear().len();
        }
        assert_eq!(heard, sent);
    }

    #[test]
    fn a_heartbeat_after_a_long_status_is_received_and_truncation_is_reported_once() {
        let (mut notify, sender) = socket("long");
        let message = |length: usize| format!("STATUS={}\nWATCHDOG=1", "x".repeat(length));
        for length in [1100, BYTES_MAX - 18] {
            sender.send(message(length).as_bytes()).unwrap();
            assert_eq!(notify.hear(), [Notification::Message(message(length))], "{length}");
        }
        sender.send(message(BYTES_MAX - 8).as_bytes()).unwrap();
        sender.send(format!("WATCHDOG=1\n{}", message(BYTES_MAX)).as_bytes()).unwrap();
        let heard = notify.hear();
        let [Notification::Fault(why), Notification::Message(first), Notification::Message(second)] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert!(why.contains("more than 4096 bytes"), "{why}");
        assert_eq!((first.lines().count(), second.as_str()), (1, "WATCHDOG=1\n"));
    }

    #[test]
    fn main_process_and_extension_are_parsed_and_invalid_values_ignored() {
        let text = "READY=1\nMAINPID=77\nEXTEND_TIMEOUT_USEC=5000000";
        assert_eq!((main_process(text), extension(text)), (Some(77), Some(DurNs::from_secs(5))));
        for bad in
            ["MAINPID=\nEXTEND_TIMEOUT_USEC=", "MAINPID=-1\nEXTEND_TIMEOUT_USEC=-1", "MAINPID=0\nEXTEND_TIMEOUT_USEC=0"]
        {
            assert_eq!((main_process(bad), extension(bad)), (None, None), "{bad}");
        }
        assert_eq!(extension(&format!("EXTEND_TIMEOUT_USEC={}", i64::MAX / 1000)), Some(EXTENSION_MAX));
        assert_eq!(extension(&format!("EXTEND_TIMEOUT_USEC={}", i64::MAX)), None);
    }

    #[test]
    fn an_interval_is_parsed_and_bounded() {
        let of = |value: &str| interval(&format!("READY=1\nWATCHDOG_USEC={value}"));
        assert_eq!([of("20000"), of("0")], [Some(DurNs::from_ms(20)), Some(DurNs::ZERO)]);
        assert_eq!(of(&u64::MAX.to_string()), Some(EXTENSION_MAX));
        assert_eq!([of(""), of("-1"), of("1s"), interval("WATCHDOG=1")], [None; 4]);
        assert_eq!((silence_of(DurNs::ZERO), silence_of(DurNs(5))), (DurNs(i64::MAX), DurNs(5)));
    }

    #[test]
    fn a_process_of_another_user_that_was_not_started_here_does_not_belong() {
        let (notify, _) = socket("belongs");
        let own = std::process::id() as i32;
        assert!(notify.belongs(own, rustix::process::geteuid().as_raw()));
        assert!(
            !notify.belongs(1, 65534) && !notify.belongs(own, 65534),
            "nor a foreign user with a forged process number"
        );
    }

    #[test]
    fn only_the_owner_may_write_to_the_socket() {
        use std::os::unix::fs::PermissionsExt;
        let (notify, _) = socket("mode");
        assert_eq!(notify.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
