//! Frames with real threads, without any privilege: the order within minors, who may join, and what ends.

use base::{DurNs, Priority};
use frame::{Activity, Config, Spec, TimeBase};
use ring::{ActivityCounter, FrameCounter, Presence};
use rt::frames::{JoinError, Member, Report, Runner, Watcher, trigger};
use rt::{Exports, Imports, Number, VariableSpec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, scope};

const PATIENCE: DurNs = DurNs::from_secs(20);

/// A frame of this process, served by a thread until it is dropped.
struct Served {
    name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Report>>>,
}

impl Served {
    fn new(what: &str, base: TimeBase, minors: usize, names: &[&str], join_within: DurNs) -> Self {
        let name = format!("test{}/{what}", std::process::id());
        let us = DurNs::from_us;
        let activities = names.iter().map(|name| Activity::new(name, Some(us(100)), 0..minors as u16)).collect();
        let spec = Spec { base, ..Spec::new(&name, vec![us(2000); minors], activities) };
        let config = Config { spec, cpu: None, priority: Priority(50), join_within, followers: vec![] };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, ready) = channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || serve(Runner::new(config).unwrap(), &stop, &tell)
        });
        ready.recv().unwrap();
        Self { name, stop, thread: Some(thread) }
    }

    fn join(&self, activity: &str) -> Result<Member, JoinError> {
        Member::join(&self.name, activity, None, PATIENCE)
    }

    fn end(&mut self) -> Vec<Report> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(mut runner: Runner, stop: &AtomicBool, ready: &Sender<()>) -> Vec<Report> {
    ready.send(()).unwrap();
    let mut reports = vec![];
    while !stop.load(Ordering::Acquire) {
        runner.turn(|report| reports.push(report));
    }
    reports
}

#[test]
fn activities_run_in_order_and_know_their_pulse() {
    let served = Served::new("order", TimeBase::Timer, 2, &["first", "second", "third"], PATIENCE);
    let calls = Mutex::new(Vec::new());
    scope(|scope| {
        for (index, name) in ["first", "second", "third"].into_iter().enumerate() {
            let (served, calls) = (&served, &calls);
            scope.spawn(move || {
                let mut member = served.join(name).unwrap();
                for _ in 0..20 {
                    let turn = member.next_turn().unwrap();
                    calls.lock().unwrap().push((turn.pulse, index, turn.minor));
                }
            });
        }
    });
    let calls = calls.into_inner().unwrap();
    assert_eq!(calls.len(), 60);
    // A machine that is busy with other things loses minors, but never the order within one.
    for pair in calls.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1, "{pair:?} in {calls:?}");
    }
    assert!(calls.iter().all(|(pulse, _, minor)| pulse % 2 == u64::from(*minor)), "pulses count minors: {calls:?}");
}

#[test]
fn who_may_not_join_is_told_why() {
    let served = Served::new("doors", TimeBase::Software, 1, &["control"], PATIENCE);
    let refusal = served.join("controll").unwrap_err().to_string();
    assert!(refusal.contains("no such activity; expected one of control"), "{refusal}");
    let member = served.join("control").unwrap();
    let refusal = served.join("control").unwrap_err().to_string();
    assert!(refusal.contains("has joined as it already"), "{refusal}");
    drop(member);
    // Leaving is noticed, and the place is free again.
    while served.join("control").is_err() {
        std::thread::yield_now();
    }
    assert!(Watcher::open(&served.name).unwrap().page().counter(FrameCounter::Refused) >= 2);
    let nobody = Member::join("test/nobody", "a", None, DurNs(0)).unwrap_err();
    assert!(nobody.to_string().contains("no frame \"test/nobody\" runs here"), "{nobody}");
    let again = Spec::new(&served.name, vec![DurNs::from_ms(1)], vec![Activity::new("a", Some(DurNs(1)), 0..1)]);
    let config = Config { spec: again, cpu: None, priority: Priority(50), join_within: PATIENCE, followers: vec![] };
    assert!(Runner::new(config).err().unwrap().to_string().contains("runs already"));
}

#[test]
fn a_software_trigger_makes_one_minor_each() {
    let served = Served::new("software", TimeBase::Software, 1, &["control"], PATIENCE);
    let pulses = scope(|scope| {
        let member = scope.spawn(|| {
            let mut member = served.join("control").unwrap();
            let mut pulses = vec![];
            while pulses.len() < 6 {
                pulses.push(member.next_turn().unwrap().pulse);
            }
            // What is triggered while it works is lost, not run in a burst; then comes one more.
            let watcher = Watcher::open(&served.name).unwrap();
            sys::futex::count_up(watcher.page().trigger_word(), 10);
            while watcher.page().counter(FrameCounter::Lost) < 9 {
                std::thread::yield_now();
            }
            let (name, done) = (served.name.clone(), Arc::new(AtomicBool::new(false)));
            let until = done.clone();
            let again = std::thread::spawn(move || {
                while !until.load(Ordering::Acquire) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    trigger(&name).unwrap();
                }
            });
            pulses.push(member.next_turn().unwrap().pulse);
            done.store(true, Ordering::Release);
            again.join().unwrap();
            pulses
        });
        // Triggers once for each call that has ended.
        for calls in 1..=5 {
            while !Watcher::open(&served.name)
                .is_ok_and(|w| w.page().activity_counter(0, ActivityCounter::Calls) >= calls)
            {
                std::thread::yield_now();
            }
            trigger(&served.name).unwrap();
        }
        member.join().unwrap()
    });
    assert!(pulses[..6].windows(2).all(|pair| pair[1] == pair[0] + 1), "{pulses:?}");
    assert!(pulses[6] > pulses[5] + 10, "{pulses:?}");
}

