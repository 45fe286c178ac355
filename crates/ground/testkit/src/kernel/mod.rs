//! A model of the kernel: its files and tasks refuse and normalise writes as the real ones do.
//!
//! A test on a model that accepts every write would prove nothing. This model returns `EIO` or `EPERM` for a managed interrupt, `EINVAL` for a
//! kernel thread bound to its CPU, and `EBUSY` for a cgroup in use. It reads `0-2` after `0,1,2` was written. It accepts `isolated` and then
//! reads `isolated invalid (…)`. It moves an interrupt only when it fires.
//! `tests/guest_model.rs` compares it with real kernels, operation by operation.
//!
//! The model does not use clocks, files or threads of the host.

mod cgroup;
mod files;
mod irq;
mod resctrl;
mod task;

pub use task::{Task, TaskKind};

use crate::machine::MachineText;
use base::CpuSet;
use cgroup::{V1, V2};
use irq::Irq;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// CPU mask of unbound workqueues.
const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";

/// Result of a call into the kernel.
pub type Answer<T> = Result<T, Errno>;

/// The model of a machine's kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeKernel {
    /// Major and minor version.
    version: (u32, u32),
    possible: CpuSet,
    online: CpuSet,
    /// CPUs that `isolcpus=domain` isolated at boot.
    boot_isolated: CpuSet,
    /// Plain files, which only normalise the written text.
    files: BTreeMap<String, String>,
    /// Requested CPUs for unbound work. Isolated CPUs are excluded from them.
    workqueues: CpuSet,
    tasks: BTreeMap<u32, Task>,
    irqs: BTreeMap<u32, Irq>,
    v2: Option<V2>,
    v1: Option<V1>,
    /// Number of attempted changes.
    calls: usize,
    /// Number of changes after which every further one fails, as if the caller had been killed.
    calls_limit: Option<usize>,
    /// Attempted changes in order, for messages of failed tests.
    log: Vec<String>,
}

impl FakeKernel {
    /// Boots the machine that a text describes, with the kernel version in `/proc/sys/kernel/osrelease`.
    ///
    /// # Panics
    /// The text lacks a file that every machine has. Texts are the tests' own fixtures.
    #[must_use]
    pub fn boot(text: &MachineText) -> Self {
        let list = |path: &str| text.get(path).map_or(CpuSet::EMPTY, |list| cpus(list).expect(path));
        let release = text.get("/proc/sys/kernel/osrelease").expect("a machine has /proc/sys/kernel/osrelease");
        let mut numbers =
            release.split(['.', '-']).map(|word| word.parse().expect("a kernel release begins with numbers"));
        let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let online = list("/sys/devices/system/cpu/online");
        assert!(!online.is_empty(), "a machine has /sys/devices/system/cpu/online");
        let possible = list("/sys/devices/system/cpu/possible").or(&online);
        let boot_isolated = list("/sys/devices/system/cpu/isolated");
        let mut kernel = Self {
            version,
            possible,
            online,
            boot_isolated,
            files: text.files().clone(),
            workqueues: text.get(WORKQUEUES).map_or(possible, |mask| CpuSet::from_mask(mask).expect(WORKQUEUES)),
            tasks: BTreeMap::new(),
            irqs: irq::from_files(text.files(), &online),
            v2: V2::from_files(text.files(), version, &boot_isolated),
            v1: V1::from_files(text.files(), &online),
            calls: 0,
            calls_limit: None,
            log: Vec::new(),
        };
        kernel.tasks = task::from_files(text.files(), &possible);
        kernel.hand_out();
        kernel
    }

    /// Kills the caller after `calls` more changes. Every further change fails without effect.
    pub fn kill_after(&mut self, calls: usize) {
        self.calls_limit = Some(self.calls + calls);
    }

    /// The caller has been killed.
    #[must_use]
    pub fn killed(&self) -> bool {
        self.calls_limit.is_some_and(|limit| self.calls > limit)
    }

    /// Starts a new caller, which is not killed.
    pub fn revive(&mut self) {
        self.calls_limit = None;
    }

