//! The folder of a plant below `/run/tahti`: lock, state, sockets, logs.
//!
//! `TAHTI_RUN` sets another base folder. Without root the base is `$XDG_RUNTIME_DIR/tahti`.

use host::plant::Plant;
use host::supervise::Supervision;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;
use sys::run_folder::{MACHINES, fallback, looks_elsewhere};

use sys::peer::Peer;
/// The base folder of all plants' folders.
pub use sys::run_folder::base;

/// Minimum free memory or disk space of a plant's folder before a process is started, in bytes.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// The space reserved for the state files grows in steps of this many bytes.
const ROOM_STEP: u64 = 16 << 10;

/// Upper bound for the number of keepers; a plant cannot have more.
const KEEPERS_MAX: usize = 4096;

/// Name of the link that marks the shield as this plant's.
const SHIELD_MARK: &str = "shield";

/// Maximum size in bytes of a state file that is read.
const STATE_BYTES_MAX: u64 = 16 << 20;

/// Mode of the log folder if the plant has operators.
const OPERATORS_LOG: u32 = 0o750;

/// Format version of the state file. Other versions are not read.
const VERSION: u32 = 1;

/// A fault of a plant's folder, with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Another process supervises the plant.
    #[error("plant {name:?} is already up, supervised by {by}; use `tahti ps`, `tahti reload` or `tahti down`")]
    Running {
        /// The plant's name.
        name: String,
        /// Its supervisor, as `process 123`.
        by: String,
    },
    /// Another process supervises the plant, whose folder was removed. No command reaches it.
    #[error(
        "plant {name:?} is already up, supervised by process {pid}, whose run folder was removed; `kill {pid}` takes \
         the plant down"
    )]
    Unreachable {
        /// The plant's name.
        name: String,
        /// PID of its supervisor.
        pid: i32,
    },
    /// There is too little free space.
    #[error(
        "no room in {}: {free} bytes are free, {ROOM_BYTES_MIN} are needed; free some{}",
        .path.display(), elsewhere(.path)
    )]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Bytes free.
        free: u64,
    },
    /// The folder's name is too long for a socket.
    #[error("the path {} is too long for a Unix socket (at most 100 bytes); set TAHTI_RUN to a shorter one", .0.display())]
    TooLong(PathBuf),
    /// Any other error.
    #[error("failed to {doing} {}: {error}; check its owner and mode, and the room there{}", .path.display(), elsewhere(.path))]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error returned.
        error: std::io::Error,
    },
}

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct SavedError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub what: Unusable,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    /// It is not a valid state file.
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
    /// It has another format version.
    #[error("version {0}, expected {VERSION}")]
    Version(u32),
}

/// Result of an operation on a plant's folder.
pub type Result<T> = std::result::Result<T, RunDirError>;

fn io<T>(result: std::io::Result<T>, doing: &'static str, path: &Path) -> Result<T> {
    result.map_err(|error| RunDirError::Io { doing, path: path.to_owned(), error })
}

/// A further remedy for a fault of a folder. `TAHTI_RUN` is not suggested while processes of the plant are running, because
/// a supervisor with another folder would start second instances of them.
fn elsewhere(path: &Path) -> &'static str {
    let lives = path.ancestors().take(5).any(|folder| RunDir { path: folder.to_owned(), name: String::new() }.lives());
    if lives {
        " and try again; the plant's processes continue meanwhile (another TAHTI_RUN would start second copies)"
    } else {
        ", or set TAHTI_RUN to another folder"
    }
}

/// Creates the base folder of all plants' folders. A base in `/tmp`, which any local user could have created first, must
/// belong to this user.
///
/// # Errors
/// It cannot be created, or belongs to another user.
pub(crate) fn make_base(base: &Path) -> Result<()> {
    let shared = base == fallback();
    let mode = if shared { 0o700 } else { 0o755 };
    io(sys::run_folder::make(base, mode), "make", base)?;
    if shared { io(crate::run_dir::check_own(base), "trust", base) } else { Ok(()) }
}

/// A plant's folder.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    name: String,
}

/// Lock of a plant, held while its supervisor lives. The kernel releases it when the supervisor ends.
#[derive(Debug)]
pub struct Lock {
    lock: FileLock,
    /// An abstract socket named after the folder. It exists even if the folder is removed.
    _name: Option<UnixListener>,
}