#[test]
fn members_learn_that_their_frame_has_ended() {
    let mut served = Served::new("end", TimeBase::Timer, 1, &["control"], PATIENCE);
    let (tell, told) = channel();
    let name = served.name.clone();
    let thread = std::thread::spawn(move || {
        let mut member = Member::join(&name, "control", None, PATIENCE).unwrap();
        member.next_turn().unwrap();
        tell.send(()).unwrap();
        while member.next_turn().is_some() {}
    });
    told.recv().unwrap();
    let reports = served.end();
    thread.join().unwrap();
    assert!(reports.contains(&Report::Running { missing: vec![] }), "{reports:?}");
}

#[test]
fn a_frame_begins_without_those_who_do_not_come_and_takes_them_in_later() {
    let served = Served::new("late", TimeBase::Timer, 1, &["there", "missing"], DurNs::from_ms(50));
    let mut there = served.join("there").unwrap();
    let watcher = Watcher::open(&served.name).unwrap();
    while watcher.page().activity_counter(1, ActivityCounter::Absences) < 3 {
        there.next_turn().unwrap();
    }
    assert_eq!(watcher.page().who(1).0, Presence::Never);
    scope(|scope| {
        scope.spawn(|| {
            let mut late = served.join("missing").unwrap();
            (0..3).for_each(|_| assert!(late.next_turn().is_some()));
        });
        while watcher.page().activity_counter(1, ActivityCounter::Calls) < 3 {
            there.next_turn().unwrap();
        }
    });
}

#[test]
fn a_follower_runs_the_minors_of_the_frame_that_it_follows() {
    let leader = Served::new("leader", TimeBase::Timer, 1, &["a"], PATIENCE);
    let follower = Served::new("follower", TimeBase::Frame(leader.name.clone()), 1, &["b"], PATIENCE);
    let mut a = leader.join("a").unwrap();
    let done = AtomicBool::new(false);
    let done = &done;
    scope(|scope| {
        scope.spawn(move || while !done.load(Ordering::Acquire) && a.next_turn().is_some() {});
        let mut b = follower.join("b").unwrap();
        (0..5).for_each(|_| assert!(b.next_turn().is_some()));
        done.store(true, Ordering::Release);
    });
}

#[test]
fn safe_values_stand_for_the_variables_of_an_activity_that_fails() {
    let name = format!("test{}/safe2", std::process::id());
    let mut control = Activity::new("control", Some(DurNs::from_us(100)), 0..1);
    control.recovery = frame::Recovery::SafeValue;
    let spec = Spec { base: TimeBase::Software, ..Spec::new(&name, vec![DurNs::from_ms(2)], vec![control]) };
    let config = Config { spec, cpu: None, priority: Priority(50), join_within: PATIENCE, followers: vec![] };
    let stop = AtomicBool::new(false);
    let (tell, ready) = channel();
    let triggering = &AtomicBool::new(true);
    let name = &name;
    scope(|scope| {
        let server = scope.spawn(|| serve(Runner::new(config).unwrap(), &stop, &tell));
        ready.recv().unwrap();
        let exported = format!("safe-{}", std::process::id());
        let exports = Exports::open(&exported, 1).unwrap();
        let spec = VariableSpec { name: "drive", unit: "V", first: Number::Float(1.0), safe: Some(Number::Float(0.0)) };
        exports.add(&spec).unwrap();
        let imports = Imports::open(&exported).unwrap();
        let mut member = Member::join(name, "control", Some(&exports), PATIENCE).unwrap();
        member.next_turn().unwrap();
        // The next minor comes while the call is still going on.
        let read = || imports.get("drive").unwrap();
        assert_eq!(read().value, Number::Float(1.0));
        trigger(name).unwrap();
        while !read().safe {
            std::thread::yield_now();
        }
        assert_eq!(read().value, Number::Float(0.0));
        // Two minors later it has behaved again.
        scope.spawn(move || {
            while triggering.load(Ordering::Acquire) {
                trigger(name).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        while read().safe {
            member.next_turn().unwrap();
        }
        triggering.store(false, Ordering::Release);
        stop.store(true, Ordering::Release);
        server.join().unwrap();
    });
}
