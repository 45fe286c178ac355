//! The file behind the message log: bounded, since it is moved aside when it is full and the oldest is forgotten.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// How large the message log may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimit {
    /// Bytes of each file; a line that is longer has a file of its own.
    pub bytes: u64,
    /// Full files that are kept beside the one that is written: `.1` is the youngest.
    pub keep: u32,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { bytes: 64 << 20, keep: 4 }
    }
}

pub(super) struct LogFile {
    path: PathBuf,
    limit: LogLimit,
    file: File,
    bytes: u64,
    /// Neither a pipe nor a device, and its folder lets it be moved aside.
    movable: bool,
    moved: u64,
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl LogFile {
    /// Goes on with the file where there is one.
    pub(super) fn open(path: PathBuf, limit: LogLimit) -> io::Result<Self> {
        let file = open(&path)?;
        let metadata = file.metadata()?;
        Ok(Self { path, limit, file, bytes: metadata.len(), movable: metadata.is_file(), moved: 0 })
    }

    /// Writes whole lines. A file that they would fill beyond its limit is moved aside before; `trouble` hears, once, why
    /// that cannot be: the file grows then.
    pub(super) fn write(&mut self, lines: &str, trouble: &mut dyn FnMut(String)) -> io::Result<()> {
        if self.movable && self.bytes > 0 && self.bytes + lines.len() as u64 > self.limit.bytes {
            match self.move_aside() {
                Ok(()) => self.moved += 1,
                Err(error) => {
                    self.movable = false;
                    let (path, LogLimit { bytes, .. }) = (self.path.display(), self.limit);
                    trouble(format!(
                        "message log {path}: it has {bytes} bytes and cannot be moved aside: {error}; it grows on: let \
                         this user write its folder"
                    ));
                }
            }
        }
        self.file.write_all(lines.as_bytes())?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// How often a full file was moved aside.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    fn move_aside(&mut self) -> io::Result<()> {
        for number in (1..self.limit.keep).rev() {
            match std::fs::rename(self.name(number), self.name(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match self.limit.keep {
            0 => std::fs::remove_file(&self.path)?,
            _ => std::fs::rename(&self.path, self.name(1))?,
        }
        self.file = open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }

    fn name(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(what: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tahti-{what}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_full_file_is_moved_aside_and_the_oldest_forgotten() {
        let folder = Folder::new("full");
        let path = folder.0.join("log");
        let limit = LogLimit { bytes: 8, keep: 2 };
        let mut log = LogFile::open(path.clone(), limit).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            log.write(line, &mut |why| panic!("{why}")).unwrap();
        }
        assert_eq!(
            [folder.read("log"), folder.read("log.1"), folder.read("log.2")],
            ["four\n", "three\n", "one\ntwo\n"]
        );
        // The next server goes on where this one has ended; a line that is too long is kept whole.
        let mut log = LogFile::open(path, limit).unwrap();
        log.write("far too long\n", &mut |why| panic!("{why}")).unwrap();
        assert_eq!(folder.names(), ["log", "log.1", "log.2"]);
        assert_eq!([folder.read("log"), folder.read("log.2")], ["far too long\n", "three\n"]);
        assert_eq!(log.moved(), 1);
    }

    #[test]
    fn nothing_is_kept_where_nothing_shall_be() {
        let folder = Folder::new("none");
        let mut log = LogFile::open(folder.0.join("log"), LogLimit { bytes: 8, keep: 0 }).unwrap();
        ["one\n", "two\n", "three\n"].iter().for_each(|line| log.write(line, &mut |why| panic!("{why}")).unwrap());
        assert_eq!((folder.names(), folder.read("log")), (vec!["log".to_owned()], "three\n".to_owned()));
    }

    #[test]
    fn what_cannot_be_moved_aside_is_told_once_and_nothing_is_lost() {
        let folder = Folder::new("stuck");
        let mut log = LogFile::open(folder.0.join("log"), LogLimit { bytes: 4, keep: 1 }).unwrap();
        // Something is in its way that no file can take the place of.
        std::fs::create_dir_all(folder.0.join("log.1/in-the-way")).unwrap();
        let mut told = vec![];
        ["one\n", "two\n", "three\n"].iter().for_each(|line| log.write(line, &mut |why| told.push(why)).unwrap());
        assert_eq!(folder.read("log"), "one\ntwo\nthree\n");
        assert!(told.len() == 1 && told[0].contains("cannot be moved aside"), "{told:?}");
    }
}
