//! Named files mapped by programs of several users, as required by foreign formats. If both ends are tahti's, memory
//! without a name ([`shm`](crate::shm)) is passed instead.
//!
//! Any program that may write such a file may also truncate it. A load or store beyond the new end then kills its
//! process with SIGBUS. This process therefore never accesses the mapping directly. Content is written by `pwrite`, and
//! semaphores are incremented by the kernel, which reports a missing page as an error.

use crate::error::{Doing as _, Error, Result};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A file created by this process and mapped by others. Dropping it removes the file.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    /// Address of the mapping, only passed to the kernel, never used for a load or store.
    base: NonNull<u8>,
    bytes: usize,
    inode: u64,
    path: PathBuf,
}

// SAFETY: the mapping is only an address passed to the kernel, from any thread.
unsafe impl Send for SharedFile {}
// SAFETY: as above.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Creates a file of `bytes` zeros, calls `fill` with them and the file's inode, and moves it to `path`. An
    /// existing file is replaced; programs that have it mapped keep the old one. The user and the group may write the
    /// new file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(path: &Path, bytes: usize, fill: impl FnOnce(&mut [u8], u64)) -> Result<Self> {
        let doing = || format!("make the shared file {}", path.display());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error { doing: doing(), errno: Errno::INVAL });
        };
        let new = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        // Left by an earlier process with the same id.
        let _ = std::fs::remove_file(&new);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o660).open(&new).doing(doing)?;
        let made = Self::map(file, bytes, path).and_then(|made| {
            let mut content = vec![0; bytes];
            fill(&mut content, made.inode);
            made.write(0, &content)?;
            std::fs::rename(&new, path).doing(doing).map(|()| made)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        made
    }

    fn map(file: File, bytes: usize, path: &Path) -> Result<Self> {
        let doing = || format!("map the shared file {} of {bytes} bytes", path.display());
        // Allocated on disk, so that a full disk is reported now.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64).doing(doing)?;
        let inode = file.metadata().doing(doing)?.ino();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap(null, bytes, protection, MapFlags::SHARED, &file, 0) };
        let base = NonNull::new(at.doing(doing)?.cast()).ok_or(Error { doing: doing(), errno: Errno::NOMEM })?;
        Ok(Self { file, base, bytes, inode, path: path.to_owned() })
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` beyond the end of the file.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let doing = || format!("write the shared file {}", self.path.display());
        self.within(at, bytes.len(), doing)?;
        self.file.write_all_at(bytes, at as u64).doing(doing)
    }

    /// Reads bytes at an offset.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` beyond the end of the file.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let doing = || format!("read the shared file {}", self.path.display());
        self.within(at, bytes.len(), doing)?;
        self.file.read_exact_at(bytes, at as u64).doing(doing)
    }

    fn within(&self, at: usize, bytes: usize, doing: impl FnOnce() -> String) -> Result<()> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if inside { Ok(()) } else { Err(Error { doing: doing(), errno: Errno::INVAL }) }
    }

    /// Whether the file still has its size and a name. Another program may have truncated or removed it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.len() == self.bytes as u64 && about.nlink() > 0)
    }

    /// Whether another file has its name.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|there| there.ino() != self.inode)
    }

    /// Increments the 32-bit number at `at`, and wakes one of its waiters, as `sem_post` of the C library does with its
    /// semaphore.
    ///
    /// # Errors
    /// `EFAULT` if that part of the file is missing; `EINVAL` beyond its end, or if `at` is not a multiple of 4.
    pub fn count_up_and_wake_one(&self, at: usize) -> Result<()> {
        let doing = || format!("post a semaphore of the shared file {}", self.path.display());
        self.within(at, 4, doing)?;
        let word = self.base.as_ptr().wrapping_add(at).cast::<u32>();
        // Adds 1 (its operand, shifted by 12). The comparison is irrelevant: it would wake no further thread.
        const ADD_ONE: u32 = (libc::FUTEX_OP_ADD as u32) << 28 | 1 << 12;
        let (wake, no_more) = (1 as libc::c_long, 0 as libc::c_long);
        // SAFETY: only the kernel accesses the address, and it returns `EFAULT` if there is no page.
        let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, wake, no_more, word, ADD_ONE) };
        if woken < 0 { Err(Error::last(doing())) } else { Ok(()) }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Keeps another file that has this name now.
        if std::fs::metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
        // SAFETY: `map` created the mapping with this length, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn make(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tahti-shared-file-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_shared_file_appears_complete_and_is_removed_by_its_creator_only() {
        let folder = Folder::make("whole");
        let path = folder.0.join("x.im.shm");
        let first = SharedFile::create(&path, 20, |bytes, _| bytes[0] = 7).unwrap();
        let fill = |bytes: &mut [u8], inode: u64| bytes[8..].copy_from_slice(&inode.to_ne_bytes());
        let second = SharedFile::create(&path, 16, fill).unwrap();
        first.write(16, &[1; 4]).unwrap();
        assert!(first.is_replaced() && !first.is_whole() && second.is_whole() && !second.is_replaced());
        assert_eq!(first.write(17, &[1; 4]).unwrap_err().errno, Errno::INVAL);
        drop(first);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), u64::from_ne_bytes(bytes[8..].try_into().unwrap())), (16, second.inode));
        drop(second);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
        let nowhere = SharedFile::create(&folder.0.join("none/x.im.shm"), 16, |_, _| ()).unwrap_err().to_string();
        assert!(nowhere.contains("x.im.shm") && nowhere.contains("No such file"), "{nowhere}");
    }

    #[test]
    fn a_file_truncated_by_another_program_is_an_error_and_not_a_signal() {
        let folder = Folder::make("cut");
        let path = folder.0.join("x.im.shm");
        let file = SharedFile::create(&path, 1 << 20, |_, _| ()).unwrap();
        let (far, mut now) = ((1 << 20) - 8, [0; 4]);
        file.count_up_and_wake_one(far).unwrap();
        file.count_up_and_wake_one(far).unwrap();
        file.read(far, &mut now).unwrap();
        assert_eq!(u32::from_ne_bytes(now), 2);
        // As programs using ImageStreamIO open the streams that they create.
        std::fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert!(!file.is_whole());
        assert_eq!(file.count_up_and_wake_one(far).unwrap_err().errno, Errno::FAULT);
        assert!(file.read(far, &mut now).is_err());
        file.write(far, &[1; 8]).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!file.is_whole(), "it has no name");
    }
}
