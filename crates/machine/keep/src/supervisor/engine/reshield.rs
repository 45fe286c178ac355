//! Changes the shield while processes are running, for a comparison or a reload. A change may take as long as irqbalance
//! needs to follow, so it runs in the background. Process starts wait until it is complete.

use super::Engine;
use crate::supervisor::background::{BackgroundTask, NoResult};
use crate::supervisor::control::Reply;
use crate::supervisor::probe;
use crate::supervisor::shielding::{Lowered, Raised, Shielding};
use base::{CpuSet, Policy};
use host::plant::{Cpus, Plant, Shield};
use host::supervise::Event;
use sys::clock::mono_now;
use sys::process::{Process, ThreadId};

/// A change in progress.
#[derive(Debug)]
pub(super) struct Reshield {
    pub(super) work: BackgroundTask<(Lowered, Option<Raised>)>,
    /// Affinity masks to restore for threads on the shield and for threads with listed CPUs.
    masks: Vec<(ThreadId, CpuSet)>,
    /// Threads that may run on all CPUs outside the shield.
    others: Vec<ThreadId>,
    then: Purpose,
}

/// Purpose of a change.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Continue the comparison with this state of the shield.
    Compare {
        /// Whether the shield is active.
        shielded: bool,
    },
    /// Apply the rest of the plant file, and answer this client.
    Reload(Option<u64>, Box<Plant>),
    /// Restore the old shield, and report to the client why the new one is unavailable.
    Back(Option<u64>, String),
}

/// A reason why the shield is not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReshieldError {
    #[error("a comparison of the shield is running (--compare); wait until it ends")]
    Compared,
    #[error("the active shield is not this plant's; release it first (tahti shield release)")]
    NotOurs,
    #[error(
        "process {0:?} has a reservation (deadline), which the kernel ties to the CPUs of its shield; stop it first, or \
         use `tahti down` and `tahti up`"
    )]
    Reserved(String),
    #[error("the plant has no shield")]
    None,
    /// It was not fully released, or could not be set up.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// A thread cannot be moved into it, or the background thread cannot be started.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    #[error(transparent)]
    Lost(#[from] NoResult),
}

