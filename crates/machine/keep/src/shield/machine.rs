//! The machine that a plan is executed on: the real one, or a model in tests.

use super::fault;
use base::CpuSet;
use host::plan::Step;
use host::snapshot::{Cgroup, Class, IrqKey, Placement, Snapshot, Target, TaskKey, Value};
use proc::interrupts::Interrupts;
use proc::task_stat::Stat;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use sys::Error;
use sys::kernel::Kernel;
use sys::open_files::OpenFiles;
use sys::root::RootDir;

/// Operations that the executor needs.
pub trait Machine {
    /// The kernel's ID of this boot.
    fn boot_id(&mut self) -> String;

    /// The file that is locked while the shield changes; `None` for a machine with only one caller.
    fn lock(&self) -> Option<&Path> {
        None
    }

    /// Reads the machine; per-CPU knobs for `cpus` only.
    ///
    /// # Errors
    /// The kernel's error.
    fn snapshot(&mut self, cpus: &CpuSet) -> Result<Snapshot, Error>;

    /// Reads the machine again, a moment after `before` and after `steps` were executed: the values that the steps
    /// wrote, tasks and cpusets. Everything else is copied from `before`.
    ///
    /// # Errors
    /// The kernel's error.
    fn look_again(&mut self, before: &Snapshot, steps: &[Step]) -> Result<Snapshot, Error>;

    /// Present value of a target; [`Value::Absent`] if the target is gone.
    ///
    /// # Errors
    /// The kernel's error.
    fn read(&mut self, target: &Target) -> Result<Value, Error>;

    /// Sets the step's target to its `to`.
    ///
    /// # Errors
    /// The kernel's error.
    fn write(&mut self, step: &Step) -> Result<(), Error>;
}

/// The machine below a root directory.
#[derive(Debug)]
pub struct RealMachine<K = OpenFiles> {
    root: K,
    cgroup: Cgroup,
    irqs: BTreeMap<IrqKey, u32>,
    /// Cpuset of each task at the last read, or after the last step that moved it.
    seen: HashMap<TaskKey, Option<String>>,
    lock: Option<PathBuf>,
}

impl RealMachine {
    /// The machine below `root`.
    #[must_use]
    pub fn at(root: &RootDir) -> Self {
        Self::new(OpenFiles::new(root.clone()))
    }
}

impl<K: Kernel> RealMachine<K> {
    /// The machine that `root` gives access to.
    #[must_use]
    pub fn new(root: K) -> Self {
        let lock = root.is_machine().then(|| PathBuf::from(super::claim::MACHINE));
        Self { root, cgroup: Cgroup::None, irqs: BTreeMap::new(), seen: HashMap::new(), lock }
    }

    /// The same machine with another lock file.
    #[must_use]
    pub fn locked_by(self, lock: impl Into<PathBuf>) -> Self {
        Self { lock: Some(lock.into()), ..self }
    }

    fn remember(&mut self, snapshot: &Snapshot) {
        self.cgroup.clone_from(&snapshot.cgroup);
        self.seen = snapshot.tasks.iter().map(|(key, task)| (*key, task.cpuset.clone())).collect();
    }

    /// Present number of the interrupt. It changes when a device is removed and comes back.
    fn number(&mut self, key: &IrqKey) -> Option<u32> {
        if self.irqs.is_empty() {
            self.irqs = crate::machine::irq_keys(&Interrupts::parse(&self.root.read("/proc/interrupts").ok()?).ok()?);
        }
        self.irqs.get(key).copied()
    }

    /// Status line of the thread, if it is still the same thread and has not ended.
    fn stat(&self, key: TaskKey) -> Option<Stat> {
        let stat = self.root.read(&format!("/proc/{}/stat", key.tid)).ok().and_then(|text| Stat::parse(&text));
        stat.filter(|stat| stat.start == key.start && !stat.is_dead())
    }

    /// Placement of the thread. Its cpuset is from the last read, milliseconds ago; only its affinity is read now.
    fn place(&self, key: TaskKey) -> Result<Value, Error> {
        let Some(cpuset) = self.seen.get(&key) else { return Ok(Value::Absent) };
        match self.root.affinity(key.tid) {
            Ok(cpus) => Ok(Value::Place(Placement { cpuset: cpuset.clone(), cpus, own: false })),
            Err(error) if is_gone(error.errno) => Ok(Value::Absent),
            Err(error) => Err(error),
        }
    }

    fn set_place(&mut self, key: TaskKey, from: &Value, to: &Placement) -> Result<(), Error> {
        let moves = !matches!(from, Value::Place(from) if from.cpuset == to.cpuset);
        let entry = match &self.cgroup {
            Cgroup::None => None,
            Cgroup::V1 { mount } => Some((mount, "tasks")),
            Cgroup::V2 { mount, .. } => Some((mount, "cgroup.procs")),
        };
        if let (true, Some(cpuset), Some((mount, file))) = (moves, &to.cpuset, entry) {
            let dir = if cpuset == "/" { "" } else { cpuset };
            // Another thread may have this ID by now.
            if self.stat(key).is_none() {
                return Err(unknown(&Target::Task { key }, Errno::SRCH));
            }
            self.root.write(&format!("{mount}{dir}/{file}"), &key.tid.to_string())?;
            self.seen.insert(key, to.cpuset.clone());
        }
        // Joining the cpuset has set the affinity, unless the task has an affinity of its own or there is no cpuset.
        if (to.own || !moves) && self.root.affinity(key.tid)? != to.cpus {
            // An affinity persists, so it must never be set on another thread with the same ID. Moving such a thread is
            // harmless: a task in the shield's cpusets that is not in the journal is moved back to the parent's cpuset.
            if self.stat(key).is_none() {
                return Err(unknown(&Target::Task { key }, Errno::SRCH));
            }
            self.root.set_affinity(key.tid, &to.cpus)?;
        }
        Ok(())
    }
}

