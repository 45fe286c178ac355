//! A kernel whose setting files stay open between reading, writing and reading back.
//!
//! Opening a kernel file costs as much as reading it, and a shield reads each of its settings three times.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::root::RootDir;
use base::{CpuSet, Policy};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// Maximum number of open files, well below the default limit of 1024 per process. Others are opened each time.
const FILES_MAX: usize = 512;

/// A longer setting is read through a new descriptor.
const SETTING_BYTES_MAX: usize = 4096;

type Answer<T> = std::result::Result<T, Errno>;

/// The machine under a root directory, with open files for its settings.
#[derive(Debug)]
pub struct OpenFiles {
    root: RootDir,
    open: RefCell<HashMap<String, OwnedFd>>,
}

impl OpenFiles {
    /// Starts without open files.
    #[must_use]
    pub fn new(root: RootDir) -> Self {
        Self { root, open: RefCell::default() }
    }

    /// Calls `act` with the open file of `path`. `None` if it cannot be opened for reading and writing, or if its
    /// object no longer exists; the caller then uses the path.
    fn with<T>(&self, path: &str, act: impl FnOnce(&OwnedFd) -> Answer<T>) -> Option<Answer<T>> {
        let mut open = self.open.borrow_mut();
        if !open.contains_key(path) {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let file = (open.len() < FILES_MAX).then(|| rustix::fs::open(self.root.path(path), flags, Mode::empty()));
            open.insert(path.to_owned(), file?.ok()?);
        }
        let answer = act(open.get(path)?);
        if matches!(answer, Err(Errno::NODEV | Errno::NOENT | Errno::IO | Errno::INTR)) {
            open.remove(path);
            return None;
        }
        Some(answer)
    }
}

impl Kernel for OpenFiles {
    fn read(&self, path: &str) -> Result<String> {
        self.root.read(path)
    }

    fn read_setting(&self, path: &str) -> Result<String> {
        let mut bytes = [0; SETTING_BYTES_MAX];
        match self.with(path, |file| rustix::io::pread(file, &mut bytes, 0)) {
            Some(Ok(length)) if length < bytes.len() => match std::str::from_utf8(&bytes[..length]) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => self.root.read(path),
            },
            _ => self.root.read(path),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.root.list(path)
    }

    fn subdirs(&self, path: &str) -> Result<Vec<String>> {
        self.root.subdirs(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.root.exists(path)
    }

    fn is_writable(&self, path: &str) -> Option<bool> {
        self.root.is_writable(path)
    }

    fn write(&self, path: &str, value: &str) -> Result<()> {
        let failed = |errno| Err(Error { doing: format!("write {value:?} to {path}"), errno });
        // Sequence files of /proc do not support an offset for writing, and ignore it.
        let write = |file: &OwnedFd| match rustix::io::pwrite(file, value.as_bytes(), 0) {
            Err(Errno::SPIPE) => rustix::io::write(file, value.as_bytes()),
            answer => answer,
        };
        match self.with(path, write) {
            Some(Ok(written)) if written == value.len() => Ok(()),
            Some(Ok(_)) => failed(Errno::IO),
            Some(Err(errno)) => failed(errno),
            None => self.root.write(path, value),
        }
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        self.root.make_dir(path)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.root.remove_dir(path)
    }

    fn affinity(&self, tid: i32) -> Result<CpuSet> {
        Kernel::affinity(&self.root, tid)
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> Result<()> {
        Kernel::set_affinity(&self.root, tid, cpus)
    }

    fn set_policy(&self, tid: i32, policy: Policy) -> Result<()> {
        Kernel::set_policy(&self.root, tid, policy)
    }

    fn is_machine(&self) -> bool {
        self.root.is_machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_at_the_path_now_is_read_and_written() {
        let folder = std::env::temp_dir().join(format!("tahti-keeping-{}", std::process::id()));
        let group = folder.join("group");
        std::fs::create_dir_all(&group).unwrap();
        let kernel = OpenFiles::new(RootDir::at(&folder));
        std::fs::write(group.join("cpus"), "0-3\n").unwrap();
        assert_eq!(kernel.read_setting("/group/cpus").unwrap(), "0-3\n");
        kernel.write("/group/cpus", "0-1\n").unwrap();
        assert_eq!(kernel.read_setting("/group/cpus").unwrap(), "0-1\n");
        assert!(kernel.read_setting("/group/none").is_err() && kernel.write("/group/none", "1").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_of_proc_are_read_and_written_through_one_open_file() {
        let kernel = OpenFiles::new(RootDir::machine());
        let path = "/proc/self/timerslack_ns";
        let before = kernel.read_setting(path).unwrap();
        kernel.write(path, "123456").unwrap();
        assert_eq!(kernel.read_setting(path).unwrap(), "123456\n");
        kernel.write(path, before.trim()).unwrap();
        assert_eq!(kernel.read_setting(path).unwrap(), before);
    }
}
