//! A QEMU process and its folder. Both are removed when the serving process ends.

use crate::model::{Guest, Places, arguments};
use crate::qmp::{ANSWER_WITHIN, Client, QmpError};
use crate::serve::{BEGIN_WITHIN, FOLDER_BYTES_MAX, LOCK, NOTE, ServeError, USAGE, wishes_to_end};
use base::DurNs;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use sys::clock::mono_now;
use sys::lock::FileLock;
use sys::signal::SignalFd;

/// Interval at which a starting QEMU is checked.
const LOOK: DurNs = DurNs::from_ms(5);

/// A guest's folder, locked for this process while the value lives.
pub(crate) struct LockedFolder {
    pub(crate) folder: PathBuf,
    pub(crate) places: Places,
    /// Holds the lock.
    _lock: FileLock,
}

impl LockedFolder {
    pub(crate) fn take(guest: &Guest, folder: &Path) -> Result<Self, ServeError> {
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            return Err(ServeError::TooLong(folder.to_owned()));
        }
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::Io { path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
        let path = folder.join(LOCK);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = FileLock::try_take(open.map_err(io(&path))?).map_err(|(error, mut file)| {
            if error.kind() != ErrorKind::WouldBlock {
                return io(&path)(error);
            }
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            ServeError::Running { name: guest.name.clone(), pid: pid.trim().to_owned() }
        })?;
        let mut file = lock.file();
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(io(&path))?;
        let places = Places::of(folder);
        // A QEMU whose serving process was killed may still run.
        if let Ok(mut left) = Client::connect(&places.status, ANSWER_WITHIN) {
            let _ = left.call("quit");
        }
        let held = Self { folder: folder.to_owned(), places, _lock: lock };
        held.clear();
        Ok(held)
    }

    /// Stores a fault of the guest for status requests.
    pub(crate) fn note(&self, line: Option<&str>) {
        let path = self.folder.join(NOTE);
        // On failure the file is missing; the log has the fault in any case.
        let _ = match line {
            Some(line) => fs::write(path, line),
            None => fs::remove_file(path),
        };
    }

    /// Removes the sockets of a QEMU.
    pub(crate) fn clear(&self) {
        // A missing file is fine.
        self.places.all().into_iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        self.clear();
        let _ = fs::remove_file(self.folder.join(USAGE));
        let _ = fs::remove_file(self.folder.join(NOTE));
        let _ = fs::remove_file(self.folder.join(LOCK));
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A QEMU that ends with the serving process.
pub(crate) struct Qemu {
    pub(crate) child: Child,
    ended: bool,
}

impl Qemu {
    /// QEMU inherits no descriptor except its end of the network.
    pub(crate) fn start(guest: &Guest, places: &Places, kvm: bool, wire: Option<&OwnedFd>) -> Result<Self, ServeError> {
        let mut command = Command::new(&guest.program);
        let wire = wire.map(AsRawFd::as_raw_fd);
        command.args(arguments(guest, places, kvm, wire)).stdin(Stdio::null());
        // Own process group: a signal from the terminal would end QEMU without asking the guest.
        let failed = |error| ServeError::Io { path: PathBuf::from(&guest.program), error };
        let child = command.process_group(0).spawn().map_err(failed)?;
        Ok(Self { child, ended: false })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until QEMU answers; `None` if a signal requested the end.
    pub(crate) fn connect(&mut self, socket: &Path, signals: &SignalFd) -> Result<Option<Client>, ServeError> {
        let end = mono_now() + BEGIN_WITHIN;
        let mut begun: Option<Client> = None;
        loop {
            if let Some(status) = self.ended(socket)? {
                return Err(ServeError::Began(status));
            }
            if wishes_to_end(signals)? > 0 {
                return Ok(None);
            }
            match &mut begun {
                None => match Client::begin(socket, ANSWER_WITHIN) {
                    Ok(client) => begun = Some(client),
                    Err(QmpError::Io(_)) if mono_now() < end => {}
                    Err(error) => return Err(ServeError::Silent(error)),
                },
                Some(client) => {
                    match client.take() {
                        // QEMU is ending; the next pass reads its exit status.
                        Err(QmpError::Closed) if mono_now() < end => begun = None,
                        Err(error) => return Err(ServeError::Silent(error)),
                        Ok(_) if client.is_ready() => return Ok(begun),
                        Ok(_) if mono_now() >= end => return Err(ServeError::Silent(client.silent("a connection"))),
                        Ok(_) => {}
                    }
                }
            }
            let mut fds = vec![signals.as_fd()];
            fds.extend(begun.as_ref().map(|client| client.as_fd()));
            sys::poll::readable(&fds, LOOK);
        }
    }

    pub(crate) fn ended(&mut self, place: &Path) -> Result<Option<ExitStatus>, ServeError> {
        let status = self.child.try_wait().map_err(|error| ServeError::Io { path: place.to_owned(), error })?;
        self.ended |= status.is_some();
        Ok(status)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        if !self.ended {
            // Both fail only if QEMU has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