/// Whether the error means that the target has ended or is gone.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH | Errno::NODEV)
}

fn unknown(what: &Target, errno: Errno) -> Error {
    Error { doing: format!("find {what}"), errno }
}

impl<K: Kernel> Machine for RealMachine<K> {
    fn lock(&self) -> Option<&Path> {
        self.lock.as_deref()
    }

    fn boot_id(&mut self) -> String {
        let text = self.root.read("/proc/sys/kernel/random/boot_id");
        text.map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    fn snapshot(&mut self, cpus: &CpuSet) -> Result<Snapshot, Error> {
        let mut snapshot = crate::machine::snapshot(&self.root, cpus)?;
        self.remember(&snapshot);
        self.irqs = snapshot.irqs.iter().map(|(key, irq)| (key.clone(), irq.number)).collect();
        if self.root.is_machine() {
            snapshot.irqbalance = super::irqbalance::ask(&self.root);
        }
        Ok(snapshot)
    }

    fn look_again(&mut self, before: &Snapshot, steps: &[Step]) -> Result<Snapshot, Error> {
        let mut snapshot = crate::machine::look_again(&self.root, before);
        self.remember(&snapshot);
        for Step { target, .. } in steps {
            let seen = match target {
                Target::Task { .. } => true,
                Target::Dir { path } | Target::File { path, .. } => snapshot.cpuset_of_dir(path).is_some(),
                _ => false,
            };
            if !seen {
                snapshot.set(target, &self.read(target)?);
            }
        }
        Ok(snapshot)
    }

    fn read(&mut self, target: &Target) -> Result<Value, Error> {
        let file = |path: &str, form: host::snapshot::Form| match self.root.read_setting(path) {
            Ok(text) => Ok(form.read(&text)),
            Err(error) if is_gone(error.errno) => Ok(Value::Absent),
            Err(error) => Err(error),
        };
        match target {
            Target::Dir { path } if self.root.exists(path) => Ok(Value::Present),
            Target::Dir { .. } => Ok(Value::Absent),
            Target::File { path, form } => file(path, *form),
            Target::Task { key } => self.place(*key),
            Target::Class { key } => {
                Ok(self.stat(*key).map_or(Value::Absent, |stat| Value::Text(Class::of(&stat).to_string())))
            }
            Target::Irq { key } => match self.number(key) {
                None => Ok(Value::Absent),
                Some(number) => match self.root.read_setting(&format!("/proc/irq/{number}/smp_affinity_list")) {
                    Ok(text) => Ok(host::snapshot::Form::List.read(&text)),
                    Err(error) if is_gone(error.errno) => Ok(Value::Absent),
                    Err(error) => Err(error),
                },
            },
            Target::Traffic { .. } | Target::TrafficClass { .. } | Target::Sender { .. } => {
                crate::partition::read(target)
            }
            Target::Irqbalance => {
                Ok(super::irqbalance::ask(&self.root).map_or(Value::Absent, |it| Value::Cpus(it.banned)))
            }
        }
    }

    fn write(&mut self, step: &Step) -> Result<(), Error> {
        fault::before_write();
        match (&step.target, &step.to) {
            (Target::Dir { path }, Value::Present) => self.root.make_dir(path),
            (Target::Dir { path }, Value::Absent) => self.root.remove_dir(path),
            (Target::File { path, form }, to) => match form.write(to) {
                Some(text) => self.root.write(path, &text),
                None => Err(unknown(&step.target, Errno::INVAL)),
            },
            (Target::Irq { key }, Value::Cpus(cpus)) => match self.number(key) {
                Some(number) => self.root.write(&format!("/proc/irq/{number}/smp_affinity_list"), &cpus.to_string()),
                None => Err(unknown(&step.target, Errno::NOENT)),
            },
            (Target::Task { key }, Value::Place(to)) => self.set_place(*key, &step.from, to),
            (Target::Class { key }, Value::Text(text)) => match text.parse() {
                Ok(policy) => self.root.set_policy(key.tid, policy),
                Err(_) => Err(unknown(&step.target, Errno::INVAL)),
            },
            (Target::Traffic { .. } | Target::TrafficClass { .. } | Target::Sender { .. }, to) => {
                crate::partition::write(&step.target, to)
            }
            (Target::Irqbalance, Value::Cpus(cpus)) => super::irqbalance::ban(&self.root, cpus),
            _ => Err(unknown(&step.target, Errno::INVAL)),
        }
    }
}
