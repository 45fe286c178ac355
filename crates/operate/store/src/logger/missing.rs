//! Detection of archive files that another program removed while the logger runs.

use super::Logger;
use crate::error::StoreError;
use crate::files::Files;
use crate::manifest::{MANIFEST, Manifest};
use crate::part::Numbers;
use segment::manifest::Record;
use std::collections::HashSet;

impl<F: Files> Logger<F> {
    /// Names of files that the manifest lists and the folder does not contain. Packing may run at the same time, so a file counts
    /// only if the manifest listed it both at the previous call and now. The first call therefore finds none. Lists the folder,
    /// and reads the manifest if it has changed.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn missing(&mut self) -> Result<Vec<String>, StoreError> {
        if self.lock.is_none() {
            // The disk fails; that is reported separately.
            return Ok(Vec::new());
        }
        // List before reading the manifest: packing lists a new file before it removes the old ones.
        let listed = self.files.list().map_err(StoreError::io("", "list"))?;
        let listed: HashSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        let before = self.inspected.take();
        let is_same = before.as_ref().is_some_and(|before| before.is_current(&self.files));
        let now = if is_same { None } else { Some(Manifest::load(&self.files)?) };
        let Some(old) = before.as_ref() else {
            self.inspected = now;
            return Ok(Vec::new());
        };
        let new = now.as_ref().unwrap_or(old);
        // The logger may remove a file before it writes the manifest's entry.
        let is_removed =
            |file: Numbers| self.records.iter().any(|one| matches!(one, Record::Removed(name) if *name == file.code()));
        let both = new.live.keys().copied().filter(|file| old.live.contains_key(file) && !is_removed(*file));
        let mut missing: Vec<String> = both.map(Numbers::name).filter(|name| !listed.contains(&**name)).collect();
        if old.archive.is_some() && !listed.contains(MANIFEST) {
            missing.push(MANIFEST.to_owned());
        }
        self.inspected = now.or(before);
        Ok(missing)
    }
}
