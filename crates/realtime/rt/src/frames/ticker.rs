//! Files and descriptors that begin minors by becoming readable.

use base::DurNs;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use sys::uio::Uio;

/// How long a look waits at most.
const LOOK: DurNs = DurNs::from_ms(50);

/// A file that tells ticks.
#[derive(Debug)]
pub(crate) struct Ticker {
    file: File,
    tells: Tells,
}

/// What a read of a file says.
#[derive(Clone, Copy, Debug)]
enum Tells {
    /// UIO: the running count of interrupts, in 4 bytes, no more and no less; the last one seen.
    Running(Option<u32>),
    /// An `eventfd` or a `timerfd`: how many since the last read, in 8 bytes.
    Since,
    /// A FIFO, a socket, another device: something has come, whatever it says.
    Something,
}

impl Ticker {
    /// Finds out what reads of `file` say.
    pub(crate) fn of(file: File) -> Self {
        let named = |kind: std::fs::FileType| {
            kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() || kind.is_file()
        };
        let tells = match file.metadata().map(|about| about.file_type()) {
            Ok(kind) if kind.is_char_device() && Uio::is(file.as_fd()) => Tells::Running(None),
            // What the kernel made for a descriptor alone is none of the kinds that a name can stand for.
            Ok(kind) if !named(kind) => Tells::Since,
            _ => Tells::Something,
        };
        Self { file, tells }
    }

    /// How many ticks have come; waits for the first for a moment. `None` once the file has ended.
    ///
    /// A UIO device's interrupt is not switched on again here: it would come at once, for nobody has quietened the device
    /// yet. Who does that does this, too.
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
            // Somebody else has read it.
            (Err(error), _) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some(0),
            _ => None,
        }
    }
}