impl Lock {
    /// Stores the time of a health pass in the lock file, for clients that get no answer from this supervisor and for its
    /// successor. The text always has the same length, so no free space is needed.
    pub(crate) fn note_pass(&self, now: base::MonoNs) {
        use std::os::unix::fs::FileExt as _;
        // The time is informational, so a write error is ignored.
        let _ = self.lock.file().write_all_at(format!("{:<10} {:<20}\n", std::process::id(), now.0).as_bytes(), 0);
    }
}

/// A supervisor, as recorded in the lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its PID.
    pub pid: i32,
    /// Time of its last health pass.
    pub last_pass: Option<base::MonoNs>,
}

impl Holder {
    /// The supervisor that a lock file names, if any.
    pub(crate) fn read(lock: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(lock).ok()?.take(100).read_to_string(&mut text).ok()?;
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        Some(Self { pid, last_pass: words.next().and_then(|word| word.parse().ok()).map(base::MonoNs) })
    }
}

/// State that a supervisor stores for its successor.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// Boot in which it was written. Clock values and PIDs of another boot are invalid.
    pub boot: String,
    /// The supervisor that wrote it.
    pub supervisor: u32,
    /// The plant file, as an absolute path.
    pub file: PathBuf,
    /// The plant as it was read from the file.
    pub plant: Plant,
    /// State and history of every process.
    pub supervision: Supervision,
    /// The running processes.
    pub children: std::collections::BTreeMap<String, crate::keeper::protocol::ChildId>,
    /// Whether the shield belongs to this plant, including a shield that is being set up.
    pub shield: bool,
    /// Time at which the plant was brought up.
    pub since: base::MonoNs,
    /// The table of promises with their observations.
    #[serde(default)]
    pub health: Option<host::health::Table>,
}

