//! The few things that an archive does with files, so that tests can let each of them fail.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;

/// A folder of files. A clone is the same folder.
pub trait Files: Clone {
    /// A file that is open.
    type File;

    /// A lock, released when it is dropped.
    type Lock;

    /// Names and lengths of all files; order does not matter.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Begins a file that does not exist, for appending.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file that exists, for appending.
    ///
    /// # Errors
    /// The operating system's.
    fn append_to(&self, name: &str) -> io::Result<Self::File>;

    /// Cuts a file off behind some bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn cut(&self, name: &str, len: u64) -> io::Result<()>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The operating system's.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Appends all bytes. When it fails, any number of them may be there.
    ///
    /// # Errors
    /// The operating system's.
    fn append(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Returns once all that was appended survives a power cut.
    ///
    /// # Errors
    /// The operating system's: nothing is known then of what was appended since the last one.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends; how many bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// How long the file is now.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&self, file: &Self::File) -> io::Result<u64>;

    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once names made, changed and removed survive a power cut.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes that may still be written.
    ///
    /// # Errors
    /// The operating system's.
    fn free(&self) -> io::Result<u64>;

    /// Bytes of the disk that the files occupy.
    ///
    /// # Errors
    /// The operating system's.
    fn used(&self) -> io::Result<u64> {
        Ok(self.list()?.iter().map(|(_, len)| len).sum())
    }

    /// Takes the lock of this name, until what is returned is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] where somebody has it; others where somebody else might have put there what will be written.
    fn lock(&self, name: &str) -> io::Result<Self::Lock>;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder that exists.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Makes the folder where it does not exist, readable by its owner and group.
    ///
    /// # Errors
    /// The operating system's.
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
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(about) if about.is_file() => files.push((name, about.len())),
                Ok(_) => {}
                // Removed since: by retention, or because it is packed.
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
        file.sync_data()?;
        // A file without a name is gone when it is closed, however often it is synced.
        if file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "another program has removed the file"));
        }
        Ok(())
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

    fn free(&self) -> io::Result<u64> {
        let about = rustix::fs::statvfs(&self.0)?;
        Ok(about.f_bavail.saturating_mul(about.f_frsize))
    }

    fn used(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.0)? {
            match entry?.metadata() {
                Ok(about) => bytes += about.blocks() * 512,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn lock(&self, name: &str) -> io::Result<FileLock> {
        must_be_guarded(&self.0)?;
        // Who may open it may lock it, and keep the logger out.
        let file = opened(OpenOptions::new().create(true).append(true).mode(0o600), &self.0.join(name))?;
        FileLock::try_take(file).map_err(|(error, _)| error)
    }
}

/// Opens a file, and nothing that somebody has put into its place: a link would lead out of the folder, a pipe be waited for.
///
/// # Errors
/// The operating system's; `InvalidInput` where something else is there.
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

/// Whether a folder is one to write an archive into: anybody else might take away or forge what is written where all may write, and
/// where all may make folders one that is another user's, or a link of theirs, is hardly the one that was meant.
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
    // The folder by another path has no name, and nobody can have put it there.
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

    /// What is done, unless it hangs.
    fn ends<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(what()));
        said.recv_timeout(std::time::Duration::from_secs(60)).expect("it does not hang")
    }

    #[test]
    fn what_somebody_has_put_into_the_place_of_a_file_is_neither_followed_nor_waited_for() {
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
        assert_eq!(lock.file().metadata().unwrap().permissions().mode() & 0o077, 0, "nobody else can lock it");
    }

    #[test]
    fn nothing_is_written_where_every_user_may_write() {
        let scratch = Scratch::new("all");
        let set = |mode| fs::set_permissions(&scratch.0, fs::Permissions::from_mode(mode)).unwrap();
        let lock = || Folder::new(&scratch.0).lock("lock");
        for mode in [0o777, 0o1777] {
            set(mode);
            assert!(lock().unwrap_err().to_string().contains(&format!("(mode {mode:03o}); expected only its owner")));
        }
        set(0o770);
        lock().unwrap();
        // It is ours; where it is another user's is shown by root.
        let path = Folder::make(scratch.0.join("a/b")).unwrap().0;
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o007, 0);
    }
}
