//! REACT's published semantics as a table of cases, and the frame machine compared with a simple model, in virtual time.

use base::{DurNs, MonoNs};
use frame::{Action, Activity, ActivityProgress, Discipline, Fault, Judgement, Machine, Plan, Recovery, Spec};
use proptest::prelude::*;
use std::collections::VecDeque;

const US: u64 = 1000;
/// Length of a minor in the tests.
const MINOR: i64 = 100;

fn us(us: i64) -> DurNs {
    DurNs::from_us(us)
}

/// State of an activity on the virtual CPU.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Duration of each call, in order. The last one repeats.
    work: VecDeque<u64>,
    /// Remaining time of the current call.
    left: Option<u64>,
    seen: ActivityProgress,
    calls: u64,
}

/// A frame on a virtual CPU that follows REACT. Activities run in order, a preempted call continues later, and nothing of
/// a minor runs after its end.
struct World {
    machine: Machine,
    threads: Vec<Thread>,
    queue: VecDeque<usize>,
    now: u64,
    end: u64,
    log: Vec<String>,
    /// Number of borders at which the machine did not have to check each activity.
    short: usize,
}

impl World {
    fn new(spec: &Spec, work: &[&[u64]]) -> Self {
        let mut machine = Machine::new(Plan::admit(spec).unwrap_or_else(|why| panic!("{why:?}")), 0, MonoNs(0));
        let thread = |work: &&[u64]| Thread {
            work: work.iter().map(|us| us * US).collect(),
            seen: ActivityProgress { present: true, ..ActivityProgress::default() },
            ..Thread::default()
        };
        let end = machine.first().end.0;
        let mut world = Self {
            threads: work.iter().map(thread).collect(),
            machine,
            queue: VecDeque::new(),
            now: 0,
            end,
            log: vec![],
            short: 0,
        };
        world.fill();
        world
    }

    fn fill(&mut self) {
        self.queue = self.machine.queue().map(|entry| usize::from(entry.activity)).collect();
        if let Some(all) = self.machine.queue_of_all() {
            assert!(all.iter().copied().eq(self.machine.queue()), "the plan's own queue is equal");
        }
    }

    /// Runs to the end of the minor.
    fn run(&mut self) {
        while let Some(&activity) = self.queue.front() {
            let thread = &mut self.threads[activity];
            if !thread.seen.present {
                self.queue.pop_front();
                continue;
            }
            if self.now >= self.end {
                break;
            }
            if thread.left.is_none() {
                let next = thread.work[0];
                if thread.work.len() > 1 {
                    thread.work.pop_front();
                }
                (thread.left, thread.calls) = (Some(next), thread.calls + 1);
            }
            thread.seen.ran = true;
            let left = thread.left.unwrap();
            let done = left.min(self.end - self.now);
            self.now += done;
            thread.left = Some(left - done).filter(|left| *left > 0);
            if thread.left.is_some() {
                break;
            }
            thread.seen.yielded = true;
            self.queue.pop_front();
        }
    }

    /// Processes the border, `late` after its time.
    fn border(&mut self, late: u64) -> frame::Border {
        self.now = self.end + late;
        let seen: Vec<ActivityProgress> = self.threads.iter().map(|thread| thread.seen).collect();
        // All activities are without a fault: the machine need not check each of them, and must decide the same.
        let mut front = self.machine.queue().filter(|entry| !entry.discipline.background);
        let all = seen.iter().all(|seen| seen.present) && front.all(|entry| seen[usize::from(entry.activity)].yielded);
        drop(front);
        let mut other = self.machine.clone();
        let short = all.then(|| other.border_of_all(MonoNs(self.now), 1)).flatten();
        let said = self.log.len();
        let log = &mut self.log;
        let border = self.machine.border(
            MonoNs(self.now),
            1,
            |activity| seen[usize::from(activity)],
            |Judgement { activity, minor, fault, consecutive, action }| {
                log.push(format!("{minor}: {activity} {fault:?} {consecutive} {action:?}"));
            },
        );
        if let Some(short) = short {
            self.short += 1;
            assert_eq!((short, format!("{other:?}")), (border, format!("{:?}", self.machine)));
            assert_eq!(self.log.len(), said, "no activity has a fault");
        }
        self.end = border.end.0;
        if border.extended.is_none() {
            for thread in &mut self.threads {
                thread.seen = ActivityProgress { present: thread.seen.present, ran: false, yielded: false };
            }
            self.fill();
        }
        border
    }

