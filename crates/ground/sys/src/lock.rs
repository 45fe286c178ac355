//! Locks of files (`flock`), each held by one open file.
//!
//! The kernel releases such a lock when the last descriptor of the open file is closed. A child process that another thread is just
//! starting has a copy of each descriptor until it executes its program. So a lock that is only closed may stay taken for a moment.
//! [`FileLock`] therefore releases it explicitly, which releases it for all copies.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};

/// An exclusive lock of a file, released when it is dropped. A process that is forked without executing a program must not drop its
/// copy: that would release the lock of its parent.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes the lock of an open file. Does not wait.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] and the file if the lock is taken; otherwise the kernel's.
    pub fn try_take(file: File) -> Result<Self, (io::Error, File)> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err((ErrorKind::WouldBlock.into(), file)),
            Err(TryLockError::Error(error)) => Err((error, file)),
        }
    }

    /// Takes the lock of an open file. Waits, without a bound, until it is free.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file releases the lock, too, unless another process has a copy of the descriptor.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;
    use std::path::{Path, PathBuf};

    /// A child process with copies of all descriptors, which does not execute a program before it is killed.
    struct Forked(libc::pid_t);

    impl Forked {
        fn new() -> Self {
            // SAFETY: the child waits for a signal and touches nothing else.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            Self(child)
        }
    }

    impl Drop for Forked {
        fn drop(&mut self) {
            // SAFETY: ends and collects the child, which is this process's own and was not collected yet.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
        }
    }

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tahti-lock-{name}-{}", std::process::id())))
        }

        fn open(&self) -> File {
            File::options().create(true).append(true).open(&self.0).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn is_free(path: &Path) -> bool {
        FileLock::try_take(File::options().append(true).open(path).unwrap()).is_ok()
    }

    #[test]
    fn a_lock_is_free_once_it_is_dropped_although_a_forked_child_still_has_its_descriptor() {
        let place = Place::new("forked");
        for take in [|file| FileLock::try_take(file).unwrap(), |file| FileLock::take(file).unwrap()] {
            let lock = take(place.open());
            assert!(lock.file().as_raw_fd() >= 0);
            let child = Forked::new();
            assert!(!is_free(&place.0), "it is held");
            drop(lock);
            assert!(is_free(&place.0), "the child holds no lock");
            drop(child);
        }
    }

    #[test]
    fn a_lock_that_is_taken_is_refused_with_the_file() {
        let place = Place::new("taken");
        let lock = FileLock::take(place.open()).unwrap();
        let (error, file) = FileLock::try_take(place.open()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(lock);
        assert!(FileLock::try_take(file).is_ok());
    }
}
