//! The state file, from which the next supervisor continues if this one is killed.

use super::processes::Processes;
use super::reporter::Reporter;
use super::rundir::Saved;
use super::site::Site;
use host::health::Table;
use host::supervise::Supervision;
use sys::clock::mono_now;

/// The last state written. Only changes are written.
#[derive(Debug, Default)]
pub(crate) struct StateFile {
    saved: Option<(Supervision, u64)>,
    failed: bool,
}

impl StateFile {
    /// Forces the next write, after a change outside the state machine.
    pub(crate) fn is_outdated(&mut self) {
        self.saved = None;
    }

    /// Writes the state if it has changed. `shield`: an existing shield is this plant's.
    pub(crate) fn save(
        &mut self,
        site: &Site,
        processes: &Processes,
        health: &Table,
        shield: bool,
        tell: &mut Reporter,
    ) {
        let is_known = |(all, changes): &(Supervision, u64)| *changes == health.changes() && *all == processes.all;
        if self.saved.as_ref().is_some_and(is_known) {
            return;
        }
        let mut saved = Saved::new(site.file.clone(), site.plant.clone(), processes.all.clone(), shield, site.since);
        let children = processes.iter().filter_map(|(unit, one)| Some((unit.spec.name.clone(), one.child?)));
        saved.children = children.collect();
        saved.health = Some(health.clone());
        match site.run.save(&saved) {
            Ok(()) => {
                self.saved = Some((saved.supervision, health.changes()));
                if std::mem::take(&mut self.failed) {
                    tell.event(mono_now(), "tahti", "the state can be written again");
                }
            }
            // The plant continues. If the supervisor were killed now, its successor would continue from an older state.
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tell.error(mono_now(), "tahti", &error.to_string());
            }
            Err(_) => {}
        }
    }
}