    fn minors(&mut self, count: usize) -> Vec<String> {
        for _ in 0..count {
            self.run();
            self.border(0);
        }
        std::mem::take(&mut self.log)
    }
}

fn discipline(text: &str) -> Discipline {
    text.parse().unwrap()
}

fn activity(name: &str, queue: &[(u16, &str)], recovery: Recovery, tolerate: Option<u32>) -> Activity {
    let queue = queue.iter().map(|(minor, text)| (*minor, discipline(text))).collect();
    Activity { queue, recovery, tolerate, ..Activity::new(name, Some(us(1)), 0..0) }
}

/// Two minors, `a` in both, and `b` after it in the first.
fn pair(how_a: &str, recovery: Recovery, tolerate: Option<u32>) -> Spec {
    let a = activity("a", &[(0, how_a), (1, how_a)], recovery, tolerate);
    let b = activity("b", &[(0, "real-time")], Recovery::None, None);
    Spec::new("f", vec![us(MINOR); 2], vec![a, b])
}

/// Name, queue of `a`, durations of its calls and of those of `b` (before it in all minors), faults of three minors.
type Case<'a> = (&'a str, &'a [(u16, &'a str)], &'a [u64], &'a [u64], &'a [&'a str]);

#[test]
fn each_discipline_behaves_as_published_for_react() {
    const ALL: &str = "underrunnable+overrunnable+continuable";
    let block = [(0, ALL), (1, ALL), (2, "real-time")];
    #[rustfmt::skip]
    let cases: &[Case<'_>] = &[
        ("in time", &[(0, "real-time")], &[50], &[10], &[]),
        ("must yield", &[(0, "real-time"), (1, "real-time")], &[150, 10], &[1], &["0: 1 Overrun 1 Counted"]),
        ("the others of its minor get no turn then", &[(0, "real-time")], &[50], &[150, 1], &["0: 0 Overrun 1 Counted", "0: 1 Underrun 1 Counted"]),
        ("underrunnable need not begin", &[(0, "underrunnable")], &[50], &[150, 1], &["0: 0 Overrun 1 Counted"]),
        ("underrunnable must yield once it began", &[(0, "underrunnable")], &[150], &[1], &["0: 1 Overrun 1 Counted"]),
        ("overrunnable need not yield", &[(0, "overrunnable"), (2, "real-time")], &[150, 10], &[1], &[]),
        ("overrunnable must begin", &[(0, "overrunnable")], &[50], &[150, 1], &["0: 0 Overrun 1 Counted", "0: 1 Underrun 1 Counted"]),
        ("it continues where it is queued again, not before", &[(0, "overrunnable"), (2, "real-time")], &[250], &[1], &["2: 1 Overrun 1 Counted"]),
        ("continuable: having yielded once counts", &block, &[50], &[1], &[]),
        ("continuable: it has the whole block", &block, &[250], &[1], &[]),
        ("continuable: but not more", &block, &[350], &[1], &["2: 1 Overrun 1 Counted"]),
        ("background owes nothing", &[(0, "background"), (1, "background"), (2, "background")], &[500], &[50], &[]),
    ];
    for (name, queue, a, b, expected) in cases {
        let front = activity("b", &[(0, "real-time"), (1, "real-time"), (2, "real-time")], Recovery::None, None);
        let spec = Spec::new("f", vec![us(MINOR); 3], vec![front, activity("a", queue, Recovery::None, None)]);
        assert_eq!(World::new(&spec, &[b, a]).minors(3), *expected, "{name}");
    }
}

