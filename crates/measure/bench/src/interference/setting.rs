//! The compared settings, each extending the previous one, and their requirements.

use super::computation::Work;
use crate::measure::{TaskPlacement, installed};
use crate::scratch::Scratch;
use crate::shielded::Shielded;
use crate::{Failed, Touched};
use base::{CpuId, CpuSet, DurNs, Policy, Priority, Size};
use host::plant::{Bounds, CpuMax, Partition};
use keep::RunDir;
use keep::partition::{self, Partitions};
use keep::shield::machine::RealMachine;
use std::path::PathBuf;
use sys::root::RootDir;
use sys::sched::{Scheduling, set_scheduling};

/// Isolation of the measured task from the interference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Setting {
    /// All in time sharing.
    Plain,
    /// The measured task in a real-time class, the interference at nice 19.
    Priorities,
    /// Also, the CPU of the measured task is shielded.
    Shield,
    /// Also, the interference is in a partition of half a CPU.
    Bounds,
    /// The shield, with the interference in an emulated guest.
    Guest,
}

/// All, in order of isolation.
const SETTINGS: [Setting; 5] = [Setting::Plain, Setting::Priorities, Setting::Shield, Setting::Bounds, Setting::Guest];
/// Processor time of the partition.
const CPU_MAX: CpuMax = CpuMax { percent: 50, period: DurNs::from_ms(10) };
const MEMORY_MAX: Size = Size(256 << 20);
const TASKS_MAX: u64 = 64;
/// The partition's name.
const PARTITION: &str = "interference";
/// The program that runs a guest.
pub(super) const QEMU: &str = guest::model::PROGRAM;

impl Setting {
    /// Its name in tables.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Priorities => "priorities",
            Self::Shield => "shield",
            Self::Bounds => "shield and bounds",
            Self::Guest => "shield and guest",
        }
    }

    /// The class of the measured task with this real-time class.
    pub(super) const fn class(self, real_time: Policy) -> Policy {
        match self {
            Self::Plain => Policy::OTHER,
            _ => real_time,
        }
    }

    /// The class of the interference.
    pub(super) const fn nice(self) -> i8 {
        match self {
            Self::Plain => 0,
            _ => 19,
        }
    }

    fn shields(self) -> bool {
        self >= Self::Shield
    }
}

/// The machine, which enters the settings; restored on drop.
pub(super) struct Ground<'a> {
    touched: &'a Touched,
    pub(super) cpu: CpuId,
    pub(super) online: CpuSet,
    pub(super) scratch: Scratch,
    /// Work of the interference.
    pub(super) work: Work,
    bounded: Option<Bounded>,
    shielded: Option<Shielded>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(touched: &'a Touched, cpu: CpuId, online: CpuSet, work: Work) -> Result<Self, Failed> {
        let scratch = Scratch::new("interference")?;
        Ok(Self { touched, cpu, online, scratch, work, bounded: None, shielded: None })
    }

    /// The settings that this machine supports, and the reasons against the others.
    pub(super) fn possible(&mut self) -> (Vec<Setting>, Vec<String>) {
        let (mut all, mut lacks) = (Vec::new(), Vec::new());
        for setting in SETTINGS {
            match self.lacking(setting).and_then(|()| self.enter(setting)) {
                Ok(()) => all.push(setting),
                Err(why) => lacks.push(format!("{}: not measured: {why}", setting.word())),
            }
        }
        if let Err(why) = self.leave() {
            lacks.push(why.to_string());
        }
        (all, lacks)
    }

    fn lacking(&self, setting: Setting) -> Result<(), Failed> {
        if setting >= Setting::Priorities {
            real_time()?;
        }
        if setting.shields() && self.online.count() < 2 {
            return Err(Failed::Needs("a second CPU: a shield leaves one CPU to all other processes"));
        }
        match setting {
            Setting::Guest if self.work != Work::Pi => Err(Failed::Needs("--work pi: the guest computes nothing else")),
            Setting::Guest => installed(QEMU, "--version", "qemu-system-x86"),
            _ => Ok(()),
        }
    }

    /// Enters a setting.
    pub(super) fn enter(&mut self, setting: Setting) -> Result<(), Failed> {
        self.bounded = None;
        if !setting.shields() {
            return self.leave();
        }
        if self.shielded.is_none() {
            self.shielded = Some(Shielded::apply(self.touched, &CpuSet::single(self.cpu))?);
        }
        if setting == Setting::Bounds {
            self.bounded = Some(Bounded::raise(&self.scratch)?);
        }
        Ok(())
    }

    /// Restores the machine.
    pub(super) fn leave(&mut self) -> Result<(), Failed> {
        self.bounded = None;
        self.shielded.take().map_or(Ok(()), Shielded::release)
    }

    /// CPU and shield of the measured task.
    pub(super) fn place(&self) -> TaskPlacement {
        TaskPlacement { cpu: self.cpu, place: self.shielded.as_ref().map(|shielded| shielded.place.clone()) }
    }

    /// Moves an interfering process into its partition.
    pub(super) fn bind(&self, pid: i32) -> Result<(), Failed> {
        let dirs = self.bounded.as_ref().map_or_else(Vec::new, |bounded| bounded.partitions.dirs(PARTITION));
        let join =
            |dir: &PathBuf| RootDir::machine().write(&dir.join("cgroup.procs").display().to_string(), &pid.to_string());
        Ok(dirs.iter().try_for_each(join)?)
    }

    /// CPUs of the interference.
    pub(super) fn others(&self) -> CpuSet {
        match self.shielded {
            Some(_) => self.online.minus(&CpuSet::single(self.cpu)),
            None => self.online,
        }
    }
}

/// Whether threads of this process may be real time.
fn real_time() -> Result<(), Failed> {
    let policy = Policy::Fifo(Priority(1));
    let probe = std::thread::spawn(move || set_scheduling(0, Scheduling { policy, reset_on_fork: false }));
    Ok(probe.join().map_err(|_| Failed::Thread)??)
}

/// A raised partition.
struct Bounded {
    partitions: Partitions,
    dir: RunDir,
}

impl Bounded {
    fn raise(scratch: &Scratch) -> Result<Self, Failed> {
        let partition = Partition {
            name: PARTITION.into(),
            cpu_max: Some(CPU_MAX),
            bounds: Bounds { memory_max: Some(MEMORY_MAX), tasks_max: Some(TASKS_MAX) },
            required: true,
            ..Partition::default()
        };
        let dir = RunDir::at(scratch.0.join("bench"));
        dir.make().map_err(Failed::file(dir.path()))?;
        let partitions = [partition];
        let machine = &mut RealMachine::at(&RootDir::machine());
        let raised = partition::raise(machine, &dir, &partitions, partition::ground(&partitions), true)?;
        Ok(Self { partitions: raised.partitions, dir })
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        let left = partition::lower(&mut RealMachine::at(&RootDir::machine()), &self.dir);
        match left {
            Ok(lowered) if lowered.left.is_empty() => {}
            Ok(lowered) => eprintln!("tahti bench: {}", lowered.left.join("; ")),
            Err(why) => eprintln!("tahti bench: {why}"),
        }
    }
}
