//! Receives several datagrams with one system call (`recvmmsg`), each with the time at which the kernel received it.

use crate::error::Result;
use crate::option;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::null_mut;

/// Maximum number of datagrams received at once.
pub const BATCH_MAX: usize = 16;
/// Bytes of a datagram's control data: a header and a `timespec`, with a reserve.
const CONTROL_BYTES: usize = 64;

/// Control data of a datagram, with the alignment that the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ControlData([u8; CONTROL_BYTES]);

/// Buffers for datagrams that are received together.
#[derive(Debug)]
pub struct Datagrams {
    bytes: Vec<u8>,
    each: usize,
    /// Length of each, and its time of arrival.
    taken: [(usize, Option<u64>); BATCH_MAX],
    there: usize,
}

/// Whether a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Waits for the first datagram, up to the socket's timeout. Also receives others that are available.
    ForOne,
    /// Does not wait.
    Not,
}

impl Datagrams {
    /// Buffers for up to [`BATCH_MAX`] datagrams of `each` bytes; longer ones are cut. Allocates.
    #[must_use]
    pub fn new(each: usize) -> Self {
        Self { bytes: vec![0; each * BATCH_MAX], each, taken: [(0, None); BATCH_MAX], there: 0 }
    }

    /// Number of datagrams received last.
    #[must_use]
    pub const fn there(&self) -> usize {
        self.there
    }

    /// One of the datagrams received last; empty if `index` is out of range.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        match self.taken[..self.there].get(index) {
            Some((length, _)) => &self.bytes[index * self.each..][..*length],
            None => &[],
        }
    }

    /// Time when the kernel received it, in nanoseconds since 1970, if [timestamps are enabled](stamp).
    #[must_use]
    pub fn came_ns(&self, index: usize) -> Option<u64> {
        self.taken[..self.there].get(index)?.1
    }

    /// Receives the available datagrams. Returns their number. The previous ones become invalid, also on failure.
    ///
    /// Real-time: one system call; does not allocate.
    ///
    /// # Errors
    /// The kernel's: `EAGAIN` if nothing arrived in time.
    pub fn take(&mut self, socket: impl AsFd, waits: Waits) -> std::result::Result<usize, Errno> {
        self.there = 0;
        // SAFETY: all zeros are a header without name, buffers and control data.
        let mut headers: [libc::mmsghdr; BATCH_MAX] = unsafe { std::mem::zeroed() };
        let mut vectors = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; BATCH_MAX];
        let mut control = [ControlData([0; CONTROL_BYTES]); BATCH_MAX];
        let buffers = self.bytes.chunks_exact_mut(self.each);
        let places = headers.iter_mut().zip(&mut vectors).zip(&mut control).zip(buffers);
        for (((header, vector), control), buffer) in places {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        let flags = match waits {
            Waits::ForOne => libc::MSG_WAITFORONE,
            Waits::Not => libc::MSG_DONTWAIT,
        };
        let (socket, at) = (socket.as_fd().as_raw_fd(), headers.as_mut_ptr());
        // SAFETY: `headers` has this number of headers, each with a buffer and space for control data that outlive the
        // call.
        let there = unsafe { libc::recvmmsg(socket, at, BATCH_MAX as u32, flags as _, null_mut()) };
        let Ok(there) = usize::try_from(there) else {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        };
        self.there = there.min(BATCH_MAX);
        for (taken, header) in self.taken.iter_mut().zip(&headers[..self.there]) {
            *taken = ((header.msg_len as usize).min(self.each), came_ns(&header.msg_hdr));
        }
        Ok(self.there)
    }
}

/// The time in a header's control data.
fn came_ns(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the header, and its control data still exists.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: not null, so a control header within the control data.
        let control = unsafe { at.read_unaligned() };
        if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: a control header is followed by its data.
            let data = unsafe { libc::CMSG_DATA(at) };
            // SAFETY: the data of this kind is a timespec.
            let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            return Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?);
        }
        // SAFETY: as for the first header.
        at = unsafe { libc::CMSG_NXTHDR(header, at) };
    }
    None
}

/// Enables timestamps for the datagrams of a socket. If no other socket had them enabled, they start some milliseconds
/// later; until then a stamp is the time of the receive call.
///
/// # Errors
/// The kernel's, if it does not support timestamps for this kind of socket.
pub fn stamp(socket: impl AsFd) -> Result<()> {
    option::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1, "enable time stamps of received datagrams")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_are_received_with_one_call_in_order_and_with_their_arrival_times() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp(&socket).unwrap();
        let mut taken = Datagrams::new(8);
        assert_eq!(taken.take(&socket, Waits::Not), Err(Errno::AGAIN));
        let begun = std::time::Instant::now();
        loop {
            let sent = crate::clock::wall_ns();
            for length in [1, 3, 9] {
                socket.send_to(&b"abcdefghi"[..length], socket.local_addr().unwrap()).unwrap();
            }
            while taken.there() < 3 {
                assert!(taken.take(&socket, Waits::ForOne).is_ok_and(|there| there > 0));
                assert!(
                    taken.there() == 3 || begun.elapsed() < std::time::Duration::from_secs(60),
                    "loopback is ordered"
                );
            }
            let read = crate::clock::wall_ns();
            let all: Vec<&[u8]> = (0..4).map(|index| taken.get(index)).collect();
            assert_eq!(all, [&b"a"[..], b"abc", b"abcdefgh", b""], "the longest is truncated");
            let came: Vec<u64> = (0..3).map(|index| taken.came_ns(index).unwrap()).collect();
            assert!(came.is_sorted() && taken.came_ns(3).is_none());
            // If no other socket had timestamps enabled, the kernel starts them a moment later.
            if (sent..=read).contains(&came[0]) && came[2] <= read {
                break;
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{sent} {came:?} {read}");
            taken.there = 0;
        }
    }
}
