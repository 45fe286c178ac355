//! Pulses of a time source with the kernel's timestamps: `/dev/pps*` (`linux/pps.h`).

use crate::clock::mono_now;
use crate::error::{Doing, Result};
use base::{DurNs, MonoNs};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// `_IOWR('p', 0xa4, struct pps_fdata *)`: the header gives the size of a pointer.
const PPS_FETCH: libc::Ioctl = 0xc008_70a4_u32 as libc::Ioctl;
const _: () = assert!(size_of::<*const ()>() == 8 && size_of::<Fetch>() == 64, "the numbers are those of 64 bits");

/// If a stamp is older than this, the clock was set in between.
const OLDEST: DurNs = DurNs::from_secs(2);

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Time {
    sec: i64,
    nsec: i32,
    flags: u32,
}

/// `struct pps_fdata`.
#[repr(C)]
#[derive(Default)]
struct Fetch {
    assert_sequence: u32,
    clear_sequence: u32,
    assert: Time,
    clear: Time,
    current_mode: i32,
    timeout: Time,
}

/// A source of pulses.
#[derive(Debug)]
pub struct Pps {
    file: OwnedFd,
}

/// The last pulse of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Sequence number; wraps.
    pub sequence: u32,
    /// Time of the pulse, from the kernel's stamp.
    pub at: MonoNs,
}

impl Pps {
    /// Opens a source, such as `/dev/pps0`. Asserting edges are used.
    ///
    /// # Errors
    /// The kernel's; `ENOTTY` if the file is not a PPS source.
    pub fn open(path: &str) -> Result<Self> {
        let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let source = Self { file: opened.doing(|| format!("open {path}"))? };
        source.fetch(DurNs::ZERO).doing(|| format!("read pulses from {path}"))?;
        Ok(source)
    }

    /// The last pulse if the limit is 0, otherwise the next one; `None` if there is none in time.
    ///
    /// Real-time: one blocking system call and two clock readings; does not allocate. The kernel rounds the limit to
    /// its ticks.
    ///
    /// # Errors
    /// The kernel's: the source has gone.
    pub fn fetch(&self, limit: DurNs) -> std::result::Result<Option<Pulse>, Errno> {
        let limit = limit.0.max(0);
        let timeout = Time { sec: limit / 1_000_000_000, nsec: (limit % 1_000_000_000) as i32, flags: 0 };
        let mut fetch = Fetch { timeout, ..Fetch::default() };
        // SAFETY: the ioctl reads and writes the structure of this request.
        let answer = unsafe { libc::ioctl(self.file.as_raw_fd(), PPS_FETCH, &raw mut fetch) };
        if answer < 0 {
            return match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::TIMEDOUT | Errno::INTR => Ok(None),
                errno => Err(errno),
            };
        }
        // The kernel stamps in calendar time.
        let (now, real) = (mono_now(), clock_gettime(ClockId::Realtime));
        let since = i128::from(real.tv_sec - fetch.assert.sec) * 1_000_000_000
            + i128::from(real.tv_nsec - i64::from(fetch.assert.nsec));
        let since = if (0..=i128::from(OLDEST.0)).contains(&since) { since as u64 } else { 0 };
        Ok(Some(Pulse { sequence: fetch.assert_sequence, at: MonoNs(now.0.saturating_sub(since)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_a_pps_source_is_refused_by_its_name() {
        let refused = Pps::open("/dev/null").unwrap_err();
        assert_eq!((refused.doing.as_str(), refused.errno), ("read pulses from /dev/null", Errno::NOTTY));
        assert!(Pps::open("/dev/no-such-pps").unwrap_err().doing.contains("/dev/no-such-pps"));
    }
}
