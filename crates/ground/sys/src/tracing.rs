//! The kernel's tracing files through a private, detached mount, and its raw ring buffers.

use crate::error::{Doing, Result};
use crate::root::RootDir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The tracing files. The mount disappears when this value is dropped, or when the process ends.
#[derive(Debug)]
pub struct Tracing {
    mount: OwnedFd,
}

impl Tracing {
    /// Mounts them without attaching them to the file tree.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without privilege, `ENODEV` if the kernel has none.
    pub fn mount() -> Result<Self> {
        let doing = || "mount tracefs".to_owned();
        let config = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).doing(doing)?;
        rustix::mount::fsconfig_create(&config).doing(doing)?;
        let mount =
            rustix::mount::fsmount(&config, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).doing(doing)?;
        Ok(Self { mount })
    }

    /// Their path for this process, valid as long as this value exists.
    #[must_use]
    pub fn place(&self) -> String {
        format!("/proc/self/fd/{}", self.mount.as_raw_fd())
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> RootDir {
        RootDir::at(self.place())
    }
}

/// The buffer of one CPU in one instance. Reading returns whole pages and removes them from the buffer.
#[derive(Debug)]
pub struct Pages {
    pipe: OwnedFd,
    path: String,
}

impl Pages {
    /// Opens `path` (`…/per_cpu/cpuN/trace_pipe_raw`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = rustix::fs::open(path, flags, Mode::empty()).doing(|| format!("open {path}"))?;
        Ok(Self { pipe, path: path.to_owned() })
    }

    /// Reads the next page into `page`, which must be at least one page long; `None` if there is no data.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read<'a>(&self, page: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
        loop {
            match rustix::io::read(&self.pipe, &mut *page) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(None),
                Ok(got) => return Ok(Some(&page[..got])),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).doing(|| format!("read {}", self.path)),
            }
        }
    }
}

/// An instance: created empty, removed on drop.
#[derive(Debug)]
pub struct Instance {
    /// Its folder.
    folder: String,
    pipe: Option<OwnedFd>,
}

impl Instance {
    /// Creates the instance `name` under `place`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(place: &str, name: &str) -> Result<Self> {
        let folder = format!("{place}/instances/{name}");
        rustix::fs::mkdir(&folder, Mode::from_raw_mode(0o700)).doing(|| format!("make {folder}"))?;
        Ok(Self { folder, pipe: None })
    }

    /// Removes a leftover instance.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` while a process reads it.
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

    /// The trace since the last call, as text; empty if there is none.
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
        // If it cannot be removed, the creator of the next instance removes it.
        let _ = rustix::fs::rmdir(&self.folder);
    }
}
