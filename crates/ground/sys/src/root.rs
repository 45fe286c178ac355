//! Files of `/proc`, `/sys` and the cgroup tree below a root directory, which is `/` on the machine
//! itself and a folder of captured files in tests.

use crate::error::{Doing, Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// More than any kernel text file that tahti reads whole; larger ones are an error, not a surprise.
const FILE_BYTES_MAX: usize = 16 << 20;

/// A directory under which the machine's files are found.
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

    /// A captured or invented machine below `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the machine itself.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path` (absolute, as on the machine) really lies.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a whole text file; bytes that are no UTF-8 (a task may name itself so) are replaced.
    ///
    /// # Errors
    /// The kernel's, or `EFBIG` beyond 16 MiB.
    pub fn read(&self, path: &str) -> Result<String> {
        Ok(match String::from_utf8(self.read_bytes(path)?) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Reads a whole file as it is.
    ///
    /// # Errors
    /// The kernel's, or `EFBIG` beyond 16 MiB.
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

    /// Writes `value` to an existing file with a single `write`, creating and truncating nothing, as
    /// kernel files want it.
    ///
    /// # Errors
    /// The kernel's; the error carries path and value. A successful write proves nothing yet: read back.
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

    /// Makes one directory; its parent must exist.
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

    /// Whether the file's permissions let anybody write it; `None` for one that is not the machine's own.
    #[must_use]
    pub fn is_writable(&self, path: &str) -> Option<bool> {
        let stat = self.is_machine().then(|| rustix::fs::stat(self.path(path)))?.ok()?;
        Some(Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH))
    }

    /// Whether something is at `path`.
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
