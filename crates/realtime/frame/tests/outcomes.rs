//! Every discipline with every recovery, for each kind of fault: the tables of docs/explanation/frames.md.

use base::{DurNs, MonoNs};
use frame::{
    Action, Activity, ActivityProgress, Discipline, Extension, Fault, Judgement, Machine, Plan, Recovery, Spec,
};

const MINOR: DurNs = DurNs::from_us(100);

/// Observed behaviour of an activity.
const BEGINS_ONLY: ActivityProgress = ActivityProgress { present: true, ran: true, yielded: false };
const DOES_NOT_BEGIN: ActivityProgress = ActivityProgress { present: true, ran: false, yielded: false };
const IS_ABSENT: ActivityProgress = ActivityProgress { present: false, ran: false, yielded: false };
const DOES_WELL: ActivityProgress = ActivityProgress { present: true, ran: true, yielded: true };

/// A discipline, and its fault if the activity only begins, does not begin, or is absent.
const DISCIPLINES: [(&str, [Option<Fault>; 3]); 9] = {
    use Fault::{Absent, Overrun, Underrun};
    [
        ("real-time", [Some(Overrun), Some(Underrun), Some(Absent)]),
        ("underrunnable", [Some(Overrun), None, Some(Absent)]),
        ("overrunnable", [None, Some(Underrun), Some(Absent)]),
        ("continuable", [Some(Overrun), Some(Underrun), Some(Absent)]),
        ("underrunnable+overrunnable", [None, None, Some(Absent)]),
        ("underrunnable+continuable", [Some(Overrun), None, Some(Absent)]),
        ("overrunnable+continuable", [None, Some(Underrun), Some(Absent)]),
        ("underrunnable+overrunnable+continuable", [None, None, Some(Absent)]),
        ("background", [None, None, None]),
    ]
};

/// A recovery, and its action at the first fault, at the second in succession, and if the activity is absent.
const RECOVERIES: [(&str, [Action; 3]); 8] = {
    use Action::{Counted, Demote, MoreTime, Restart, SafeValue, Skip};
    [
        ("none", [Counted, Counted, Counted]),
        ("inject", [MoreTime, Counted, Counted]),
        ("stretch:40us", [MoreTime, Counted, Counted]),
        ("steal:40us", [MoreTime, Counted, Counted]),
        ("skip", [Skip, Skip, Counted]),
        ("safe-value", [SafeValue, SafeValue, SafeValue]),
        ("demote", [Demote, Demote, Counted]),
        ("restart", [Restart, Restart, Counted]),
    ]
};

/// A frame of two minors. The activity is in the first with its discipline, and in the second, where its block ends.
fn plan(discipline: Discipline, recovery: Recovery) -> Result<Plan, Vec<frame::Refusal>> {
    let last = Discipline { continuable: false, ..discipline };
    let queue = vec![(0, discipline), (1, last)];
    let activity = Activity { queue, recovery, ..Activity::new("a", Some(DurNs::from_us(1)), 0..0) };
    let other = Activity::new("b", Some(DurNs::from_us(1)), 0..2);
    Plan::admit(&Spec::new("f", vec![MINOR; 2], vec![activity, other]))
}

/// Processes a border of a running frame; returns its judgements, and the minor that begins.
fn border(machine: &mut Machine, end: &mut MonoNs, seen: ActivityProgress) -> (Vec<Judgement>, frame::Border) {
    let mut told = vec![];
    let others = |activity: u16| if activity == 0 { seen } else { DOES_WELL };
    let border = machine.border(*end, 1, others, |judgement| told.push(judgement));
    *end = border.end;
    (told, border)
}

