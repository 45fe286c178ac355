//! Frames that share a CPU: whether each minor has room for the work of the other frames during it.

use crate::admit::{Plan, Refusal};
use crate::spec::{Config, TimeBase};
use crate::sum::room_of;
use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base::{CpuId, DurNs};

/// Maximum number of minors of a frame that are checked. If the lengths of the frames have a small common multiple, the
/// pattern repeats long before.
const LOOKED_AT: usize = 10_000;

/// Load of a frame on its CPU, in its most demanding mode.
struct Load<'a> {
    /// Index among the plant's frames.
    at: usize,
    config: &'a Config,
    /// Whether its minors begin at known times on the timer's grid.
    timed: bool,
    /// Processor time that must be available in each minor.
    minors: Vec<DurNs>,
    /// Processor time planned for the major frame.
    major: DurNs,
}

/// Checks frames that share a CPU. Each must have been admitted on its own; others are ignored. Returns at most one refusal
/// per CPU, with the index of the frame concerned.
///
/// A frame waits for other frames of its class or a higher one. If all of them are timed, each minor must have room for the
/// work that they must do during it. In any case all frames together must fit into their CPU.
#[must_use]
pub fn share(frames: &[&Config]) -> Vec<(usize, Refusal)> {
    let loads: Vec<Load<'_>> = frames.iter().enumerate().filter_map(|(at, _)| load(frames, at)).collect();
    let cpus: BTreeSet<CpuId> = loads.iter().filter_map(|load| load.config.cpu).collect();
    let refused = cpus.into_iter().filter_map(|cpu| {
        let group: Vec<&Load<'_>> = loads.iter().filter(|load| load.config.cpu == Some(cpu)).collect();
        let refused = |(at, what)| (at, Refusal { activity: None, is_sum: false, what, expected: EXPECTED.to_owned() });
        // The last frame in the file is refused, because earlier ones have probably existed for longer.
        let crowded = || group.iter().rev().find_map(|mine| crowded(cpu, mine, &group));
        (group.len() > 1).then(|| crowded().or_else(|| overfull(cpu, &group)).map(refused)).flatten()
    });
    refused.collect()
}

const EXPECTED: &str =
    "budgets that fit into it, another CPU, or another class: a frame does not wait for those of a lower one";

fn load<'a>(frames: &[&'a Config], at: usize) -> Option<Load<'a>> {
    let config = frames[at];
    let plan = Plan::admit(&config.spec).ok()?;
    let leader = |name: &str| frames.iter().find(|other| other.spec.name == name);
    let timed = match &config.spec.base {
        TimeBase::Frame(name) => leader(name).is_some_and(|leader| leader.spec.base == TimeBase::Timer),
        base => *base == TimeBase::Timer,
    };
    let (minors, major) = plan.demand(&config.spec);
    Some(Load { at, config, timed, minors, major })
}

/// The first minor of a frame without room for the work of the frames that it waits for.
fn crowded(cpu: CpuId, mine: &Load<'_>, group: &[&Load<'_>]) -> Option<(usize, String)> {
    let waited_for =
        |other: &&&Load<'_>| other.at != mine.at && other.timed && other.config.priority >= mine.config.priority;
    let others: Vec<&Load<'_>> = group.iter().filter(waited_for).copied().collect();
    if !mine.timed || others.is_empty() {
        return None;
    }
    let spec = &mine.config.spec;
    // Major frames on the timer begin at multiples of their length.
    let mut places: Vec<Progress> = others.iter().map(|other| Progress::first(other)).collect();
    let repeats =
        others.iter().fold(ns(spec.major()).into(), |all, other| multiple(all, ns(other.config.spec.major())));
    let mut begin = 0u64;
    for count in 0..LOOKED_AT {
        let minor = count % spec.minors.len();
        let (end, must) = (begin + ns(spec.minors[minor]), mine.minors[minor]);
        if u128::from(begin) >= repeats {
            return None;
        }
        let theirs: Vec<u64> = others.iter().zip(&mut places).map(|(other, place)| place.within(other, end)).collect();
        let (total, room) = (ns(must) + theirs.iter().sum::<u64>(), end - begin - ns(spec.reserve));
        if must > DurNs::ZERO && total > room {
            let term = |load: &Load<'_>, time: u64| format!("{} {}", load.config.spec.name, DurNs(time as i64));
            let theirs = others.iter().zip(theirs).filter(|(_, time)| *time > 0).map(|(other, time)| term(other, time));
            let terms: Vec<String> = core::iter::once(term(mine, ns(must))).chain(theirs).collect();
            let what = format!(
                "{}: minor {minor} of {:?} is over-committed: {} = {}, but it has {}",
                called(cpu, group),
                spec.name,
                terms.join(" + "),
                DurNs(total as i64),
                room_of(spec.minors[minor], spec.reserve)
            );
            return Some((mine.at, what));
        }
        begin = end;
    }
    None
}

