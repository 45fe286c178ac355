//! A file to which lines are appended. A file that was moved or removed is created again at its path, with its folder
//! and the previous modes. A line truncated by a full disk does not corrupt the next line.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Mode of a folder created for a log.
const FOLDER_MODE: u32 = 0o700;

/// The file.
#[derive(Debug)]
pub(crate) struct Appended {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    /// Modes of file and folder at the last open.
    modes: Option<(u32, u32)>,
    /// The last byte is not a line end.
    within_line: bool,
    /// The last line is incomplete and will not be completed.
    torn: bool,
}

impl Appended {
    /// Opens or creates the file. If that fails, each [`append`](Self::append) tries again.
    pub(crate) fn open(path: PathBuf) -> Self {
        let mut appended = Self { path, file: None, size: 0, modes: None, within_line: false, torn: false };
        // The next append reports the error.
        let _ = appended.reopen();
        appended
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Opens the file at the path, or creates it with the previous modes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = None;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.exists() {
            let mode = self.modes.map_or(FOLDER_MODE, |(_, folder)| folder);
            DirBuilder::new().recursive(true).mode(mode).create(folder)?;
            // The umask may have cleared some bits.
            std::fs::set_permissions(folder, Permissions::from_mode(mode))?;
        }
        let is_new = !self.path.exists();
        let file = OpenOptions::new().create(true).append(true).read(true).open(&self.path)?;
        if let Some((mode, _)) = self.modes.filter(|_| is_new) {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        let data = file.metadata()?;
        self.modes = Some((data.mode() & 0o7777, std::fs::metadata(folder)?.mode() & 0o7777));
        let mut last = [b'\n'];
        if data.is_file() && data.len() > 0 {
            file.read_exact_at(&mut last, data.len() - 1)?;
        }
        // An incomplete line of an earlier run is not continued.
        (self.size, self.within_line, self.torn) = (data.len(), last != *b"\n", last != *b"\n");
        self.file = Some(file);
        Ok(())
    }

    /// Appends bytes. Returns the number of bytes written, and the error if not all were written. After such an error
    /// the next append begins on a new line.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let is_here = self.file.as_ref().is_some_and(|file| is_at(file, &self.path));
        if let Some(error) = if is_here { None } else { self.reopen().err() } {
            return (0, Err(error));
        }
        if self.torn {
            if let (_, Err(error)) = self.put(b"\n") {
                return (0, Err(error));
            }
            self.torn = false;
        }
        let (written, result) = self.put(bytes);
        self.torn = result.is_err() && self.within_line;
        (written, result)
    }

    fn put(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let Some(file) = &mut self.file else { return (0, Err(io::ErrorKind::NotFound.into())) };
        let (mut at, mut result) = (0, Ok(()));
        while result.is_ok() && at < bytes.len() {
            match file.write(&bytes[at..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => at += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        self.size += at as u64;
        if let Some(last) = bytes[..at].last() {
            self.within_line = *last != b'\n';
        }
        (at, result)
    }
}

/// Whether an open file is the one at this path. `true` if that cannot be determined.
fn is_at(file: &File, path: &Path) -> bool {
    sys::whole::is_at(file, path).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("tahti-appended-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("logs")).unwrap();
        dir
    }

    #[test]
    fn a_moved_file_and_a_removed_folder_are_recreated_with_their_modes() {
        let dir = folder("moved");
        let (logs, path) = (dir.join("logs"), dir.join("logs/a.log"));
        std::fs::set_permissions(&logs, Permissions::from_mode(0o710)).unwrap();
        std::fs::write(&path, "before\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut file = Appended::open(path.clone());
        file.append(b"one\n").1.unwrap();
        std::fs::rename(&path, dir.join("logs/a.log.old")).unwrap();
        file.append(b"two\n").1.unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("logs/a.log.old")).unwrap(), "before\none\n");
        std::fs::remove_dir_all(&logs).unwrap();
        file.append(b"three\n").1.unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), file.size()), ("three\n", 6));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode(&logs), mode(&path)), (0o710, 0o640));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_unfinished_line_of_an_earlier_process_is_ended_first() {
        let dir = folder("begun");
        let path = dir.join("logs/a.log");
        std::fs::write(&path, "half a li").unwrap();
        Appended::open(path.clone()).append(b"whole\n").1.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half a li\nwhole\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_failed_append_returns_the_reason() {
        let (written, result) = Appended::open("/dev/full".into()).append(b"x\n");
        assert_eq!((written, result.unwrap_err().kind()), (0, io::ErrorKind::StorageFull));
        let (written, result) = Appended::open("/proc/no/log".into()).append(b"x\n");
        assert!(written == 0 && result.is_err());
    }
}
