//! Edges of a GPIO line with the kernel's timestamps: `/dev/gpiochip*`, version 2 of its interface (`linux/gpio.h`).

use crate::error::{Doing, Error, Result};
use base::MonoNs;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `_IOWR(0xb4, 7, struct gpio_v2_line_request)`.
const GET_LINE: libc::Ioctl = 0xc250_b407_u32 as libc::Ioctl;
const INPUT: u64 = 1 << 2;
const EDGE_RISING: u64 = 1 << 4;
const EDGE_FALLING: u64 = 1 << 5;

/// Bytes of `struct gpio_v2_line_event`, and maximum number of events per read.
const EVENT: usize = 48;
const EVENTS: usize = 16;

/// `struct gpio_v2_line_request` with its configuration. The attributes are unused.
#[repr(C)]
struct Request {
    offsets: [u32; 64],
    consumer: [u8; 32],
    flags: u64,
    attributes: u32,
    padding: [u32; 5],
    attribute: [[u64; 3]; 10],
    lines: u32,
    buffer: u32,
    padding2: [u32; 5],
    fd: i32,
}

const _: () = assert!(size_of::<Request>() == 592);

/// A line whose edges are reported.
#[derive(Debug)]
pub struct Line {
    file: OwnedFd,
}

/// The last edge found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Number of edges since the line was opened; wraps.
    pub sequence: u32,
    /// Time of the edge, from the kernel's stamp.
    pub at: MonoNs,
}

impl Line {
    /// Requests the rising or falling edges of a line from a chip, such as `/dev/gpiochip0`.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` (in use), `EINVAL` (no such line), `ENXIO` (the chip has no interrupts).
    pub fn open(chip: &str, line: u32, falling: bool) -> Result<Self> {
        let opened = rustix::fs::open(chip, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = opened.doing(|| format!("open {chip}"))?;
        let mut request = Request {
            offsets: [0; 64],
            consumer: [0; 32],
            flags: INPUT | if falling { EDGE_FALLING } else { EDGE_RISING },
            attributes: 0,
            padding: [0; 5],
            attribute: [[0; 3]; 10],
            lines: 1,
            buffer: 0,
            padding2: [0; 5],
            fd: -1,
        };
        request.offsets[0] = line;
        request.consumer[..5].copy_from_slice(b"tahti");
        // SAFETY: the ioctl reads and writes the structure of this request.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET_LINE, &raw mut request) };
        if answer < 0 || request.fd < 0 {
            return Err(Error::last(format!("wait for edges of line {line} of {chip}")));
        }
        // SAFETY: the kernel has just created it for this process.
        let file = unsafe { OwnedFd::from_raw_fd(request.fd) };
        rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK).doing(|| format!("open line {line} of {chip}"))?;
        Ok(Self { file })
    }

    /// The last of up to 16 edges since the last call; `None` if there was none. [Wait](crate::poll) for the descriptor
    /// first.
    ///
    /// Real-time: one system call that does not block; does not allocate.
    ///
    /// # Errors
    /// The kernel's: the chip has gone.
    pub fn look(&self) -> std::result::Result<Option<Edge>, Errno> {
        let mut bytes = [0; EVENT * EVENTS];
        match rustix::io::read(&self.file, &mut bytes) {
            // A flood of edges must not block the reader: the rest is read by the next call.
            Ok(read) if read >= EVENT => Ok(bytes[..read].chunks_exact(EVENT).last().map(edge)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Ok(_) => Err(Errno::IO),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Decodes `struct gpio_v2_line_event`: timestamp, kind, line, sequence number of all lines, sequence number of this
/// line.
fn edge(event: &[u8]) -> Edge {
    let word = |at: usize| event[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let at = event[..8].try_into().map_or(0, u64::from_ne_bytes);
    Edge { sequence: word(20), at: MonoNs(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_has_its_stamp_and_its_number() {
        let mut event = [0; EVENT];
        event[..8].copy_from_slice(&1_234_567_890_123_u64.to_ne_bytes());
        event[16..20].copy_from_slice(&99u32.to_ne_bytes());
        event[20..24].copy_from_slice(&7u32.to_ne_bytes());
        assert_eq!(edge(&event), Edge { sequence: 7, at: MonoNs(1_234_567_890_123) });
    }

    #[test]
    fn a_file_that_is_not_a_gpio_chip_is_refused_by_its_name() {
        let refused = Line::open("/dev/null", 3, false).unwrap_err();
        assert_eq!((refused.doing.as_str(), refused.errno), ("wait for edges of line 3 of /dev/null", Errno::NOTTY));
    }
}
