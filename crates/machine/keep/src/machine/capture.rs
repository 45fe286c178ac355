//! Captures of another machine's files: made by [`take`], and read as if they were that machine.

use super::{facts, snapshot};
use base::{CpuSet, Policy};
use host::doctor::{CaptureError, FileContent, Files};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use sys::kernel::Kernel;
use sys::root::RootDir;
use sys::{Errno, Error, Result};

/// All files that doctor and shield read below `root`, without private data.
///
/// # Errors
/// The kernel's error for a file that every machine has.
pub fn take(root: &RootDir) -> Result<Files> {
    let mut files = Files::new(true);
    for (path, read) in facts::files(root).iter() {
        files.insert(path, read.clone());
    }
    let recorder = Recorder { root, read: RefCell::default() };
    let online = root.read("/sys/devices/system/cpu/online")?.parse().unwrap_or_default();
    snapshot(&recorder, &online)?;
    for (path, text) in recorder.read.into_inner() {
        files.insert(path, FileContent::Text(text));
    }
    Ok(files.scrubbed())
}

/// A capture that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory does not contain a machine's files.
    #[error("{}: {error}", .path.display())]
    Machine {
        /// The directory.
        path: PathBuf,
        /// The missing file.
        error: Error,
    },
    /// The path is neither a directory nor a readable text file.
    #[error(
        "{}: expected a directory that holds proc and sys, or a text made by `tahti doctor --capture`: {error}",
        .path.display()
    )]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The error of the read.
        error: std::io::Error,
    },
    /// The text file is not a capture.
    #[error("{}: {error}", .path.display())]
    NoCapture {
        /// The file.
        path: PathBuf,
        /// The syntax error.
        error: CaptureError,
    },
}

/// Loads the captured machine at `path`: a text made by [`take`], or a directory with the layout of `/`.
///
/// # Errors
/// The path contains something else; see [`LoadError`].
pub fn load(path: &Path) -> std::result::Result<Captured, LoadError> {
    let path = path.to_owned();
    if path.is_dir() {
        return match take(&RootDir::at(&path)) {
            Ok(files) => Ok(Captured(files)),
            Err(error) => Err(LoadError::Machine { path, error }),
        };
    }
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Err(LoadError::Unreadable { path, error }),
    };
    Files::from_capture(&text).map(Captured).map_err(|error| LoadError::NoCapture { path, error })
}

/// A read-only machine that records each file read from it.
struct Recorder<'a> {
    root: &'a RootDir,
    read: RefCell<BTreeMap<String, String>>,
}

/// A read-only machine that consists of captured files.
#[derive(Clone, Debug)]
pub struct Captured(pub Files);

fn refused(doing: String, errno: Errno) -> Error {
    Error { doing, errno }
}

/// Operations that both machines refuse: a capture has no kernel behind it, and recording only reads.
macro_rules! only_read {
    () => {
        fn write(&self, path: &str, _: &str) -> Result<()> {
            Err(refused(format!("write to captured {path}"), Errno::ROFS))
        }

        fn make_dir(&self, path: &str) -> Result<()> {
            Err(refused(format!("make captured {path}"), Errno::ROFS))
        }

        fn remove_dir(&self, path: &str) -> Result<()> {
            Err(refused(format!("remove captured {path}"), Errno::ROFS))
        }

        fn affinity(&self, tid: i32) -> Result<CpuSet> {
            Err(refused(format!("ask the kernel for the CPUs of captured thread {tid}"), Errno::ROFS))
        }

        fn set_affinity(&self, tid: i32, _: &CpuSet) -> Result<()> {
            Err(refused(format!("restrict captured thread {tid}"), Errno::ROFS))
        }

        fn set_policy(&self, tid: i32, _: Policy) -> Result<()> {
            Err(refused(format!("set captured thread {tid}"), Errno::ROFS))
        }

        fn is_machine(&self) -> bool {
            false
        }
    };
}

impl Kernel for Recorder<'_> {
    fn read(&self, path: &str) -> Result<String> {
        let text = self.root.read(path)?;
        self.read.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
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

    only_read!();
}

impl Captured {
    /// Names directly below `path`, each with whether it is a directory.
    fn below(&self, path: &str) -> BTreeMap<String, bool> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names = BTreeMap::new();
        for (file, read) in self.0.iter() {
            if let (Some(rest), true) = (file.strip_prefix(&prefix), *read != FileContent::Absent) {
                let (name, deeper) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
                *names.entry(name.to_owned()).or_insert(false) |= deeper || *read == FileContent::Directory;
            }
        }
        names
    }
}

impl Kernel for Captured {
    fn read(&self, path: &str) -> Result<String> {
        match self.0.get(path) {
            Some(FileContent::Text(text)) => Ok(text.clone()),
            Some(FileContent::Directory) => Err(refused(format!("read {path}"), Errno::ISDIR)),
            Some(FileContent::Refused(_)) => Err(refused(format!("read {path}"), Errno::ACCESS)),
            Some(FileContent::Absent) | None => Err(refused(format!("read {path}"), Errno::NOENT)),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let names: Vec<String> = self.below(path).into_keys().collect();
        if names.is_empty() { Err(refused(format!("list {path}"), Errno::NOENT)) } else { Ok(names) }
    }

    fn subdirs(&self, path: &str) -> Result<Vec<String>> {
        Ok(self.below(path).into_iter().filter(|(_, deeper)| *deeper).map(|(name, _)| name).collect())
    }

    fn exists(&self, path: &str) -> bool {
        self.read(path).is_ok() || !self.below(path).is_empty() || self.0.exists(path)
    }

    only_read!();
}
