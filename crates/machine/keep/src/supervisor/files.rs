//! The files of a plant on the disk, and the variables of the environment.

use host::plant::{Files, TEXT_BYTES_MAX, Unreadable, utf8};
use std::path::{Path, PathBuf};

/// This machine's files and this process's environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk;

impl Files for Disk {
    fn find(&mut self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, Unreadable> {
        let path = folder.join(pattern);
        let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let real = |path: &Path| {
            std::fs::canonicalize(path).map_err(|error| Unreadable::Path { path: path.to_owned(), error })
        };
        if !last.contains(['*', '?']) {
            return Ok(vec![real(&path)?]);
        }
        let folder = real(path.parent().unwrap_or(Path::new("/")))?;
        let why = |error| Unreadable::Path { path: folder.clone(), error };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(why)? {
            let name = entry.map_err(why)?.file_name();
            // Hidden files are copies that editors make.
            if let Some(name) = name.to_str()
                && !name.starts_with('.')
                && base::glob(last, name)
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        names.iter().map(|name| real(&folder.join(name))).collect()
    }

    fn text(&mut self, file: &Path) -> Result<String, Unreadable> {
        let about = std::fs::metadata(file)?;
        if !about.is_file() {
            return Err(Unreadable::NoFile);
        }
        if about.len() > TEXT_BYTES_MAX as u64 {
            return Err(Unreadable::TooLarge(about.len()));
        }
        Ok(utf8(std::fs::read(file)?)?)
    }

    fn variable(&self, name: &str) -> Result<Option<String>, Unreadable> {
        let value = std::env::var_os(name).map(|value| value.into_string());
        value.transpose().map_err(Unreadable::Variable)
    }
}