    /// Number of attempted changes.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Attempted changes with their results, one line each.
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// The state of the machine, without the counter of calls, its limit and the log.
    #[must_use]
    pub fn state(&self) -> Self {
        Self { calls: 0, calls_limit: None, log: Vec::new(), ..self.clone() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self, path: &str) -> Answer<String> {
        if let Some(text) = self.read_task(path) {
            return text;
        }
        if let Some(text) = self.read_irq(path) {
            return text;
        }
        if let Some(text) = self.read_group(path) {
            return text;
        }
        match path {
            "/sys/devices/system/cpu/online" => Ok(line(&self.online)),
            _ => self.files.get(path).cloned().ok_or_else(|| self.missing(path)),
        }
    }

    /// Writes a file with a single `write`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn write(&mut self, path: &str, value: &str) -> Answer<()> {
        self.call(format!("{path} <- {value:?}"), |kernel| {
            if let Some(answer) = kernel.write_irq(path, value) {
                return answer;
            }
            if let Some(answer) = kernel.write_group(path, value) {
                return answer;
            }
            if let Some(answer) = kernel.write_cache(path, value) {
                return answer;
            }
            if let Some(cpu) = files::online_switch(path) {
                return kernel.plug(cpu, value);
            }
            let now = kernel.files.get(path).ok_or_else(|| kernel.missing(path))?;
            let text = files::normalised(path, now, value.trim(), &kernel.online)?;
            if path == WORKQUEUES {
                kernel.workqueues = CpuSet::from_mask(&text).map_err(|_| Errno::INVAL)?;
            }
            kernel.files.insert(path.to_owned(), text);
            kernel.exclude_workqueues();
            Ok(())
        })
    }

    /// Creates a directory. Only cgroup file systems and resctrl permit this.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn make_dir(&mut self, path: &str) -> Answer<()> {
        self.call(format!("mkdir {path}"), |kernel| {
            kernel.make_group(path).or_else(|| kernel.make_cache_group(path)).unwrap_or(Err(Errno::PERM))
        })
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn remove_dir(&mut self, path: &str) -> Answer<()> {
        self.call(format!("rmdir {path}"), |kernel| {
            kernel.remove_group(path).or_else(|| kernel.remove_cache_group(path)).unwrap_or(Err(Errno::PERM))
        })
    }

    /// Names in a directory, sorted.
    ///
    /// # Errors
    /// `ENOENT` if the directory does not exist.
    pub fn list(&self, path: &str) -> Answer<Vec<String>> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names = BTreeSet::new();
        let everything =
            self.files.keys().cloned().chain(self.task_files()).chain(self.irq_files()).chain(self.group_files());
        for file in everything {
            if let Some(rest) = file.strip_prefix(&prefix) {
                names.insert(rest.split('/').next().unwrap_or(rest).to_owned());
            }
        }
        if names.is_empty() && !self.is_group(path) { Err(Errno::NOENT) } else { Ok(names.into_iter().collect()) }
    }

    /// A file or directory exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.read(path).is_ok() || self.list(path).is_ok()
    }

    /// Sets a plain file from outside, as another program or the firmware does.
    pub fn set_file(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    /// Counts a change, and refuses it if its caller has been killed.
    fn call(&mut self, what: String, act: impl FnOnce(&mut Self) -> Answer<()>) -> Answer<()> {
        self.calls += 1;
        if self.killed() {
            return Err(Errno::INTR);
        }
        let answer = act(self);
        self.log.push(match &answer {
            Ok(()) => what,
            Err(errno) => format!("{what}: {errno}"),
        });
        answer
    }

    fn missing(&self, path: &str) -> Errno {
        let prefix = format!("{path}/");
        if self.files.keys().any(|file| file.starts_with(&prefix)) { Errno::ISDIR } else { Errno::NOENT }
    }

    /// Since 6.8, isolated CPUs are excluded from unbound work, whatever mask was requested.
    fn exclude_workqueues(&mut self) {
        if self.version < (6, 8) {
            return;
        }
        let left = self.workqueues.minus(&self.isolated_now());
        let left = if left.is_empty() { self.workqueues } else { left };
        if let Some(text) = self.files.get_mut(WORKQUEUES) {
            *text = mask(&left);
        }
    }

    /// Takes a CPU offline or online.
    fn plug(&mut self, cpu: u16, value: &str) -> Answer<()> {
        match value.trim() {
            "0" if self.online.count() == 1 => return Err(Errno::BUSY),
            "0" => self.online.remove(cpu),
            "1" if self.possible.contains(cpu) => self.online.insert(cpu),
            _ => return Err(Errno::INVAL),
        }
        self.files.insert(format!("/sys/devices/system/cpu/cpu{cpu}/online"), format!("{}\n", value.trim()));
        self.recompute();
        Ok(())
    }
}

/// Parses a CPU list. Empty text is the empty set.
fn cpus(text: &str) -> Answer<CpuSet> {
    match text.trim() {
        "" => Ok(CpuSet::EMPTY),
        list => list.parse().map_err(|_| Errno::INVAL),
    }
}

/// A CPU list in the kernel's format.
fn line(cpus: &CpuSet) -> String {
    format!("{cpus}\n")
}

/// A CPU mask in the kernel's format.
fn mask(cpus: &CpuSet) -> String {
    let mut text = String::new();
    cpus.write_mask(&mut text).expect("text takes everything");
    text.push('\n');
    text
}
