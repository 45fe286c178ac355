//! The CPU shield on the real machine: apply, repair, release.
//!
//! `host::plan` decides. This module writes the plan to the [`journal`], executes it ([`executor`]) on the machine
//! ([`machine`]), and verifies it by reading the machine again. If this process is killed at any moment, the journal
//! has every old value, and the next [`apply`] or [`release`] restores them.

mod begin;
mod claim;
mod compare;
pub mod confirm;
pub mod executor;
mod fault;
mod guards;
mod irqbalance;
pub mod journal;
pub mod machine;
pub mod watch;

pub(crate) use fault::before_write;
pub use guards::with_owners;

use crate::RunDir;
use begin::{Beginning, begin, fresh};
use claim::Claim;
pub use compare::{Compared, compare};
use executor::{Stopped, execute};
use host::plan::{self, Drift, ForeignValue, Note, PlanErrors, Profile, Step, Want};
use host::snapshot::{Snapshot, Target};
use host::suggest::Choice;
use journal::{Journal, JournalState, Refused, State};
use machine::{Machine, RealMachine};
use serde::{Deserialize, Serialize};
use sys::root::RootDir;

/// Tasks fork while they are moved. A machine that still has new tasks after this many rounds never settles.
const ROUNDS_MAX: usize = 16;

/// Rounds in which new children of spared processes are moved away. Spared processes never stop starting children.
const ROUNDS_FOR_SPARED: usize = 2;

/// Group of the shield's own tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ShieldGroup {
    /// No group: only their affinity puts them on the shielded CPUs.
    #[default]
    Affinity,
    /// A cpuset of version 1.
    CpusetV1 {
        /// Its directory.
        dir: String,
    },
    /// A cgroup of version 2.
    CgroupV2 {
        /// Its directory.
        dir: String,
    },
}

impl ShieldGroup {
    /// The file that accepts a thread ID to move the thread into the group (version 2: its process).
    #[must_use]
    pub fn entry(&self) -> Option<String> {
        match self {
            Self::Affinity => None,
            Self::CpusetV1 { dir } => Some(format!("{dir}/tasks")),
            Self::CgroupV2 { dir } => Some(format!("{dir}/cgroup.procs")),
        }
    }

    /// The file that accepts a single thread of a process in another group. Version 2 accepts it only in a threaded
    /// group, and only from a process in the parent group.
    #[must_use]
    pub fn thread_entry(&self) -> Option<String> {
        match self {
            Self::CgroupV2 { dir } => Some(format!("{dir}/cgroup.threads")),
            Self::Affinity | Self::CpusetV1 { .. } => self.entry(),
        }
    }

    /// Moves thread `tid` into the group. Its affinity stays as it is: bind it to one CPU afterwards.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enter(&self, root: &RootDir, tid: i32) -> Result<(), sys::Error> {
        self.entry().map_or(Ok(()), |file| root.write(&file, &tid.to_string()))
    }
}

/// Result of [`apply`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Applied {
    /// The active shield.
    pub want: Want,
    /// Method that keeps tasks off the CPUs.
    pub backend: String,
    /// Group of the shield's own tasks.
    pub place: ShieldGroup,
    /// Rounds until no step was left.
    pub rounds: usize,
    /// Writes that succeeded.
    pub writes: usize,
    /// Steps that the kernel refused, with the reason.
    pub refused: Vec<Refused>,
    /// Things that cannot be moved, and other remarks.
    pub notes: Vec<Note>,
    /// Boot parameters that would make changes that are impossible at run time.
    pub boot: Vec<Note>,
    /// Values that differ from the written ones after verification.
    pub drift: Vec<Drift>,
    /// Traces of an earlier shield and what was done with them.
    pub found: Option<String>,
    /// Whether the shield was active before, completely or in part, and was only repaired.
    pub stood: bool,
}

/// Result of [`release`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Released {
    /// The shield that was released; `None` if there was none.
    pub want: Option<Want>,
    /// Writes that succeeded.
    pub writes: usize,
    /// Values that another program had changed, and that were not restored.
    pub kept: Vec<ForeignValue>,
    /// Values that could not be restored, with the kernel's error.
    pub refused: Vec<Refused>,
    /// Whether a journal of another boot was found and removed.
    pub other_boot: bool,
}

