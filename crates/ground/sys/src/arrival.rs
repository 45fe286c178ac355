//! When a datagram came, by the kernel that received it.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _};

/// `SIOCGSTAMPNS` of 64-bit kernels: the time of the last datagram that was read from a socket.
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;

/// When the datagram came that was read last from a socket, in nanoseconds since 1970: by the driver or the kernel's receiving side, not by
/// the thread that read it. `None` where none was read, or the kernel does not say. The first call has the kernel note it, some
/// milliseconds from then on where nobody else did: until then the time of this call is given.
///
/// Real-time: a system call that waits for nothing; allocates nothing.
#[must_use]
pub fn newest_ns(socket: impl AsFd) -> Option<u64> {
    let time = ask(socket).ok()?;
    Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// Has the kernel note when datagrams come, without asking for one.
///
/// # Errors
/// The kernel's, where it notes nothing for such sockets.
pub fn note(socket: impl AsFd) -> crate::Result<()> {
    match ask(socket) {
        // Nothing was read yet, which is no failure.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(crate::Error { doing: "have the kernel note when datagrams come".into(), errno }),
    }
}

fn ask(socket: impl AsFd) -> Result<libc::timespec, Errno> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the ioctl writes a timespec, which `time` is, into it.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSTAMPNS, &raw mut time) } {
        0 => Ok(time),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_datagram_came_after_it_was_sent_and_before_it_was_read() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        note(&socket).unwrap();
        assert_eq!(newest_ns(&socket), None);
        // The kernel begins to note a moment later, where no other socket had it do so.
        let begun = std::time::Instant::now();
        loop {
            let sent = crate::clock::wall_ns();
            socket.send_to(b"pixels", socket.local_addr().unwrap()).unwrap();
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 6);
            let read = crate::clock::wall_ns();
            let came = newest_ns(&socket).unwrap();
            if (sent..=read).contains(&came) {
                break;
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{sent} {came} {read}");
        }
    }
}