/// Whether all frames together need more than their CPU.
fn overfull(cpu: CpuId, group: &[&Load<'_>]) -> Option<(usize, String)> {
    // In tenths of a percent.
    let share = |load: &&Load<'_>| u128::from(ns(load.major)) * 1000 / u128::from(ns(load.config.spec.major()).max(1));
    let shown = |share: u128| format!("{}.{} %", share / 10, share % 10);
    let total: u128 = group.iter().map(share).sum();
    let terms =
        || group.iter().map(|load| format!("{} {}", load.config.spec.name, shown(share(load)))).collect::<Vec<_>>();
    let what =
        || format!("{}, which is over-committed: {} = {}", called(cpu, group), terms().join(" + "), shown(total));
    (total > 1000).then(|| (group[group.len() - 1].at, what()))
}

fn called(cpu: CpuId, group: &[&Load<'_>]) -> String {
    let names = group.iter().map(|load| format!("{:?}", load.config.spec.name)).collect::<Vec<_>>();
    format!("frames {} share CPU {cpu}", names.join(" and "))
}

fn ns(time: DurNs) -> u64 {
    time.0.max(0) as u64
}

/// The least common multiple.
fn multiple(all: u128, with: u64) -> u128 {
    let (mut a, mut b) = (all, u128::from(with));
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (all / a.max(1)).saturating_mul(with.into())
}

/// Position of the check in a frame's minors.
struct Progress {
    minor: usize,
    begin: u64,
    /// Time still to be used in this minor.
    left: u64,
}

impl Progress {
    fn first(load: &Load<'_>) -> Self {
        Self { minor: 0, begin: 0, left: ns(load.minors[0]) }
    }

    /// Maximum processor time of a frame until `to`, counted from the `to` of the previous call.
    fn within(&mut self, load: &Load<'_>, to: u64) -> u64 {
        let lengths = &load.config.spec.minors;
        let mut sum = 0;
        while self.begin < to {
            let end = self.begin + ns(lengths[self.minor]);
            let take = self.left.min(to - self.begin);
            sum += take;
            self.left -= take;
            if end > to {
                break;
            }
            (self.minor, self.begin) = ((self.minor + 1) % lengths.len(), end);
            self.left = ns(load.minors[self.minor]);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Spec};
    use alloc::vec;
    use base::Priority;

    fn us(us: i64) -> DurNs {
        DurNs::from_us(us)
    }

    /// A frame on CPU 0 with minors of this length, and one activity with this budget in them.
    fn frame(name: &str, priority: u8, length: DurNs, budget: DurNs) -> Config {
        let spec = Spec::new(name, vec![length; 2], vec![Activity::new("a", Some(budget), 0..2)]);
        let (cpu, priority) = (Some(0), Priority(priority));
        Config { spec, cpu, priority, join_within: us(0), followers: vec![] }
    }

    fn refusals(frames: &[&Config]) -> Vec<(usize, String)> {
        share(frames).into_iter().map(|(at, refusal)| (at, refusal.what)).collect()
    }

    #[test]
    fn frames_of_one_class_on_one_cpu_must_fit_into_each_minor_together() {
        let (one, two) = (frame("f1", 80, us(2000), us(1800)), frame("f2", 80, us(2000), us(1800)));
        let what = "frames \"f1\" and \"f2\" share CPU 0: minor 0 of \"f2\" is over-committed: f2 1.8ms + f1 1.8ms = 3.6ms, but it has 2ms";
        assert_eq!(refusals(&[&one, &two]), [(1, what.to_owned())]);
        assert_eq!(refusals(&[&one]), []);
        assert_eq!(refusals(&[&one, &Config { cpu: Some(1), ..two.clone() }]), [], "on another CPU");
        assert_eq!(refusals(&[&one, &Config { cpu: None, ..two }]), [], "without a CPU");
        let small = frame("f2", 80, us(2000), us(200));
        assert_eq!(refusals(&[&one, &small]), []);
        let mut reserved = small.clone();
        reserved.spec.reserve = us(1);
        assert!(refusals(&[&one, &reserved])[0].1.contains("= 2ms, but it has 2ms - 1us reserve = 1.999ms"));
    }

    #[test]
    fn a_frame_waits_for_higher_classes_and_not_for_lower_ones() {
        let (slow, fast) = (frame("slow", 80, us(2000), us(1000)), frame("fast", 80, us(500), us(200)));
        // Half a millisecond has no room for the work of the slow frame, unless that has a lower class.
        let what = refusals(&[&slow, &fast]);
        assert!(
            what[0]
                .1
                .contains("minor 0 of \"fast\" is over-committed: fast 200us + slow 500us = 700us, but it has 500us"),
            "{what:?}"
        );
        let fast = Config { priority: Priority(81), ..fast };
        assert_eq!(refusals(&[&slow, &fast]), [], "four times 200 us and 1 ms fit into 2 ms");
        let slow = frame("slow", 80, us(2000), us(1300));
        let what = refusals(&[&slow, &fast]);
        assert!(
            what[0]
                .1
                .contains("minor 0 of \"slow\" is over-committed: slow 1.3ms + fast 800us = 2.1ms, but it has 2ms"),
            "{what:?}"
        );
        assert_eq!(what[0].0, 0);
    }

    #[test]
    fn minors_with_different_starts_are_checked_until_their_pattern_repeats() {
        let (one, mut two) = (frame("f1", 80, us(300), us(100)), frame("f2", 80, us(200), us(0)));
        two.spec.activities = vec![Activity::new("a", Some(us(150)), 1..2)];
        // f2 works from 200 to 400, from 600 to 800, …; f1 begins at 300, 600, …, and has done its part of the first by 200.
        let what = refusals(&[&one, &two]);
        assert!(
            what[0].1.contains("minor 1 of \"f2\" is over-committed: f2 150us + f1 100us = 250us, but it has 200us"),
            "{what:?}"
        );
        two.spec.activities = vec![Activity::new("a", Some(us(100)), 1..2)];
        assert_eq!(refusals(&[&one, &two]), []);
        assert_eq!(multiple(600, 400), 1200);
        let odd = frame("odd", 80, DurNs(999_983), us(1));
        assert_eq!(refusals(&[&one, &odd]), []);
    }

    #[test]
    fn frames_that_wait_for_events_must_fit_into_their_cpu() {
        let (one, two) = (frame("f1", 80, us(2000), us(1200)), frame("f2", 80, us(1000), us(600)));
        let on_event = |mut config: Config| {
            config.spec.base = TimeBase::Software;
            config
        };
        let what = "frames \"f1\" and \"f2\" share CPU 0, which is over-committed: f1 60.0 % + f2 60.0 % = 120.0 %";
        assert_eq!(refusals(&[&one, &on_event(two.clone())]), [(1, what.to_owned())]);
        let small = frame("f2", 80, us(1000), us(400));
        assert_eq!(refusals(&[&one, &on_event(small)]), []);
        let mut follower = two;
        follower.spec.base = TimeBase::Frame("f0".to_owned());
        let leader = Config { cpu: Some(1), ..frame("f0", 80, us(1000), us(1)) };
        assert!(refusals(&[&leader, &one, &follower])[0].1.contains("minor 0 of \"f2\""), "it has the leader's times");
    }
}