impl RunDir {
    /// The plant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of plant `name`, which need not exist.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self::at(&base(), name)
    }

    /// The folder of plant `name` in a run folder.
    pub(crate) fn at(base: &Path, name: &str) -> Self {
        Self { path: base.join(name), name: name.to_owned() }
    }

    /// The existing folder of plant `name`: the caller's own, or the machine's if the caller is an operator of it.
    #[must_use]
    pub fn find(name: &str) -> Self {
        let own = Self::of(name);
        let machines = Self { path: Path::new(MACHINES).join(name), ..own.clone() };
        if !own.path.exists() && looks_elsewhere() && machines.is_open() { machines } else { own }
    }

    /// Whether the caller may send requests to its supervisor or read its logs.
    fn is_open(&self) -> bool {
        use rustix::fs::{Access, access};
        access(self.socket(), Access::WRITE_OK).is_ok() || access(self.path.join("log"), Access::READ_OK).is_ok()
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The supervisor's lock file, which names it and the time of its last pass.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// The supervisor's control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join("control")
    }

    /// The state file, from which the next supervisor continues.
    #[must_use]
    pub fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// The folder of all keepers.
    pub(crate) fn keepers_folder(&self) -> PathBuf {
        self.path.join("keep")
    }

    /// The folder of a process's keeper.
    #[must_use]
    pub fn keeper(&self, process: &str) -> PathBuf {
        self.keepers_folder().join(process)
    }

    /// The folder of a guest, created by the guest's process.
    #[must_use]
    pub fn guest(&self, process: &str) -> PathBuf {
        self.path.join("guest").join(process)
    }

    /// The folder of the dashboard's addresses, tokens and sessions, created by the dashboard.
    #[must_use]
    pub fn dashboard(&self) -> PathBuf {
        self.path.join("dashboard")
    }

    /// Removes the dashboard's tokens and sessions. They are valid for one run of the plant, across restarts of the
    /// dashboard.
    ///
    /// # Errors
    /// The folder cannot be removed.
    pub fn close_dashboard(&self) -> Result<()> {
        let folder = self.dashboard();
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => io(Err(error), "remove", &folder),
            _ => Ok(()),
        }
    }

    /// The log of a process, or the supervisor's own log if no process is given.
    #[must_use]
    pub fn log(&self, process: Option<&str>) -> PathBuf {
        match process {
            // No process can have this name: names begin with a letter or digit.
            None => self.path.join("log").join("_supervisor.log"),
            Some(process) => self.path.join("log").join(format!("{process}.log")),
        }
    }

    /// Whether a keeper serves below this folder, which means that processes are running.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.keepers()
            .iter()
            .any(|name| UnixStream::connect(self.keeper(name).join(crate::keeper::protocol::SOCKET_NAME)).is_ok())
    }

    /// Names of the processes that have or had a keeper.
    #[must_use]
    pub fn keepers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.keepers_folder()).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).take(KEEPERS_MAX).collect();
        names.sort_unstable();
        names
    }

    /// Creates the folder and checks its free space. The free space does not matter while processes are running there,
    /// because they must be continued.
    ///
    /// # Errors
    /// The folder cannot be created, or has too little free space.
    pub fn create(&self, records: Option<&Path>) -> Result<()> {
        if self.socket().as_os_str().len() > 100 || self.keeper(&"n".repeat(32)).as_os_str().len() > 100 {
            return Err(RunDirError::TooLong(self.path.clone()));
        }
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        make_base(parent)?;
        let free = |path: &Path| match rustix::fs::statvfs(path) {
            Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
            // The file system does not report its free space. Writing will show whether there is enough.
            Err(_) => u64::MAX,
        };
        // Other accounts may pass through the folder to their sockets: operators to the control socket, processes with a
        // `user` to their notify sockets. They cannot list the folder or access anything else in it.
        for (name, mode) in [("", 0o711), ("log", 0o700), ("evidence", 0o700), ("keep", 0o711)] {
            let mut folder = self.path.join(name);
            if matches!(name, "log" | "evidence") {
                folder = self.redirect(&folder, records.map(|records| records.join(name)))?;
            }
            match DirBuilder::new().recursive(true).mode(mode).create(&folder) {
                Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                    return Err(RunDirError::NoRoom { path: self.path.clone(), free: free(parent) });
                }
                made => io(made, "make", &folder)?,
            }
            // An earlier version may have created the folder with another mode.
            let found = fs::metadata(&folder).map_or(0, |data| data.permissions().mode() & 0o777);
            // The logs of a running plant may be open to its operators.
            if found != mode && !(name == "log" && found == OPERATORS_LOG) {
                io(fs::set_permissions(&folder, fs::Permissions::from_mode(mode)), "open or close", &folder)?;
            }
        }
        let free = free(&self.path);
        if free < ROOM_BYTES_MIN && !self.lives() {
            return Err(RunDirError::NoRoom { path: self.path.clone(), free });
        }
        Ok(())
    }

    /// Makes `from` a symbolic link to `to`, or a plain folder if `to` is `None`. Returns the target folder. An existing
    /// non-empty folder is renamed to `*.before`.
    fn redirect(&self, from: &Path, to: Option<PathBuf>) -> Result<PathBuf> {
        let found = fs::symlink_metadata(from).map(|data| data.is_symlink());
        if let Some(to) = &to {
            // Like `/var/log`, the parent is readable by others; the folders created below it are not.
            let parent = to.parent().unwrap_or(Path::new("/"));
            io(sys::run_folder::make(parent, 0o755), "make", parent)?;
        }
        let right = match (&to, &found) {
            (Some(to), Ok(true)) => fs::read_link(from).is_ok_and(|found| found == *to),
            (None, Ok(false)) | (None, Err(_)) => true,
            _ => false,
        };
        if !right {
            match found {
                Ok(true) => io(fs::remove_file(from), "remove", from)?,
                // An empty folder is simply removed.
                Ok(false) if fs::remove_dir(from).is_err() => {
                    io(fs::rename(from, from.with_extension("before")), "rename", from)?;
                }
                Ok(false) | Err(_) => {}
            }
            if let Some(to) = &to {
                io(std::os::unix::fs::symlink(to, from), "make", from)?;
            }
        }
        Ok(to.unwrap_or_else(|| from.to_owned()))
    }

    /// Lets the members of a group read the logs, if the plant has operators. The sockets have separate modes.
    ///
    /// # Errors
    /// Owner or mode of the log folder cannot be changed.
    pub(crate) fn open_to(&self, group: Option<u32>) -> Result<()> {
        let log = self.path.join("log");
        let mode = if group.is_some() { OPERATORS_LOG } else { 0o700 };
        if group.is_some() {
            io(std::os::unix::fs::chown(&log, None, group), "give to its operators", &log)?;
        }
        io(fs::set_permissions(&log, fs::Permissions::from_mode(mode)), "open or close", &log)
    }

    /// Locks the plant: this process becomes its supervisor.
    ///
    /// # Errors
    /// [`RunDirError::Running`] if the plant has a supervisor; otherwise the lock cannot be opened or taken.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.lock_file();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(std::io::Error::from);
        let file = File::from(io(opened, "open", &path)?);
        let lock = match FileLock::try_take(file) {
            Ok(lock) => lock,
            Err((error, _)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let by = self.holder().map_or("another process".to_owned(), |by| format!("process {}", by.pid));
                return Err(RunDirError::Running { name: self.name.clone(), by });
            }
            Err((error, _)) => return io(Err(error), "lock", &path),
        };
        let lock = Lock { lock, _name: self.take_name()? };
        lock.note_pass(sys::clock::mono_now());
        Ok(lock)
    }

    /// Listens at an abstract address named after the folder. This detects a supervisor whose folder was removed. If the
    /// address was taken by a process of another user, that process is not treated as a supervisor.
    fn take_name(&self) -> Result<Option<UnixListener>> {
        let address = io(SocketAddr::from_abstract_name(self.address()), "name", &self.path)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Some(listener)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return io(Err(error), "listen for", &self.path),
        }
        // The other supervisor has just ended.
        let other = match self.reach() {
            Ok(other) => other,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return io(Err(error), "reach the supervisor of", &self.path);
            }
            Err(_) => return Ok(UnixListener::bind_addr(&address).ok()),
        };
        match Peer::of(other.as_fd()) {
            Ok(peer) if peer.is_ours() => Err(RunDirError::Unreachable { name: self.name.clone(), pid: peer.pid }),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Name of the abstract address of the supervisor. It depends on the path of the folder only.
    fn address(&self) -> String {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        format!("tahti-supervisor-{:016x}", fingerprint(path.as_os_str().as_encoded_bytes()))
    }

    /// Connects to the address of the supervisor. Does not wait: the supervisor accepts no connection, so its queue may be
    /// full.
    fn reach(&self) -> std::io::Result<OwnedFd> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
        let to = SocketAddrUnix::new_abstract_name(self.address().as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &to)?;
        Ok(socket)
    }

    /// PID of a supervisor of this user that still runs, also if its folder was removed.
    #[must_use]
    pub fn supervisor(&self) -> Option<i32> {
        let other = self.reach().ok()?;
        Peer::of(other.as_fd()).ok().filter(Peer::is_ours).map(|peer| peer.pid)
    }

    /// The supervisor that holds or last held the lock; `None` if the lock file does not name one.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        Holder::read(&self.lock_file())
    }

    /// Writes the state for the next supervisor atomically. Two files alternate, each with reserved space, so that the state
    /// can be written even if the disk is full.
    ///
    /// # Errors
    /// The write failed, for example because the state needs more space than was reserved. The previous state is kept.
    pub fn save(&self, saved: &Saved) -> Result<()> {
        let path = self.state_file();
        let new = self.path.join("state.new");
        self.mark_shield(saved.shield)?;
        let text = io(serde_json::to_vec(saved).map_err(std::io::Error::from), "write", &path)?;
        io(write_over(&new, &text), "write", &new)?;
        match rustix::fs::renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // The other file does not exist yet, or the file system cannot exchange files.
            Err(_) => {
                io(fs::rename(&new, &path), "replace", &path)?;
                io(write_over(&new, &text), "write", &new)
            }
        }
    }

    /// Marks the active shield as this plant's, or removes the mark. The mark is a dangling symbolic link: it needs no disk
    /// space and remains valid if the state file cannot be read.
    fn mark_shield(&self, ours: bool) -> Result<()> {
        let path = self.path.join(SHIELD_MARK);
        if self.has_shield() == ours {
            return Ok(());
        }
        io(sys::whole::remove(&path), "remove", &path)?;
        if ours { io(std::os::unix::fs::symlink(boot(), &path), "make", &path) } else { Ok(()) }
    }

    /// Whether the shield is marked as this plant's in this boot.
    #[must_use]
    pub fn has_shield(&self) -> bool {
        fs::read_link(self.path.join(SHIELD_MARK)).is_ok_and(|to| to.as_os_str() == boot().as_str())
    }

    /// The command that continues the plant after its supervisor was killed.
    #[must_use]
    pub fn continued_by(&self) -> String {
        match self.saved() {
            Ok(Some(saved)) => format!("tahti up {}", saved.file.display()),
            Ok(None) | Err(_) => format!("tahti up {}", self.name()),
        }
    }

    /// The state stored by the last supervisor of this boot, if any.
    ///
    /// # Errors
    /// The state file exists but cannot be used.
    pub fn saved(&self) -> std::result::Result<Option<Saved>, SavedError> {
        let path = self.state_file();
        let failed = |what: Unusable| SavedError { path: path.clone(), what };
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(STATE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| failed(error.into()))?,
        };
        let saved: Saved = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        if saved.version != VERSION {
            return Err(failed(Unusable::Version(saved.version)));
        }
        // Nothing from another boot is still running.
        Ok((saved.boot == boot()).then_some(saved))
    }

    /// Removes the plant's state and sockets. Logs are kept.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn forget(&self) -> Result<()> {
        for name in ["state.json", "state.new", "control", SHIELD_MARK] {
            let path = self.path.join(name);
            io(sys::whole::remove(&path), "remove", &path)?;
        }
        Ok(())
    }
}

