//! A model of the kernel: files and tasks that refuse and normalise as the real ones do.
//!
//! A plan that works on a model which takes everything proves nothing. This one answers `EIO` or `EPERM` for a managed
//! interrupt, `EINVAL` for a kernel thread that is bound to its CPU, `EBUSY` for a cgroup in use; reads `0-2` where
//! `0,1,2` was written; takes `isolated` and then reads `isolated invalid (…)`; moves an interrupt only when it fires.
//! `tests/guest_model.rs` holds it against real kernels, operation by operation.
//!
//! Never a clock, file or thread of the machine that the test runs on.

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

/// Where unbound kernel work may run.
const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";

/// What a call into the kernel gives.
pub type Answer<T> = Result<T, Errno>;

/// The machine's kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeKernel {
    /// Major and minor version.
    version: (u32, u32),
    possible: CpuSet,
    online: CpuSet,
    /// CPUs that `isolcpus=domain` took out at boot.
    boot_isolated: CpuSet,
    /// Files without behaviour of their own beyond their form.
    files: BTreeMap<String, String>,
    /// What unbound work was asked to keep to; isolated CPUs are taken out of it.
    workqueues: CpuSet,
    tasks: BTreeMap<u32, Task>,
    irqs: BTreeMap<u32, Irq>,
    v2: Option<V2>,
    v1: Option<V1>,
    /// Calls that changed something or tried to.
    calls: usize,
    /// After so many calls, every other fails as if its caller had been killed.
    calls_limit: Option<usize>,
    /// What was written, in order, for messages of failed tests.
    log: Vec<String>,
}

impl FakeKernel {
    /// The machine that a text describes, with the kernel that its `/proc/sys/kernel/osrelease` names.
    ///
    /// # Panics
    /// If the text lacks what every machine has; it is a test's own fixture.
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

    /// Kills the caller after `calls` more changes: from then on every change fails and does nothing.
    pub fn kill_after(&mut self, calls: usize) {
        self.calls_limit = Some(self.calls + calls);
    }

    /// Whether the caller was killed.
    #[must_use]
    pub fn killed(&self) -> bool {
        self.calls_limit.is_some_and(|limit| self.calls > limit)
    }

    /// A new caller starts: nothing kills it.
    pub fn revive(&mut self) {
        self.calls_limit = None;
    }

    /// How many changes were tried so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// What was tried so far and how it was answered, a line each.
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// The machine without what does not belong to its state: counters of calls, log, limit.
    #[must_use]
    pub fn state(&self) -> Self {
        Self { calls: 0, calls_limit: None, log: Vec::new(), ..self.clone() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As the kernel's.
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

    /// Writes a file with one `write`.
    ///
    /// # Errors
    /// As the kernel's.
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

    /// Makes a directory, which only cgroup file systems allow.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn make_dir(&mut self, path: &str) -> Answer<()> {
        self.call(format!("mkdir {path}"), |kernel| {
            kernel.make_group(path).or_else(|| kernel.make_cache_group(path)).unwrap_or(Err(Errno::PERM))
        })
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn remove_dir(&mut self, path: &str) -> Answer<()> {
        self.call(format!("rmdir {path}"), |kernel| {
            kernel.remove_group(path).or_else(|| kernel.remove_cache_group(path)).unwrap_or(Err(Errno::PERM))
        })
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `ENOENT` when nothing lies below it.
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

    /// Whether a file or directory is there.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.read(path).is_ok() || self.list(path).is_ok()
    }

    /// Sets a plain file from outside, as another program or the firmware would.
    pub fn set_file(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    /// Counts a change, and refuses it when its caller is dead.
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

    /// Since 6.8 isolated CPUs are out for unbound work, whatever was asked for.
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

    /// Unplugs or plugs a CPU.
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

/// A CPU list; empty text is no CPU.
fn cpus(text: &str) -> Answer<CpuSet> {
    match text.trim() {
        "" => Ok(CpuSet::EMPTY),
        list => list.parse().map_err(|_| Errno::INVAL),
    }
}

/// A CPU list as the kernel prints it.
fn line(cpus: &CpuSet) -> String {
    format!("{cpus}\n")
}

/// A CPU mask as the kernel prints it.
fn mask(cpus: &CpuSet) -> String {
    let mut text = String::new();
    cpus.write_mask(&mut text).expect("text takes everything");
    text.push('\n');
    text
}
