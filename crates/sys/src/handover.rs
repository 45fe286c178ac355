//! Descriptors handed from process to process over an abstract Unix socket: a name without a file, so that
//! nothing is left behind when its owner dies.

use crate::error::{Doing, Error, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Where others ask for a descriptor.
#[derive(Debug)]
pub struct Counter {
    socket: OwnedFd,
    name: String,
}

fn address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).doing(|| format!("name a socket @{name}"))
}

fn socket(name: &str, flags: SocketFlags) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .doing(|| format!("make a socket @{name}"))
}

impl Counter {
    /// Opens the counter `name`; it does not block.
    ///
    /// # Errors
    /// `EADDRINUSE` if somebody else has it open.
    pub fn open(name: &str) -> Result<Self> {
        let socket = socket(name, SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &address(name)?).doing(|| format!("open @{name}"))?;
        rustix::net::listen(&socket, 8).doing(|| format!("listen at @{name}"))?;
        Ok(Self { socket, name: name.to_owned() })
    }

    /// Serves one caller, if there is one: hands it `fd`, if it runs as our user or root. The connection that is
    /// returned tells the caller, as long as it is kept, that the owner lives.
    ///
    /// # Errors
    /// The kernel's.
    pub fn serve(&self, fd: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
        let doing = || format!("serve a caller at @{}", self.name);
        let caller = match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(caller) => caller,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno).doing(doing),
        };
        let user = rustix::net::sockopt::socket_peercred(&caller).doing(doing)?.uid;
        if user != rustix::process::geteuid() && !user.is_root() {
            return Ok(None);
        }
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Error { doing: doing(), errno: Errno::NOBUFS });
        }
        match rustix::net::sendmsg(&caller, &[IoSlice::new(b"1")], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(Some(caller)),
            // The caller went away meanwhile.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
            Err(errno) => Err(errno).doing(doing),
        }
    }
}

/// Whether the other end of a handover is still there.
#[must_use]
pub fn is_alive(connection: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    matches!(rustix::net::recv(connection, &mut byte[..], RecvFlags::DONTWAIT), Err(Errno::AGAIN | Errno::INTR))
}

/// Asks at `name`: the descriptor, and the connection to its owner.
///
/// # Errors
/// `ECONNREFUSED` if nobody has the counter open.
pub fn ask(name: &str) -> Result<(OwnedFd, OwnedFd)> {
    let doing = || format!("ask at @{name}");
    let connection = socket(name, SocketFlags::empty())?;
    rustix::net::connect(&connection, &address(name)?).doing(doing)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    rustix::net::recvmsg(&connection, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .doing(doing)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok((fd, connection));
        }
    }
    Err(Error { doing: doing(), errno: Errno::CONNREFUSED })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn shared_memory_goes_from_hand_to_hand_and_its_owners_end_is_noticed() {
        let name = format!("tahti-test-{}", std::process::id());
        assert_eq!(ask(&name).unwrap_err().errno, Errno::CONNREFUSED);
        let counter = Counter::open(&name).unwrap();
        assert_eq!(Counter::open(&name).unwrap_err().errno, Errno::ADDRINUSE);
        let memory = crate::shm::SharedWords::create("handover", 8).unwrap();
        assert!(counter.serve(memory.fd()).unwrap().is_none(), "nobody asks");
        let asked = std::thread::spawn({
            let name = name.clone();
            move || ask(&name).unwrap()
        });
        let held = loop {
            if let Some(held) = counter.serve(memory.fd()).unwrap() {
                break held;
            }
            std::thread::yield_now();
        };
        let (fd, connection) = asked.join().unwrap();
        let theirs = crate::shm::SharedWords::attach_read_only(fd).unwrap();
        memory.words()[3].store(9, std::sync::atomic::Ordering::Release);
        assert_eq!(theirs.words()[3].load(std::sync::atomic::Ordering::Acquire), 9);
        assert!(is_alive(connection.as_fd()));
        drop(held);
        assert!(!is_alive(connection.as_fd()));
    }
}
