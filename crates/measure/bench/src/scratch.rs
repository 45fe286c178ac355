//! Temporary folder of a measurement.

use crate::Failed;
use std::path::PathBuf;

/// A folder, removed at the end of the measurement.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A new folder for the named measurement.
    pub(crate) fn new(of: &str) -> Result<Self, Failed> {
        // In memory, as /run is on most machines: disk latency is not part of the measurement.
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