#[test]
fn a_border_without_earlier_faults_needs_no_check_of_each_activity() {
    // `border` of this file compares both ways at each such border, in all tests.
    let mut world = World::new(&pair("real-time", Recovery::Skip, None), &[&[50, 50, 150, 10], &[10]]);
    world.minors(2);
    assert_eq!(world.short, 2);
    world.minors(2);
    let before = world.short;
    world.minors(8);
    assert!((4..8).contains(&(world.short - before)), "one border after the fault needs a check: {}", world.short);
}

#[test]
fn a_block_runs_its_activity_once() {
    const ALL: &str = "underrunnable+overrunnable+continuable";
    let a = activity("a", &[(0, ALL), (1, ALL), (2, "real-time")], Recovery::None, None);
    let mut world = World::new(&Spec::new("f", vec![us(MINOR); 3], vec![a]), &[&[10]]);
    assert_eq!((world.minors(6), world.threads[0].calls), (vec![], 2));
}

#[test]
fn a_block_whose_end_was_lost_restarts() {
    const ALL: &str = "underrunnable+overrunnable+continuable";
    for base in [frame::TimeBase::Timer, frame::TimeBase::Software] {
        let a = activity("a", &[(0, ALL), (1, ALL), (2, "real-time")], Recovery::None, None);
        let spec = Spec { base, ..Spec::new("f", vec![us(MINOR); 3], vec![a]) };
        // One minor is lost, then a major frame, then both.
        for (late, ticks, minor) in [(3, 2, 0), (5, 4, 2), (6, 5, 0)] {
            let mut machine = Machine::new(Plan::admit(&spec).unwrap(), 0, MonoNs(0));
            let yields = |_| ActivityProgress { present: true, ran: true, yielded: true };
            let rests = |_| ActivityProgress { present: true, ..ActivityProgress::default() };
            machine.border(MonoNs(100 * US), 1, yields, |fault| panic!("{fault:?}"));
            assert_eq!(machine.queue().count(), 0, "it has yielded in this block");
            let border = machine.border(MonoNs(late * 100 * US), ticks, rests, |fault| panic!("{fault:?}"));
            assert_eq!((border.minor, border.lost), (minor, ticks - 1));
            assert_eq!(machine.queue().count(), 1, "{} minors lost on base {}", border.lost, spec.base);
        }
    }
}

