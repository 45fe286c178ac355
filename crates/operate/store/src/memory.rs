//! Files in memory with fault injection, for tests and for trials without a disk.

use crate::files::Files;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A folder in memory. A clone refers to the same folder.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    files: BTreeMap<String, Bytes>,
    /// Names, with their files, that would survive a power cut.
    safe_names: BTreeMap<String, u64>,
    next: u64,
    room: Option<u64>,
    operations: u64,
    fails_from: Option<u64>,
    sync_fails: Option<ErrorKind>,
    locked: std::collections::HashMap<String, std::sync::Weak<()>>,
}

#[derive(Clone, Debug, Default)]
struct Bytes {
    id: u64,
    bytes: Vec<u8>,
    safe: usize,
    /// Ranges that a failed sync dropped; later syncs do not make them safe.
    dropped: Vec<std::ops::Range<usize>>,
}

/// An open file of a [`Memory`].
#[derive(Debug)]
pub struct MemoryFile {
    name: String,
    id: u64,
}

/// A lock of a [`Memory`].
#[derive(Debug)]
pub struct MemoryLock {
    #[expect(dead_code, reason = "it is held")]
    held: Arc<()>,
    file: MemoryFile,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the free space to `room` bytes; `None`: unlimited.
    pub fn set_room(&self, room: Option<u64>) {
        self.state().room = room;
    }

    /// Makes every modifying operation fail from the `number`th on, as if the process had been killed there. Of bytes being
    /// appended at that moment, half are written. `None`: no failures.
    pub fn fail_from(&self, number: Option<u64>) {
        self.state().fails_from = number;
    }

    /// Makes syncs fail. As on a disk, data appended before a failed sync are not made safe by the next one.
    pub fn fail_sync(&self, fails: bool) {
        self.fail_sync_by(fails.then_some(ErrorKind::Other));
    }

    /// Makes syncs fail with a given error; `None`: no failures.
    pub fn fail_sync_by(&self, why: Option<ErrorKind>) {
        self.state().sync_fails = why;
    }

    /// Number of modifying operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The state after a power cut: synced names, and `percent` (0 … 100) of the bytes appended since the last sync.
    #[must_use]
    pub fn after_power_cut(&self, percent: usize) -> Self {
        let state = self.state();
        let mut files = BTreeMap::new();
        for (name, id) in &state.safe_names {
            // The name may have changed since.
            if let Some(file) = state.files.values().find(|file| file.id == *id) {
                let len = file.safe + (file.bytes.len() - file.safe) * percent / 100;
                let mut bytes = file.bytes[..len].to_vec();
                // Of a range that a sync dropped, the same percentage is present; the rest reads as zeros.
                for range in &file.dropped {
                    let kept = range.start + range.len() * percent / 100;
                    let end = range.end.min(len);
                    bytes[kept.min(end)..end].fill(0);
                }
                files.insert(name.clone(), Bytes { id: *id, bytes, safe: len, dropped: Vec::new() });
            }
        }
        let safe_names = files.iter().map(|(name, file)| (name.clone(), file.id)).collect();
        Self(Arc::new(Mutex::new(State { files, safe_names, next: state.next, ..State::default() })))
    }

    /// A copy of all files.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.state();
        let plain = State {
            files: state.files.clone(),
            safe_names: state.safe_names.clone(),
            next: state.next,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(plain)))
    }

    /// Contents of a file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.state().files.get(name).map(|file| file.bytes.clone())
    }

    /// Creates or replaces a file.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        state.next += 1;
        let (id, safe) = (state.next, bytes.len());
        state.files.insert(name.to_owned(), Bytes { id, bytes, safe, dropped: Vec::new() });
        state.safe_names.insert(name.to_owned(), id);
    }
}

