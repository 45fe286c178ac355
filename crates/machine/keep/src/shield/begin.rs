//! Start of an apply: no shield, an active shield, or the remains of an earlier one.

use super::claim::Claim;
use super::journal::{Journal, JournalState, State};
use super::machine::Machine;
use super::{Error, ROUNDS_MAX, ShieldGroup, give_back};
use crate::RunDir;
use host::plan::{self, Step, Want};
use host::snapshot::{Cgroup, Snapshot};

/// State at the start of an apply.
pub(super) struct Beginning {
    pub(super) snapshot: Snapshot,
    pub(super) journal: Journal,
    /// Traces of an earlier shield and what was done with them.
    pub(super) found: Option<String>,
    /// Whether the shield was active before.
    pub(super) stood: bool,
}

/// First action of an apply.
#[derive(Debug, PartialEq)]
enum First {
    /// Continue with this journal.
    GoOn {
        journal: Journal,
        /// Traces of an earlier shield and what is done with them.
        found: Option<String>,
        /// Whether the shield was active before.
        stood: bool,
    },
    /// Revert this journal and read the machine again.
    GiveBack(Journal, &'static str),
}

/// Reads the machine and its journal. An active shield is continued. An interrupted or lost one is reverted first. Of a
/// released one with values left, only the shield's own values are taken over.
pub(super) fn begin(
    machine: &mut dyn Machine,
    want: &Want,
    dir: &RunDir,
    claim: &mut Claim,
) -> Result<Beginning, Error> {
    let mut given_back: Vec<&str> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let snapshot = machine.snapshot(&want.cpus)?;
        claim.is_free_for(dir, &snapshot.boot_id)?;
        match first(&snapshot, want, claim.load(dir, &snapshot.boot_id)?)? {
            First::GoOn { journal, found, stood } => {
                let found: Vec<&str> = given_back.into_iter().chain(found.as_deref()).collect();
                let found = (!found.is_empty()).then(|| found.join("; "));
                return Ok(Beginning { snapshot, journal, found, stood });
            }
            First::GiveBack(journal, why) => {
                claim.hold(dir)?;
                give_back(machine, dir, journal, false, claim)?;
                given_back.push(why);
            }
        }
    }
    Err(Error::Restless(ROUNDS_MAX))
}

/// Determines the first action.
fn first(snapshot: &Snapshot, want: &Want, found: JournalState) -> Result<First, Error> {
    let journal = match found {
        JournalState::Here(journal) => *journal,
        found => {
            let orphans = if want.parts.tasks { plan::orphans(snapshot).map_err(Error::Foreign)? } else { Vec::new() };
            let mut journal = fresh(snapshot, want);
            if !orphans.is_empty() {
                journal.rounds.push(orphans);
                let why = "empty control groups of an earlier shield without a journal were removed first";
                return Ok(First::GiveBack(journal, why));
            }
            let other = "a journal from another boot was removed: the reboot has undone its changes";
            let found = matches!(found, JournalState::OtherBoot).then(|| other.to_owned());
            return Ok(First::GoOn { journal, found, stood: false });
        }
    };
    match journal.state {
        State::Applied
            if journal.want.cpus == want.cpus
                && journal.want.profile == want.profile
                && want.parts.covers(journal.want.parts) =>
        {
            Ok(First::GoOn { journal, found: None, stood: true })
        }
        State::Applied => Err(Error::Other(Box::new(journal.want.cpus), journal.want.profile)),
        State::Left => Ok(take_over(snapshot, want, &journal)),
        State::Applying | State::Releasing => {
            Ok(First::GiveBack(journal, "an interrupted shield was found and reverted first"))
        }
    }
}

/// Journal of a new shield after a release that left values. A value that could not be restored is still ours and keeps
/// the value before it. A value that another program had changed was reported and is theirs: this shield will restore
/// that value.
fn take_over(snapshot: &Snapshot, want: &Want, left: &Journal) -> First {
    let steps = left.steps();
    let all = steps.len();
    let ours: Vec<Step> = steps.into_iter().filter(|step| snapshot.get(&step.target).agrees(&step.to)).collect();
    let theirs = all - ours.len();
    let found = (theirs > 0).then(|| {
        let values = base::text::Counted(theirs, "value");
        format!("{values} that another program changed under an earlier shield: this shield starts from the present values and restores them")
    });
    let rounds = if ours.is_empty() { Vec::new() } else { vec![ours] };
    let journal = Journal { rounds, ..fresh(snapshot, want) };
    First::GoOn { journal, found, stood: false }
}

