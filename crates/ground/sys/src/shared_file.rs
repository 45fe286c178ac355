//! Files that several processes have mapped, by name: what others' formats want. Where both ends are ours, memory without a name
//! ([`shm`](crate::shm)) is handed over instead.

use crate::error::{Doing as _, Error, Result};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A file that this process made and has mapped; dropped, it is taken away.
#[derive(Debug)]
pub struct SharedFile {
    base: NonNull<AtomicU64>,
    words: usize,
    inode: u64,
    path: PathBuf,
}

// SAFETY: the mapping is reached by atomics alone, from whichever thread.
unsafe impl Send for SharedFile {}
// SAFETY: as above.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Makes a file of zeros, has it filled, and puts it under `path`: in the place of what is there, which whoever has it mapped keeps.
    /// Its user and group may write it. Who makes it shorter kills whoever looks at what is gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(path: &Path, bytes: usize, fill: impl FnOnce(&[AtomicU64], u64)) -> Result<Self> {
        let doing = || format!("make the shared file {}", path.display());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error { doing: doing(), errno: Errno::INVAL });
        };
        let new = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        // Left by a process of this number.
        let _ = std::fs::remove_file(&new);
        let words = bytes.div_ceil(8).max(1);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o660).open(&new).doing(doing)?;
        let made = Self::map(&file, words, path).and_then(|made| {
            fill(made.words(), made.inode);
            std::fs::rename(&new, path).doing(doing).map(|()| made)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        made
    }

    fn map(file: &std::fs::File, words: usize, path: &Path) -> Result<Self> {
        let doing = || format!("map the shared file {} of {} bytes", path.display(), words * 8);
        // Reserved, not only promised: a full disk shows now, not at a store.
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, (words * 8) as u64).doing(doing)?;
        let inode = file.metadata().doing(doing)?.ino();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap(null, words * 8, protection, MapFlags::SHARED, file, 0) };
        let base = NonNull::new(at.doing(doing)?.cast()).ok_or(Error { doing: doing(), errno: Errno::NOMEM })?;
        Ok(Self { base, words, inode, path: path.to_owned() })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is mapped for `words` words as long as self lives, is page-aligned, and every bit pattern is a valid AtomicU64.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Somebody else's under this name stays.
        if std::fs::metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_shared_file_is_there_whole_or_not_at_all_and_goes_with_its_maker() {
        let folder = std::env::temp_dir().join(format!("tahti-shared-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.im.shm");
        let first = SharedFile::create(&path, 20, |words, _| words[0].store(7, Ordering::Relaxed)).unwrap();
        let second = SharedFile::create(&path, 16, |words, inode| words[1].store(inode, Ordering::Relaxed)).unwrap();
        first.words()[2].store(1, Ordering::Relaxed);
        drop(first);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), u64::from_ne_bytes(bytes[8..].try_into().unwrap())), (16, second.inode));
        drop(second);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
        let nowhere = SharedFile::create(&path, 16, |_, _| ()).unwrap_err().to_string();
        assert!(nowhere.contains("x.im.shm") && nowhere.contains("No such file"), "{nowhere}");
    }
}