#[test]
fn an_activity_that_returns_with_a_mode_restarts_its_block() {
    let a = activity("a", &[(0, "real-time"), (1, "continuable")], Recovery::None, None);
    let b = activity("b", &[(0, "real-time")], Recovery::None, None);
    let mode = |name: &str, names: &[&str]| frame::Mode {
        name: name.to_owned(),
        activities: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut spec = Spec::new("f", vec![us(MINOR); 2], vec![a, b]);
    spec.modes = vec![mode("both", &["a", "b"]), mode("alone", &["b"])];
    let mut world = World::new(&spec, &[&[10], &[10]]);
    world.machine.want_mode(1);
    let mut queues = vec![];
    for minor in 0..6 {
        if minor == 2 {
            world.machine.want_mode(0);
        }
        world.run();
        world.border(0);
        queues.push(world.machine.queue().map(|entry| entry.activity).collect::<Vec<_>>());
    }
    assert_eq!(queues, [vec![0], vec![1], vec![], vec![0, 1], vec![0], vec![1]]);
}

#[test]
fn inject_extends_a_minor_by_its_length_and_moves_the_following_minors() {
    let mut world = World::new(&pair("real-time", Recovery::Inject, None), &[&[150, 10], &[10]]);
    world.run();
    let border = world.border(0);
    assert_eq!((border.extended, border.minor, border.pulse), (Some(frame::Extension::Inject), 0, 1));
    assert_eq!(border.end.0, 200 * US);
    world.run();
    let border = world.border(0);
    assert_eq!((border.extended, border.minor, border.pulse, border.end.0), (None, 1, 2, 300 * US));
    // The activity behind it had not begun either, so the minor was extended for both.
    assert_eq!(world.log, ["0: 0 Overrun 1 MoreTime", "0: 1 Underrun 1 Counted"]);
    assert_eq!(world.threads[1].calls, 1);
}

#[test]
fn stretch_moves_the_phase_and_steal_restores_it() {
    for (recovery, next_end) in [(Recovery::Stretch(us(60)), 260), (Recovery::Steal(us(60)), 200)] {
        let mut world = World::new(&pair("real-time", recovery, None), &[&[150, 10], &[5]]);
        world.run();
        let border = world.border(0);
        assert_eq!((border.minor, border.pulse, border.end.0), (0, 0, 160 * US), "{recovery}");
        world.run();
        let border = world.border(0);
        assert_eq!((border.minor, border.pulse, border.end.0), (1, 1, next_end * US), "{recovery}");
        assert_eq!(world.log.len(), 2, "both faults were recovered from: {:?}", world.log);
    }
}

#[test]
fn a_theft_may_cascade_and_every_minor_still_ends_in_phase() {
    let mut world = World::new(&pair("real-time", Recovery::Steal(us(60)), None), &[&[150, 90, 10], &[1]]);
    let mut ends = vec![];
    for _ in 0..5 {
        world.run();
        ends.push(world.border(0).end.0 / US);
    }
    assert_eq!(ends, [160, 200, 260, 300, 400]);
}

#[test]
fn time_is_given_for_tolerated_errors_only() {
    let mut world = World::new(&pair("real-time", Recovery::Inject, Some(2)), &[&[10_000], &[1]]);
    let extended: Vec<bool> = (0..5)
        .map(|_| {
            world.run();
            world.border(0).extended.is_some()
        })
        .collect();
    assert_eq!(extended, [true, true, false, false, false]);
}

#[test]
fn other_recoveries_act_after_the_tolerated_number_of_errors() {
    let faults =
        |recovery, tolerate| World::new(&pair("real-time", recovery, Some(tolerate)), &[&[350, 10], &[1]]).minors(4);
    assert_eq!(
        faults(Recovery::Demote, 1)[..3],
        ["0: 0 Overrun 1 Counted", "0: 1 Underrun 1 Counted", "1: 0 Overrun 2 Demote"]
    );
    assert_eq!(faults(Recovery::SafeValue, 0)[2], "1: 0 Overrun 2 SafeValue");
    assert_eq!(faults(Recovery::Restart, 0)[0], "0: 0 Overrun 1 Restart");
    assert_eq!(
        faults(Recovery::Skip, 0),
        ["0: 0 Overrun 1 Skip", "0: 1 Underrun 1 Counted", "0: 0 Overrun 2 Skip", "0: 1 Underrun 2 Counted"]
    );
}

#[test]
fn in_an_extended_minor_no_activity_loses_its_turn() {
    // The first gets more time. The second must wait for it. It has another recovery, and tolerates no fault.
    let begins = |recovery: &str, with: &str| {
        let a = activity("a", &[(0, "real-time")], recovery.parse().unwrap(), None);
        let b = activity("b", &[(0, "real-time"), (1, "real-time")], with.parse().unwrap(), Some(0));
        Spec::new("f", vec![us(MINOR); 2], vec![a, b])
    };
    for recovery in ["inject", "stretch:60us", "steal:60us"] {
        for (with, at_once) in
            [("skip", "Counted"), ("demote", "Counted"), ("restart", "Counted"), ("safe-value", "SafeValue")]
        {
            let what = format!("{recovery} with {with}");
            let counted = [String::from("0: 0 Overrun 1 MoreTime"), format!("0: 1 Underrun 1 {at_once}")];
            // It yields in the extra time of the other activity: the fault is forgiven, and its next minor is normal.
            let mut world = World::new(&begins(recovery, with), &[&[110, 10], &[10]]);
            assert_eq!(world.minors(1), counted, "{what}");
            assert!(!world.machine.is_demoted(1), "{what}");
            assert_eq!(world.machine.is_safe(1), with == "safe-value", "{what}: its values must be set at once");
            assert_eq!(world.minors(1), Vec::<String>::new(), "{what}");
            assert_eq!(world.machine.queue().map(|entry| entry.activity).collect::<Vec<_>>(), [1], "{what}");
            assert!(!world.machine.is_safe(1) && !world.machine.queue().any(|entry| entry.discipline.background));
            // It does not yield: its recovery acts at the end of the minor.
            let mut world = World::new(&begins(recovery, with), &[&[10_000], &[10]]);
            assert_eq!(world.minors(1), counted, "{what}");
            let action = with.parse::<Recovery>().unwrap();
            let action = match action {
                Recovery::Skip => "Skip",
                Recovery::Demote => "Demote",
                Recovery::Restart => "Restart",
                _ => "SafeValue",
            };
            let ended = [String::from("0: 0 Overrun 2 Counted"), format!("0: 1 Underrun 2 {action}")];
            assert_eq!(world.minors(1), ended, "{what}");
        }
    }
}

#[test]
fn a_call_that_ends_in_time_given_for_another_activity_counts_for_its_block() {
    const ALL: &str = "underrunnable+overrunnable+continuable";
    for recovery in ["inject", "stretch:60us", "steal:60us"] {
        for (first, left) in [(110, vec![]), (10_000, vec![1])] {
            let a = activity("a", &[(0, "real-time")], recovery.parse().unwrap(), None);
            let b = activity("b", &[(0, ALL), (1, "real-time")], Recovery::None, None);
            let mut world = World::new(&Spec::new("f", vec![us(MINOR); 2], vec![a, b]), &[&[first, 10], &[10]]);
            assert_eq!(world.minors(1), ["0: 0 Overrun 1 MoreTime"], "{recovery}");
            world.minors(1);
            let queue: Vec<u16> = world.machine.queue().map(|entry| entry.activity).collect();
            assert_eq!(queue, left, "{recovery}: in minor 1 it runs only if it has not yielded in minor 0");
        }
    }
}

#[test]
fn an_activity_that_is_skipped_at_the_end_of_its_block_restarts_in_the_next() {
    let queue = [(0, "continuable"), (1, "real-time"), (2, "real-time")];
    let a = activity("a", &queue, Recovery::Skip, None);
    let b = activity("b", &[(0, "real-time"), (2, "real-time")], Recovery::None, None);
    let mut world = World::new(&Spec::new("f", vec![us(MINOR); 3], vec![b, a]), &[&[10, 150, 10], &[350, 10]]);
    // It begins in minor 0, is skipped in 1, and is late in 2. Its activity in the previous block does not count in 2.
    let told = world.minors(3);
    assert_eq!(told[0], "0: 1 Overrun 1 Skip");
    assert_eq!(told[1..], ["2: 0 Overrun 1 Counted", "2: 1 Underrun 2 Skip"]);
}

#[test]
fn safe_values_apply_until_the_activity_is_in_time_again() {
    let mut world = World::new(&pair("real-time", Recovery::SafeValue, None), &[&[150, 10], &[1]]);
    let stands: Vec<bool> = (0..3).map(|_| (world.minors(1), world.machine.is_safe(0)).1).collect();
    assert_eq!(stands, [true, false, false]);
}

#[test]
fn an_absent_activity_gets_no_time_and_is_counted() {
    let mut world = World::new(&pair("real-time", Recovery::Inject, Some(9)), &[&[10], &[10]]);
    world.threads[0].seen.present = false;
    assert_eq!(world.minors(2), ["0: 0 Absent 1 Counted", "1: 0 Absent 2 Counted"]);
    world.threads[0].seen.present = true;
    world.machine.joined(0);
    assert_eq!((world.minors(2), world.machine.totals().absences), (vec![], 2));
}

#[test]
fn minors_that_passed_during_a_delay_are_lost_and_the_phase_is_kept() {
    let mut world = World::new(&pair("real-time", Recovery::None, None), &[&[10], &[10]]);
    world.run();
    let border = world.border(330 * US);
    assert_eq!((border.lost, border.pulse, border.minor), (3, 4, 0));
    assert_eq!((border.due.0, border.end.0), (400 * US, 500 * US));
    world.run();
    // The number of steps does not depend on the delay: a thousand major frames, as above three minors.
    let border = world.border(200_000 * US);
    assert_eq!((border.lost, border.pulse, border.minor, border.end.0), (2000, 2005, 1, 200_600 * US));
}

#[test]
fn ticks_of_an_external_base_during_a_delay_are_counted_as_lost() {
    let mut spec = pair("real-time", Recovery::None, None);
    spec.base = frame::TimeBase::Software;
    let mut machine = Machine::new(Plan::admit(&spec).unwrap(), 10, MonoNs(0));
    let fine = |_| ActivityProgress { present: true, ran: true, yielded: true };
    let border = machine.border(MonoNs(5), 4, fine, |fault| panic!("{fault:?}"));
    assert_eq!((border.pulse, border.minor, border.lost), (14, 0, 3));
}

#[test]
fn a_mode_changes_at_the_begin_of_a_major_frame() {
    let mut spec = pair("real-time", Recovery::None, None);
    let mode = |name: &str, names: &[&str]| frame::Mode {
        name: name.into(),
        activities: names.iter().map(|name| (*name).into()).collect(),
    };
    spec.modes = vec![mode("normal", &["a", "b"]), mode("degraded", &["a"])];
    let mut world = World::new(&spec, &[&[10], &[10]]);
    assert!(world.machine.want_mode(1) && !world.machine.want_mode(2));
    let modes: Vec<u16> = (0..4).map(|_| (world.run(), world.border(0).mode).1).collect();
    assert_eq!(modes, [0, 1, 1, 1]);
    assert_eq!((world.threads[0].calls, world.threads[1].calls), (4, 1));
}

#[test]
fn a_thousand_activities_in_a_hundred_minors_are_planned() {
    let activities = (0..1000).map(|n| Activity::new(&format!("a{n}"), Some(us(1)), 0..100)).collect();
    let spec = Spec::new("large", vec![us(1000); 100], activities);
    let plan = Plan::admit(&spec).unwrap();
    assert_eq!((plan.minors(), plan.activities(), plan.queue_max()), (100, 1000, 1000));
}

/// The model: the rules of REACT's manual, one activity after the other, without the machine's tables.
#[derive(Default)]
struct Model {
    run_flag: Vec<bool>,
    yield_flag: Vec<bool>,
    left: Vec<u64>,
    calls: Vec<usize>,
    errors: Vec<u32>,
    skip: Vec<bool>,
    demoted: Vec<bool>,
    log: Vec<String>,
}

impl Model {
    fn run(mut self, spec: &Spec, work: &[Vec<u64>], borders: usize) -> Vec<String> {
        let count = spec.activities.len();
        self.run_flag = vec![false; count];
        self.yield_flag = vec![false; count];
        (self.left, self.calls, self.errors) = (vec![0; count], vec![0; count], vec![0; count]);
        (self.skip, self.demoted) = (vec![false; count], vec![false; count]);
        let (mut minor, mut begin, mut stolen, mut border) = (0usize, true, 0u64, 0);
        let mut skipped = vec![false; count];
        let mut room = 0;
        while border < borders {
            let length = spec.minors[minor].0 as u64;
            let queued =
                |a: usize| spec.activities[a].queue.iter().find(|(m, _)| usize::from(*m) == minor).map(|q| q.1);
            if begin {
                room = length - std::mem::take(&mut stolen);
                for a in (0..count).filter(|a| queued(*a).is_some()) {
                    skipped[a] = std::mem::take(&mut self.skip[a]);
                }
            }
            // Run: the foreground activities first, then the background ones.
            let behind = |a: usize| self.demoted[a] || queued(a).is_some_and(|how| how.background);
            let order: Vec<usize> = (0..count)
                .filter(|a| queued(*a).is_some() && !behind(*a) && !skipped[*a])
                .chain((0..count).filter(|a| queued(*a).is_some() && behind(*a)))
                .collect();
            for a in order {
                if room == 0 {
                    break;
                }
                if self.yield_flag[a] {
                    continue;
                }
                if self.left[a] == 0 {
                    self.left[a] = work[a][self.calls[a] % work[a].len()];
                    self.calls[a] += 1;
                }
                self.run_flag[a] = true;
                let done = self.left[a].min(room);
                (self.left[a], room) = (self.left[a] - done, room - done);
                self.yield_flag[a] = self.left[a] == 0;
            }
            border += 1;
            // Judge.
            let mut faults = vec![];
            let mut extra: Option<(u64, bool)> = None;
            for (a, left_out) in skipped.iter().enumerate() {
                let Some(how) = queued(a) else { continue };
                if how.background || self.demoted[a] || *left_out {
                    continue;
                }
                let fault = match (self.run_flag[a], self.yield_flag[a]) {
                    (false, _) if !how.underrunnable => Fault::Underrun,
                    (true, false) if !how.overrunnable => Fault::Overrun,
                    (_, yielded) => {
                        if yielded {
                            self.errors[a] = 0;
                        }
                        continue;
                    }
                };
                self.errors[a] += 1;
                let recovery = spec.activities[a].recovery;
                let tolerated = self.errors[a] <= spec.activities[a].tolerate.unwrap_or(recovery.gives_time().into());
                let asked = match recovery {
                    Recovery::Inject => Some((length, false)),
                    Recovery::Stretch(by) => Some((by.0 as u64, false)),
                    Recovery::Steal(by) => Some((by.0 as u64, true)),
                    _ => None,
                };
                extra = extra.or(asked.filter(|_| tolerated));
                faults.push((a, fault, recovery, tolerated));
            }
            for (a, fault, recovery, tolerated) in faults {
                let ends = extra.is_none();
                let action = match recovery {
                    Recovery::Inject | Recovery::Stretch(_) | Recovery::Steal(_) if tolerated => Action::MoreTime,
                    Recovery::Skip if !tolerated && ends => (self.skip[a] = true, Action::Skip).1,
                    Recovery::Demote if !tolerated && ends => (self.demoted[a] = true, Action::Demote).1,
                    Recovery::SafeValue if !tolerated => Action::SafeValue,
                    Recovery::Restart if !tolerated && ends => Action::Restart,
                    _ => Action::Counted,
                };
                self.log.push(format!("{minor}: {a} {fault:?} {} {action:?}", self.errors[a]));
            }
            if let Some((by, steals)) = extra {
                // The unused rest of the minor is dropped: the extra time begins at the minor's end.
                (room, begin) = (by, false);
                stolen += if steals { by } else { 0 };
                if !steals {
                    stolen = 0;
                }
                continue;
            }
            // Clear the flags, unless the activity is continuable.
            for a in 0..count {
                let Some(how) = queued(a) else { continue };
                // An activity that is skipped at the end of its block also starts again.
                if !how.continuable {
                    (self.run_flag[a], self.yield_flag[a]) = (false, false);
                }
            }
            (minor, begin) = ((minor + 1) % spec.minors.len(), true);
        }
        self.log
    }
}

fn any_discipline() -> impl Strategy<Value = Discipline> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(underrunnable, overrunnable, continuable)| Discipline {
        underrunnable,
        overrunnable,
        continuable,
        background: false,
    })
}

