//! The run folder and its files: still those of this supervisor, with room for more.

use crate::keeper::protocol::SOCKET_NAME;
use crate::supervisor::background::BackgroundTask;
use crate::supervisor::rundir::RunDir;
use base::DurNs;
use host::health::Observation;
use rustix::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Free bytes below which logs and evidence count as full.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// The files: device and inode numbers, mode and owner.
#[derive(Debug)]
pub(super) struct Place(Vec<(&'static str, Option<Identity>)>);

/// Device and inode number; mode and owner.
type Identity = ((u64, u64), (u32, u32));

/// The files created by this supervisor: the folder, the lock, the socket, the folder of the keepers.
const FILES: [&str; 4] = ["", "lock", "control", KEEPERS];
const KEEPERS: &str = "keep";

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some(((found.dev(), found.ino()), (found.mode() & 0o7777, found.uid())))
}

impl Place {
    /// The current state of the files.
    pub(super) fn of(run: &RunDir) -> Self {
        Self(FILES.map(|name| (name, identity(&run.path().join(name)))).into())
    }

    /// Whether they are still the files of this supervisor, whatever their modes.
    pub(super) fn is_ours(&self, run: &RunDir) -> bool {
        let file = |identity: Option<Identity>| identity.map(|(file, _)| file);
        let mut own = self.0.iter().filter(|(name, _)| *name != KEEPERS);
        own.all(|(name, made)| file(identity(&run.path().join(name))) == file(*made))
    }

    /// Whether they are still the same files, with the same modes and owners, and whether the state file and the sockets of the
    /// keepers of `processes` exist.
    pub(super) fn compare<'a>(&self, run: &RunDir, processes: impl Iterator<Item = &'a str>) -> Observation {
        for (name, made) in &self.0 {
            let path = run.path().join(name);
            let Some((file, rights)) = identity(&path) else {
                return Observation::Broken(format!("{} was removed", path.display()));
            };
            match made {
                Some((made, rights_made)) if *made == file && *rights_made == rights => {}
                Some((made, (mode, uid))) if *made == file => {
                    return Observation::Broken(format!(
                        "{} has mode {:o} and owner {}, expected {mode:o} and {uid}",
                        path.display(),
                        rights.0,
                        rights.1
                    ));
                }
                _ => return Observation::Broken(format!("{} was replaced by another file", path.display())),
            }
        }
        let sockets = processes.map(|name| run.keeper(name).join(SOCKET_NAME));
        match [run.state_file()].into_iter().chain(sockets).find(|path| !path.exists()) {
            Some(path) => Observation::Broken(format!("{} was removed", path.display())),
            None => Observation::Kept,
        }
    }
}

/// The check for room, on a background thread if the disk of the records may hang.
#[derive(Debug, Default)]
pub(super) struct Room(Option<BackgroundTask<Option<String>>>);

impl Room {
    /// The report of [`full`]; `None` if the disk has not answered. A new check begins when the last one has ended.
    pub(super) fn full(&mut self, run: &RunDir, may_hang: bool) -> Option<Option<String>> {
        if !may_hang {
            return Some(full(run));
        }
        let run = run.clone();
        self.ask(move || full(&run))
    }

    /// Waits for a check in progress, at most for `limit`.
    pub(super) fn wait(&self, limit: DurNs) {
        if let Some(task) = &self.0 {
            sys::poll::is_readable(task.as_fd(), limit);
        }
    }

    fn ask(&mut self, work: impl FnOnce() -> Option<String> + Send + 'static) -> Option<Option<String>> {
        let outcome = self.0.as_ref().and_then(BackgroundTask::take);
        if outcome.is_some() || self.0.is_none() {
            // Without a thread there is no answer, and the row is not observed.
            self.0 = BackgroundTask::begin("tahti-room", work).ok();
        }
        outcome?.ok()
    }
}

/// A report of the log or evidence folder that is full, if any.
fn full(run: &RunDir) -> Option<String> {
    ["log", "evidence"].iter().find_map(|name| {
        let path = run.path().join(name);
        let found = rustix::fs::statvfs(&path).ok()?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        // A file system without a size, such as an overlay, reports no blocks.
        (free < ROOM_BYTES_MIN && found.f_blocks > 0)
            .then(|| format!("{} has {free} bytes free, {ROOM_BYTES_MIN} are needed", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_disk_that_hangs_gives_no_answer_and_delays_no_pass() {
        let (mut room, (answer, waits)) = (Room::default(), sync_channel::<()>(1));
        let hangs = move || waits.recv().ok().map(|()| "full".to_owned());
        assert_eq!(room.ask(hangs), None);
        for _ in 0..100 {
            assert_eq!(room.ask(|| panic!("a check is running")), None);
        }
        answer.send(()).unwrap();
        let found = std::iter::repeat_with(|| room.ask(|| None)).flatten().next().unwrap();
        assert_eq!(found, Some("full".to_owned()));
        let found = std::iter::repeat_with(|| room.ask(|| None)).flatten().next().unwrap();
        assert_eq!(found, None, "there is room again");
    }
}
