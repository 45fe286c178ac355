//! Where an apply begins: nothing, a shield that stands, or what an earlier one left.

use super::claim::Claim;
use super::journal::{Found, Journal, State};
use super::machine::Machine;
use super::{Error, Place, give_back};
use crate::RunDir;
use host::plan::{self, Step, Want};
use host::snapshot::{Cgroup, Snapshot};

/// Where an apply begins.
pub(super) struct Beginning {
    pub(super) snapshot: Snapshot,
    pub(super) journal: Journal,
    /// Traces of an earlier shield, and what became of them.
    pub(super) found: Option<String>,
    /// Whether it stood before.
    pub(super) stood: bool,
}

/// Looks at the machine and its journal: what stands is gone on with, what was interrupted is given back first, and of
/// what was left only the shield's own values are taken over.
pub(super) fn begin(
    machine: &mut dyn Machine,
    want: &Want,
    dir: &RunDir,
    claim: &mut Claim,
) -> Result<Beginning, Error> {
    let snapshot = machine.snapshot(&want.cpus)?;
    claim.is_free_for(dir, &snapshot.boot_id)?;
    let new = |snapshot: Snapshot, found: Option<&str>| {
        let journal = fresh(&snapshot, want);
        Ok(Beginning { snapshot, journal, found: found.map(str::to_owned), stood: false })
    };
    match Journal::load(dir, &snapshot.boot_id)? {
        Found::None => new(snapshot, None),
        Found::OtherBoot => {
            new(snapshot, Some("a journal from another boot was removed: that boot's end undid what it described"))
        }
        Found::Here(journal) => match journal.state {
            State::Applied
                if journal.want.cpus == want.cpus
                    && journal.want.profile == want.profile
                    && want.parts.covers(journal.want.parts) =>
            {
                Ok(Beginning { snapshot, journal: *journal, found: None, stood: true })
            }
            State::Applied => Err(Error::Other(Box::new(journal.want.cpus), journal.want.profile)),
            State::Left => Ok(take_over(snapshot, want, &journal)),
            State::Applying | State::Releasing => {
                give_back(machine, dir, *journal, false, claim)?;
                let found = "an interrupted shield was found and put back first";
                let snapshot = machine.snapshot(&want.cpus)?;
                match Journal::load(dir, &snapshot.boot_id)? {
                    Found::Here(left) => {
                        let mut begins = take_over(snapshot, want, &left);
                        let more = begins.found.map(|more| format!("; {more}")).unwrap_or_default();
                        begins.found = Some(format!("{found}{more}"));
                        Ok(begins)
                    }
                    Found::None | Found::OtherBoot => new(snapshot, Some(found)),
                }
            }
        },
    }
}

/// A new shield after one of which something was left. A value that would not go back is still ours and keeps the one
/// before it. What somebody else had changed was reported and is theirs: this shield gives that back.
fn take_over(snapshot: Snapshot, want: &Want, left: &Journal) -> Beginning {
    let steps = left.steps();
    let all = steps.len();
    let ours: Vec<Step> = steps.into_iter().filter(|step| snapshot.get(&step.target).agrees(&step.to)).collect();
    let theirs = all - ours.len();
    let found = (theirs > 0).then(|| {
        let values = base::text::Counted(theirs, "value");
        format!("{values} that somebody else changed under an earlier shield: this one starts from there and goes back to there")
    });
    let rounds = if ours.is_empty() { Vec::new() } else { vec![ours] };
    let journal = Journal { rounds, ..fresh(&snapshot, want) };
    Beginning { snapshot, journal, found, stood: false }
}

/// Without a journal, our cpusets are somebody else's: another tahti's with another run directory.
pub(super) fn check_unowned(snapshot: &Snapshot, want: &Want) -> Result<(), Error> {
    let mut dirs = plan::backend(snapshot, want).own_dirs(snapshot).into_iter();
    match dirs.find(|dir| snapshot.dirs.contains(dir)) {
        Some(dir) => Err(Error::Foreign { dir }),
        None => Ok(()),
    }
}

/// The journal of a shield that is just to be made.
pub(super) fn fresh(snapshot: &Snapshot, want: &Want) -> Journal {
    let backend = plan::backend(snapshot, want);
    if !want.parts.tasks {
        return Journal::new(&snapshot.boot_id, want, "nothing: tasks stay where they are", Place::Affinity);
    }
    let place = match (&snapshot.cgroup, backend.shield_dir(snapshot)) {
        (Cgroup::V1 { .. }, Some(dir)) => Place::CpusetV1 { dir },
        (Cgroup::V2 { .. }, Some(dir)) => Place::CgroupV2 { dir },
        _ => Place::Affinity,
    };
    Journal::new(&snapshot.boot_id, want, backend.name(), place)
}
