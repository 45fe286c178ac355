//! Limits of connections per user: slots, and memory, which a real-time server has locked.

use super::Control;
use crate::memory;
use msg::{Excess, Share};

const PLACES: &str = "places for connections";
const REMEDY: &str = "close unused clients, share one client, or run another server";
const MEMORY: &str = "bytes of memory for queues";
const MEMORY_REMEDY: &str = "close unused clients, or request fewer bands";
/// Maximum memory of all connections' queues: 1 GiB, and at most 1/4 of the machine's memory.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
const MEMORY_PART: u64 = 4;

/// Maximum open files per connection: its socket, and for each band its memory and the announcement socket of a
/// manager.
const FILES_EACH: usize = 1 + 2 * msg::BANDS;
/// Open files for everything else: kept memory and pools, greetings, the server's own files.
const FILES: usize = 1024;

/// The limit of open files is too low for all connections, or cannot be raised.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error(
        "{may} files may be open, expected {files} for {places} places with all bands; raise the limit (`files` in the plant)"
    )]
    Limit { may: u64, files: u64, places: usize },
    #[error(transparent)]
    System(#[from] sys::Error),
}

/// Raises the limit of open files for `places` connections.
pub(super) fn raise_files(places: usize) -> Result<(), FilesError> {
    let files = (places * FILES_EACH + FILES) as u64;
    match sys::files::raise_limit(files) {
        Ok(may) if may < files => Err(FilesError::Limit { may, files, places }),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Control<'_> {
    /// Checks whether a user may have one more connection with `bands` bands.
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
