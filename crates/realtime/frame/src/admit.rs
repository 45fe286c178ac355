//! The admission check: whether a frame can work, and the tables of an admitted frame.

use crate::spec::{Discipline, Recovery, Spec, TimeBase};
use crate::sum::{Sum, budget_of, room_of};
use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use base::DurNs;
use core::fmt;

/// Maximum number of minors of a frame.
pub const MINORS_MAX: usize = 1000;
/// Maximum number of activities of a frame.
pub const ACTIVITIES_MAX: usize = 1024;
/// Minimum length of a minor.
const MINOR_MIN: DurNs = DurNs::from_us(50);
/// Maximum length of a minor.
const MINOR_MAX: DurNs = DurNs::from_secs(3600);
/// Maximum number of modes of a frame.
const MODES_MAX: usize = 64;

/// Reason why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Index of the activity concerned, the one with the largest budget in a sum; `None` if it concerns the frame.
    pub activity: Option<usize>,
    /// Whether it concerns a sum of budgets.
    pub is_sum: bool,
    /// The problem, with the arithmetic.
    pub what: String,
    /// The expected value.
    pub expected: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; expected {}", self.what, self.expected)
    }
}

/// An entry in a minor's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the activity.
    pub activity: u16,
    /// Discipline of the activity in this minor.
    pub discipline: Discipline,
}

/// An admitted frame, as flat tables.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) timer: bool,
    pub(crate) lengths: Vec<DurNs>,
    /// Index of each minor's first entry, followed by the number of entries.
    pub(crate) first: Vec<u32>,
    pub(crate) entries: Vec<Entry>,
    /// For each minor, whether progress made in it counts for a later one.
    pub(crate) carries: Vec<bool>,
    pub(crate) recovery: Vec<Recovery>,
    pub(crate) tolerate: Vec<u32>,
    /// For each mode, the activities that run in it.
    pub(crate) modes: Vec<Vec<bool>>,
}

impl Plan {
    /// Checks a frame and creates its tables.
    ///
    /// # Errors
    /// All reasons why the frame is refused.
    pub fn admit(spec: &Spec) -> Result<Self, Vec<Refusal>> {
        let mut refused = Vec::new();
        let countable = shape(spec, &mut refused);
        activities(spec, &mut refused);
        if !countable {
            return Err(refused);
        }
        let plan = Self::tables(spec);
        for (index, mode) in plan.modes.iter().enumerate() {
            let name = spec.modes.get(index).map(|mode| mode.name.as_str());
            plan.time(spec, mode, name, &mut refused);
        }
        if refused.is_empty() { Ok(plan) } else { Err(refused) }
    }

    /// Number of minors.
    #[must_use]
    pub fn minors(&self) -> usize {
        self.lengths.len()
    }

    /// Number of activities.
    #[must_use]
    pub fn activities(&self) -> usize {
        self.recovery.len()
    }

    /// Maximum number of entries in a minor.
    #[must_use]
    pub fn queue_max(&self) -> usize {
        (0..self.minors()).map(|minor| self.queue(minor).len()).max().unwrap_or(0)
    }

    /// Length of a minor.
    #[must_use]
    pub fn length(&self, minor: usize) -> DurNs {
        self.lengths[minor]
    }

    /// The entries of a minor in order, for all modes. Background entries are last.
    #[must_use]
    pub fn queue(&self, minor: usize) -> &[Entry] {
        &self.entries[self.first[minor] as usize..self.first[minor + 1] as usize]
    }

    /// Whether an activity runs in a mode.
    #[must_use]
    pub fn runs_in(&self, mode: usize, activity: u16) -> bool {
        self.modes.get(mode).is_some_and(|mode| mode[usize::from(activity)])
    }

