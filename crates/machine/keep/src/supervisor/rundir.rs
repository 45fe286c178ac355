//! The folder of a plant under `/run/tahti`: lock, state, sockets, logs.
//!
//! `TAHTI_RUN` moves the whole tree; without root it lies in `$XDG_RUNTIME_DIR/tahti`.

use host::plant::Plant;
use host::supervise::Supervision;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;
use sys::run_folder::{MACHINES, fallback, looks_elsewhere};

use sys::peer::Peer;
/// Where all plants' folders are.
pub use sys::run_folder::base;

/// Free memory or disk that a plant's folder must have before anything is started, bytes.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// The state files' room grows by this.
const ROOM_STEP: u64 = 16 << 10;

/// More keepers than a plant can have.
const KEEPERS_MAX: usize = 4096;

/// The note that the shield is this plant's.
const SHIELD_MARK: &str = "shield";

/// A state file longer than this is not read.
const STATE_BYTES_MAX: u64 = 16 << 20;

/// The mode of the folder of logs where the plant has operators.
const OPERATORS_LOG: u32 = 0o750;

/// The format of the state file; another one is not read.
const VERSION: u32 = 1;

/// What went wrong with a plant's folder, with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Somebody else supervises the plant.
    #[error("plant {name:?} is already up, supervised by {by}; use `tahti ps`, `tahti reload` or `tahti down`")]
    Running {
        /// The plant.
        name: String,
        /// Its supervisor: `process 123`.
        by: String,
    },
    /// No room.
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
    /// Anything else.
    #[error("failed to {doing} {}: {error}; check its owner and mode, and the room there{}", .path.display(), elsewhere(.path))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        error: std::io::Error,
    },
}

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct SavedError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub what: Unusable,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    /// It holds something else.
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
    /// It has another format.
    #[error("version {0}, expected {VERSION}")]
    Version(u32),
}

/// A result about a plant's folder.
pub type Result<T> = std::result::Result<T, RunDirError>;

fn io<T>(result: std::io::Result<T>, doing: &'static str, path: &Path) -> Result<T> {
    result.map_err(|error| RunDirError::Io { doing, path: path.to_owned(), error })
}

/// What else can be done about a folder. Nothing while processes of its plant live: a supervisor elsewhere would start
/// second copies of them.
fn elsewhere(path: &Path) -> &'static str {
    let lives = path.ancestors().take(5).any(|folder| RunDir { path: folder.to_owned(), name: String::new() }.lives());
    if lives {
        " and try again; the plant's processes go on meanwhile (another TAHTI_RUN would start second copies)"
    } else {
        ", or set TAHTI_RUN to another folder"
    }
}

/// Makes the folder of all plants' folders. The one in `/tmp`, where anybody may have been first, must be this user's.
///
/// # Errors
/// It cannot be made, or is somebody else's.
pub(crate) fn make_base(base: &Path) -> Result<()> {
    let shared = base == fallback();
    let mode = if shared { 0o700 } else { 0o755 };
    io(DirBuilder::new().recursive(true).mode(mode).create(base), "make", base)?;
    if shared { io(crate::run_dir::check_own(base), "trust", base) } else { Ok(()) }
}

/// A plant's folder.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    name: String,
}

/// Held for as long as a supervisor lives; the kernel lets go of it when it dies.
#[derive(Debug)]
pub struct Lock {
    lock: FileLock,
    /// A socket by the name of the folder, which outlives the folder.
    _name: Option<UnixListener>,
}

impl Lock {
    /// Notes the time of a pass, for those who find that this supervisor does not answer and for the one after it. No room is needed:
    /// the text has the same length each time.
    pub(crate) fn note_pass(&self, now: base::MonoNs) {
        use std::os::unix::fs::FileExt as _;
        // It is told only: who cannot read it knows less.
        let _ = self.lock.file().write_all_at(format!("{:<10} {:<20}\n", std::process::id(), now.0).as_bytes(), 0);
    }
}

/// A supervisor as the lock file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: i32,
    /// When it observed the plant last.
    pub last_pass: Option<base::MonoNs>,
}