fn any_recovery() -> impl Strategy<Value = Recovery> {
    prop_oneof![
        Just(Recovery::None),
        Just(Recovery::Inject),
        (1..100i64).prop_map(|by| Recovery::Stretch(us(by))),
        // Small enough that several thefts leave some of the next minor.
        (1..8i64).prop_map(|by| Recovery::Steal(us(by))),
        Just(Recovery::Skip),
        Just(Recovery::SafeValue),
        Just(Recovery::Demote),
        Just(Recovery::Restart),
    ]
}

fn any_activity(minors: u16) -> impl Strategy<Value = Activity> {
    let queue = prop::collection::vec((any::<bool>(), any_discipline()), usize::from(minors));
    (queue, any_recovery(), prop::option::of(0..3u32), any::<bool>()).prop_map(
        move |(queue, recovery, tolerate, background)| {
            let mut queue: Vec<(u16, Discipline)> = queue
                .into_iter()
                .zip(0..)
                .filter(|((queued, _), _)| *queued)
                .map(|((_, how), minor)| (minor, how))
                .collect();
            if queue.is_empty() {
                queue.push((0, Discipline::REAL_TIME));
            }
            if let Some((_, last)) = queue.last_mut() {
                last.continuable = false;
            }
            if background {
                queue.iter_mut().for_each(|(_, how)| *how = Discipline::BACKGROUND);
            }
            let recovery = if background { Recovery::None } else { recovery };
            Activity { queue, recovery, tolerate, ..Activity::new("", Some(us(1)), 0..0) }
        },
    )
}

