//! Interface to the kernel for plans: files, directories and affinities. Implemented by the real kernel, and by a model
//! in tests.

use crate::error::Result;
use crate::root::RootDir;
use crate::sched::Scheduling;
use base::{CpuSet, Policy};

/// A kernel to read from and write to. The errors are the kernel's.
pub trait Kernel {
    /// [`RootDir::read`].
    ///
    /// # Errors
    /// The kernel's.
    fn read(&self, path: &str) -> Result<String>;

    /// [`Kernel::read`] for a file that may be written and read back. It may stay open until then.
    ///
    /// # Errors
    /// The kernel's.
    fn read_setting(&self, path: &str) -> Result<String> {
        self.read(path)
    }

    /// [`RootDir::list`].
    ///
    /// # Errors
    /// The kernel's.
    fn list(&self, path: &str) -> Result<Vec<String>>;

    /// [`RootDir::subdirs`].
    ///
    /// # Errors
    /// The kernel's.
    fn subdirs(&self, path: &str) -> Result<Vec<String>>;

    /// [`RootDir::exists`].
    fn exists(&self, path: &str) -> bool;

    /// Whether the file's mode has any write bit; `None` if the mode is not meaningful.
    fn is_writable(&self, _path: &str) -> Option<bool> {
        None
    }

    /// [`RootDir::write`].
    ///
    /// # Errors
    /// The kernel's.
    fn write(&self, path: &str, value: &str) -> Result<()>;

    /// [`RootDir::make_dir`].
    ///
    /// # Errors
    /// The kernel's.
    fn make_dir(&self, path: &str) -> Result<()>;

    /// [`RootDir::remove_dir`].
    ///
    /// # Errors
    /// The kernel's.
    fn remove_dir(&self, path: &str) -> Result<()>;

    /// [`crate::sched::affinity`].
    ///
    /// # Errors
    /// The kernel's.
    fn affinity(&self, tid: i32) -> Result<CpuSet>;

    /// [`crate::sched::set_affinity`].
    ///
    /// # Errors
    /// The kernel's.
    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> Result<()>;

    /// [`crate::sched::set_scheduling`].
    ///
    /// # Errors
    /// The kernel's.
    fn set_policy(&self, tid: i32, policy: Policy) -> Result<()>;

    /// Whether this is the machine on which this process runs, with its sockets.
    fn is_machine(&self) -> bool;
}

/// The online CPUs; `None` if the kernel does not report them.
#[must_use]
pub fn online(root: &impl Kernel) -> Option<CpuSet> {
    root.read("/sys/devices/system/cpu/online").ok()?.parse().ok()
}

impl Kernel for RootDir {
    fn read(&self, path: &str) -> Result<String> {
        self.read(path)
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.list(path)
    }

    fn subdirs(&self, path: &str) -> Result<Vec<String>> {
        self.subdirs(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.exists(path)
    }

    fn is_writable(&self, path: &str) -> Option<bool> {
        self.is_writable(path)
    }

    fn write(&self, path: &str, value: &str) -> Result<()> {
        self.write(path, value)
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        self.make_dir(path)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.remove_dir(path)
    }

    fn affinity(&self, tid: i32) -> Result<CpuSet> {
        crate::sched::affinity(tid)
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> Result<()> {
        crate::sched::set_affinity(tid, cpus)
    }

    fn set_policy(&self, tid: i32, policy: Policy) -> Result<()> {
        crate::sched::set_scheduling(tid, Scheduling { policy, reset_on_fork: false })
    }

    fn is_machine(&self) -> bool {
        self.is_machine()
    }
}
