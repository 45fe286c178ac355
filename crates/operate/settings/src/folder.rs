//! The folder: request files, and for each set a subfolder with its saved files.

use crate::file::{Head, Settings};
use db::{FileError, Macros, parse_request};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum number of channels of a set.
pub const CHANNELS_MAX: usize = 20_000;
/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Maximum length of the name of a set or file.
const NAME_MAX: usize = 100;
const REQUEST: &str = "req";
const SAVED: &str = "sav";

/// An error in a folder of settings.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A name that would refer to another folder.
    #[error(
        "{0:?} is no name of a set or file: expected 1 to {NAME_MAX} letters, digits and `-_.+:`, the first one a letter or digit"
    )]
    Name(String),
    /// The set does not exist.
    #[error("{}: there is no set {set:?}; it has {}: a file {set}.req with a channel in each line makes one", folder.display(), if sets.is_empty() { "none".to_owned() } else { sets.join(", ") })]
    NoSet {
        /// The folder.
        folder: PathBuf,
        /// The set.
        set: String,
        /// The existing sets.
        sets: Vec<String>,
    },
    /// The set has no saved files.
    #[error("nothing was saved of {0} yet: `tahti settings save` does")]
    Nothing(String),
    /// Two files with the same time.
    #[error("{}: it is there already; save once more", .0.display())]
    Exists(PathBuf),
    /// An error from the system.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// A file with an error.
    #[error("{0}")]
    File(#[from] FileError),
    /// The set is empty or too large.
    #[error("{}: {count} channels, expected 1 to {CHANNELS_MAX}", path.display())]
    Count {
        /// Its file.
        path: PathBuf,
        /// The number of channels.
        count: usize,
    },
}

/// A saved file, described by its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file name, without the folder.
    pub file: String,
    /// The head; `None` if the file has none.
    pub head: Option<Head>,
    /// Number of channels.
    pub channels: usize,
    /// Number of channels that could not be read.
    pub missing: usize,
}

/// A folder of settings. Blocks on disk access.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// Checks that a name of a set or file refers to nothing outside the folder.
fn plain(name: &str) -> Result<&str, FolderError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.+:".contains(letter);
    let is_good = name.len() <= NAME_MAX
        && name.chars().all(is_letter)
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if is_good { Ok(name) } else { Err(FolderError::Name(name.to_owned())) }
}