/// What a supervisor leaves behind for the next one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// The boot in which it was written: clocks and process ids of another one mean nothing.
    pub boot: String,
    /// The supervisor that wrote it.
    pub supervisor: u32,
    /// The plant file, as an absolute path.
    pub file: PathBuf,
    /// The plant as it was read.
    pub plant: Plant,
    /// Every process's state and history.
    pub supervision: Supervision,
    /// The processes that live.
    pub children: std::collections::BTreeMap<String, crate::keeper::protocol::ChildId>,
    /// Whether the shield stands.
    pub shield: bool,
    /// When the plant was brought up.
    pub since: base::MonoNs,
    /// The promises as they were observed.
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
        Self { path: base().join(name), name: name.to_owned() }
    }

    /// The folder of plant `name` that is there: the own one, or the machine's where the caller is its operator.
    #[must_use]
    pub fn find(name: &str) -> Self {
        let own = Self::of(name);
        let machines = Self { path: Path::new(MACHINES).join(name), ..own.clone() };
        if !own.path.exists() && looks_elsewhere() && machines.is_open() { machines } else { own }
    }

    /// Whether the caller may ask its supervisor or read its logs.
    fn is_open(&self) -> bool {
        use rustix::fs::{Access, access};
        access(self.socket(), Access::WRITE_OK).is_ok() || access(self.path.join("log"), Access::READ_OK).is_ok()
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The supervisor's control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join("control")
    }

    /// The folder of a process's keeper.
    #[must_use]
    pub fn keeper(&self, process: &str) -> PathBuf {
        self.path.join("keep").join(process)
    }

    /// The folder of a guest, which its process makes.
    #[must_use]
    pub fn guest(&self, process: &str) -> PathBuf {
        self.path.join("guest").join(process)
    }

    /// The folder of the dashboard's addresses, tokens and sessions, which the dashboard makes.
    #[must_use]
    pub fn dashboard(&self) -> PathBuf {
        self.path.join("dashboard")
    }

    /// Removes the dashboard's tokens and sessions: they are valid for one run of the plant, however often the dashboard starts in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close_dashboard(&self) -> Result<()> {
        let folder = self.dashboard();
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => io(Err(error), "remove", &folder),
            _ => Ok(()),
        }
    }

    /// A process's log; what the supervisor says itself without a name.
    #[must_use]
    pub fn log(&self, process: Option<&str>) -> PathBuf {
        match process {
            // A process cannot be called so: names begin with a letter or digit.
            None => self.path.join("log").join("_supervisor.log"),
            Some(process) => self.path.join("log").join(format!("{process}.log")),
        }
    }

    /// Whether a keeper serves below it: processes live.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.keepers()
            .iter()
            .any(|name| UnixStream::connect(self.keeper(name).join(crate::keeper::protocol::SOCKET_NAME)).is_ok())
    }

    /// The processes that have, or had, a keeper.
    #[must_use]
    pub fn keepers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path.join("keep")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).take(KEEPERS_MAX).collect();
        names.sort_unstable();
        names
    }

    /// Makes the folder, with room to work in. Room is not asked for while processes live there: they are to be
    /// continued.
    ///
    /// # Errors
    /// If it cannot be made or has no room.
    pub fn create(&self, records: Option<&Path>) -> Result<()> {
        if self.socket().as_os_str().len() > 100 || self.keeper(&"n".repeat(32)).as_os_str().len() > 100 {
            return Err(RunDirError::TooLong(self.path.clone()));
        }
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        make_base(parent)?;
        let free = |path: &Path| match rustix::fs::statvfs(path) {
            Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
            // A file system that does not tell is asked by writing.
            Err(_) => u64::MAX,
        };
        // Other accounts pass through to the sockets that are meant for them: operators to the control socket, processes with a `user` to
        // their notify sockets. They cannot list it, and all else in it is closed to them.
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
            // An earlier version made it otherwise.
            let found = fs::metadata(&folder).map_or(0, |data| data.permissions().mode() & 0o777);
            // The logs of a plant that is up may be open to its operators.
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

    /// Has `from` lead to a folder elsewhere, or nowhere else; the folder that is meant. What lay there stays beside it.
    fn redirect(&self, from: &Path, to: Option<PathBuf>) -> Result<PathBuf> {
        let found = fs::symlink_metadata(from).map(|data| data.is_symlink());
        if let Some(to) = &to {
            // Others may look into /var/log, not into what is made here.
            let parent = to.parent().unwrap_or(Path::new("/"));
            io(DirBuilder::new().recursive(true).mode(0o755).create(parent), "make", parent)?;
        }
        let right = match (&to, &found) {
            (Some(to), Ok(true)) => fs::read_link(from).is_ok_and(|found| found == *to),
            (None, Ok(false)) | (None, Err(_)) => true,
            _ => false,
        };
        if !right {
            match found {
                Ok(true) => io(fs::remove_file(from), "remove", from)?,
                // An empty folder is of no use to anybody.
                Ok(false) if fs::remove_dir(from).is_err() => {
                    io(fs::rename(from, from.with_extension("before")), "put aside", from)?;
                }
                Ok(false) | Err(_) => {}
            }
            if let Some(to) = &to {
                io(std::os::unix::fs::symlink(to, from), "make", from)?;
            }
        }
        Ok(to.unwrap_or_else(|| from.to_owned()))
    }

    /// Lets the members of a group read the logs, where there is one. The sockets, which everybody can reach, have modes of
    /// their own.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_to(&self, group: Option<u32>) -> Result<()> {
        let log = self.path.join("log");
        let mode = if group.is_some() { OPERATORS_LOG } else { 0o700 };
        if group.is_some() {
            io(std::os::unix::fs::chown(&log, None, group), "give to its operators", &log)?;
        }
        io(fs::set_permissions(&log, fs::Permissions::from_mode(mode)), "open or close", &log)
    }

    /// Becomes the plant's supervisor.
    ///
    /// # Errors
    /// [`RunDirError::Running`] if there is one.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path.join("lock");
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

    /// Listens at an abstract address by the name of the folder: a supervisor whose folder was removed still has it. Another
    /// user's process that took the address first is no supervisor.
    fn take_name(&self) -> Result<Option<UnixListener>> {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = format!("tahti-supervisor-{:016x}", fingerprint(path.as_os_str().as_encoded_bytes()));
        let address = io(SocketAddr::from_abstract_name(&name), "name", &self.path)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Some(listener)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return io(Err(error), "listen for", &self.path),
        }
        // One that has just ended is none.
        let Ok(other) = UnixStream::connect_addr(&address) else { return Ok(UnixListener::bind_addr(&address).ok()) };
        match Peer::of(other.as_fd()) {
            Ok(peer) if peer.is_ours() => {
                let by =
                    format!("process {}, whose run folder was removed (`kill {}` takes it down)", peer.pid, peer.pid);
                Err(RunDirError::Running { name: self.name.clone(), by })
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The supervisor that has, or had, the folder; `None` if the lock file does not say so.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let mut text = String::new();
        File::open(self.path.join("lock")).ok()?.take(100).read_to_string(&mut text).ok()?;
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        Some(Holder { pid, last_pass: words.next().and_then(|word| word.parse().ok()).map(base::MonoNs) })
    }

    /// Writes what the next supervisor needs, all or nothing. Two files take turns, each with room of its own, so that
    /// a disk that is full takes it, too.
    ///
    /// # Errors
    /// The kernel's, such as no room for more than ever before; the old state is still there.
    pub fn save(&self, saved: &Saved) -> Result<()> {
        let path = self.path.join("state.json");
        let new = self.path.join("state.new");
        self.mark_shield(saved.shield)?;
        let text = io(serde_json::to_vec(saved).map_err(std::io::Error::from), "write", &path)?;
        io(write_over(&new, &text), "write", &new)?;
        match rustix::fs::renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // The first one, or a file system that exchanges nothing.
            Err(_) => {
                io(fs::rename(&new, &path), "replace", &path)?;
                io(write_over(&new, &text), "write", &new)
            }
        }
    }

    /// Notes whether the shield that stands is this plant's, in a way that needs no room and survives a state that
    /// cannot be read: a link that leads nowhere.
    fn mark_shield(&self, ours: bool) -> Result<()> {
        let path = self.path.join(SHIELD_MARK);
        if self.has_shield() == ours {
            return Ok(());
        }
        io(sys::whole::remove(&path), "remove", &path)?;
        if ours { io(std::os::unix::fs::symlink(boot(), &path), "make", &path) } else { Ok(()) }
    }

    /// Whether the shield that stands is this plant's, as it noted itself in this boot.
    #[must_use]
    pub fn has_shield(&self) -> bool {
        fs::read_link(self.path.join(SHIELD_MARK)).is_ok_and(|to| to.as_os_str() == boot().as_str())
    }

    /// What the last supervisor of this boot left behind; `Err` tells why it cannot be used.
    ///
    /// # Errors
    /// If there is something that cannot be read.
    pub fn saved(&self) -> std::result::Result<Option<Saved>, SavedError> {
        let path = self.path.join("state.json");
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
        // Another boot: nothing of it lives.
        Ok((saved.boot == boot()).then_some(saved))
    }

    /// Forgets the plant: state and sockets go, logs stay.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forget(&self) -> Result<()> {
        for name in ["state.json", "state.new", "control", SHIELD_MARK] {
            let path = self.path.join(name);
            io(sys::whole::remove(&path), "remove", &path)?;
        }
        Ok(())
    }
}

