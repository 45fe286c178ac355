//! A disk that can be full, for tests that are root.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// A disk of its own in memory, taken away with the test.
pub struct Disk(pub PathBuf);

impl Disk {
    /// Mounts it; `size` as `mount` has it: `512k`.
    pub fn mount(at: PathBuf, size: &str) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tahti-test"]).arg(&at).status();
        assert!(mounted.unwrap().success());
        Self(at)
    }

    /// Gives it another size.
    pub fn resize(&self, size: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }

    /// Fills it with a file of that name, to the last page.
    pub fn fill(&self, name: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join(name)).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Who still writes there ends with the test, too.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