    fn tables(spec: &Spec) -> Self {
        let mut queues: Vec<Vec<Entry>> = vec![Vec::new(); spec.minors.len()];
        for background in [false, true] {
            for (activity, of) in spec.activities.iter().enumerate() {
                for (minor, discipline) in of.queue.iter().filter(|(_, found)| found.background == background) {
                    let entry = Entry { activity: activity as u16, discipline: *discipline };
                    queues[usize::from(*minor)].push(entry);
                }
            }
        }
        let carries = queues.iter().map(|queue| queue.iter().any(|entry| entry.discipline.continuable)).collect();
        let mut first = vec![0];
        let mut entries = Vec::new();
        for queue in queues {
            entries.extend(queue);
            first.push(entries.len() as u32);
        }
        let all = vec![true; spec.activities.len()];
        let within = |mode: &crate::Mode| {
            let names: BTreeSet<&str> = mode.activities.iter().map(String::as_str).collect();
            spec.activities.iter().map(|activity| names.contains(activity.name.as_str())).collect()
        };
        let tolerate = |recovery: Recovery| u32::from(recovery.gives_time());
        Self {
            timer: spec.base == TimeBase::Timer,
            lengths: spec.minors.clone(),
            first,
            entries,
            carries,
            recovery: spec.activities.iter().map(|activity| activity.recovery).collect(),
            tolerate: spec.activities.iter().map(|a| a.tolerate.unwrap_or_else(|| tolerate(a.recovery))).collect(),
            modes: if spec.modes.is_empty() { vec![all] } else { spec.modes.iter().map(within).collect() },
        }
    }

    /// The activities planned for a minor in a mode. `carried` records which activities continue a block that began in an
    /// earlier minor.
    fn due<'a>(&'a self, mode: &'a [bool], minor: usize, carried: &'a mut [bool]) -> impl Iterator<Item = Due> + 'a {
        self.queue(minor).iter().filter_map(move |Entry { activity, discipline }| {
            let index = usize::from(*activity);
            if !mode[index] || discipline.background {
                return None;
            }
            let before = core::mem::replace(&mut carried[index], discipline.continuable);
            Some(Due { activity: *activity, within: discipline.must_yield(before), first: !before })
        })
    }

    /// Processor time that must be available within each minor, and within the major frame, each in its most demanding mode.
    pub(crate) fn demand(&self, spec: &Spec) -> (Vec<DurNs>, DurNs) {
        let (mut minors, mut major) = (vec![DurNs::ZERO; self.minors()], DurNs::ZERO);
        let add = |sum: &mut DurNs, activity: u16| {
            *sum = DurNs(sum.0.saturating_add(budget_of(&spec.activities[usize::from(activity)]).0));
        };
        for mode in &self.modes {
            let (mut carried, mut whole) = (vec![false; mode.len()], DurNs::ZERO);
            for (minor, most) in minors.iter_mut().enumerate() {
                let mut sum = DurNs::ZERO;
                for due in self.due(mode, minor, &mut carried) {
                    if due.within {
                        add(&mut sum, due.activity);
                    }
                    if due.first {
                        add(&mut whole, due.activity);
                    }
                }
                *most = sum.max(*most);
            }
            major = whole.max(major);
        }
        (minors, major)
    }

    /// Checks the processor time that must be available within each minor and within the major frame.
    fn time(&self, spec: &Spec, mode: &[bool], name: Option<&str>, refused: &mut Vec<Refusal>) {
        let (mut whole, mut sum) = (Sum::of(&spec.activities), Sum::of(&spec.activities));
        // An activity needs to yield only once in a block of continuable minors.
        let mut carried = vec![false; mode.len()];
        let within = name.map_or(String::new(), |name| format!(" in mode {name:?}"));
        // Minors that are over-committed in the same way are reported together.
        let mut crowded: Vec<(String, Option<u16>, Vec<u16>)> = Vec::new();
        let mut refuse = |activity: Option<u16>, what| {
            let expected = "budgets that fit into it".to_owned();
            refused.push(Refusal { activity: activity.map(usize::from), is_sum: true, what, expected });
        };
        for minor in 0..self.minors() {
            sum.clear();
            for due in self.due(mode, minor, &mut carried) {
                if due.within {
                    sum.add(due.activity);
                }
                if due.first {
                    whole.add(due.activity);
                }
            }
            let room = DurNs(self.lengths[minor].0 - spec.reserve.0);
            if sum.total > room {
                let room = room_of(self.lengths[minor], spec.reserve);
                let text = format!("over-committed: {} = {}, but it has {room}", sum.terms(), sum.total);
                match crowded.iter_mut().find(|(known, ..)| *known == text) {
                    Some((.., minors)) => minors.push(minor as u16),
                    None => crowded.push((text, sum.largest(), vec![minor as u16])),
                }
            }
        }
        for (sum, largest, minors) in crowded {
            let (s, is) = if minors.len() == 1 { ("", "is") } else { ("s", "are each") };
            let what = format!("frame {:?}: minor{s} {}{within} {is} {sum}", spec.name, named(&minors));
            refuse(largest, what);
        }
        let major = spec.major();
        let reserve = DurNs(spec.reserve.0.saturating_mul(self.minors() as i64));
        if whole.total.0 > major.0 - reserve.0 {
            let what = format!(
                "frame {:?}: the major frame{within} is over-committed: {} = {}, but it has {}",
                spec.name,
                whole.terms(),
                whole.total,
                room_of(major, reserve),
            );
            refuse(whole.largest(), what);
        }
    }
}

