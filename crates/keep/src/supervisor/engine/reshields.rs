//! The shield changed under running processes: by a comparison that changes sides, by a reload.

use super::Engine;
use crate::supervisor::probe;
use crate::supervisor::shielding::Shielding;
use base::{CpuSet, Policy};
use host::plant::{Cpus, Plant, Shield};
use sys::clock::mono_now;

impl Engine {
    /// Takes over another shield. If it cannot be had, the old one is raised again.
    ///
    /// # Errors
    /// Why not; the old shield stands, unless the text says otherwise.
    pub(super) fn change_shield(&mut self, new: &Plant) -> Result<(), String> {
        if self.compare.is_some() {
            return Err("the shield is being compared (--compare); wait for its end".to_owned());
        }
        if self.shield.cpus() != CpuSet::EMPTY && !self.shield.is_ours() {
            return Err(
                "the shield that stands is not this plant's; release it first (tahti shield release)".to_owned()
            );
        }
        let reserved = self.plant.processes.iter().find(|process| {
            let alive = self.all.find(&process.name).is_some_and(|id| self.all.units()[id].state.is_alive());
            alive && matches!(process.class, Policy::Deadline(_))
        });
        if let Some(process) = reserved {
            return Err(format!(
                "process {:?} has a reservation (deadline), which the kernel ties to the CPUs of its shield; stop it first, or \
                 use `tahti down` and `tahti up`",
                process.name
            ));
        }
        let home = new.shield.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus);
        let Err(why) = self.reshield(new.shield.as_ref(), home) else {
            let words = self.shield.words(new);
            self.tell.event(mono_now(), "shield", &words);
            return Ok(());
        };
        let old = self.plant.shield.clone();
        let home = old.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus);
        match self.reshield(old.as_ref(), home) {
            Ok(()) => Err(format!("{why}; the shield is as it was")),
            Err(again) => Err(format!("{why}; and the old shield cannot be raised again: {again}")),
        }
    }

    /// Gives back the shield that stands, and raises the one that is wanted. Processes keep their class; threads on
    /// the shield keep those of their CPUs that `home` has, or get all of it; those elsewhere keep theirs.
    ///
    /// The machine is as it was for a moment: what the new shield is planned from, and what its release gives back.
    ///
    /// # Errors
    /// Why what is wanted could not be had; then there is no shield.
    pub(super) fn reshield(&mut self, wanted: Option<&Shield>, home: CpuSet) -> Result<(), String> {
        // The masks that threads on the shield chose for themselves.
        let mut masks: Vec<(i32, CpuSet)> = Vec::new();
        let mut others = Vec::new();
        for (unit, kid) in self.all.units().iter().zip(&self.kids) {
            let (Some(child), Some(process)) = (kid.child, self.plant.process(&unit.spec.name)) else { continue };
            let tids = probe::family(child.pid);
            let mask = |tid: i32| sys::sched::affinity(tid).ok();
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
        self.stop_guard();
        let lowered = self.shield.lower();
        let mut outcome = Ok(());
        match wanted {
            None => {
                self.shield = if self.plant.shield.is_some() { Shielding::Lacking } else { Shielding::Unwanted };
                if !lowered.whole {
                    outcome = Err(lowered.said.join("; "));
                }
            }
            // What somebody else changed meanwhile stays in the journal, which the new shield goes on with.
            Some(wanted) => {
                let raised = Shielding::raise(wanted, true);
                self.shield = raised.shield;
                if !self.shield.is_ours() {
                    outcome = Err(raised.lacks.join("; "));
                }
            }
        }
        (self.common.isolated, self.common.shield_groups) = (self.shield.cpus(), self.shield.groups());
        let shield = self.shield.cpus();
        for (tid, mask) in masks {
            if mask.is_subset(&shield)
                && let Err(why) = self.shield.enter(tid)
            {
                outcome = outcome.and(Err(why));
            }
            // A thread that has ended meanwhile needs no CPU.
            let _ = sys::sched::set_affinity(tid, &mask);
        }
        let free = self.common.resolve(Cpus::Housekeeping);
        for tid in others {
            let _ = sys::sched::set_affinity(tid, &free);
        }
        self.start_guard();
        self.saved = None;
        outcome
    }
}
