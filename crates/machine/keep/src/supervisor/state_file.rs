//! The state on disk, from which whoever follows a supervisor that was killed goes on.

use super::processes::Processes;
use super::rundir::Saved;
use super::site::Site;
use super::tell::Teller;
use host::health::Table;
use host::supervise::Supervision;
use sys::clock::mono_now;

/// What was written last: only changes are.
#[derive(Debug, Default)]
pub(crate) struct StateFile {
    saved: Option<(Supervision, u64)>,
    failed: bool,
}

impl StateFile {
    /// More has changed than what is decided of processes.
    pub(crate) fn is_outdated(&mut self) {
        self.saved = None;
    }

    /// Writes the state if it has changed; `shield` says whether one that is found is this plant's.
    pub(crate) fn save(&mut self, site: &Site, processes: &Processes, health: &Table, shield: bool, tell: &mut Teller) {
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
            // The plant goes on; only a supervisor killed now would be continued from an older state.
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tell.event(mono_now(), "tahti", &error.to_string());
            }
            Err(_) => {}
        }
    }
}