impl Engine {
    /// Starts to change to another shield. The rest of the plant and the answer follow. If the new shield is unavailable,
    /// the old one is restored.
    ///
    /// # Errors
    /// The change is not possible; nothing was changed.
    pub(super) fn change_shield(&mut self, new: &Plant, client: Option<u64>) -> Result<(), ReshieldError> {
        if self.compare.is_some() {
            return Err(ReshieldError::Compared);
        }
        if self.shield.cpus() != CpuSet::EMPTY && !self.shield.is_ours() {
            return Err(ReshieldError::NotOurs);
        }
        let reserved = self.site.plant.processes.iter().find(|process| {
            let alive = self.processes.all.find(&process.name).is_some_and(|id| self.processes.state(id).is_alive());
            alive && matches!(process.class, Policy::Deadline(_))
        });
        if let Some(process) = reserved {
            return Err(ReshieldError::Reserved(process.name.clone()));
        }
        let home = new.shield.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus);
        self.reshield(new.shield.clone(), home, Purpose::Reload(client, Box::new(new.clone())))
    }

    /// Starts to release the current shield and to set up the wanted one. Processes keep their class. Threads on the shield
    /// keep those of their CPUs that are in `home`, or get all of `home` if there are none. Other threads keep their CPUs.
    ///
    /// In between, the machine is in its original state. The new shield is planned from that state, and its release restores
    /// it.
    ///
    /// # Errors
    /// The change could not be started; the shield is unchanged.
    pub(super) fn reshield(
        &mut self,
        wanted: Option<Shield>,
        home: CpuSet,
        then: Purpose,
    ) -> Result<(), ReshieldError> {
        let mut masks: Vec<(ThreadId, CpuSet)> = Vec::new();
        let mut others = Vec::new();
        for (unit, one) in self.processes.iter() {
            let (Some(child), Some(process)) = (one.child, self.site.process(&unit.spec.name)) else { continue };
            let Ok(handle) = Process::started_at(child.pid, child.start_ticks) else { continue };
            let tids = probe::threads_below(child.pid);
            if handle.has_ended() {
                continue;
            }
            let mask = |thread: ThreadId| sys::sched::affinity(thread.tid()?).ok();
            let at_home = |mask: CpuSet| {
                let kept = mask.and(&home);
                if kept.is_empty() { home } else { kept }
            };
            match process.cpus {
                Cpus::Shield if !home.is_empty() => {
                    masks.extend(tids.into_iter().filter_map(|tid| Some((tid, at_home(mask(tid)?)))));
                }
                Cpus::List(_) => masks.extend(tids.into_iter().filter_map(|tid| Some((tid, mask(tid)?)))),
                Cpus::Shield | Cpus::Housekeeping => others.extend(tids),
            }
        }
        self.watcher.stop(&mut self.processes);
        let mut standing = self.shield.clone();
        let work = BackgroundTask::begin("tahti-shield", move || {
            // Values that another program changed meanwhile stay in the journal, which the new shield continues.
            (standing.lower(), wanted.map(|wanted| Shielding::raise(&wanted, true)))
        });
        match work {
            Ok(work) => {
                self.reshield = Some(Reshield { work, masks, others, then });
                Ok(())
            }
            Err(error) => {
                self.start_guard();
                Err(error.into())
            }
        }
    }

    /// Completes a change once the background work is done.
    pub(super) fn reshielded(&mut self) {
        let Some(outcome) = self.reshield.as_ref().and_then(|change| change.work.take()) else { return };
        let Some(Reshield { masks, others, then, .. }) = self.reshield.take() else { return };
        let outcome = outcome.map_err(ReshieldError::from).and_then(|(lowered, raised)| {
            let (shield, done, why) = match raised {
                None => {
                    let wanted = self.site.plant.shield.is_some();
                    let shield = if wanted { Shielding::Lacking } else { Shielding::Unwanted };
                    (shield, lowered.whole, lowered.said)
                }
                Some(raised) => {
                    let done = raised.shield.is_ours();
                    (raised.shield, done, raised.lacks)
                }
            };
            self.stands(shield);
            if done { Ok(()) } else { Err(ReshieldError::Refused(why)) }
        });
        let moved = self.move_over(masks, others);
        self.start_guard();
        self.state_file.is_outdated();
        self.let_start();
        self.go_on(then, outcome.and(moved.map_err(ReshieldError::from)));
    }

    /// Moves threads to the CPUs that they have under the current shield.
    fn move_over(&mut self, masks: Vec<(ThreadId, CpuSet)>, others: Vec<ThreadId>) -> sys::Result<()> {
        let shield = self.shield.cpus();
        let mut outcome = Ok(());
        // A thread that has ended meanwhile is skipped, because its TID may have been reused.
        for (tid, mask) in masks.into_iter().filter_map(|(thread, mask)| Some((thread.tid()?, mask))) {
            if mask.is_subset(&shield)
                && let Err(why) = self.shield.enter(tid)
            {
                outcome = outcome.and(Err(why));
            }
            // An error means that the thread has just ended.
            let _ = sys::sched::set_affinity(tid, &mask);
        }
        let free = self.site.resolve(Cpus::Housekeeping);
        for tid in others.into_iter().filter_map(ThreadId::tid) {
            let _ = sys::sched::set_affinity(tid, &free);
        }
        outcome
    }

    fn go_on(&mut self, then: Purpose, outcome: Result<(), ReshieldError>) {
        match (then, outcome) {
            (Purpose::Compare { shielded }, outcome) => self.changed_sides(shielded, outcome),
            (Purpose::Reload(client, new), Ok(())) => {
                let words = self.shield.words(&new);
                let now = mono_now();
                self.tell.event(now, "shield", &words);
                let lines = self.adopt_plant(now, *new);
                self.reply(client, Reply::Changes(lines));
            }
            (Purpose::Reload(client, _), Err(why)) => {
                let old = self.site.plant.shield.clone();
                let home = old.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus);
                let why = why.to_string();
                if let Err(again) = self.reshield(old, home, Purpose::Back(client, why.clone())) {
                    self.go_on(Purpose::Back(client, why), Err(again));
                }
            }
            (Purpose::Back(client, why), outcome) => {
                let shield = match outcome {
                    Ok(()) => "the shield is unchanged".to_owned(),
                    Err(again) => format!("and the old shield cannot be restored: {again}"),
                };
                let why = format!("the shield cannot be changed: {why}; {shield}; nothing else was applied");
                self.reply(client, Reply::Refused(why));
            }
        }
    }

    /// Starts to set up or release the shield for the comparison. Processes keep their class, and threads on the shield keep
    /// their CPUs.
    pub(super) fn change_sides(&mut self, shielded: bool) {
        let begun = match self.site.plant.shield.clone() {
            None => Err(ReshieldError::None),
            Some(wanted) => {
                let cpus = wanted.cpus;
                self.reshield(shielded.then_some(wanted), cpus, Purpose::Compare { shielded })
            }
        };
        if begun.is_err() {
            self.changed_sides(shielded, begun);
        }
    }

    /// Continues the comparison after a change of the shield, or ends it if the change failed.
    fn changed_sides(&mut self, shielded: bool, outcome: Result<(), ReshieldError>) {
        let now = mono_now();
        match outcome {
            Ok(()) => {
                self.tell.event(now, "compare", &self.shield.words(&self.site.plant));
                self.compare.iter_mut().for_each(|compare| compare.begin(now, shielded));
            }
            Err(why) => {
                self.tell.shortfall("compare", format!("the comparison ends early: {why}"));
                self.processes.event(Event::Down);
            }
        }
    }

    /// Answers the client. Without a client, a refusal is logged.
    pub(crate) fn reply(&mut self, client: Option<u64>, reply: Reply) {
        match (client, reply) {
            (Some(client), reply) => self.server.answer(client, &reply),
            (None, Reply::Refused(why)) => {
                let text = format!("continues with the unchanged plant: {why}");
                self.tell.warning(mono_now(), "tahti", &text);
            }
            (None, _) => {}
        }
    }
}