fn read(path: &Path) -> Result<String, FolderError> {
    let io = |why| FolderError::Io { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(io)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io(io::Error::other(format!("more than {BYTES_MAX} bytes"))));
    }
    table::one_byte_letters(&bytes).map_err(|error| io(io::Error::other(error)))?;
    // Texts that are not UTF-8 are escaped in the file.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The names of the files in a folder with the extension `ending`, without it, sorted.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>, FolderError> {
    let io = |why| FolderError::Io { path: folder.to_owned(), why };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = PathBuf::from(entry.map_err(io)?.file_name());
        if name.extension().is_some_and(|found| found == ending)
            && let Some(stem) = name.file_stem().and_then(|stem| stem.to_str())
            && plain(stem).is_ok()
        {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl Folder {
    /// The folder at `path`. Does not access the disk.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The sets with a request file.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn sets(&self) -> Result<Vec<String>, FolderError> {
        names(&self.0, REQUEST)
    }

    /// The channels of a set, without duplicates.
    ///
    /// # Errors
    /// The set does not exist, or its file has an error, no channel or too many.
    pub fn channels(&self, set: &str) -> Result<Vec<String>, FolderError> {
        let path = self.0.join(format!("{}.{REQUEST}", plain(set)?));
        let text = match read(&path) {
            Err(FolderError::Io { why, .. }) if why.kind() == io::ErrorKind::NotFound => {
                let (folder, set, sets) = (self.0.clone(), set.to_owned(), self.sets()?);
                return Err(FolderError::NoSet { folder, set, sets });
            }
            read => read?,
        };
        let include = &mut |name: &str| read(&self.0.join(plain(name).ok()?)).ok();
        let requested = parse_request(&text, &path.display().to_string(), &Macros::default(), include);
        // A set is saved completely or not at all.
        if let Some(wrong) = requested.complaints.into_iter().next() {
            return Err(wrong.into());
        }
        let mut seen = std::collections::HashSet::new();
        let channels = requested.channels.into_iter().map(|one| one.channel);
        let channels: Vec<String> = channels.filter(|channel| seen.insert(channel.clone())).collect();
        if !(1..=CHANNELS_MAX).contains(&channels.len()) {
            return Err(FolderError::Count { path, count: channels.len() });
        }
        Ok(channels)
    }

    fn folder_of(&self, set: &str) -> Result<PathBuf, FolderError> {
        Ok(self.0.join(plain(set)?))
    }

    /// The saved files of a set, oldest first.
    ///
    /// # Errors
    /// The set does not exist, or a file cannot be read. A file with an error is listed without a head.
    pub fn list(&self, set: &str) -> Result<Vec<Entry>, FolderError> {
        let folder = self.folder_of(set)?;
        let files = match names(&folder, SAVED) {
            Err(FolderError::Io { why, .. }) if why.kind() == io::ErrorKind::NotFound => {
                return self.channels(set).map(|_| Vec::new());
            }
            files => files?,
        };
        let entry = |file: String| match self.load(set, &file) {
            Ok(settings) => {
                let (channels, missing) = (settings.values.len(), settings.missing().count());
                Ok(Entry { file, head: settings.head, channels, missing })
            }
            Err(FolderError::File(_)) => Ok(Entry { file, head: None, channels: 0, missing: 0 }),
            Err(why) => Err(why),
        };
        files.into_iter().map(|file| entry(format!("{file}.{SAVED}"))).collect()
    }

    /// The newest file of a set.
    ///
    /// # Errors
    /// There is no file, or the files cannot be listed.
    pub fn newest(&self, set: &str) -> Result<String, FolderError> {
        let last = self
            .list(set)?
            .into_iter()
            .max_by_key(|entry| (entry.head.as_ref().map(|head| head.at), entry.file.clone()));
        last.map(|entry| entry.file).ok_or_else(|| FolderError::Nothing(set.to_owned()))
    }

    /// Reads a saved file.
    ///
    /// # Errors
    /// The file cannot be read, or has an error.
    pub fn load(&self, set: &str, file: &str) -> Result<Settings, FolderError> {
        let path = self.folder_of(set)?.join(plain(file)?);
        Ok(Settings::parse(&read(&path)?, &path.display().to_string())?)
    }

    /// Writes settings to a new file named by their time, which survives a loss of power. Returns its name.
    ///
    /// # Errors
    /// The file exists already or cannot be written.
    pub fn save(&self, set: &str, settings: &Settings) -> Result<String, FolderError> {
        let folder = self.folder_of(set)?;
        let io = |why| FolderError::Io { path: folder.clone(), why };
        fs::create_dir_all(&folder).map_err(io)?;
        let instant = settings.head.as_ref().map_or_else(|| "unknown".to_owned(), Head::instant);
        let name = format!("{instant}.{SAVED}");
        let path = folder.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(FolderError::Exists(path));
        }
        let survives = sys::whole::Survives::PowerLoss;
        sys::whole::replace(&path, settings.text().as_bytes(), 0o640, survives)
            .map_err(|why| FolderError::Io { path: path.clone(), why })?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Saved, States};
    use base::Stamp;
    use db::SavedValue;
    use std::os::unix::fs::PermissionsExt as _;

    /// A separate folder, deleted on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tahti-settings-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn settings(secs: u64, note: &str) -> Settings {
        let head = Head::new("rf", Stamp::from_unix(secs, 250_000_000), "me", note);
        let value = Some(SavedValue::Text(b"2".to_vec()));
        Settings {
            head: Some(head),
            values: vec![
                Saved { name: "X:SET".to_owned(), value, states: States::Number(None) },
                Saved { name: "X:GONE".to_owned(), value: None, states: States::Number(None) },
            ],
        }
    }

    #[test]
    fn saved_files_are_listed_by_time_and_the_newest_is_found() {
        let scratch = Scratch::new("list");
        let folder = Folder::new(&scratch.0);
        fs::write(scratch.0.join("rf.req"), "# amplitudes\nX:SET\nfile more.req\nX:SET\n").unwrap();
        fs::write(scratch.0.join("more.req"), "X:GONE\n").unwrap();
        assert_eq!(folder.sets().unwrap(), ["more", "rf"]);
        assert_eq!(folder.channels("rf").unwrap(), ["X:SET", "X:GONE"]);
        assert!(matches!(folder.newest("rf"), Err(FolderError::Nothing(_))));
        let first = folder.save("rf", &settings(1_800_000_000, "one")).unwrap();
        assert_eq!(first, "20270115T080000.250Z.sav");
        let mode = fs::metadata(scratch.0.join("rf").join(&first)).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "other accounts do not read it: {mode:o}");
        assert!(matches!(folder.save("rf", &settings(1_800_000_000, "two")), Err(FolderError::Exists(_))));
        let second = folder.save("rf", &settings(1_800_000_001, "two")).unwrap();
        // A file of autosave, and an incomplete file.
        fs::write(scratch.0.join("rf/auto.sav"), "# save/restore\nX:SET 3\n<END>\n").unwrap();
        fs::write(scratch.0.join("rf/cut.sav"), "X:SET 3\n").unwrap();
        let list = folder.list("rf").unwrap();
        let told: Vec<_> = list.iter().map(|one| (one.file.as_str(), one.channels, one.missing)).collect();
        assert_eq!(told, [(first.as_str(), 2, 1), (second.as_str(), 2, 1), ("auto.sav", 1, 0), ("cut.sav", 0, 0)]);
        assert_eq!(folder.newest("rf").unwrap(), second);
        assert_eq!(folder.load("rf", &second).unwrap(), settings(1_800_000_001, "two"));
        assert!(folder.load("rf", "cut.sav").unwrap_err().to_string().contains("not written to its end"));
    }

    #[test]
    fn names_with_paths_and_missing_sets_are_refused() {
        let scratch = Scratch::new("names");
        let folder = Folder::new(&scratch.0);
        for name in ["", "..", ".hidden", "a/b", "/etc/passwd", "a\nb", &"x".repeat(101)] {
            assert!(matches!(folder.channels(name), Err(FolderError::Name(_))), "{name:?}");
            assert!(matches!(folder.load("rf", name), Err(FolderError::Name(_))), "{name:?}");
        }
        fs::write(scratch.0.join("rf.req"), "\n").unwrap();
        assert!(matches!(folder.channels("rf"), Err(FolderError::Count { count: 0, .. })));
        let why = folder.channels("magnets").unwrap_err().to_string();
        assert!(why.contains("no set \"magnets\"; it has rf"), "{why}");
        fs::write(scratch.0.join("out.req"), "file ../../etc/passwd\n").unwrap();
        assert!(matches!(folder.channels("out"), Err(FolderError::File(_))));
    }
}
