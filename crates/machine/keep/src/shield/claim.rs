//! The machine-wide claim on the shield: one shield per machine, whichever run directory has its journal. A lock file
//! holds the path of that run directory.
//!
//! On the running machine only root can open the lock file, so no other user can hold or write it. It is written before
//! the first journal and emptied after the last. A path whose directory has no journal is not a claim.
//!
//! A copy of the journal is next to the lock file, so that removing a run directory loses no old value.

use super::Error;
use super::journal::{Journal, JournalState, read};
use super::machine::Machine;
use crate::RunDir;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use sys::lock::FileLock;

/// Lock file of the running machine.
pub(super) const MACHINE: &str = "/run/tahti-shield.lock";

/// Lock file of a machine that is not the running one, in the run directory.
const INVENTED: &str = "shield.lock";

/// Longer than any path.
const PATH_BYTES_MAX: u64 = 1 << 13;

/// The right to change the shield. It ends when the value is dropped or the process ends.
pub(super) struct Claim {
    lock: FileLock,
    path: PathBuf,
}

impl Claim {
    /// Waits until no other process changes the machine's shield.
    pub(super) fn take(machine: &dyn Machine, dir: &RunDir) -> Result<Self, Error> {
        let path = machine.lock().map_or_else(|| dir.path().join(INVENTED), Path::to_owned);
        let lock = || {
            dir.make()?;
            let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow);
            FileLock::take(options.open(&path)?)
        };
        let lock = lock().map_err(|error: io::Error| failed(&path, &error))?;
        Ok(Self { lock, path })
    }

    /// Records this run directory as the holder of the shield.
    pub(super) fn hold(&mut self, dir: &RunDir) -> Result<(), Error> {
        let own = absolute(dir);
        if self.holder()?.as_deref() == Some(&own) {
            return Ok(());
        }
        self.write(own.as_os_str().as_bytes())
    }

    /// Records that there is no shield.
    pub(super) fn give_up(&mut self) -> Result<(), Error> {
        let copy = copy_beside(&self.path);
        sys::whole::remove(&copy).map_err(|error| failed(&copy, &error))?;
        self.write(b"")
    }

    /// Writes the journal and its copy before any of its steps is executed.
    ///
    /// # Errors
    /// There is no space or no permission.
    pub(super) fn save(&self, journal: &Journal, dir: &RunDir) -> Result<(), Error> {
        journal.save(dir)?;
        let copy = copy_beside(&self.path);
        let text = journal.text(&copy)?;
        let written = sys::whole::replace(&copy, text.as_bytes(), 0o600, sys::whole::Survives::PowerLoss);
        written.map_err(|error| failed(&copy, &error))
    }

    /// The journal of this run directory, or its copy if the journal is missing.
    ///
    /// # Errors
    /// Neither can be read.
    pub(super) fn load(&mut self, dir: &RunDir, boot_id: &str) -> Result<JournalState, Error> {
        match Journal::load(dir, boot_id)? {
            JournalState::None if self.holder()?.as_deref() == Some(&absolute(dir)) => read_copy(&self.path, boot_id),
            found => Ok(found),
        }
    }

    /// Checks that no other run directory has a shield of this boot.
    ///
    /// # Errors
    /// Another run directory has a shield, with its state; or its journal cannot be read.
    pub(super) fn is_free_for(&mut self, dir: &RunDir, boot_id: &str) -> Result<(), Error> {
        let own = absolute(dir);
        let Some(other) = self.holder()?.filter(|other| *other != own) else { return Ok(()) };
        let found = match Journal::load(&RunDir::at(&other), boot_id)? {
            JournalState::None => read_copy(&self.path, boot_id)?,
            found => found,
        };
        match found {
            JournalState::None | JournalState::OtherBoot => Ok(()),
            JournalState::Here(journal) => Err(Error::Elsewhere {
                dir: other.display().to_string(),
                cpus: Box::new(journal.want.cpus),
                state: journal.state,
            }),
        }
    }

    fn holder(&mut self) -> Result<Option<PathBuf>, Error> {
        let mut bytes = Vec::new();
        let mut file = self.lock.file();
        let read = file.rewind().and_then(|()| file.take(PATH_BYTES_MAX).read_to_end(&mut bytes));
        read.map_err(|error| failed(&self.path, &error))?;
        Ok((!bytes.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(bytes))))
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Error> {
        let mut file = self.lock.file();
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text));
        written.map_err(|error| failed(&self.path, &error))
    }
}

/// Path of the journal's copy.
fn copy_beside(lock: &Path) -> PathBuf {
    lock.with_extension("copy")
}

fn read_copy(lock: &Path, boot_id: &str) -> Result<JournalState, Error> {
    let copy = copy_beside(lock);
    match std::fs::read_to_string(&copy) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(JournalState::None),
        Err(error) => Err(Error::Journal { path: copy.display().to_string(), error: error.to_string() }),
        // A copy of another boot is overwritten by the next one.
        Ok(text) => read(&text, boot_id, &copy),
    }
}

/// The copy of this run directory's journal, if the journal is missing and this run directory holds the shield. For
/// callers that change nothing and therefore take no lock.
pub(super) fn lost(dir: &RunDir, boot_id: &str) -> Result<Option<Box<Journal>>, Error> {
    // A user who cannot read the lock has no shield.
    let Ok(holder) = std::fs::read(MACHINE) else { return Ok(None) };
    if holder != absolute(dir).as_os_str().as_bytes() {
        return Ok(None);
    }
    match read_copy(Path::new(MACHINE), boot_id)? {
        JournalState::Here(journal) => Ok(Some(journal)),
        JournalState::None | JournalState::OtherBoot => Ok(None),
    }
}

fn absolute(dir: &RunDir) -> PathBuf {
    std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned())
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::NoJournal { path: path.display().to_string(), error: error.to_string() }
}