impl Released {
    /// Whether everything is as it was before the shield.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.kept.is_empty() && self.refused.is_empty()
    }
}

/// Error of applying, reading or releasing a shield.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The shield is impossible; nothing was written.
    #[error("{0}")]
    Plan(#[from] PlanErrors),
    /// The machine could not be read.
    #[error("{0}")]
    Machine(#[from] sys::Error),
    /// The old values could not be saved; nothing was changed.
    #[error("nothing was changed, because the old values could not be saved in {path}: {error}")]
    NoJournal {
        /// The journal.
        path: String,
        /// The system's error.
        error: String,
    },
    /// The journal cannot be read.
    #[error("{path}: {error}")]
    Journal {
        /// The journal.
        path: String,
        /// The error.
        error: String,
    },
    /// Another shield is active.
    #[error("a shield on CPUs {0} (profile {1}) is active already: release it first (tahti shield release)")]
    Other(Box<base::CpuSet>, Profile),
    /// Control groups of another tahti's shield are in use, and this run directory has no journal of them.
    #[error(
        "{dir} exists, but has no journal, and it is in use ({by}): release it where it was made (TAHTI_RUN names its \
             journal's directory), or move its tasks out and remove it (rmdir); nothing was changed",
        dir = .0.dir, by = .0.by
    )]
    Foreign(plan::InUse),
    /// A value changed between plan and write. All changes were reverted.
    #[error(
        "{label} changed while the shield was applied: expected {expected}, found {found}; everything was restored"
    )]
    Moved {
        /// Name of the value.
        label: String,
        /// The value in the plan.
        expected: String,
        /// The value found.
        found: String,
    },
    /// The kernel refused a step that the shield requires. All changes were reverted.
    #[error("{answer}; everything was restored")]
    Refused {
        /// The kernel's error.
        answer: String,
    },
    /// Another run directory has the shield.
    #[error("{} (its journal is in {dir}): TAHTI_RUN={dir} tahti shield release{}", .state.elsewhere(.cpus), .state.force())]
    Elsewhere {
        /// The other run directory.
        dir: String,
        /// CPUs of the shield.
        cpus: Box<base::CpuSet>,
        /// State of the shield.
        state: State,
    },
    /// New tasks kept appearing.
    #[error("after {0} rounds, new tasks still appeared on the shielded CPUs; everything was restored")]
    Restless(usize),
}

/// Applies the shield: plans, writes the journal and executes the plan, until the plan is empty, and verifies the
/// result.
///
/// With the same `want` as the active shield, it repairs drift. Remains of an interrupted apply or release are reverted
/// first.
///
/// # Errors
/// The shield is impossible, or cannot be recorded. The machine is then as it was.
pub fn apply(root: &RootDir, want: &Want, dir: &RunDir) -> Result<Applied, Error> {
    let _guards = guards::SuspendedGuards::suspend(root);
    apply_on(&mut RealMachine::at(root), want, dir).map_err(|error| match error {
        Error::Plan(errors) => Error::Plan(with_owners(root, errors)),
        other => other,
    })
}

/// Releases the shield: restores the old value of each target that still has the shield's value. A value that another
/// program changed is kept and reported, unless `force` is set.
///
/// # Errors
/// The machine or the journal cannot be read. Another call continues.
pub fn release(root: &RootDir, dir: &RunDir, force: bool) -> Result<Released, Error> {
    let _guards = guards::SuspendedGuards::suspend(root);
    release_on(&mut RealMachine::at(root), dir, force)
}

/// The active shield, if there is one. A shield that is partly applied or released is not active; see [`here`].
///
/// # Errors
/// The journal cannot be read.
pub fn current(root: &RootDir, dir: &RunDir) -> Result<Option<Journal>, Error> {
    Ok(here(root, dir)?.filter(|journal| journal.state == State::Applied))
}

