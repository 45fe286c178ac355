//! Arrival time of datagrams, stamped by the receiving kernel.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _};

/// `SIOCGSTAMPNS` of 64-bit kernels: the time of the last datagram read from a socket.
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;

/// Arrival time of the last datagram read from a socket, in nanoseconds since 1970. It is stamped by the driver or the
/// kernel's receive path, not by the reading thread. `None` if no datagram was read, or the kernel provides no time.
/// The first call enables timestamps. If no other socket had them enabled, they start some milliseconds later; until
/// then the time of this call is returned.
///
/// Real-time: one system call that does not block; does not allocate.
#[must_use]
pub fn newest_ns(socket: impl AsFd) -> Option<u64> {
    let time = ask(socket).ok()?;
    Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// Enables timestamps of datagrams without reading one.
///
/// # Errors
/// The kernel's, if it does not support timestamps for this kind of socket.
pub fn note(socket: impl AsFd) -> crate::Result<()> {
    match ask(socket) {
        // No datagram was read yet, which is not a failure.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(crate::Error { doing: "enable time stamps of received datagrams".into(), errno }),
    }
}

fn ask(socket: impl AsFd) -> Result<libc::timespec, Errno> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the ioctl writes a timespec to `time`, which is one.
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
    fn a_datagram_arrives_between_its_sending_and_its_reading() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        note(&socket).unwrap();
        assert_eq!(newest_ns(&socket), None);
        // If no other socket had timestamps enabled, the kernel starts them a moment later.
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
