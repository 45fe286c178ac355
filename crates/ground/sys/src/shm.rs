//! Shared memory between processes: sealed memfds, accessed as atomic words.

use crate::error::{Doing, Error, Result};
use rustix::fs::{IFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Maximum bytes: more than any block that tahti shares. A larger one is not tahti's.
const BYTES_MAX: u64 = 1 << 30;

/// A mapped memfd whose size is sealed, so that it cannot be truncated during an access.
///
/// The words are atomics: another process may change them at any time without undefined behaviour here.
#[derive(Debug)]
pub struct SharedWords {
    fd: OwnedFd,
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed as atomics.
unsafe impl Send for SharedWords {}
// SAFETY: all access goes through `&[AtomicU64]`, which any number of threads may share.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates zeroed shared memory of `words` words. Programs started by this process inherit it only if its
    /// descriptor is passed on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(name: &str, words: usize) -> Result<Self> {
        Self::open(Self::unmapped(name, words)?, true)
    }

    /// Like [`create`](Self::create), but read-only for other processes: this mapping remains the only one that can
    /// write.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` before Linux 5.1.
    pub fn create_for_readers(name: &str, words: usize) -> Result<Self> {
        let fd = Self::made(name, words, SealFlags::SHRINK | SealFlags::GROW)?;
        // Mapped before sealing: afterwards no process can map it for writing, or write to its descriptor.
        let mapped = Self::open(fd, true)?;
        let doing = || format!("keep others from writing shared memory {name:?} (Linux 5.1 or later can)");
        rustix::fs::fcntl_add_seals(&mapped.fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL).doing(doing)?;
        Ok(mapped)
    }

    /// Like [`create`](Self::create), but not mapped in this process, which then has nothing to unmap later.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unmapped(name: &str, words: usize) -> Result<OwnedFd> {
        let fd = Self::made(name, words, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Fails without root, and before Linux 6.1: see `keeps_its_pages`.
        let _ = rustix::fs::ioctl_setflags(&fd, IFlags::IMMUTABLE);
        Ok(fd)
    }

    fn made(name: &str, words: usize, seals: SealFlags) -> Result<OwnedFd> {
        let doing = || format!("make shared memory {name:?} of {} bytes", words * 8);
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).doing(doing)?;
        rustix::fs::ftruncate(&fd, (words * 8) as u64).doing(doing)?;
        rustix::fs::fcntl_add_seals(&fd, seals).doing(doing)?;
        Ok(fd)
    }

    /// Whether no other process can remove pages from it by `fallocate` or `madvise`. Removed pages give each process
    /// that maps the memory a page fault at its next access, even if it is locked. True for memory created by root,
    /// from Linux 6.1 on. No seal prevents this for processes that map the memory for writing later, but an immutable
    /// file does, and can still be mapped.
    #[must_use]
    pub fn keeps_its_pages(&self) -> bool {
        let seals = rustix::fs::fcntl_get_seals(&self.fd).unwrap_or(SealFlags::empty());
        let flags = rustix::fs::ioctl_getflags(&self.fd).unwrap_or(IFlags::empty());
        seals.contains(SealFlags::FUTURE_WRITE) || flags.contains(IFlags::IMMUTABLE)
    }

    /// Maps shared memory received from another process, for reading and writing.
    ///
    /// # Errors
    /// `EINVAL` if it is not sealed against shrinking, or is too small or too large; the kernel's.
    pub fn attach(fd: OwnedFd) -> Result<Self> {
        Self::open(fd, true)
    }

    /// Maps shared memory whose descriptor `raw` this process inherited at its start.
    ///
    /// # Errors
    /// `EBADF` if it is not open; otherwise like [`attach`](Self::attach).
    pub fn inherited(raw: i32) -> Result<Self> {
        let doing = || format!("take over descriptor {raw}");
        if raw < 0 {
            return Err(Error { doing: doing(), errno: Errno::BADF });
        }
        // SAFETY: borrowed only for one call, which checks the number and returns EBADF.
        let theirs = unsafe { BorrowedFd::borrow_raw(raw) };
        Self::open(rustix::io::fcntl_dupfd_cloexec(theirs, 3).doing(doing)?, true)
    }

    /// Maps shared memory received from another process, for reading only.
    ///
    /// # Errors
    /// Like [`attach`](Self::attach).
    pub fn attach_read_only(fd: OwnedFd) -> Result<ReadWords> {
        Self::open(fd, false).map(ReadWords)
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is mapped for `words` words as long as self lives and is page-aligned, its size is sealed, and
        // every bit pattern is a valid AtomicU64.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// The user who created it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn user(&self) -> Result<u32> {
        Ok(rustix::fs::fstat(&self.fd).doing(|| "read the owner of the shared memory".to_owned())?.st_uid)
    }

    /// A descriptor that can only be mapped for reading, if some other processes must be able to write the memory. A
    /// process of the same user can reopen it for writing.
    ///
    /// # Errors
    /// The kernel's: `/proc` is not mounted.
    pub fn read_only(&self) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).doing(|| format!("open {path} for reading"))
    }

    /// The descriptor, for passing to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn open(fd: OwnedFd, write: bool) -> Result<Self> {
        let doing = || "map shared memory".to_owned();
        let seals = rustix::fs::fcntl_get_seals(&fd).doing(doing)?;
        let bytes = rustix::fs::fstat(&fd).doing(doing)?.st_size as u64;
        if !seals.contains(SealFlags::SHRINK) || !(8..=BYTES_MAX).contains(&bytes) {
            let doing = format!("map shared memory of {bytes} bytes (it must be sealed against shrinking)");
            return Err(Error { doing, errno: Errno::INVAL });
        }
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap(null, bytes as usize, protection, MapFlags::SHARED, &fd, 0) };
        let base = NonNull::new(at.doing(doing)?.cast()).ok_or(Error { doing: doing(), errno: Errno::NOMEM })?;
        Ok(Self { fd, base, words: (bytes / 8) as usize })
    }
}

