//! What the connections of a user may take of the server: places, and memory, which a real-time server has locked.

use super::Control;
use crate::memory;
use msg::{Excess, Share};

const PLACES: &str = "places for connections";
const REMEDY: &str = "close clients that are not needed, let one of them send for several, or run another server";
const MEMORY: &str = "bytes of memory for queues";
const MEMORY_REMEDY: &str = "close clients that are not needed, or let them ask for fewer bands";
/// Most memory of all connections' queues, and how much of the machine's it is at most.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
const MEMORY_PART: u64 = 4;

/// Files that are open for each place at most: its connection, and of each band memory and what tells a manager of pools.
const FILES_EACH: usize = 1 + 2 * msg::BANDS;
/// And for all else: memory and pools that are kept, greetings, the server's own.
const FILES: usize = 1024;

/// Why not as many files may be open as places may need.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error(
        "{may} files may be open, expected {files} for {places} places with all bands; raise the limit (`files` in the plant)"
    )]
    Limit { may: u64, files: u64, places: usize },
    #[error(transparent)]
    System(#[from] sys::Error),
}

/// Lets so many files be open as that many places may need.
pub(super) fn raise_files(places: usize) -> Result<(), FilesError> {
    let files = (places * FILES_EACH + FILES) as u64;
    match sys::files::raise_limit(files) {
        Ok(may) if may < files => Err(FilesError::Limit { may, files, places }),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Control<'_> {
    /// Whether a user may have one more connection, with so many bands.
    pub(super) fn admit(&mut self, user: u32, bands: usize) -> Result<(), Excess> {
        let places = Share { what: PLACES, all: self.peers.len() as u64, remedy: REMEDY };
        let all = MEMORY_BYTES_MAX.min(sys::mem::total().0 / MEMORY_PART);
        let bytes = Share { what: MEMORY, all, remedy: MEMORY_REMEDY };
        let taken = || self.peers.iter().flatten().map(|peer| (peer.caller.uid, peer.bands.len()));
        let ours = sys::handover::is_ours;
        let admitted = places.admit(taken().map(|(user, _)| (user, 1)), user, 1, ours).and_then(|()| {
            let queues = |bands: usize| (bands * memory::BYTES) as u64;
            bytes.admit(taken().map(|(user, bands)| (user, queues(bands))), user, queues(bands), ours)
        });
        admitted.inspect_err(|_| self.over_share += 1)
    }
}
