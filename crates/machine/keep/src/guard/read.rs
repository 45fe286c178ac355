//! Numbers from `/proc` files, read through open descriptors without allocation.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Every field read from `/proc/PID/task/TID/status` is within this many bytes.
const STATUS_BYTES: usize = 4096;

/// Processor time in nanoseconds of `/proc/PID/task/TID/schedstat`.
pub(super) fn processor_time(schedstat: impl AsFd) -> Option<i64> {
    let mut bytes = [0u8; 96];
    let got = rustix::io::pread(schedstat, &mut bytes, 0).ok()?;
    number(&bytes[..got])
}

/// `voluntary_ctxt_switches` of a status file.
pub(super) fn voluntary_switches(status: impl AsFd) -> Option<u64> {
    const FIELD: &[u8] = b"\nvoluntary_ctxt_switches:";
    let mut bytes = [0u8; STATUS_BYTES];
    let got = rustix::io::pread(status, &mut bytes, 0).ok()?;
    let text = &bytes[..got];
    let at = text.windows(FIELD.len()).rposition(|window| window == FIELD)?;
    number(&text[at + FIELD.len()..]).map(|number| number as u64)
}

/// The state letter of a stat file. `None` once the descriptor's thread or process is gone, even if its PID has been reused.
pub(super) fn state(stat: impl AsFd) -> Option<u8> {
    state_and_parent(stat).map(|(state, _)| state)
}

/// The state letter of a stat file, and the parent's PID.
pub(super) fn state_and_parent(stat: impl AsFd) -> Option<(u8, i32)> {
    let mut bytes = [0u8; 512];
    let got = rustix::io::pread(stat, &mut bytes, 0).ok()?;
    let text = &bytes[..got];
    let end = text.iter().rposition(|byte| *byte == b')')?;
    Some((*text.get(end + 2)?, number(text.get(end + 3..)?)? as i32))
}

/// The decimal number at the start of a text, after blanks.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    digits[..end].iter().try_fold(0i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')))
}

/// `/proc/PID`, or `task/TID/NAME` relative to an open directory, in a fixed buffer.
pub(super) struct ProcPath {
    bytes: [u8; 80],
    length: usize,
}

impl ProcPath {
    /// An absolute path, beginning with `/proc`.
    pub(super) fn new() -> Self {
        Self::below().text(b"/proc")
    }

    /// A path relative to an open directory.
    pub(super) fn below() -> Self {
        Self { bytes: [0; 80], length: 0 }
    }

    fn separator(self) -> Self {
        if self.length == 0 { self } else { self.text(b"/") }
    }

    fn text(mut self, text: &[u8]) -> Self {
        let end = self.length + text.len();
        // The last byte stays zero: it terminates the path.
        if end < self.bytes.len() {
            self.bytes[self.length..end].copy_from_slice(text);
            self.length = end;
        }
        self
    }

    pub(super) fn name(self, name: &[u8]) -> Self {
        self.separator().text(name)
    }

    pub(super) fn id(self, id: i32) -> Self {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        let mut rest = id.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.separator().text(&digits[at..])
    }

    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        self.open_in(rustix::fs::CWD)
    }

    pub(super) fn open_in(&self, folder: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        use rustix::fs::{Mode, OFlags};
        let path = std::ffi::CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)?;
        rustix::fs::openat(folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_numbers_are_parsed_and_overflow_is_refused() {
        for (text, expected) in [
            ("123 4 5\n", Some(123)),
            ("\t7\n", Some(7)),
            ("", None),
            ("x", None),
            ("99999999999999999999", None),
            ("0", Some(0)),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn files_of_this_process_are_found_and_read() {
        let pid = std::process::id() as i32;
        let open = |name: &[u8]| ProcPath::new().id(pid).name(b"task").id(pid).name(name).open().unwrap();
        assert!(processor_time(open(b"schedstat")).is_some());
        assert!(voluntary_switches(open(b"status")).is_some());
        assert!(state(open(b"stat")).is_some_and(|letter| letter.is_ascii_uppercase()));
        assert!(ProcPath::new().id(0).open().is_err());
        assert!(ProcPath::new().id(i32::MAX).name(&[b'x'; 200]).name(b"stat").open().is_err());
        let folder = ProcPath::new().id(pid).open().unwrap();
        let stat = ProcPath::below().name(b"stat").open_in(folder.as_fd()).unwrap();
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(state_and_parent(stat).map(|(_, parent)| parent), parent);
    }
}
