//! The folder of run-time state: `TAHTI_RUN`, `/run/tahti` for root, or a folder of the user.

use std::path::PathBuf;

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
    set("TAHTI_RUN").is_none() && !rustix::process::geteuid().is_root()
}

/// The run folder of a user without a session folder. Another user may have created it first.
#[must_use]
pub fn fallback() -> PathBuf {
    PathBuf::from(format!("/tmp/tahti-{}", rustix::process::geteuid().as_raw()))
}