impl Saved {
    /// A value to be saved now, in this boot, by this process.
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

/// FNV-1a: the same in every build.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a file over what stands there, in room that it keeps: blank lines fill it up.
fn write_over(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    let room = (text.len() as u64).next_multiple_of(ROOM_STEP).max(length);
    if room > length {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room) {
            // Found out by writing.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut whole = text.to_vec();
    whole.resize(room as usize, b'\n');
    file.write_all(&whole)
}

/// The id of this boot; empty where the kernel does not tell.
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

/// Names of the plants that have a supervisor or something that one left behind.
#[must_use]
pub fn living() -> Vec<String> {
    let lives = |name: &String| {
        let run = RunDir::find(name);
        run.path().join("state.json").exists() || run.lives()
    };
    plants().into_iter().filter(lives).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plant's folder in a folder of its own, which goes with it.
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
    fn other_accounts_pass_through_the_folder_to_its_sockets_and_read_nothing_in_it() {
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
    fn the_dashboards_tokens_are_removed_and_a_plant_without_any_is_no_error() {
        let place = Place::new("tokens");
        place.0.create(None).unwrap();
        fs::create_dir(place.0.dashboard()).unwrap();
        fs::write(place.0.dashboard().join("access.json"), "{}").unwrap();
        place.0.close_dashboard().unwrap();
        assert!(!place.0.dashboard().exists());
        place.0.close_dashboard().unwrap();
    }
}
