//! The folder of run-time state: `TAHTI_RUN`, `/run/tahti` for root, or a folder of the user.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Run folder of root's plants.
pub const MACHINES: &str = "/run/tahti";

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The run folder of this process: `TAHTI_RUN`, or [`MACHINES`] for root, else `$XDG_RUNTIME_DIR/tahti`, else [`fallback`].
#[must_use]
pub fn base() -> PathBuf {
    if let Some(path) = set("TAHTI_RUN") {
        return path;
    }
    match set("XDG_RUNTIME_DIR") {
        _ if rustix::process::geteuid().is_root() => PathBuf::from(MACHINES),
        Some(dir) => dir.join("tahti"),
        None => fallback(),
    }
}

/// Whether the plants of root are searched as well: for other users without `TAHTI_RUN`.
#[must_use]
pub fn looks_elsewhere() -> bool {
    looks_everywhere() && !rustix::process::geteuid().is_root()
}

/// Whether the plants of other users may be listed: without `TAHTI_RUN`.
#[must_use]
pub fn looks_everywhere() -> bool {
    set("TAHTI_RUN").is_none()
}

/// The run folder of a user without a session folder. Another user may have created it first.
#[must_use]
pub fn fallback() -> PathBuf {
    PathBuf::from(format!("/tmp/tahti-{}", rustix::process::geteuid().as_raw()))
}

/// Creates a folder with exactly this mode, whatever the umask is, and missing parents with mode 755. A folder that exists
/// keeps its mode.
///
/// # Errors
/// The kernel's.
pub fn make(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) {
        make(parent, 0o755)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        // The umask may have removed bits that other accounts need.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_its_mode_whatever_the_umask_is_and_keeps_the_mode_that_it_had() {
        let place = std::env::temp_dir().join(format!("tahti-run-folder-{}", std::process::id()));
        let folder = place.join("parent/folder");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // No usual umask keeps these bits.
        make(&folder, 0o777).unwrap();
        assert_eq!((mode(&folder), mode(&place.join("parent"))), (0o777, 0o755));
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        make(&folder, 0o777).unwrap();
        assert_eq!(mode(&folder), 0o700);
        fs::write(folder.join("file"), "").unwrap();
        assert_eq!(make(&folder.join("file"), 0o711).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_dir_all(place).unwrap();
    }
}
