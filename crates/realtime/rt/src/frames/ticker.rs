//! Files and descriptors that begin a minor by becoming readable.

use base::DurNs;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use sys::uio::Uio;

/// Maximum time of one wait.
const LOOK: DurNs = DurNs::from_ms(50);

/// A file that delivers ticks.
#[derive(Debug)]
pub(crate) struct Ticker {
    file: File,
    tells: Tells,
}

/// Meaning of the data read from a file.
#[derive(Clone, Copy, Debug)]
enum Tells {
    /// UIO: the running count of interrupts, in exactly 4 bytes. The value is the last count.
    Running(Option<u32>),
    /// `eventfd` or `timerfd`: the number of ticks since the last read, in 8 bytes.
    Since,
    /// A FIFO, a socket or another device: each read is one tick, whatever the data.
    Something,
}

impl Ticker {
    /// Determines the meaning of reads from `file`.
    pub(crate) fn of(file: File) -> Self {
        let named = |kind: std::fs::FileType| {
            kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() || kind.is_file()
        };
        let tells = match file.metadata().map(|about| about.file_type()) {
            Ok(kind) if kind.is_char_device() && Uio::is(file.as_fd()) => Tells::Running(None),
            // An anonymous descriptor (eventfd, timerfd) has none of the file types that a path can have.
            Ok(kind) if !named(kind) => Tells::Since,
            _ => Tells::Something,
        };
        Self { file, tells }
    }

    /// Number of new ticks; waits briefly for the first. Returns `None` once the file has ended.
    ///
    /// The interrupt of a UIO device is not enabled again here. It would come at once, because the device still asserts it.
    /// The thread that services the device must enable it.
    ///
    /// Real-time: blocks; does not allocate.
    pub(crate) fn ticks(&mut self) -> Option<u64> {
        if !sys::poll::is_readable(self.file.as_fd(), LOOK) {
            return Some(0);
        }
        let mut bytes = [0u8; 64];
        let room = match self.tells {
            Tells::Running(_) => &mut bytes[..4],
            Tells::Since => &mut bytes[..8],
            Tells::Something => &mut bytes[..],
        };
        match (self.file.read(room), &mut self.tells) {
            (Ok(4), Tells::Running(seen)) => {
                let count = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                Some(seen.replace(count).map_or(1, |before| u64::from(count.wrapping_sub(before))))
            }
            (Ok(8), Tells::Since) => bytes.first_chunk().map(|count| u64::from_ne_bytes(*count)),
            (Ok(1..), Tells::Something) => Some(1),
            // Another process has read the data first.
            (Err(error), _) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some(0),
            _ => None,
        }
    }
}
