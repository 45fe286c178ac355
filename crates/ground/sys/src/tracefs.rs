//! The kernel's tracing files: an instance of our own, with its own buffer and events.

use crate::error::{Doing, Result};
use crate::root::RootDir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::os::fd::OwnedFd;

/// Where tracing files are, or may be put.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Finds the tracing files; where nobody mounted them, mounts them for the calling thread alone (a mount
/// namespace of its own, gone with the thread).
///
/// # Errors
/// The kernel's: `EPERM` without privilege.
pub fn reach() -> Result<&'static str> {
    let machine = RootDir::machine();
    let there = |place: &&&str| machine.exists(&format!("{place}/instances"));
    if let Some(place) = PLACES.iter().find(there) {
        return Ok(place);
    }
    let place = PLACES[0];
    let doing = || format!("mount tracefs on {place} for one thread");
    // SAFETY: the thread leaves the shared file-system context; no descriptor and no memory is affected.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.doing(doing)?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).doing(doing)?;
    rustix::mount::mount("tracefs", place, "tracefs", MountFlags::empty(), None).doing(doing)?;
    Ok(place)
}

/// An instance: made empty, removed on drop.
#[derive(Debug)]
pub struct Instance {
    /// Its folder.
    folder: String,
    pipe: Option<OwnedFd>,
}

impl Instance {
    /// Makes the instance `name` below `place`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(place: &str, name: &str) -> Result<Self> {
        let folder = format!("{place}/instances/{name}");
        rustix::fs::mkdir(&folder, Mode::from_raw_mode(0o700)).doing(|| format!("make {folder}"))?;
        Ok(Self { folder, pipe: None })
    }

    /// Removes an instance that somebody left behind.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` while somebody reads it.
    pub fn remove(place: &str, name: &str) -> Result<()> {
        let folder = format!("{place}/instances/{name}");
        rustix::fs::rmdir(&folder).doing(|| format!("remove {folder}"))
    }

    /// Writes one of the instance's files.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        RootDir::machine().write(&format!("{}/{file}", self.folder), value)
    }

    /// What has been traced since the last call, as text; empty if nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> Result<String> {
        let doing = || format!("read {}/trace_pipe", self.folder);
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::open(format!("{}/trace_pipe", self.folder), flags, Mode::empty()).doing(doing)?
            }
        };
        let mut bytes = vec![0; 1 << 16];
        let got = match rustix::io::read(&pipe, &mut bytes[..]) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno).doing(doing),
        };
        self.pipe = Some(pipe);
        bytes.truncate(got);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipe = None;
        // What cannot be removed is swept by the next instance's maker.
        let _ = rustix::fs::rmdir(&self.folder);
    }
}
