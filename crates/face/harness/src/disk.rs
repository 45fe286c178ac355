//! Disks that can be full or fail, for tests as root.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A separate disk in memory. Unmounted on drop.
pub struct Disk(pub PathBuf);

impl Disk {
    /// Mounts a disk. `size` is in the format of `mount`, such as `512k`.
    pub fn mount(at: PathBuf, size: &str) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tahti-test"]).arg(&at).status();
        assert!(mounted.unwrap().success());
        Self(at)
    }

    /// Changes the size.
    pub fn resize(&self, size: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }

    /// Fills the disk to the last page with a file of this name.
    pub fn fill(&self, name: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join(name)).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

/// A journaling disk in an image file. The kernel remounts it read-only after an error. Unmounted on drop.
pub struct Failing {
    disk: Disk,
    image: PathBuf,
}

impl Failing {
    /// Creates an image of `size` bytes next to the mount point, and mounts it.
    pub fn mount(at: PathBuf, size: u64) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let image = at.with_extension("image");
        File::create_new(&image).unwrap().set_len(size).unwrap();
        done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        let disk = Self { disk: Disk(at), image };
        disk.attach();
        disk
    }

    fn attach(&self) {
        done(Command::new("mount").args(["-o", "loop,errors=remount-ro"]).arg(&self.image).arg(self.at()));
    }

    /// Mount point.
    pub fn at(&self) -> &Path {
        &self.disk.0
    }

    /// Triggers a file system error. The disk becomes read-only, and data not yet on it is lost.
    pub fn fail(&self) {
        let found =
            Command::new("findmnt").args(["-n", "-o", "SOURCE", "--mountpoint"]).arg(self.at()).output().unwrap();
        let device = String::from_utf8(found.stdout).unwrap();
        let device = device.trim().rsplit('/').next().unwrap();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }

    /// Repairs the disk and mounts it again at the same place, as an administrator does. Waits until no file on it is open.
    pub fn repair(&self) {
        let leaves = || Command::new("umount").arg(self.at()).output().unwrap().status.success();
        crate::eventually("no process has a file open on the disk", leaves);
        // Exit status 1: errors were found and corrected.
        let checked = Command::new("fsck.ext4").args(["-f", "-y"]).arg(&self.image).output().unwrap();
        assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
        self.attach();
    }
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Remaining writers end with the test.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
