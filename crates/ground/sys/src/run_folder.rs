//! The folder of run-time state: `TAHTI_RUN`, root's `/run/tahti`, or one of the user's own.

use std::path::PathBuf;

/// Where the plants of root are.
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

/// Whether plants of root are looked for, too: by users who did not say where to look.
#[must_use]
pub fn looks_elsewhere() -> bool {
    set("TAHTI_RUN").is_none() && !rustix::process::geteuid().is_root()
}

/// The run folder of a user without a folder of the session's. Any user may have made it first.
#[must_use]
pub fn fallback() -> PathBuf {
    PathBuf::from(format!("/tmp/tahti-{}", rustix::process::geteuid().as_raw()))
}