/// An activity planned for a minor.
struct Due {
    activity: u16,
    /// It must yield within the minor if it begins there.
    within: bool,
    /// It does not continue a block that began in an earlier minor.
    first: bool,
}

/// Formats minors as numbers and ranges.
fn named(minors: &[u16]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for run in minors.chunk_by(|minor, next| minor + 1 == *next) {
        shown.push(match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one[0].to_string(),
        });
    }
    shown.join(",")
}

/// Checks the frame as a whole. Returns whether the processor time of each minor can be calculated.
fn shape(spec: &Spec, refused: &mut Vec<Refusal>) -> bool {
    let mut countable = true;
    let mut refuse = |activity: Option<usize>, what: String, expected: String| {
        refused.push(Refusal { activity, is_sum: false, what, expected });
    };
    let frame = format!("frame {:?}", spec.name);
    if spec.minors.is_empty() || spec.minors.len() > MINORS_MAX {
        let what = format!("{frame} has {} minors", spec.minors.len());
        refuse(None, what, format!("1 to {MINORS_MAX}"));
        return false;
    }
    for (minor, length) in spec.minors.iter().enumerate() {
        if *length < MINOR_MIN || *length > MINOR_MAX {
            countable = false;
            refuse(None, format!("{frame}: minor {minor} lasts {length}"), format!("{MINOR_MIN} to {MINOR_MAX}"));
        }
        if spec.reserve < DurNs::ZERO || spec.reserve >= *length {
            countable = false;
            let what = format!("{frame}: a reserve of {} leaves nothing of minor {minor} ({length})", spec.reserve);
            refuse(None, what, format!("less than {length}"));
        }
    }
    if spec.activities.is_empty() || spec.activities.len() > ACTIVITIES_MAX {
        countable = false;
        let what = format!("{frame} has {} activities", spec.activities.len());
        refuse(None, what, format!("1 to {ACTIVITIES_MAX}"));
    }
    let mut names = BTreeSet::new();
    let mut queued = vec![false; spec.minors.len()];
    for (at, activity) in spec.activities.iter().enumerate() {
        let name = activity.name.as_str();
        if !names.insert(name) {
            refuse(Some(at), format!("{frame} has two activities {name:?}"), "a unique name".to_owned());
        }
        queued.iter_mut().for_each(|queued| *queued = false);
        for (minor, _) in &activity.queue {
            if usize::from(*minor) >= spec.minors.len() {
                countable = false;
                let what = format!("{frame}: activity {name:?} is queued in minor {minor}");
                refuse(Some(at), what, format!("minors from 0 to {}", spec.minors.len() - 1));
            } else if core::mem::replace(&mut queued[usize::from(*minor)], true) {
                let what = format!("{frame}: activity {name:?} is queued in minor {minor} twice");
                refuse(Some(at), what, "once in a minor".to_owned());
            }
        }
    }
    if spec.modes.len() > MODES_MAX {
        refuse(None, format!("{frame} has {} modes", spec.modes.len()), format!("at most {MODES_MAX}"));
    }
    let mut modes = BTreeSet::new();
    for mode in &spec.modes {
        if !modes.insert(mode.name.as_str()) {
            refuse(None, format!("{frame} has two modes {:?}", mode.name), "a unique name".to_owned());
        }
        for unknown in mode.activities.iter().filter(|name| !names.contains(name.as_str())) {
            let known = names.iter().copied().collect::<Vec<_>>().join(", ");
            refuse(None, format!("{frame}: mode {:?} names no activity {unknown:?}", mode.name), known);
        }
    }
    countable
}

