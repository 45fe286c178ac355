//! The shield changed under running processes: by a comparison that changes sides, by a reload. It may take as long as
//! irqbalance takes to obey, so that it is done beside the loop; what would start meanwhile waits.

use super::Engine;
use crate::supervisor::aside::{Aside, Lost};
use crate::supervisor::control::Reply;
use crate::supervisor::probe;
use crate::supervisor::shielding::{Lowered, Raised, Shielding};
use base::{CpuSet, Policy};
use host::plant::{Cpus, Plant, Shield};
use host::supervise::Event;
use sys::clock::mono_now;
use sys::process::{Process, ThreadId};

/// A change that is under way.
#[derive(Debug)]
pub(super) struct Reshield {
    pub(super) work: Aside<(Lowered, Option<Raised>)>,
    /// The masks that threads on the shield chose for themselves.
    masks: Vec<(ThreadId, CpuSet)>,
    /// Threads that may run wherever there is no shield.
    others: Vec<ThreadId>,
    then: Then,
}

/// What a change is for.
#[derive(Debug)]
pub(super) enum Then {
    /// The comparison goes on, with this side.
    Compare {
        /// Whether the shield stands.
        shielded: bool,
    },
    /// The rest of a plant is taken over, which this client waits for.
    Reload(Option<u64>, Box<Plant>),
    /// The client hears why its shield could not be had; the old one is raised again.
    Back(Option<u64>, String),
}

/// Why the shield is not changed.
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
    /// It was not given back whole, or could not be raised.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// A thread cannot be moved to it, or none be had to change it.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl Engine {
    /// Begins to take another shield over; the rest of the plant and the answer follow. If it cannot be had, the old
    /// one is raised again.
    ///
    /// # Errors
    /// Why not; nothing was changed.
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
        self.reshield(new.shield.clone(), home, Then::Reload(client, Box::new(new.clone())))
    }

    /// Begins to give back the shield that stands and to raise the one that is wanted. Processes keep their class;
    /// threads on the shield keep those of their CPUs that `home` has, or get all of it; those elsewhere keep theirs.
    ///
    /// The machine is as it was for a moment: what the new shield is planned from, and what its release gives back.
    ///
    /// # Errors
    /// It could not be begun; the shield stands as before.
    pub(super) fn reshield(&mut self, wanted: Option<Shield>, home: CpuSet, then: Then) -> Result<(), ReshieldError> {
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
        let work = Aside::begin("tahti-shield", move || {
            // What somebody else changed meanwhile stays in the journal, which the new shield goes on with.
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

    /// Goes on once a change is done.
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

    /// Puts threads where they belong under the shield that stands now.
    fn move_over(&mut self, masks: Vec<(ThreadId, CpuSet)>, others: Vec<ThreadId>) -> sys::Result<()> {
        let shield = self.shield.cpus();
        let mut outcome = Ok(());
        // A thread that has ended meanwhile needs no CPU, and another one may have its number.
        for (tid, mask) in masks.into_iter().filter_map(|(thread, mask)| Some((thread.tid()?, mask))) {
            if mask.is_subset(&shield)
                && let Err(why) = self.shield.enter(tid)
            {
                outcome = outcome.and(Err(why));
            }
            // Ended just now: as above.
            let _ = sys::sched::set_affinity(tid, &mask);
        }
        let free = self.site.resolve(Cpus::Housekeeping);
        for tid in others.into_iter().filter_map(ThreadId::tid) {
            let _ = sys::sched::set_affinity(tid, &free);
        }
        outcome
    }

    fn go_on(&mut self, then: Then, outcome: Result<(), ReshieldError>) {
        match (then, outcome) {
            (Then::Compare { shielded }, outcome) => self.changed_sides(shielded, outcome),
            (Then::Reload(client, new), Ok(())) => {
                let words = self.shield.words(&new);
                let now = mono_now();
                self.tell.event(now, "shield", &words);
                let lines = self.adopt_plant(now, *new);
                self.reply(client, Reply::Changes(lines));
            }
            (Then::Reload(client, _), Err(why)) => {
                let old = self.site.plant.shield.clone();
                let home = old.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus);
                let why = why.to_string();
                if let Err(again) = self.reshield(old, home, Then::Back(client, why.clone())) {
                    self.go_on(Then::Back(client, why), Err(again));
                }
            }
            (Then::Back(client, why), outcome) => {
                let stands = match outcome {
                    Ok(()) => "the shield is unchanged".to_owned(),
                    Err(again) => format!("and the old shield cannot be restored: {again}"),
                };
                let why = format!("the shield cannot be changed: {why}; {stands}; nothing else was applied");
                self.reply(client, Reply::Refused(why));
            }
        }
    }

    /// Begins to raise or lower the shield for the comparison; processes keep their class, and those on it their CPUs.
    pub(super) fn change_sides(&mut self, shielded: bool) {
        let begun = match self.site.plant.shield.clone() {
            None => Err(ReshieldError::None),
            Some(wanted) => {
                let cpus = wanted.cpus;
                self.reshield(shielded.then_some(wanted), cpus, Then::Compare { shielded })
            }
        };
        if begun.is_err() {
            self.changed_sides(shielded, begun);
        }
    }

    /// The other side stands, or cannot be had.
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

    /// Answers who asked; where nobody did a refusal is told.
    pub(crate) fn reply(&mut self, client: Option<u64>, reply: Reply) {
        match (client, reply) {
            (Some(client), reply) => self.server.answer(client, &reply),
            (None, Reply::Refused(why)) => {
                let text = format!("continues with the unchanged plant: {why}");
                self.tell.event(mono_now(), "tahti", &text);
            }
            (None, _) => {}
        }
    }
}
