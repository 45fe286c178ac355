//! The file operations of an archive, as a trait so that tests can inject failures.

use crate::part::is_own;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;

/// A folder of files. A clone refers to the same folder.
pub trait Files: Clone {
    /// An open file.
    type File;

    /// A lock, released when it is dropped.
    type Lock;

    /// Names and lengths of all files, in any order.
    ///
    /// # Errors
    /// The operating system's error.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Creates a file for appending. It must not exist.
    ///
    /// # Errors
    /// The operating system's error.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens an existing file for appending.
    ///
    /// # Errors
    /// The operating system's error.
    fn append_to(&self, name: &str) -> io::Result<Self::File>;

    /// Truncates a file to `len` bytes.
    ///
    /// # Errors
    /// The operating system's error.
    fn cut(&self, name: &str, len: u64) -> io::Result<()>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The operating system's error.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Appends all bytes. After an error, any part of them may have been appended.
    ///
    /// # Errors
    /// The operating system's error.
    fn append(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything appended so far survives a power cut.
    ///
    /// # Errors
    /// The operating system's error. The state of everything appended since the last successful sync is then unknown.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// The operating system's error.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Present length of the file.
    ///
    /// # Errors
    /// The operating system's error.
    fn len(&self, file: &Self::File) -> io::Result<u64>;

    /// Renames a file atomically.
    ///
    /// # Errors
    /// The operating system's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when all created, changed and removed names survive a power cut.
    ///
    /// # Errors
    /// The operating system's error.
    fn sync_names(&self) -> io::Result<()>;

    /// The place of the files, for messages.
    fn place(&self) -> String;

    /// Bytes that can still be written.
    ///
    /// # Errors
    /// The operating system's error.
    fn free(&self) -> io::Result<u64>;

    /// Bytes that the archive's own files occupy on the disk.
    ///
    /// # Errors
    /// The operating system's error.
    fn used(&self) -> io::Result<u64> {
        Ok(self.list()?.iter().filter(|(name, _)| is_own(name)).map(|(_, len)| len).sum())
    }

    /// Takes the lock `name`; dropping the result releases it.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the lock is taken. [`ErrorKind::PermissionDenied`] if another user could replace the files of
    /// the archive.
    fn lock(&self, name: &str) -> io::Result<Self::Lock>;

    /// The open file of a lock.
    fn locked(lock: &Self::Lock) -> &Self::File;

    /// Whether the open file is the one that the folder has under this name.
    ///
    /// # Errors
    /// The operating system's error.
    fn is_in_place(&self, file: &Self::File, name: &str) -> io::Result<bool>;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Refers to an existing folder.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Creates the folder if it does not exist, with access for its owner and group.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn make(path: impl AsRef<Path>) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&path)?;
        Ok(Self::new(path))
    }
}