fn any_world() -> impl Strategy<Value = (Spec, Vec<Vec<u64>>)> {
    (1..5u16).prop_flat_map(|minors| {
        let lengths = prop::collection::vec(50..200i64, usize::from(minors));
        let threads = prop::collection::vec((any_activity(minors), prop::collection::vec(1..260u64, 1..4)), 1..6);
        (lengths, threads).prop_map(|(lengths, threads)| {
            let (mut activities, work): (Vec<Activity>, Vec<Vec<u64>>) = threads.into_iter().unzip();
            activities.iter_mut().enumerate().for_each(|(index, activity)| activity.name = format!("a{index}"));
            let spec = Spec::new("any", lengths.into_iter().map(us).collect(), activities);
            (spec, work.into_iter().map(|times| times.into_iter().map(|us| us * US).collect()).collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_behaves_as_the_model((spec, work) in any_world()) {
        const BORDERS: usize = 40;
        let mut world = World::new(&spec, &vec![&[1][..]; work.len()]);
        for (thread, times) in world.threads.iter_mut().zip(&work) {
            thread.work = times.iter().copied().cycle().take(BORDERS * 4 + 8).collect();
        }
        prop_assert_eq!(world.minors(BORDERS), Model::default().run(&spec, &work, BORDERS));
    }

    #[test]
    fn pulses_and_phase_match_the_clock_after_any_delays(lengths in prop::collection::vec(50..200i64, 1..6), delays in prop::collection::vec(0..2_000u64, 1..50)) {
        let minors = lengths.len() as u16;
        let spec = Spec::new("f", lengths.iter().copied().map(us).collect(), vec![Activity::new("a", Some(us(1)), 0..minors)]);
        let mut machine = Machine::new(Plan::admit(&spec).unwrap(), 0, MonoNs(0));
        let mut end = machine.first().end;
        // The begin of pulse k, computed from the lengths only.
        let major: i64 = lengths.iter().sum();
        let begin = |pulse: u64| {
            let whole = (pulse / u64::from(minors)) as i64 * major;
            (whole + lengths.iter().take((pulse % u64::from(minors)) as usize).sum::<i64>()) as u64 * US
        };
        let mut pulse = 0;
        for delay in delays {
            let now = MonoNs(end.0 + delay * US);
            let border = machine.border(now, 1, |_| ActivityProgress { present: true, ran: true, yielded: true }, |_| ());
            prop_assert_eq!(border.pulse, pulse + 1 + border.lost);
            pulse = border.pulse;
            prop_assert_eq!(u64::from(border.minor), pulse % u64::from(minors));
            prop_assert_eq!((border.due.0, border.end.0), (begin(pulse), begin(pulse + 1)));
            prop_assert!(border.due <= now && now < border.end, "the running minor is the minor of the time");
            end = border.end;
        }
    }
}