#[test]
fn every_discipline_with_every_recovery_ends_as_in_the_tables() {
    let mut tried = 0;
    for (discipline, faults) in DISCIPLINES {
        let how: Discipline = discipline.parse().unwrap();
        for (recovery, actions) in RECOVERIES {
            let with: Recovery = recovery.parse().unwrap();
            if how.background && with != Recovery::None {
                assert!(plan(how, with).is_err(), "{discipline} with {recovery} is refused");
                tried += 3;
                continue;
            }
            for (seen, fault) in [BEGINS_ONLY, DOES_NOT_BEGIN, IS_ABSENT].into_iter().zip(faults) {
                let what = format!("{discipline} with {recovery}, {seen:?}");
                let mut machine = Machine::new(plan(how, with).unwrap(), 0, MonoNs(0));
                let mut end = machine.first().end;
                let (told, next) = border(&mut machine, &mut end, seen);
                tried += 1;
                let Some(fault) = fault else {
                    assert_eq!(told, [], "{what}");
                    assert_eq!((next.extended, next.minor), (None, 1), "{what}: the frame continues");
                    continue;
                };
                let action = actions[if fault == Fault::Absent { 2 } else { 0 }];
                assert_eq!(told, [Judgement { activity: 0, minor: 0, fault, consecutive: 1, action }], "{what}");
                follows(&mut machine, &mut end, seen, action, &next, &what);
                // A second fault in succession, if the frame still expects one.
                let (again, _) = border(&mut machine, &mut end, seen);
                let expected = actions[if fault == Fault::Absent { 2 } else { 1 }];
                if action != Action::Skip && action != Action::Demote {
                    assert_eq!(
                        again.iter().map(|j| (j.consecutive, j.action)).collect::<Vec<_>>(),
                        [(2, expected)],
                        "{what}"
                    );
                }
            }
        }
    }
    assert_eq!(tried, 9 * 8 * 3);
}

/// Checks the effect of an action on the following minors.
fn follows(
    machine: &mut Machine,
    end: &mut MonoNs,
    seen: ActivityProgress,
    action: Action,
    next: &frame::Border,
    what: &str,
) {
    let queued = |machine: &Machine| {
        machine.queue().map(|entry| (entry.activity, entry.discipline.background)).collect::<Vec<_>>()
    };
    let of = |by: i64| MonoNs((MINOR.0 + by) as u64);
    match action {
        Action::MoreTime => {
            let (how, by) = match next.extended {
                Some(Extension::Inject) => ("inject", MINOR.0),
                Some(Extension::Stretch) => ("stretch", 40_000),
                Some(Extension::Steal) => ("steal", 40_000),
                None => ("", 0),
            };
            assert!(what.contains(how) && by > 0, "{what}: {next:?}");
            assert_eq!((next.minor, next.end), (0, of(by)), "{what}: the minor continues");
            assert_eq!(next.pulse, u64::from(how == "inject"), "{what}: a repeated minor has another pulse");
        }
        Action::Skip => {
            assert_eq!(queued(machine), [(1, false)], "{what}: skipped in its next minor");
            // It is not judged in that minor, and is queued again in the next one.
            assert_eq!(border(machine, end, seen).0, [], "{what}");
            assert_eq!(queued(machine), [(0, false), (1, false)], "{what}");
        }
        Action::Demote => {
            assert!(machine.is_demoted(0), "{what}");
            assert_eq!(queued(machine), [(1, false), (0, true)], "{what}: behind all others");
            assert_eq!(border(machine, end, seen).0, [], "{what}: it owes no call");
            machine.joined(0);
            assert!(!machine.is_demoted(0), "{what}: until it joins again");
        }
        Action::SafeValue => {
            assert!(machine.is_safe(0), "{what}");
            assert_eq!(queued(machine), [(0, false), (1, false)], "{what}");
        }
        Action::Counted | Action::Restart => {
            assert!(!machine.is_safe(0) && !machine.is_demoted(0), "{what}");
            assert_eq!((next.extended, next.end), (None, MonoNs(2 * MINOR.0 as u64)), "{what}");
        }
    }
}

#[test]
fn faults_of_an_activity_that_recovers_are_forgiven() {
    for (recovery, _) in RECOVERIES {
        let mut machine = Machine::new(plan(Discipline::REAL_TIME, recovery.parse().unwrap()).unwrap(), 0, MonoNs(0));
        let mut end = machine.first().end;
        border(&mut machine, &mut end, BEGINS_ONLY);
        (0..2).for_each(|_| drop(border(&mut machine, &mut end, DOES_WELL)));
        assert!(!machine.is_safe(0), "{recovery}");
        if recovery != "demote" {
            let (told, _) = border(&mut machine, &mut end, BEGINS_ONLY);
            assert_eq!(told.iter().map(|judgement| judgement.consecutive).collect::<Vec<_>>(), [1], "{recovery}");
        }
    }
}