impl Saved {
    /// A state to be saved now, in this boot, by this process.
    #[must_use]
    pub fn new(file: PathBuf, plant: Plant, supervision: Supervision, shield: bool, since: base::MonoNs) -> Self {
        Self {
            version: VERSION,
            boot: boot(),
            supervisor: std::process::id(),
            file,
            plant,
            supervision,
            children: std::collections::BTreeMap::new(),
            shield,
            since,
            health: None,
        }
    }
}

/// FNV-1a hash, which is the same in every build.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Overwrites a file within its reserved space. The rest of the space is filled with blank lines.
fn write_over(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    let room = (text.len() as u64).next_multiple_of(ROOM_STEP).max(length);
    if room > length {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room) {
            // If space cannot be reserved, the write below shows whether there is enough.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut whole = text.to_vec();
    whole.resize(room as usize, b'\n');
    file.write_all(&whole)
}

/// The id of this boot; empty if the kernel does not report it.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Names of the plants that have a folder.
#[must_use]
pub fn plants() -> Vec<String> {
    if base() == fallback() && crate::run_dir::check_own(&fallback()).is_err() {
        return Vec::new();
    }
    let names = |base: PathBuf| {
        let entries = fs::read_dir(base).into_iter().flatten().flatten();
        let names = entries.filter(|entry| entry.path().join("lock").exists());
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let mut all = names(base());
    if looks_elsewhere() {
        all.extend(names(PathBuf::from(MACHINES)).into_iter().filter(|name| RunDir::find(name).is_open()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Names of the plants that have a state file, running processes or a supervisor.
#[must_use]
pub fn living() -> Vec<String> {
    let lives = |name: &String| {
        let run = RunDir::find(name);
        run.state_file().exists() || run.lives() || run.supervisor().is_some()
    };
    plants().into_iter().filter(lives).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plant's folder in a temporary folder, which is removed on drop.
    struct Place(RunDir);

    impl Place {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tahti-rundir-{test}-{}", std::process::id())).join("p");
            Self(RunDir { path, name: "p".into() })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.path.parent().unwrap());
        }
    }

    #[test]
    fn other_users_reach_the_sockets_of_the_folder_but_read_nothing_in_it() {
        let place = Place::new("modes");
        place.0.create(None).unwrap();
        let _lock = place.0.lock().unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(place.0.path.clone()), mode(place.0.path.join("keep"))), (0o711, 0o711));
        for entry in fs::read_dir(&place.0.path).unwrap().flatten().filter(|entry| entry.file_name() != "keep") {
            assert_eq!(mode(entry.path()) & 0o077, 0, "{}", entry.path().display());
        }
    }

    #[test]
    fn tokens_of_the_dashboard_are_removed_and_missing_ones_are_not_an_error() {
        let place = Place::new("tokens");
        place.0.create(None).unwrap();
        fs::create_dir(place.0.dashboard()).unwrap();
        fs::write(place.0.dashboard().join("access.json"), "{}").unwrap();
        place.0.close_dashboard().unwrap();
        assert!(!place.0.dashboard().exists());
        place.0.close_dashboard().unwrap();
    }
}
