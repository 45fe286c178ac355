//! The model of the kernel as a machine of the executor, for tests of shields and partitions.
#![allow(dead_code, reason = "each test uses what it needs")]

pub(crate) mod four;

use base::{CpuSet, Policy};
use keep::RunDir;
use rustix::io::Errno;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use sys::kernel::Kernel;
use testkit::{FakeKernel, MachineText};

/// A run directory that is removed on drop.
pub(crate) struct Dir(pub(crate) RunDir);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tahti-shield-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(RunDir::at(std::env::temp_dir().join(name)))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // The test may not have created the directory.
        let _ = std::fs::remove_dir_all(self.0.path());
    }
}

/// The panic payload of a killed tahti. The machine and the journal stay as they are at that moment.
pub(crate) struct Killed;

/// The model as a machine of the executor.
pub(crate) struct Machine(pub(crate) RefCell<FakeKernel>);

impl Machine {
    /// Boots the machine that a text describes.
    pub(crate) fn boot(text: &str) -> Self {
        Self(RefCell::new(FakeKernel::boot(&MachineText::parse(text).unwrap())))
    }

    fn change(&self, act: impl FnOnce(&mut FakeKernel) -> Result<(), Errno>, doing: String) -> sys::Result<()> {
        let mut kernel = self.0.borrow_mut();
        let answer = act(&mut kernel);
        if kernel.killed() {
            drop(kernel);
            resume_unwind(Box::new(Killed));
        }
        answer.map_err(|errno| sys::Error { doing, errno })
    }
}

impl Kernel for &Machine {
    fn read(&self, path: &str) -> sys::Result<String> {
        self.0.borrow().read(path).map_err(|errno| sys::Error { doing: format!("read {path}"), errno })
    }

    fn list(&self, path: &str) -> sys::Result<Vec<String>> {
        self.0.borrow().list(path).map_err(|errno| sys::Error { doing: format!("list {path}"), errno })
    }

    fn subdirs(&self, path: &str) -> sys::Result<Vec<String>> {
        let names = self.list(path)?;
        Ok(names.into_iter().filter(|name| self.0.borrow().list(&format!("{path}/{name}")).is_ok()).collect())
    }

    fn exists(&self, path: &str) -> bool {
        self.0.borrow().exists(path)
    }

    fn write(&self, path: &str, value: &str) -> sys::Result<()> {
        self.change(|kernel| kernel.write(path, value), format!("write {value:?} to {path}"))
    }

    fn make_dir(&self, path: &str) -> sys::Result<()> {
        self.change(|kernel| kernel.make_dir(path), format!("make directory {path}"))
    }

    fn remove_dir(&self, path: &str) -> sys::Result<()> {
        self.change(|kernel| kernel.remove_dir(path), format!("remove directory {path}"))
    }

    fn affinity(&self, tid: i32) -> sys::Result<CpuSet> {
        let answer = self.0.borrow().affinity(tid as u32);
        answer.map_err(|errno| sys::Error { doing: format!("read the CPUs of thread {tid}"), errno })
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> sys::Result<()> {
        self.change(|kernel| kernel.set_affinity(tid as u32, *cpus), format!("restrict thread {tid} to CPUs {cpus}"))
    }

    fn set_policy(&self, tid: i32, policy: Policy) -> sys::Result<()> {
        self.change(|kernel| kernel.set_policy(tid as u32, policy), format!("set thread {tid} to {policy}"))
    }

    fn is_machine(&self) -> bool {
        false
    }
}

/// Runs `act`, which the model may kill.
pub(crate) fn outlive<T>(act: impl FnOnce() -> T) -> Result<T, Killed> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|why| match why.downcast::<Killed>() {
        Ok(killed) => *killed,
        Err(other) => resume_unwind(other),
    })
}
