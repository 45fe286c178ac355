//! Frames that a test serves itself.

use base::{DurNs, Priority};
use frame::{Activity, Config, Spec, TimeBase};
use ring::ActivityCounter;
use rt::frames::{JoinError, Member, Report, Runner, Watcher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, scope};

/// A watchdog: guests are slow, and machines busy.
pub(crate) const PATIENCE: DurNs = DurNs::from_secs(20);

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
        let spec = Spec { base, ..Spec::new(&name, minors.to_vec(), activities) };
        let followers = followers.iter().map(|name| (*name).to_owned()).collect();
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

    /// Fails with what the frame said if it has ended by itself.
    fn must_live(&self) {
        let over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        assert!(!over, "the frame has ended: {:?}", self.said.lock().unwrap());
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
    while !stop.load(Ordering::Acquire) && !runner.is_over() {
        runner.turn(|report| said.lock().unwrap().push(report));
    }
}

/// Ticks a base until the frame has made `calls` calls of its first activity; one tick for each call that has ended.
pub(crate) fn drive(served: &Served, calls: u64, mut tick: impl FnMut()) {
    let watcher = Watcher::open(&served.name).unwrap();
    for made in watcher.page().activity_counter(0, ActivityCounter::Calls)..calls {
        while watcher.page().activity_counter(0, ActivityCounter::Calls) < made {
            std::thread::yield_now();
        }
        tick();
    }
}

/// A frame on a base with one activity, ticked for six calls, each of which begins a minor of its own.
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
        while watcher.page().state() != ring::FrameState::Running {
            served.must_live();
            std::thread::yield_now();
        }
        drive(&served, 6, || tick(&served));
        let turns = member.join().unwrap();
        let minors: Vec<u16> = turns.iter().map(|turn| turn.1).collect();
        assert_eq!(minors, [0, 1, 2, 0, 1, 2], "{what}: its first tick begins the first minor");
        assert!(turns.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{what}: {turns:?}");
    });
}
