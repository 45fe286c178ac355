//! Disks that can be full or fail, for tests that are root.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
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

/// A disk with a journal, in a file, which the kernel stops writing to when it finds a fault there: taken away with the test.
pub struct Failing {
    disk: Disk,
    image: PathBuf,
}

impl Failing {
    /// Makes it, of so many bytes, and mounts it; the image stands beside it.
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

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.disk.0
    }

    /// Lets the kernel find a fault: nothing can be written any more, and what was not on the disk is lost.
    pub fn fail(&self) {
        let found =
            Command::new("findmnt").args(["-n", "-o", "SOURCE", "--mountpoint"]).arg(self.at()).output().unwrap();
        let device = String::from_utf8(found.stdout).unwrap();
        let device = device.trim().rsplit('/').next().unwrap();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }

    /// Repairs it and mounts it again in the same place, as an administrator does, once nobody has a file open there.
    pub fn repair(&self) {
        let leaves = || Command::new("umount").arg(self.at()).output().unwrap().status.success();
        crate::eventually("nobody has a file open on the disk", leaves);
        // 1: faults were found and mended.
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
        // Who still writes there ends with the test, too.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