impl State {
    /// Counts an operation. Fails if failures are injected from here on.
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.fails_from {
            Some(from) if self.operations >= from => Err(io::Error::other("injected")),
            _ => Ok(()),
        }
    }

    fn file(&mut self, open: &MemoryFile) -> io::Result<&mut Bytes> {
        // A file that was removed while open is not found; its name is used only for the error.
        let found = self.files.values_mut().find(|file| file.id == open.id);
        found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, open.name.clone()))
    }
}

impl Files for Memory {
    type File = MemoryFile;
    type Lock = MemoryLock;

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.state().files.iter().map(|(name, file)| (name.clone(), file.bytes.len() as u64)).collect())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let mut state = self.state();
        state.step()?;
        if state.files.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.next += 1;
        let id = state.next;
        state.files.insert(name.to_owned(), Bytes { id, ..Bytes::default() });
        Ok(MemoryFile { name: name.to_owned(), id })
    }

    fn append_to(&self, name: &str) -> io::Result<MemoryFile> {
        self.open(name)
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = state.files.get_mut(name).ok_or(ErrorKind::NotFound)?;
        let cut = file.bytes.len().saturating_sub(len as usize);
        file.bytes.truncate(len as usize);
        file.safe = file.safe.min(file.bytes.len());
        if let Some(room) = &mut state.room {
            *room += cut as u64;
        }
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        let state = self.state();
        let file = state.files.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(MemoryFile { name: name.to_owned(), id: file.id })
    }

    fn append(&self, open: &mut MemoryFile, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let fails = state.step();
        let room = state.room.unwrap_or(u64::MAX).min(bytes.len() as u64) as usize;
        let len = if fails.is_err() { room / 2 } else { room };
        if let Some(room) = &mut state.room {
            *room -= len as u64;
        }
        state.file(open)?.bytes.extend_from_slice(&bytes[..len]);
        fails?;
        if len < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self, open: &MemoryFile) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let fails = state.sync_fails;
        let file = state.file(open)?;
        let before = std::mem::replace(&mut file.safe, file.bytes.len());
        let Some(why) = fails else { return Ok(()) };
        file.dropped.push(before..file.bytes.len());
        Err(io::Error::new(why, "injected"))
    }

    fn read_at(&self, open: &MemoryFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        let bytes = &state.file(open)?.bytes;
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let len = buffer.len().min(bytes.len() - begin);
        buffer[..len].copy_from_slice(&bytes[begin..begin + len]);
        Ok(len)
    }

    fn len(&self, open: &MemoryFile) -> io::Result<u64> {
        Ok(self.state().file(open)?.bytes.len() as u64)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = state.files.remove(from).ok_or(ErrorKind::NotFound)?;
        let replaced = state.files.insert(to.to_owned(), file).map_or(0, |file| file.bytes.len() as u64);
        if let Some(room) = &mut state.room {
            *room += replaced;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = state.files.remove(name).ok_or(ErrorKind::NotFound)?;
        if let Some(room) = &mut state.room {
            *room += file.bytes.len() as u64;
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.safe_names = state.files.iter().map(|(name, file)| (name.clone(), file.id)).collect();
        Ok(())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.state().room.unwrap_or(u64::MAX))
    }

    fn lock(&self, name: &str) -> io::Result<MemoryLock> {
        let mut state = self.state();
        if state.locked.get(name).is_some_and(|lock| lock.strong_count() > 0) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let lock = Arc::new(());
        state.locked.insert(name.to_owned(), Arc::downgrade(&lock));
        // The lock file remains, as in a folder.
        let id = state.next + 1;
        let id = state.files.entry(name.to_owned()).or_insert_with(|| Bytes { id, ..Bytes::default() }).id;
        state.next = state.next.max(id);
        Ok(MemoryLock { held: lock, file: MemoryFile { name: name.to_owned(), id } })
    }

    fn locked(lock: &MemoryLock) -> &MemoryFile {
        &lock.file
    }

    fn is_in_place(&self, open: &MemoryFile, name: &str) -> io::Result<bool> {
        Ok(self.state().files.get(name).is_some_and(|file| file.id == open.id))
    }
}