/// Checks the parameters of each activity.
fn activities(spec: &Spec, refused: &mut Vec<Refusal>) {
    let shortest = spec.minors.iter().copied().min().unwrap_or(DurNs::ZERO);
    for (at, activity) in spec.activities.iter().enumerate() {
        let name = activity.name.as_str();
        let mut refuse = |what: String, expected: &str| {
            let what = format!("frame {:?}: activity {name:?} {what}", spec.name);
            refused.push(Refusal { activity: Some(at), is_sum: false, what, expected: expected.to_owned() });
        };
        if activity.queue.is_empty() {
            refuse("is in no minor".to_owned(), "at least one");
        }
        if !activity.queue.is_empty() && activity.queue.iter().all(|(_, discipline)| discipline.continuable) {
            refuse(
                "is continuable in each of its minors: it would run once, ever".to_owned(),
                "one where its block ends",
            );
        }
        let background = activity.queue.iter().filter(|(_, discipline)| discipline.background).count();
        if background > 0 && background < activity.queue.len() {
            refuse("is in the background in some minors only".to_owned(), "one discipline of the two for all");
        }
        match activity.budget {
            None if background < activity.queue.len().max(1) => {
                refuse("has no budget".to_owned(), "one such as \"100us\"")
            }
            Some(budget) if budget <= DurNs::ZERO => refuse(format!("has a budget of {budget}"), "more than 0"),
            _ => {}
        }
        let recovery = activity.recovery;
        if background > 0 && recovery != Recovery::None {
            refuse(format!("recovers by {recovery}"), "none: a background activity owes nothing");
        } else if matches!(recovery, Recovery::Stretch(_) | Recovery::Steal(_)) && spec.base != TimeBase::Timer {
            let what = format!("recovers by {recovery}, but the time base is {}", spec.base);
            refuse(what, "another recovery: only a timer can be moved");
        } else if let Recovery::Steal(by) = recovery
            && by >= shortest
        {
            refuse(format!("steals {by}, but the shortest minor has {shortest}"), "less than that");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Mode};

    fn us(us: i64) -> DurNs {
        DurNs::from_us(us)
    }

    fn refusals(spec: &Spec) -> Vec<String> {
        Plan::admit(spec).unwrap_err().iter().map(|refusal| refusal.to_string()).collect()
    }

    #[test]
    fn an_over_committed_minor_is_refused_with_its_sum() {
        let activities = vec![
            Activity::new("filter", Some(us(400)), 0..2),
            Activity::new("control", Some(us(500)), 0..1),
            Activity::new("log", Some(us(200)), 0..1),
        ];
        let mut spec = Spec::new("fast", vec![us(1000); 2], activities);
        spec.reserve = us(50);
        assert_eq!(
            refusals(&spec),
            ["frame \"fast\": minor 0 is over-committed: control 500us + filter 400us + log 200us = 1.1ms, \
              but it has 1ms - 50us reserve = 950us; expected budgets that fit into it"]
        );
        spec.modes = vec![Mode { name: "quick".into(), activities: vec!["filter".into(), "control".into()] }];
        assert!(Plan::admit(&spec).is_ok(), "in its only mode it fits");
    }

    #[test]
    fn minors_that_are_over_committed_in_the_same_way_are_reported_together() {
        let activities = vec![Activity::new("a", Some(us(1100)), 0..5), Activity::new("b", Some(us(1)), 2..3)];
        let why = refusals(&Spec::new("fast", vec![us(1000); 5], activities));
        assert_eq!(why.len(), 3, "{why:?}");
        assert!(why[0].contains("minors 0-1,3-4 are each over-committed: a 1.1ms = 1.1ms, but it has 1ms"), "{why:?}");
        assert!(why[1].contains("minor 2 is over-committed: a 1.1ms + b 1us = 1.101ms"), "{why:?}");
    }

    #[test]
    fn a_block_of_continuable_minors_needs_its_budget_once() {
        let anyhow = Discipline { underrunnable: true, overrunnable: true, continuable: true, background: false };
        let block = |budget| Activity {
            queue: vec![(0, anyhow), (1, anyhow), (2, anyhow), (3, Discipline::REAL_TIME)],
            ..Activity::new("block", Some(budget), 0..0)
        };
        let spec = |budget| Spec::new("slow", vec![us(100); 4], vec![block(budget)]);
        assert!(Plan::admit(&spec(us(90))).is_ok());
        // In the last minor of the block there must be time for the whole budget, in case the activity has not begun before.
        assert_eq!(refusals(&spec(us(101))).len(), 1);
    }

    #[test]
    fn an_activity_that_must_yield_at_the_begin_of_its_block_needs_its_budget_there() {
        let once = Discipline { continuable: true, ..Discipline::REAL_TIME };
        let block = Activity {
            queue: vec![(0, once), (1, once), (2, Discipline::REAL_TIME)],
            ..Activity::new("block", Some(us(60)), 0..0)
        };
        let control = |minors| Activity::new("control", Some(us(50)), minors);
        let spec = |minors| Spec::new("slow", vec![us(100); 3], vec![control(minors), block.clone()]);
        let why = "minor 0 is over-committed: block 60us + control 50us = 110us, but it has 100us";
        assert!(refusals(&spec(0..1)).iter().any(|refusal| refusal.contains(why)));
        assert!(Plan::admit(&spec(1..2)).is_ok(), "it has yielded in minor 0");
        let drawn = crate::draw(&spec(1..2), &Plan::admit(&spec(1..2)).unwrap()).join("\n");
        assert!(drawn.contains("100us, 50% must be done: control 50us, block 60us (continuable)"), "{drawn}");
    }

    #[test]
    fn an_overrunnable_activity_may_take_longer_than_a_minor_but_not_than_the_major_frame() {
        let long = |budget| Activity {
            queue: vec![(0, Discipline { overrunnable: true, ..Discipline::REAL_TIME })],
            ..Activity::new("long", Some(budget), 0..0)
        };
        assert!(Plan::admit(&Spec::new("slow", vec![us(100); 4], vec![long(us(350))])).is_ok());
        let why = refusals(&Spec::new("slow", vec![us(100); 4], vec![long(us(450))]));
        assert!(why[0].contains("the major frame is over-committed: long 450us = 450us, but it has 400us"), "{why:?}");
    }

    #[test]
    fn all_contradictions_of_a_frame_are_reported_at_once() {
        let mut odd = Activity::new("odd", None, 0..2);
        odd.queue[1].1 = Discipline::BACKGROUND;
        odd.recovery = Recovery::Steal(us(100));
        let mut spec = Spec::new("f", vec![us(100); 2], vec![odd, Activity::new("idle", Some(us(1)), 0..0)]);
        assert_eq!(refusals(&spec).len(), 4, "{:?}", refusals(&spec));
        spec.base = TimeBase::Software;
        spec.activities[0].queue[1].1 = Discipline::REAL_TIME;
        assert!(refusals(&spec).iter().any(|why| why.contains("only a timer can be moved")));
        let empty = Spec::new("f", vec![us(10)], vec![]);
        assert_eq!(refusals(&empty).len(), 2);
        let twice = Spec::new(
            "f",
            vec![us(100)],
            vec![Activity::new("a", Some(us(1)), 0..2), Activity::new("a", Some(us(1)), 0..1)],
        );
        assert_eq!(refusals(&twice).len(), 2);
        // A problem of the frame as a whole does not hide the problems of its activities.
        let mut lazy = Activity::new("a", None, 0..1);
        lazy.queue[0].1 = Discipline::BACKGROUND;
        lazy.recovery = Recovery::Skip;
        let mut greedy = Activity::new("a", None, 0..1);
        greedy.recovery = Recovery::Steal(us(300));
        let both = Spec::new("f", vec![us(100)], vec![lazy, greedy]);
        let why = Plan::admit(&both).unwrap_err();
        let places: Vec<_> = why.iter().map(|refusal| refusal.activity).collect();
        assert_eq!(places, [Some(1), Some(0), Some(1), Some(1)], "{why:?}");
    }
}
