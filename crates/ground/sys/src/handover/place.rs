//! Location of a named socket: a file in the run folder, and an abstract name in addition.
//!
//! Any account can take an abstract name first, but only the owner of a run folder can create a socket there. A client
//! therefore tries the file first, and a server with a socket in the folder works even if another process has the
//! abstract name. The abstract name serves clients with a different run folder.

use super::{address, socket};
use crate::error::{Doing as _, Error, Result};
use crate::peer::is_ours;
use crate::run_folder;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, Permissions};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The folder of sockets in a run folder.
const FOLDER: &str = "_sockets";
/// Maximum bytes of a socket's path, with the terminating zero.
const PATH_BYTES: usize = 108;
/// Minimum age at which another process removes a socket file without a process. A younger one may still be under
/// construction.
const STALE: Duration = Duration::from_secs(60);
/// Maximum number of files checked for that.
const SWEPT_MAX: usize = 256;

/// Location of a socket.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file in a folder.
    File(PathBuf, String),
    /// An abstract name.
    Abstract(String),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(folder, file) => write!(f, "{}", folder.join(file).display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// A location's address, and the folder descriptor that it needs.
pub(super) struct At {
    pub(super) address: SocketAddrUnix,
    _folder: Option<OwnedFd>,
}

impl Place {
    pub(super) fn at(&self) -> Result<At> {
        let doing = || format!("name a socket {self}");
        let (folder, file) = match self {
            Self::Abstract(name) => return Ok(At { address: address(name)?, _folder: None }),
            Self::File(folder, file) => (folder, file),
        };
        let path = folder.join(file);
        if path.as_os_str().len() < PATH_BYTES {
            return Ok(At { address: SocketAddrUnix::new(&path).doing(doing)?, _folder: None });
        }
        // Uses the folder's descriptor, so that the length of the folder's path does not matter.
        let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let folder = folder.doing(doing)?;
        let short = format!("/proc/self/fd/{}/{file}", folder.as_raw_fd());
        Ok(At { address: SocketAddrUnix::new(&short).doing(doing)?, _folder: Some(folder) })
    }

    /// Whether a process has a socket open there. The process does not notice the check.
    fn is_open(&self) -> bool {
        let kind = SocketType::DGRAM;
        let Ok(at) = self.at() else { return false };
        let Ok(asking) = socket(&self.to_string(), kind, SocketFlags::NONBLOCK) else { return false };
        // A socket of another type: the address is in use.
        matches!(rustix::net::connect(&asking, &at.address), Ok(()) | Err(Errno::PROTOTYPE))
    }
}

/// Encodes a name as a file name.
fn file_of(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

fn name_of(file: &str) -> String {
    file.replace("%2F", "/").replace("%25", "%")
}

/// Whether only this user or root can create sockets in a folder.
fn is_trusted(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|about| about.is_dir() && is_ours(about.uid()) && about.mode() & 0o022 == 0)
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let machines = run_folder::looks_elsewhere().then(|| PathBuf::from(run_folder::MACHINES));
    let all = [Some(run_folder::base()), machines].into_iter().flatten();
    all.map(|base| std::path::absolute(&base).unwrap_or(base).join(FOLDER)).filter(|folder| is_trusted(folder))
}

/// Locations that a client tries for a name, in this order.
pub(super) fn places(name: &str) -> impl Iterator<Item = Place> {
    let file = file_of(name);
    folders().map(move |folder| Place::File(folder, file.clone())).chain([Place::Abstract(name.to_owned())])
}

/// Names with the prefix `prefix` under which processes listen in the run folders.
pub(super) fn names(prefix: &str) -> Vec<String> {
    let entries = folders().flat_map(|folder| {
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        files.map(move |file| (folder.clone(), file.file_name().to_string_lossy().into_owned()))
    });
    let own = entries.filter(|(_, file)| name_of(file).starts_with(prefix));
    own.filter(|(folder, file)| Place::File(folder.clone(), file.clone()).is_open())
        .map(|(_, file)| name_of(&file))
        .collect()
}

/// A socket in the run folder. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct SocketFile {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    /// Listens under a name. The leftover file of a killed process is replaced.
    ///
    /// # Errors
    /// `EADDRINUSE` if another process listens there; otherwise the socket cannot be created in the run folder.
    pub(super) fn listen(name: &str, kind: SocketType, backlog: i32) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = make_folder()?;
        sweep(&folder);
        let place = Place::File(folder.clone(), file_of(name));
        // Under a temporary name until it listens and all users can reach it.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = Place::File(folder, format!(".{}.{number}.{}", std::process::id(), file_of(name)));
        let (path, new_path) = (path_of(&place), path_of(&new));
        let doing = || format!("listen at {place}");
        let socket = socket(&place.to_string(), kind, SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &new.at()?.address).doing(doing)?;
        let listens = || {
            fs::set_permissions(&new_path, Permissions::from_mode(0o666)).doing(doing)?;
            rustix::net::listen(&socket, backlog).doing(doing)?;
            let inode = fs::symlink_metadata(&new_path).doing(doing)?.ino();
            put(&new, &place).doing(doing).map(|()| inode)
        };
        match listens() {
            Ok(inode) => Ok(Self { socket, path, inode }),
            Err(error) => {
                let _ = fs::remove_file(&new_path);
                Err(error)
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Keeps another socket that has taken this name.
        if fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn path_of(place: &Place) -> PathBuf {
    match place {
        Place::File(folder, file) => folder.join(file),
        Place::Abstract(name) => PathBuf::from(name),
    }
}

/// Moves a socket to its final name, unless another open socket has it. If several processes replace a leftover file at
/// the same time, one of them succeeds.
fn put(new: &Place, place: &Place) -> rustix::io::Result<()> {
    let (from, to) = (path_of(new), path_of(place));
    let rename = |flags| rustix::fs::renameat_with(CWD, &from, CWD, &to, flags);
    match rename(RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) if place.is_open() => return Err(Errno::ADDRINUSE),
        Err(Errno::EXIST) => {}
        done => return done,
    }
    rename(RenameFlags::EXCHANGE)?;
    if new.is_open() {
        // Another process came first.
        rename(RenameFlags::EXCHANGE)?;
        return Err(Errno::ADDRINUSE);
    }
    // Left by a killed process.
    let _ = fs::remove_file(&from);
    Ok(())
}

fn make_folder() -> Result<PathBuf> {
    let base = run_folder::base();
    let doing = || format!("make a folder for sockets in {}", base.display());
    let own = base == run_folder::fallback();
    let make = |path: &Path, mode| run_folder::make(path, mode).doing(doing);
    make(&base, if own { 0o700 } else { 0o755 })?;
    let folder = std::path::absolute(&base).doing(doing)?.join(FOLDER);
    make(&folder, 0o755)?;
    if is_trusted(&folder) && (!own || is_trusted(&base)) {
        return Ok(folder);
    }
    let doing = format!(
        "use {}; expected a folder of user {} that no other can write",
        folder.display(),
        crate::peer::own_user()
    );
    Err(Error { doing, errno: Errno::PERM })
}

/// Removes sockets left by killed processes.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(SWEPT_MAX);
    for entry in entries {
        let age = entry.metadata().and_then(|about| about.modified()).map(|made| made.elapsed().unwrap_or_default());
        let place = Place::File(folder.to_owned(), entry.file_name().to_string_lossy().into_owned());
        if age.is_ok_and(|age| age >= STALE) && !place.is_open() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
