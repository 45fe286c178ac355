//! Programs under test, run as users do: `tahti` and its peers, each with separate folders and ports.
//!
//! To be used only as a dev-dependency of the program's tests. All processes end with their test. Failures panic with the program's output.
//! Helpers wait for conditions rather than fixed times; [`PATIENCE`] is the timeout.
#![forbid(unsafe_code)]

pub mod archived;
pub mod circuit;
pub mod disk;
pub mod epics;
pub mod guest;
pub mod http;
pub mod ioc;
pub mod machine;
pub mod network;
pub mod page;
pub mod plant;
pub mod port;
pub mod process;
pub mod shield;
pub mod site;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Timeout of a test on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test. Cargo puts tests into the folder `deps` next to it.
pub fn tahti() -> Command {
    let test = std::env::current_exe().expect("the test has a file");
    let mut command = Command::new(test.parent().and_then(Path::parent).expect("the program is in deps").join("tahti"));
    // Prevents hundreds of tests from starting a web server each.
    command.env("TAHTI_NO_DASHBOARD", "1");
    command
}

/// A name that is unique on this machine.
pub fn fresh(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A folder that is removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates an empty folder in the folder for temporary files.
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(fresh("tahti-test"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file, and creates its parent folders.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Polls until the condition holds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "still not, after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
