//! `/run/tahti`: state that must survive tahti's processes until the next boot.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;
use sys::whole::Survives;

/// The directory of tahti's runtime state.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// `$TAHTI_RUN`, or `/run/tahti`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::at(std::env::var_os("TAHTI_RUN").map_or_else(|| PathBuf::from("/run/tahti"), PathBuf::from))
    }

    /// Another directory, for tests.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory with mode 755 if it is missing. Its files have mode 600.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(&self) -> io::Result<()> {
        sys::run_folder::make(&self.path, 0o755)
    }

    /// The content of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file atomically: readers see the old or the new content, never a part, even after a kill or on a full
    /// file system.
    ///
    /// # Errors
    /// The kernel's; the old content is then unchanged.
    pub fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        self.make()?;
        sys::whole::replace(&self.path.join(name), text.as_bytes(), 0o600, Survives::PowerLoss)
    }

    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        sys::whole::remove(&self.path.join(name))
    }

    /// Takes a lock. It is released when the returned value is dropped or the process ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lock(&self, name: &str) -> io::Result<FileLock> {
        self.make()?;
        let path = self.path.join(name);
        FileLock::take(OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?)
    }
}

/// Checks a folder in a world-writable place: not a link, owned by this user, and not writable by others.
///
/// # Errors
/// The first condition that does not hold.
pub(crate) fn check_own(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = if found.is_symlink() {
        "it is a symbolic link".to_owned()
    } else if !found.is_dir() {
        "it is not a folder".to_owned()
    } else if found.uid() != own {
        format!("it belongs to user {}, expected {own}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!("other users may write to it (mode {:o}), expected 700", found.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt as _;

    #[test]
    fn a_folder_that_is_a_link_or_writable_by_others_is_refused() {
        let dir = std::env::temp_dir().join(format!("tahti-own-{}", std::process::id()));
        let link = dir.with_extension("link");
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        check_own(&dir).unwrap();
        assert!(check_own(&link).unwrap_err().to_string().contains("link"));
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(check_own(&dir).unwrap_err().to_string().contains("mode 777"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
            assert!(check_own(&dir).unwrap_err().to_string().contains("user 65534"));
        }
        fs::remove_file(link).unwrap();
        fs::remove_dir(dir).unwrap();
    }

    #[test]
    fn a_file_is_replaced_whole_and_removed_twice() {
        let dir = RunDir::at(std::env::temp_dir().join(format!("tahti-run-dir-{}", std::process::id())));
        assert_eq!(dir.read("a").unwrap(), None);
        dir.replace("a", "one").unwrap();
        dir.replace("a", "two").unwrap();
        assert_eq!(dir.read("a").unwrap().as_deref(), Some("two"));
        dir.remove("a").unwrap();
        dir.remove("a").unwrap();
        fs::remove_dir_all(dir.path()).unwrap();
    }
}