impl Files for Folder {
    type File = File;
    type Lock = FileLock;

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.0.display()));
        for entry in std::fs::read_dir(&self.0).map_err(named)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(about) if about.is_file() => files.push((name, about.len())),
                Ok(_) => {}
                // Removed since the folder was listed, by retention or packing.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().create_new(true).append(true).mode(0o640).open(self.0.join(name))
    }

    fn append_to(&self, name: &str) -> io::Result<File> {
        opened(OpenOptions::new().append(true), &self.0.join(name))
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        self.append_to(name)?.set_len(len)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        opened(OpenOptions::new().read(true), &self.0.join(name))
    }

    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn len(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// The folder, and the mount point of its file system.
    fn place(&self) -> String {
        let folder = self.0.canonicalize().unwrap_or_else(|_| self.0.clone());
        let device = |path: &Path| std::fs::metadata(path).ok().map(|about| about.dev());
        let own = device(&folder);
        match folder.ancestors().take_while(|path| own.is_some() && device(path) == own).last() {
            Some(mount) => format!("{} (file system of {})", folder.display(), mount.display()),
            None => folder.display().to_string(),
        }
    }

    fn free(&self) -> io::Result<u64> {
        let about = rustix::fs::statvfs(&self.0)?;
        Ok(about.f_bavail.saturating_mul(about.f_frsize))
    }

    fn used(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_own) {
                continue;
            }
            match entry.metadata() {
                Ok(about) => bytes += about.blocks() * 512,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn lock(&self, name: &str) -> io::Result<FileLock> {
        must_be_guarded(&self.0)?;
        // Mode 0600: a user who could open the file could lock it, and so block the logger.
        let file = opened(OpenOptions::new().create(true).append(true).mode(0o600), &self.0.join(name))?;
        FileLock::try_take(file).map_err(|(error, _)| error)
    }

    fn locked(lock: &FileLock) -> &File {
        lock.file()
    }

    fn is_in_place(&self, file: &File, name: &str) -> io::Result<bool> {
        sys::whole::is_at(file, &self.0.join(name))
    }
}

/// Opens a regular file. Does not follow symbolic links, which could lead out of the folder, and does not block on pipes.
///
/// # Errors
/// The operating system's error; `InvalidInput` if the path is not a regular file.
pub fn opened(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let instead =
        || io::Error::new(ErrorKind::InvalidInput, "there is something else in the place of this file: remove it");
    let file = match options.custom_flags(flags.bits() as i32).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => return Err(instead()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => return Err(instead()),
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(instead()) }
}

/// Refuses folders in which an archive is not protected from other users. In a world-writable folder they could remove or forge
/// files. In a world-writable parent, a folder or link that another user owns may not be the intended one.
fn must_be_guarded(folder: &Path) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    let everybody = |about: &std::fs::Metadata| about.mode() & 0o002 != 0;
    let about = std::fs::metadata(folder)?;
    if everybody(&about) {
        let mode = about.mode() & 0o7777;
        return refused(format!(
            "every user may write into the folder (mode {mode:03o}); expected only its owner and group: chmod o-w"
        ));
    }
    // A path without a final name (such as `/` or `..`) cannot have been created by another user.
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let owner = std::fs::symlink_metadata(above.join(name))?.uid();
    if everybody(&std::fs::metadata(above)?) && owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return refused(format!(
            "every user may create folders next to it, and user {owner} created it; expected a folder of this user: use another place"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tahti-store-files-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Runs `what` on a thread. Fails if it does not return within 60 s.
    fn ends<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(what()));
        said.recv_timeout(std::time::Duration::from_secs(60)).expect("it does not hang")
    }

    #[test]
    fn a_link_or_pipe_in_the_place_of_a_file_is_refused_and_does_not_block() {
        let scratch = Scratch::new("links");
        let at = |name: &str| scratch.0.join(name);
        fs::create_dir(at("archive")).unwrap();
        fs::write(at("victim"), "theirs").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("archive/0000000001.segment")).unwrap();
        std::os::unix::fs::symlink(at("made"), at("archive/lock")).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, at("archive/pipe"), fifo, mode, 0).unwrap();
        let folder = Folder::new(at("archive"));
        assert_eq!(folder.list().unwrap(), []);
        for name in ["0000000001.segment", "pipe", "lock"] {
            let (folder, name) = (folder.clone(), name.to_owned());
            let (opened, locked) = ends(move || (folder.open(&name).map(drop), folder.lock(&name).map(drop)));
            for refused in [opened, locked] {
                assert!(refused.unwrap_err().to_string().contains("something else in the place of this file"));
            }
        }
        assert_eq!(folder.create("0000000001.segment").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert!(!at("made").exists() && fs::read(at("victim")).unwrap() == b"theirs");
        fs::remove_file(at("archive/lock")).unwrap();
        let lock = folder.lock("lock").unwrap();
        assert_eq!(lock.file().metadata().unwrap().permissions().mode() & 0o077, 0, "other users cannot lock it");
    }

    #[test]
    fn a_folder_that_every_user_can_write_is_refused() {
        let scratch = Scratch::new("all");
        let set = |mode| fs::set_permissions(&scratch.0, fs::Permissions::from_mode(mode)).unwrap();
        let lock = || Folder::new(&scratch.0).lock("lock");
        for mode in [0o777, 0o1777] {
            set(mode);
            assert!(lock().unwrap_err().to_string().contains(&format!("(mode {mode:03o}); expected only its owner")));
        }
        set(0o770);
        lock().unwrap();
        // The folder belongs to this user. The refusal of another user's folder needs root to test.
        let path = Folder::make(scratch.0.join("a/b")).unwrap().0;
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o007, 0);
    }
}
