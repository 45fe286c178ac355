//! The sandbox as mounts. Its keys do what systemd's keys of the same names do, as far as plain mounts can.

use host::plant::{ProtectHome, ProtectSystem, Sandbox};
use proc::mountinfo::mounts;
use std::ffi::CString;
use std::path::Path;
use sys::root::RootDir;
use sys::spawn::Step;

/// Kernel interfaces, which `protect_system = "strict"` leaves as they are.
const INTERFACES: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Home directories of `protect_home`.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// Error of building a sandbox.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    #[error("{0:?} contains a zero byte")]
    ZeroByte(String),
    #[error("`{key}` names {path}, which does not exist")]
    Missing { key: &'static str, path: String },
    #[error(transparent)]
    Unreadable(#[from] sys::Error),
}

/// The steps between `fork` and `exec`.
///
/// # Errors
/// A path that does not exist or contains a zero byte.
pub(super) fn steps(sandbox: &Sandbox, root: &RootDir) -> Result<Vec<Step>, SandboxError> {
    let word = |path: &str| CString::new(path).map_err(|_| SandboxError::ZeroByte(path.to_owned()));
    let there = |path: &&str| root.path(path).is_dir();
    let mut steps = vec![Step::MountNamespace];
    // Paths that stay writable must not be part of a mount that becomes read-only.
    for path in &sandbox.read_write_paths {
        if !root.exists(path) {
            return Err(SandboxError::Missing { key: "read_write_paths", path: path.clone() });
        }
        steps.push(Step::BindHere(word(path)?));
    }
    match sandbox.protect_system {
        ProtectSystem::No => {}
        ProtectSystem::Yes | ProtectSystem::Full => {
            let full = (sandbox.protect_system == ProtectSystem::Full).then_some("/etc");
            for path in ["/usr", "/boot", "/efi"].into_iter().chain(full).filter(there) {
                steps.push(Step::BindHere(word(path)?));
                steps.push(Step::ReadOnly { path: word(path)?, below: true });
            }
        }
        ProtectSystem::Strict => {
            let text = root.read("/proc/self/mountinfo")?;
            let kept = || INTERFACES.into_iter().chain(sandbox.read_write_paths.iter().map(String::as_str));
            let points: Vec<String> = mounts(&text).map(|mount| mount.point.into_owned()).collect();
            for point in points.iter().filter(|point| !kept().any(|kept| Path::new(point).starts_with(kept))) {
                steps.push(Step::ReadOnly { path: word(point)?, below: false });
            }
        }
    }
    for home in HOMES.into_iter().filter(there) {
        match sandbox.protect_home {
            ProtectHome::No => {}
            ProtectHome::Yes => steps.push(Step::EmptyAt(word(home)?, c"mode=000,size=4k".to_owned())),
            ProtectHome::ReadOnly => {
                steps.push(Step::BindHere(word(home)?));
                steps.push(Step::ReadOnly { path: word(home)?, below: true });
            }
        }
    }
    if sandbox.private_tmp {
        for path in ["/tmp", "/var/tmp"].into_iter().filter(there) {
            steps.push(Step::EmptyAt(word(path)?, c"mode=1777".to_owned()));
        }
    }
    for path in &sandbox.inaccessible_paths {
        match root.path(path) {
            found if found.is_dir() => steps.push(Step::EmptyAt(word(path)?, c"mode=000,size=4k".to_owned())),
            found if found.exists() => steps.push(Step::BindOver(c"/dev/null".to_owned(), word(path)?)),
            _ => return Err(SandboxError::Missing { key: "inaccessible_paths", path: path.clone() }),
        }
    }
    Ok(steps)
}
