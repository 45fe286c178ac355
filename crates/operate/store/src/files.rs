//! The few things that an archive does with files, so that tests can let each of them fail.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A folder of files. A clone is the same folder.
pub trait Files: Clone {
    /// A file that is open.
    type File;

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

    /// Takes the lock of this name, until the file is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] where somebody has it.
    fn lock(&self, name: &str) -> io::Result<Self::File>;
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
        use std::os::unix::fs::OpenOptionsExt;
        OpenOptions::new().create_new(true).append(true).mode(0o640).open(self.0.join(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        File::open(self.0.join(name))
    }

    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        file.sync_data()?;
        // A file without a name is gone when it is closed, however often it is synced.
        if file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "somebody has removed the file"));
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

    fn lock(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new().create(true).append(true).open(self.0.join(name))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