/// The journal of a shield in any state, by one read: between two reads its state may change.
///
/// # Errors
/// The journal cannot be read.
pub fn here(root: &RootDir, dir: &RunDir) -> Result<Option<Journal>, Error> {
    let boot = root.read("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default();
    match Journal::load(dir, &boot)? {
        JournalState::Here(journal) => Ok(Some(*journal)),
        JournalState::None if root.is_machine() => Ok(claim::lost(dir, &boot)?.map(|journal| *journal)),
        JournalState::None | JournalState::OtherBoot => Ok(None),
    }
}

/// Fault of the shield's journal in its run directory, and what was done. A missing journal is restored from its copy.
pub fn journal_fault(root: &RootDir, dir: &RunDir) -> Option<String> {
    let boot = root.read("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default();
    let path = dir.path().join(journal::FILE);
    let path = path.display();
    let lost = match Journal::load(dir, &boot) {
        Ok(JournalState::Here(_)) => return None,
        Ok(JournalState::None | JournalState::OtherBoot) => format!("{path} is missing"),
        Err(error) => error.to_string(),
    };
    Some(match claim::lost(dir, &boot) {
        Ok(Some(copy)) => match copy.save(dir) {
            Ok(()) => format!("{lost}; it was written again from its copy"),
            Err(error) => format!("{lost}; its copy is in {}: {error}", claim::MACHINE),
        },
        Ok(None) => format!("{lost}, and there is no copy: old values are lost"),
        Err(error) => format!("{lost}, and its copy cannot be read: {error}"),
    })
}

/// Differences between the active shield and its journal: settings, control groups, interrupts, tasks that were moved
/// away.
///
/// # Errors
/// The machine or the journal cannot be read.
pub fn written_over(root: &RootDir, dir: &RunDir) -> Result<Compared, Error> {
    current(root, dir)?.map_or_else(|| Ok(Compared::default()), |journal| compare(root, &journal))
}

/// Error of choosing CPUs.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] Error),
    /// The machine cannot be read.
    #[error(transparent)]
    Machine(#[from] sys::Error),
    /// The machine has fewer CPUs.
    #[error(transparent)]
    TooMany(#[from] host::suggest::TooMany),
}

/// The CPUs for a choice. For a number, those of the active shield if it has that many, else the best ones.
///
/// # Errors
/// The machine or the journal cannot be read, or the machine has fewer CPUs.
pub fn choose(root: &RootDir, dir: &RunDir, choice: Choice) -> Result<base::CpuSet, ChooseError> {
    let count = match choice {
        Choice::Cpus(cpus) => return Ok(cpus),
        Choice::Auto(count) => count,
    };
    if let Some(journal) = current(root, dir)?
        && journal.want.cpus.count() == count
    {
        return Ok(journal.want.cpus);
    }
    let snapshot = crate::machine::snapshot(root, &base::CpuSet::EMPTY)?;
    Ok(host::suggest::suggest(&snapshot, count)?)
}

/// [`apply`] on any machine.
///
/// # Errors
/// Errors of [`apply`].
pub fn apply_on(machine: &mut dyn Machine, want: &Want, dir: &RunDir) -> Result<Applied, Error> {
    let mut claim = Claim::take(machine, dir)?;
    apply_claimed(machine, want, dir, &mut claim)
}

/// Applies the active shield again. Returns `None` if none is active: the shield may have been released before the lock
/// was taken.
///
/// # Errors
/// Errors of [`apply`].
pub fn repair_on(machine: &mut dyn Machine, dir: &RunDir) -> Result<Option<Applied>, Error> {
    let mut claim = Claim::take(machine, dir)?;
    match claim.load(dir, &machine.boot_id())? {
        JournalState::Here(journal) if journal.state == State::Applied => {
            apply_claimed(machine, &journal.want, dir, &mut claim).map(Some)
        }
        _ => Ok(None),
    }
}

fn apply_claimed(machine: &mut dyn Machine, want: &Want, dir: &RunDir, claim: &mut Claim) -> Result<Applied, Error> {
    let Beginning { mut snapshot, mut journal, found, stood } = begin(machine, want, dir, claim)?;
    if want.parts.tasks && !journal.want.parts.tasks {
        // The previous shield did not move tasks; from now on they have a group.
        let Journal { backend, place, .. } = fresh(&snapshot, want);
        (journal.backend, journal.place) = (backend, place);
    }
    journal.want = want.clone();
    let (mut rounds, mut writes) = (0, 0);
    let mut whole = true;
    loop {
        let plan = match plan::plan(&snapshot, want) {
            Ok(plan) => plan.without(journal.refused.iter().map(|refused| &refused.target)),
            Err(errors) if journal.rounds.is_empty() => return Err(errors.into()),
            Err(errors) => {
                give_back(machine, dir, journal, false, claim)?;
                return Err(errors.into());
            }
        };
        let plan = match rounds {
            0..ROUNDS_FOR_SPARED => plan,
            _ => plan::without_children_of_spared(plan, &snapshot, want),
        };
        if !whole && !plan.steps.is_empty() {
            // There are new tasks, so values copied from the previous read may be outdated.
            (snapshot, whole) = (machine.snapshot(&want.cpus)?, true);
            continue;
        }
        (journal.notes, journal.boot) = (plan.notes, plan.boot);
        if plan.steps.is_empty() {
            break;
        }
        if rounds == ROUNDS_MAX {
            give_back(machine, dir, journal, false, claim)?;
            return Err(Error::Restless(rounds));
        }
        rounds += 1;
        // A shield under repair counts as active: after a kill it is active in part, and readers still see it.
        journal.state = if stood { State::Applied } else { State::Applying };
        journal.rounds.push(plan.steps);
        claim.hold(dir)?;
        claim.save(&journal, dir)?;
        let outcome = execute(machine, journal.rounds.last().map_or(&[], Vec::as_slice));
        writes += outcome.writes;
        journal.refused.extend(outcome.refused);
        if let Some(stopped) = outcome.stopped {
            give_back(machine, dir, journal, false, claim)?;
            return Err(match stopped {
                Stopped::Moved { label, expected, found } => Error::Moved { label, expected, found },
                Stopped::Refused(refused) => Error::Refused { answer: refused.answer },
            });
        }
        (snapshot, whole) = (machine.look_again(&snapshot, journal.rounds.last().map_or(&[], Vec::as_slice))?, false);
        if let Some(round) = journal.rounds.last_mut() {
            // Nothing was written for these steps. In reverse, so that the other indices stay valid.
            outcome.strayed.iter().rev().for_each(|&index| drop(round.remove(index)));
        }
    }
    journal.state = State::Applied;
    claim.hold(dir)?;
    claim.save(&journal, dir)?;
    Ok(Applied {
        want: want.clone(),
        backend: journal.backend.clone(),
        place: journal.place.clone(),
        rounds,
        writes,
        drift: drift(&snapshot, &journal),
        refused: journal.refused,
        notes: journal.notes,
        boot: journal.boot,
        found,
        stood,
    })
}

/// Threads of other programs that may run on the CPUs of `want` now, each with its name: spared threads, and threads
/// started since the last apply.
///
/// # Errors
/// The machine cannot be read.
pub fn strangers(root: &RootDir, want: &Want) -> Result<Vec<String>, Error> {
    let snapshot = RealMachine::at(root).snapshot(&want.cpus)?;
    Ok(plan::strangers(&snapshot, want).into_iter().map(|(tid, comm)| format!("{tid} {comm}")).collect())
}

/// Differences between the machine and the journal. Refused steps are not compared.
#[must_use]
pub fn drift(snapshot: &Snapshot, journal: &Journal) -> Vec<Drift> {
    let mut drift = plan::verify(snapshot, &journal.steps());
    drift.retain(|drift| !journal.refused.iter().any(|refused| refused.target == drift.target));
    drift
}

/// [`release`] on any machine.
///
/// # Errors
/// Errors of [`release`].
pub fn release_on(machine: &mut dyn Machine, dir: &RunDir, force: bool) -> Result<Released, Error> {
    let mut claim = Claim::take(machine, dir)?;
    let boot = machine.boot_id();
    match claim.load(dir, &boot)? {
        JournalState::Here(journal) => give_back(machine, dir, *journal, force, &mut claim),
        found => {
            claim.is_free_for(dir, &boot)?;
            let snapshot = machine.snapshot(&base::CpuSet::EMPTY)?;
            let orphans = plan::orphans(&snapshot).map_err(Error::Foreign)?;
            if orphans.is_empty() {
                let other_boot = matches!(found, JournalState::OtherBoot);
                if other_boot {
                    // The copy next to the lock is of that boot, too.
                    claim.give_up()?;
                }
                return Ok(Released { other_boot, ..Released::default() });
            }
            let mut journal = fresh(&snapshot, &Want::default());
            journal.rounds.push(orphans);
            claim.hold(dir)?;
            give_back(machine, dir, journal, force, &mut claim)
        }
    }
}

/// Reverts all steps of the journal whose values are still the shield's. The rest stays in the journal.
fn give_back(
    machine: &mut dyn Machine,
    dir: &RunDir,
    mut journal: Journal,
    force: bool,
    claim: &mut Claim,
) -> Result<Released, Error> {
    journal.state = State::Releasing;
    claim.save(&journal, dir)?;
    let steps = journal.steps();
    retell_irqbalance(machine, &steps);
    let mut released = Released { want: Some(journal.want.clone()), ..Released::default() };
    let (mut idle, mut snapshot) = (0, machine.snapshot(&journal.want.cpus)?);
    for _ in 0..ROUNDS_MAX {
        let way = plan::release(&snapshot, &steps, force);
        released.kept = way.kept;
        if way.plan.steps.is_empty() {
            released.refused.clear();
            break;
        }
        // An error does not stop the release. Failed steps are tried again and reported at the end.
        let (mut writes, mut refused) = (0, Vec::new());
        for step in &way.plan.steps {
            let outcome = execute(machine, std::slice::from_ref(step));
            writes += outcome.writes;
            refused.extend(outcome.refused);
            if let Some(Stopped::Refused(why)) = outcome.stopped {
                refused.push(why);
            }
        }
        released.writes += writes;
        released.refused = refused;
        idle = if writes == 0 { idle + 1 } else { 0 };
        if idle == 3 {
            break;
        }
        if !released.refused.is_empty() {
            // A cpuset whose last task is ending cannot be removed for a moment.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        snapshot = if released.refused.is_empty() && idle == 0 {
            machine.look_again(&snapshot, &way.plan.steps)?
        } else {
            machine.snapshot(&journal.want.cpus)?
        };
    }
    if released.is_whole() {
        Journal::remove(dir)?;
        claim.give_up()?;
        return Ok(released);
    }
    let left = |target: &Target| {
        released.kept.iter().any(|kept| kept.target == *target)
            || released.refused.iter().any(|refused| refused.target == *target)
    };
    let rest: Vec<Step> = steps.into_iter().filter(|step| left(&step.target)).collect();
    journal.state = State::Left;
    journal.rounds = vec![rest];
    journal.kept.clone_from(&released.kept);
    journal.refused.clone_from(&released.refused);
    claim.save(&journal, dir)?;
    Ok(released)
}

/// irqbalance applies a setting late: it may still be about to apply the shield's list although `setup` returns the old
/// one. It therefore gets the old list in any case. Reading it afterwards shows whether it took effect, as for other
/// values.
fn retell_irqbalance(machine: &mut dyn Machine, steps: &[Step]) {
    if let Some(step) = steps.iter().find(|step| step.target == Target::Irqbalance) {
        let back = Step { from: step.to.clone(), to: step.from.clone(), ..step.clone() };
        // A failure shows as a value that was not restored.
        let _ = machine.write(&back);
    }
}

/// This process and its parent, for [`Want::own`].
#[must_use]
pub fn own_processes() -> Vec<i32> {
    let own = rustix::process::getpid();
    let parent = rustix::process::getppid();
    std::iter::once(own).chain(parent).map(rustix::process::Pid::as_raw_nonzero).map(i32::from).collect()
}