impl AsRef<[AtomicU64]> for SharedWords {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: `open` created the mapping with this length, and no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}

/// [`SharedWords`] mapped read-only. A store would raise SIGSEGV, so use it only with views that read.
#[derive(Debug)]
pub struct ReadWords(SharedWords);

impl ReadWords {
    /// The words. Only loads are permitted.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

impl AsRef<[AtomicU64]> for ReadWords {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_one_memory_see_each_other() {
        let mine = SharedWords::create("tahti-test", 1000).unwrap();
        let theirs = SharedWords::attach_read_only(mine.fd().try_clone_to_owned().unwrap()).unwrap();
        mine.words()[999].store(42, Ordering::Release);
        assert_eq!((theirs.words().len(), theirs.words()[999].load(Ordering::Acquire)), (1000, 42));
    }

    #[test]
    fn memory_for_readers_is_writable_by_its_creator_only() {
        let mine = SharedWords::create_for_readers("tahti-shown", 8).unwrap();
        let again = || mine.fd().try_clone_to_owned().unwrap();
        assert!(SharedWords::attach(again()).unwrap_err().errno == Errno::PERM, "it is not mapped for writing");
        let path = format!("/proc/self/fd/{}", mine.fd().as_raw_fd());
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert!(std::os::unix::fs::FileExt::write_at(&opened, &[1; 8], 0).is_err());
        assert!(opened.set_len(0).is_err() && SharedWords::attach(opened.into()).is_err());
        let theirs = SharedWords::attach_read_only(again()).unwrap();
        mine.words()[7].store(5, Ordering::Release);
        assert_eq!((theirs.words()[7].load(Ordering::Acquire), theirs.words()[0].load(Ordering::Acquire)), (5, 0));
    }

    #[test]
    fn no_process_punches_holes_into_memory_that_keeps_its_pages() {
        use rustix::fs::FallocateFlags;
        let memories = [SharedWords::create("tahti-whole", 1024), SharedWords::create_for_readers("tahti-shown", 1024)];
        for mine in memories.map(Result::unwrap) {
            mine.words()[0].store(7, Ordering::Relaxed);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = rustix::fs::fallocate(mine.fd(), punch, 0, 8192);
            // Without root, only the second one does.
            assert_eq!(punched, if mine.keeps_its_pages() { Err(Errno::PERM) } else { Ok(()) });
            assert_eq!(mine.words()[0].load(Ordering::Relaxed), if mine.keeps_its_pages() { 7 } else { 0 });
        }
    }

    #[test]
    fn a_descriptor_for_reading_maps_for_reading_only() {
        let mine = SharedWords::create("tahti-test", 8).unwrap();
        let fd = mine.read_only().unwrap();
        assert_eq!(SharedWords::attach(fd.try_clone().unwrap()).unwrap_err().errno, Errno::ACCESS);
        mine.words()[7].store(5, Ordering::Release);
        assert_eq!(SharedWords::attach_read_only(fd).unwrap().words()[7].load(Ordering::Acquire), 5);
    }

    #[test]
    fn memory_that_could_shrink_under_the_reader_is_refused() {
        let fd = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let error = SharedWords::attach(fd).unwrap_err();
        assert!(error.to_string().contains("sealed against shrinking"), "{error}");
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(SharedWords::attach(file.into()).is_err());
    }
}
