//! Autosave files: written atomically, and read from the newest complete file.

use base::Stamp;
use db::{Saved, parse_sav, write_sav};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mode of new files: only the IOC's user and group have access to the values.
const MODE: u32 = 0o640;
/// Maximum size of a file that is read.
const BYTES_MAX: u64 = 1 << 30;
/// Maximum number of sequence files that are tried.
const SEQUENCE_MAX: u32 = 10;

/// A path with a suffix appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Writes a file atomically and durably: it survives a power failure.
///
/// # Errors
/// The kernel's. The previous content is then unchanged.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    sys::whole::replace(path, text.as_bytes(), MODE, sys::whole::Survives::PowerLoss)
}

/// Writes a `.sav` file and then its `.savB`, so that one of them is complete at any instant.
///
/// # Errors
/// As [`write_whole`].
pub fn save(path: &Path, values: &[Saved], now: Stamp) -> io::Result<()> {
    let head = format!("tahti {}\tAutomatically generated - DO NOT MODIFY - {now}", env!("CARGO_PKG_VERSION"));
    let text = write_sav(&head, values);
    write_whole(path, &text)?;
    write_whole(&with_suffix(path, "B"), &text)
}

/// Content of a `.sav` file, or of its backup.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedSet {
    /// The file that was complete.
    pub file: PathBuf,
    /// The saved values.
    pub values: Vec<Saved>,
    /// Why the files tried before it were not used.
    pub complaints: Vec<String>,
}

/// The `.sav` file or backups exist, but none is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", complaints.join("; "))]
pub struct NoneWhole {
    /// The fault of each file.
    pub complaints: Vec<String>,
}

/// Reads a `.sav` file, or else its `.savB`, or else a sequence file; `None` if none of them exists.
///
/// # Errors
/// If files exist, but none is complete.
pub fn load(path: &Path) -> Result<Option<LoadedSet>, NoneWhole> {
    let suffixes = ["", "B"].into_iter().map(str::to_owned).chain((0..SEQUENCE_MAX).map(|number| number.to_string()));
    let mut complaints = Vec::new();
    for file in suffixes.map(|suffix| with_suffix(path, &suffix)) {
        let text = match fs::metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Ok(facts) if facts.len() > BYTES_MAX => Err(format!("{} bytes, at most {BYTES_MAX} are read", facts.len())),
            _ => fs::read(&file)
                .map_err(|error| error.to_string())
                .and_then(|text| table::one_byte_letters(&text).map(|()| text).map_err(|error| error.to_string())),
        };
        let shown = file.display().to_string();
        match text.map(|text| parse_sav(&base::raw::decode(&text), &shown)) {
            Ok(Ok(values)) => return Ok(Some(LoadedSet { file, values, complaints })),
            Ok(Err(error)) => complaints.push(error.to_string()),
            Err(error) => complaints.push(format!("{shown}: {error}")),
        }
    }
    if complaints.is_empty() { Ok(None) } else { Err(NoneWhole { complaints }) }
}

/// Copies a restored file to a name with the date, or with `.bu`. A link at that name is replaced, not followed, because a
/// user who may write to the folder must not choose where the IOC writes.
///
/// # Errors
/// The kernel's.
pub fn keep_copy(path: &Path, dated: bool, now: Stamp) -> io::Result<()> {
    let suffix = if dated { format!("_{}", compact_date(now)) } else { ".bu".to_owned() };
    sys::whole::replace(&with_suffix(path, &suffix), &fs::read(path)?, MODE, sys::whole::Survives::Kill)
}

/// `YYMMDD-HHMMSS`, UTC.
fn compact_date(now: Stamp) -> String {
    let digits: Vec<char> = now.to_string().chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default().iter().collect::<String>();
    format!("{}-{}", part(2, 8), part(8, 14))
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::SavedValue;
    use std::os::unix::fs::PermissionsExt as _;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tahti-autosave-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_newest_complete_file_is_read_and_the_others_are_reported() {
        let folder = folder("whole");
        let path = folder.join("a.sav");
        assert_eq!(load(&path), Ok(None));
        let values = |text: &str| vec![Saved { name: "X:a".into(), value: Some(SavedValue::Text(text.into())) }];
        save(&path, &values("1"), Stamp::from_unix(1_800_000_000, 0)).unwrap();
        fs::copy(&path, folder.join("a.sav0")).unwrap();
        for file in ["a.sav", "a.savB"] {
            let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o137, 0, "other accounts do not read {file}: {mode:o}");
        }
        let found = load(&path).unwrap().unwrap();
        assert_eq!((found.file, found.values, found.complaints.len()), (path.clone(), values("1"), 0));
        fs::write(&path, "X:a 2\n").unwrap();
        let found = load(&path).unwrap().unwrap();
        assert_eq!((found.file, found.values, found.complaints.len()), (folder.join("a.savB"), values("1"), 1));
        fs::write(folder.join("a.savB"), "").unwrap();
        assert_eq!(load(&path).unwrap().unwrap().file, folder.join("a.sav0"));
        fs::write(folder.join("a.sav0"), "").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("expected <END>"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_of_copies_contain_the_date() {
        assert_eq!(compact_date(Stamp::from_unix(1_800_000_000, 0)), "270115-080000");
    }
}
