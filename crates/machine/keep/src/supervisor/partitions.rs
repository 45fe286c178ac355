//! The plant's partitions: raised before its first process starts, looked at while it is up, taken back at its end.

use super::shielding::Lowered;
use super::site::Site;
use super::tell::Teller;
use crate::RunDir;
use crate::partition::{self, PartitionError, Partitions, Stands};
use crate::shield::machine::RealMachine;
use base::{DurNs, MonoNs};
use host::plan::Drift;
use host::plant::Partition;
use std::collections::{BTreeMap, BTreeSet};
use sys::root::RootDir;

/// How often the bounds are looked at.
const LOOK_EVERY: DurNs = DurNs::from_secs(2);

/// When to look again, and what somebody else has written, told once.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    due: MonoNs,
    told: BTreeMap<String, String>,
}

fn machine() -> RealMachine {
    RealMachine::at(&RootDir::machine())
}

fn journal(site: &Site) -> RunDir {
    RunDir::at(site.run.path())
}

/// Raises those that the plant wants.
///
/// # Errors
/// Why one that is required cannot be had.
pub(crate) fn raise(site: &mut Site, tell: &mut Teller, now: MonoNs, required: bool) -> Result<(), PartitionError> {
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

/// Changes them to those of another plant, and puts back what somebody else has written over; how many writes that took.
///
/// # Errors
/// Why not; they are as they were.
pub(crate) fn change(
    site: &mut Site,
    tell: &mut Teller,
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

/// Takes them back; what did not go is added to what the shield's release says.
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

/// How they stand, and what of them is not as it was written.
pub(crate) fn stand(site: &Site) -> Vec<Stands> {
    let mut all = site.partitions.stand();
    for one in &mut all {
        let inside = site.plant.processes.iter().filter(|process| process.partition.as_ref() == Some(&one.name));
        one.processes = inside.map(|process| process.name.clone()).collect();
    }
    // What cannot be read is not known to be as it was written.
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
    /// When to look again.
    pub(crate) fn due(&self, site: &Site) -> Option<MonoNs> {
        (!site.partitions.is_empty()).then_some(self.due)
    }

    /// Tells of bounds that somebody else has written over, each value once.
    pub(crate) fn look(&mut self, now: MonoNs, site: &Site, tell: &mut Teller) {
        if site.partitions.is_empty() || now < self.due {
            return;
        }
        self.due = now + LOOK_EVERY;
        let drift = match site.partitions.drift(&mut machine()) {
            Ok(drift) => drift,
            Err(why) => return tell.event(now, "tahti", &format!("partitions cannot be read: {why}")),
        };
        let mut found = BTreeMap::new();
        for (name, drift) in drift {
            let words = words(&drift);
            if self.told.get(&drift.label) != Some(&words) {
                tell.event(now, "tahti", &format!("partition {name:?}: another program has written a bound: {words}"));
            }
            found.insert(drift.label, words);
        }
        self.told = found;
    }
}
