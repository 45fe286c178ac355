//! Frames that the test itself serves.
#![allow(dead_code, reason = "each test program uses a part of it")]

use base::{DurNs, Priority};
use frame::{Activity, Config, Spec, TimeBase};
use ring::ActivityCounter;
use rt::frames::{JoinError, Member, Report, Runner, Watcher, trigger};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, scope};
use sys::clock::mono_now;

/// Timeout. It is long because guests are slow and machines may be busy.
pub(crate) const PATIENCE: DurNs = DurNs::from_secs(20);

/// Maximum lifetime of a frame. Its end also ends all waits on it, and with them the test.
const LIFE: DurNs = DurNs::from_secs(120);

/// A frame of this process, served by a thread until it is dropped.
pub(crate) struct Served {
    pub(crate) name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<Report>>>,
}

impl Served {
    pub(crate) fn new(what: &str, base: TimeBase, minors: usize, names: &[&str], join_within: DurNs) -> Self {
        Self::of(what, base, &vec![DurNs::from_ms(2); minors], names, join_within, &[])
    }

    pub(crate) fn of(
        what: &str,
        base: TimeBase,
        minors: &[DurNs],
        names: &[&str],
        join_within: DurNs,
        followers: &[&str],
    ) -> Self {
        let name = format!("test{}/{what}", std::process::id());
        let activity = |name: &&str| Activity::new(name, Some(DurNs::from_us(100)), 0..minors.len() as u16);
        let activities = names.iter().map(activity).collect();
        Self::serving(Spec { base, ..Spec::new(&name, minors.to_vec(), activities) }, join_within, followers)
    }

    pub(crate) fn serving(spec: Spec, join_within: DurNs, followers: &[&str]) -> Self {
        let followers = followers.iter().map(|name| (*name).to_owned()).collect();
        let name = spec.name.clone();
        let config = Config { spec, cpu: None, priority: Priority(50), join_within, followers };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, ready) = channel();
        let said = Arc::new(Mutex::new(vec![]));
        let thread = std::thread::spawn({
            let (stop, said) = (stop.clone(), said.clone());
            move || serve(Runner::new(config).unwrap(), &stop, &tell, &said)
        });
        ready.recv().unwrap();
        Self { name, stop, thread: Some(thread), said }
    }

    pub(crate) fn join(&self, activity: &str) -> Result<Member, JoinError> {
        Member::join(&self.name, activity, None, PATIENCE)
    }

    /// Waits for a condition, at most as long as the frame lives.
    pub(crate) fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        while !is() {
            let over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!over, "the frame ended before {what}: {:?}", self.said.lock().unwrap());
            std::thread::yield_now();
        }
    }

    pub(crate) fn end(&mut self) -> Vec<Report> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.said.lock().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn serve(mut runner: Runner, stop: &AtomicBool, ready: &Sender<()>, said: &Mutex<Vec<Report>>) {
    ready.send(()).unwrap();
    let end = mono_now() + LIFE;
    while !stop.load(Ordering::Acquire) && !runner.is_over() {
        runner.turn(|report| said.lock().unwrap().push(report));
        if mono_now() > end {
            return said.lock().unwrap().push(Report::Over(format!("the test still runs after {LIFE}")));
        }
    }
}

/// Triggers a frame repeatedly until it is dropped.
pub(crate) struct Triggered {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Triggered {
    pub(crate) fn start(name: &str) -> Self {
        let (name, over) = (name.to_owned(), Arc::new(AtomicBool::new(false)));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            // The frame may end earlier.
            while !is_over.load(Ordering::Acquire) && trigger(&name).is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Triggered {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Ticks a base until the frame has made `calls` calls of its first activity: one tick for each ended call.
pub(crate) fn drive(served: &Served, calls: u64, mut tick: impl FnMut()) {
    let watcher = Watcher::open(&served.name).unwrap();
    for made in watcher.page().activity_counter(0, ActivityCounter::Calls)..calls {
        served.until("its next call", || watcher.page().activity_counter(0, ActivityCounter::Calls) >= made);
        tick();
    }
}

/// Runs a frame with one activity on a base, with ticks for six calls. Each tick must begin one minor.
pub(crate) fn begins_a_minor_with_each_tick(what: &str, base: TimeBase, mut tick: impl FnMut(&Served)) {
    let served = Served::new(what, base, 3, &["control"], PATIENCE);
    scope(|scope| {
        let (ready, is_ready) = channel();
        let member = scope.spawn({
            let served = &served;
            move || {
                let mut member = served.join("control").unwrap();
                ready.send(()).unwrap();
                (0..6).map(|_| member.next_turn().unwrap()).map(|turn| (turn.pulse, turn.minor)).collect::<Vec<_>>()
            }
        });
        is_ready.recv().unwrap();
        let watcher = Watcher::open(&served.name).unwrap();
        served.until("it runs", || watcher.page().state() == ring::FrameState::Running);
        drive(&served, 6, || tick(&served));
        let turns = member.join().unwrap();
        let minors: Vec<u16> = turns.iter().map(|turn| turn.1).collect();
        assert_eq!(minors, [0, 1, 2, 0, 1, 2], "{what}: its first tick begins the first minor");
        assert!(turns.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{what}: {turns:?}");
    });
}
