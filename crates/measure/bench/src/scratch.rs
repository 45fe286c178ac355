//! A folder of a measurement.

use crate::Failed;
use std::path::PathBuf;

/// A folder that goes when the measurement ends.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A new one for the measurement of this name.
    pub(crate) fn new(of: &str) -> Result<Self, Failed> {
        // As /run is on most machines: in memory. Waiting for a disk is not what is measured.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = parent.join(format!("tahti-bench-{of}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(Failed::file(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
