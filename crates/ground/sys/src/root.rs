//! Files of `/proc`, `/sys` and the cgroup tree under a root directory: `/` on the machine, a folder of captured files
//! in tests.

use crate::error::{Doing, Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Maximum bytes of a text file: more than any kernel file that tahti reads as a whole. A larger file is an error.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The root directory of a machine's files.
#[derive(Clone, Debug)]
pub struct RootDir {
    root: PathBuf,
}

impl RootDir {
    /// The machine itself.
    #[must_use]
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// A captured or artificial machine under `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the machine itself.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Real path of `path` (absolute, as on the machine).
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a whole text file. Bytes that are not UTF-8 (a task's name may contain them) are replaced.
    ///
    /// # Errors
    /// The kernel's, or `EFBIG` above 16 MiB.
    pub fn read(&self, path: &str) -> Result<String> {
        Ok(match String::from_utf8(self.read_bytes(path)?) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Reads a whole file as bytes.
    ///
    /// # Errors
    /// The kernel's, or `EFBIG` above 16 MiB.
    pub fn read_bytes(&self, path: &str) -> Result<Vec<u8>> {
        let doing = || format!("read {path}");
        let file = rustix::fs::open(self.path(path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).doing(doing)?;
        let mut bytes = Vec::with_capacity(4096);
        loop {
            let filled = bytes.len();
            if filled > FILE_BYTES_MAX {
                return Err(Error { doing: doing(), errno: Errno::FBIG });
            }
            bytes.resize(filled.max(2048) * 2, 0);
            match rustix::io::read(&file, &mut bytes[filled..]) {
                Ok(0) => {
                    bytes.truncate(filled);
                    return Ok(bytes);
                }
                Ok(got) => bytes.truncate(filled + got),
                Err(Errno::INTR) => bytes.truncate(filled),
                Err(errno) => return Err(Error { doing: doing(), errno }),
            }
        }
    }

    /// Writes `value` to an existing file with a single `write`, as kernel files require. Neither creates nor
    /// truncates.
    ///
    /// # Errors
    /// The kernel's, with path and value. Success does not prove that the kernel has adopted the value: read it back.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        let doing = || format!("write {value:?} to {path}");
        let file = rustix::fs::open(self.path(path), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).doing(doing)?;
        loop {
            match rustix::io::write(&file, value.as_bytes()) {
                Ok(written) if written == value.len() => return Ok(()),
                Ok(_) => return Err(Error { doing: doing(), errno: Errno::IO }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error { doing: doing(), errno }),
            }
        }
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let doing = || format!("list {path}");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path)).doing(doing)? {
            names.push(entry.doing(doing)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The names of a directory's subdirectories, sorted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn subdirs(&self, path: &str) -> Result<Vec<String>> {
        let doing = || format!("list {path}");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path)).doing(doing)? {
            let entry = entry.doing(doing)?;
            if entry.file_type().doing(doing)?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Creates one directory; its parent must exist.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_dir(&self, path: &str) -> Result<()> {
        rustix::fs::mkdir(self.path(path), Mode::from_raw_mode(0o755)).doing(|| format!("make directory {path}"))
    }

    /// Removes one empty directory (a cgroup without tasks and children counts as empty).
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_dir(&self, path: &str) -> Result<()> {
        rustix::fs::rmdir(self.path(path)).doing(|| format!("remove directory {path}"))
    }

    /// Whether the file's mode has any write bit; `None` if this is not the machine itself.
    #[must_use]
    pub fn is_writable(&self, path: &str) -> Option<bool> {
        let stat = self.is_machine().then(|| rustix::fs::stat(self.path(path)))?.ok()?;
        Some(Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH))
    }

    /// Whether `path` exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let root = RootDir::machine();
        let error = root.read("/proc/no-such-file").unwrap_err();
        assert_eq!(error.to_string(), "failed to read /proc/no-such-file: No such file or directory (os error 2)");
        assert!(root.write("/proc/no-such-file", "1").is_err());
        assert!(!root.exists("/proc/no-such-file"));
    }

    #[test]
    fn kernel_files_are_read_whole() {
        let root = RootDir::machine();
        assert!(root.read("/proc/self/status").unwrap().contains("Cpus_allowed_list:"));
        assert!(root.list("/proc/self").unwrap().contains(&"status".to_owned()));
    }
}