/// Journal of a shield without steps.
pub(super) fn fresh(snapshot: &Snapshot, want: &Want) -> Journal {
    let backend = plan::backend(snapshot, want);
    if !want.parts.tasks {
        return Journal::new(&snapshot.boot_id, want, "nothing: tasks stay where they are", ShieldGroup::Affinity);
    }
    let place = match (&snapshot.cgroup, backend.shield_dir(snapshot)) {
        (Cgroup::V1 { .. }, Some(dir)) => ShieldGroup::CpusetV1 { dir },
        (Cgroup::V2 { .. }, Some(dir)) => ShieldGroup::CgroupV2 { dir },
        _ => ShieldGroup::Affinity,
    };
    Journal::new(&snapshot.boot_id, want, backend.name(), place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::snapshot::{Target, Value};

    fn want(cpus: &str) -> Want {
        Want { cpus: cpus.parse().unwrap(), ..Want::default() }
    }

    /// A machine with these cpusets of version 1.
    fn machine(dirs: &[&str]) -> Snapshot {
        let dirs = dirs.iter().map(|dir| (*dir).to_owned()).collect();
        Snapshot { cgroup: Cgroup::V1 { mount: "/cg".to_owned() }, dirs, ..Snapshot::default() }
    }

    fn journal(state: State, cpus: &str) -> JournalState {
        JournalState::Here(Box::new(Journal {
            state,
            ..Journal::new("boot", &want(cpus), "any", ShieldGroup::Affinity)
        }))
    }

    #[test]
    fn each_state_of_a_journal_has_one_first_action() {
        let bare = machine(&["/cg"]);
        let first = |found| first(&bare, &want("2"), found);
        let stands = |found| matches!(first(found), Ok(First::GoOn { stood: true, found: None, .. }));
        assert!(stands(journal(State::Applied, "2")));
        assert!(matches!(first(journal(State::Applied, "3")), Err(Error::Other(..))));
        for state in [State::Applying, State::Releasing] {
            // Independent of its CPUs.
            assert!(matches!(first(journal(state, "3")), Ok(First::GiveBack(..))), "{state:?}");
        }
        assert!(matches!(first(journal(State::Left, "3")), Ok(First::GoOn { stood: false, found: None, .. })));
        assert!(matches!(first(JournalState::None), Ok(First::GoOn { stood: false, found: None, .. })));
        assert!(matches!(first(JournalState::OtherBoot), Ok(First::GoOn { stood: false, found: Some(_), .. })));
    }

    #[test]
    fn of_a_left_journal_only_values_set_by_the_shield_are_adopted() {
        let JournalState::Here(mut left) = journal(State::Left, "2") else { unreachable!() };
        let file = |name: &str| Target::File { path: name.to_owned(), form: host::snapshot::Form::Text };
        let text = |text: &str| Value::Text(text.to_owned());
        let step = |name: &str| Step {
            target: file(name),
            label: name.to_owned(),
            from: text("before"),
            to: text("ours"),
            why: String::new(),
            may_refuse: None,
        };
        left.rounds.push(vec![step("/ours"), step("/theirs")]);
        let mut snapshot = machine(&["/cg"]);
        snapshot.files.insert("/ours".to_owned(), text("ours"));
        snapshot.files.insert("/theirs".to_owned(), text("another"));
        let Ok(First::GoOn { journal, found, .. }) = first(&snapshot, &want("2"), JournalState::Here(left)) else {
            panic!()
        };
        assert_eq!(journal.steps(), [step("/ours")]);
        assert!(found.unwrap().starts_with("1 value that another program changed"));
    }

    #[test]
    fn a_cpuset_without_journal_is_removed_if_empty_and_otherwise_named_with_its_user() {
        let orphan = machine(&["/cg", "/cg/tahti.housekeeping"]);
        let Ok(First::GiveBack(journal, _)) = first(&orphan, &want("2"), JournalState::None) else { panic!() };
        assert_eq!(journal.steps().len(), 1);
        let used = machine(&["/cg", "/cg/tahti.shield", "/cg/tahti.shield/mine"]);
        let error = first(&used, &want("2"), JournalState::None).unwrap_err().to_string();
        assert!(error.starts_with("/cg/tahti.shield exists, but has no journal, and it is in use"), "{error}");
        assert!(error.contains("(/cg/tahti.shield/mine is in it)") && error.contains("rmdir"), "{error}");
    }
}
