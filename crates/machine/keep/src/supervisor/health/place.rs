//! The run folder and its files: still those of this supervisor, with room for more.

use crate::supervisor::rundir::RunDir;
use host::health::Observation;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Free bytes below which logs and evidence count as full.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// The files with their device and inode numbers.
#[derive(Debug)]
pub(super) struct Place(Vec<(&'static str, Option<(u64, u64)>)>);

/// The files created by this supervisor: the folder, the lock, the socket.
const FILES: [&str; 3] = ["", "lock", "control"];

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Place {
    /// The current state of the files.
    pub(super) fn of(run: &RunDir) -> Self {
        Self(FILES.map(|name| (name, identity(&run.path().join(name)))).into())
    }

    /// Whether they are still the same files.
    pub(super) fn compare(&self, run: &RunDir) -> Observation {
        for (name, made) in &self.0 {
            let path = run.path().join(name);
            let found = identity(&path);
            if found.is_none() {
                return Observation::Broken(format!("{} was removed", path.display()));
            }
            if found != *made {
                return Observation::Broken(format!("{} was replaced by another file", path.display()));
            }
        }
        Observation::Kept
    }
}

/// A report of the log or evidence folder that is full, if any.
pub(super) fn full(run: &RunDir) -> Option<String> {
    ["log", "evidence"].iter().find_map(|name| {
        let path = run.path().join(name);
        let found = rustix::fs::statvfs(&path).ok()?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        // A file system without a size, such as an overlay, reports no blocks.
        (free < ROOM_BYTES_MIN && found.f_blocks > 0)
            .then(|| format!("{} has {free} bytes free, {ROOM_BYTES_MIN} are needed", path.display()))
    })
}
