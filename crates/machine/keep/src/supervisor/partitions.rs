//! The plant's partitions: created before its first process starts, checked while it is up, removed at its end.

use super::reporter::Reporter;
use super::shielding::Lowered;
use super::site::Site;
use crate::RunDir;
use crate::partition::{self, PartitionError, Partitions, Stands};
use crate::shield::machine::RealMachine;
use base::{DurNs, MonoNs};
use host::plan::Drift;
use host::plant::Partition;
use std::collections::{BTreeMap, BTreeSet};
use sys::root::RootDir;

/// Period of the check of the partitions' bounds.
const LOOK_EVERY: DurNs = DurNs::from_secs(2);

/// Time of the next check, and changes by other programs that were already reported.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    due: MonoNs,
    reported: BTreeMap<String, String>,
}

fn machine() -> RealMachine {
    RealMachine::at(&RootDir::machine())
}

fn journal(site: &Site) -> RunDir {
    RunDir::at(site.run.path())
}

/// Creates the plant's partitions.
///
/// # Errors
/// A required partition is unavailable.
pub(crate) fn raise(site: &mut Site, tell: &mut Reporter, now: MonoNs, required: bool) -> Result<(), PartitionError> {
    let wanted = &site.plant.partitions;
    let raised = partition::raise(&mut machine(), &journal(site), wanted, partition::ground(wanted), required)?;
    site.partitions = raised.partitions;
    if raised.writes > 0 {
        let names: Vec<&str> = wanted.iter().map(|one| one.name.as_str()).collect();
        tell.event(now, "tahti", &format!("partitions {} bounded: {} writes", names.join(", "), raised.writes));
    }
    raised.lacks.into_iter().for_each(|lack| tell.shortfall("tahti", lack));
    Ok(())
}

/// Changes the partitions to those of another plant file, and restores bounds that other programs changed. Returns the
/// number of writes.
///
/// # Errors
/// The change failed; the partitions are unchanged.
pub(crate) fn change(
    site: &mut Site,
    tell: &mut Reporter,
    new: &[Partition],
    occupied: &BTreeSet<String>,
) -> Result<usize, PartitionError> {
    let lists = [&site.plant.partitions[..], new];
    let raised =
        partition::change(&mut machine(), &journal(site), lists, occupied, partition::ground(new), site.require_rt)?;
    site.partitions = raised.partitions;
    raised.lacks.into_iter().for_each(|lack| tell.shortfall("tahti", lack));
    Ok(raised.writes)
}

/// Removes the partitions. Failures are added to the report of the shield's release.
pub(crate) fn lower(site: &mut Site, lowered: &mut Lowered) {
    site.partitions = Partitions::default();
    match partition::lower(&mut machine(), &journal(site)) {
        Ok(outcome) if outcome.left.is_empty() => {}
        Ok(outcome) => {
            lowered.whole = false;
            lowered.said.extend(outcome.left.into_iter().map(|left| format!("a partition is still there: {left}")));
        }
        Err(why) => {
            lowered.whole = false;
            lowered.said.push(format!("partitions may still be there: {why}"));
        }
    }
}

/// Status of the partitions, with bounds that other programs changed.
pub(crate) fn stand(site: &Site) -> Vec<Stands> {
    let mut all = site.partitions.stand();
    for one in &mut all {
        let inside = site.plant.processes.iter().filter(|process| process.partition.as_ref() == Some(&one.name));
        one.processes = inside.map(|process| process.name.clone()).collect();
    }
    // Bounds that cannot be read are reported as changed.
    match site.partitions.drift(&mut machine()) {
        Ok(found) => {
            for (name, drift) in found {
                let stands = all.iter_mut().find(|stands| stands.name == name);
                stands.into_iter().for_each(|stands| stands.drift.push(words(&drift)));
            }
        }
        Err(why) => all.iter_mut().for_each(|stands| stands.drift.push(format!("cannot be read: {why}"))),
    }
    all
}

fn words(drift: &Drift) -> String {
    format!("{} reads {}, expected {}", drift.label, drift.found, drift.expected)
}

impl Watch {
    /// Time of the next check, if there are partitions.
    pub(crate) fn due(&self, site: &Site) -> Option<MonoNs> {
        (!site.partitions.is_empty()).then_some(self.due)
    }

    /// Reports bounds that another program has changed, each value once.
    pub(crate) fn look(&mut self, now: MonoNs, site: &Site, tell: &mut Reporter) {
        if site.partitions.is_empty() || now < self.due {
            return;
        }
        self.due = now + LOOK_EVERY;
        let drift = match site.partitions.drift(&mut machine()) {
            Ok(drift) => drift,
            Err(why) => return tell.warning(now, "tahti", &format!("partitions cannot be read: {why}")),
        };
        let mut found = BTreeMap::new();
        for (name, drift) in drift {
            let words = words(&drift);
            if self.reported.get(&drift.label) != Some(&words) {
                tell.warning(
                    now,
                    "tahti",
                    &format!("partition {name:?}: another program has written a bound: {words}"),
                );
            }
            found.insert(drift.label, words);
        }
        self.reported = found;
    }
}
