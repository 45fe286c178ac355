//! Real runaways on the real kernel: FIFO loops on one CPU, each much shorter than a second.
//!
//! Real-time throttling stays enabled. Everything that the tests start is killed and reaped.

mod freezer;

use base::{DurNs, MonoNs, Policy};
use host::guard::{Budget, LADDER, Rung, RungAction};
use keep::guard::{EventKind, Guard, GuardEvent, MaxSilence, WatchSpec};
use keep::keeper::protocol::ChildId;
use keep::launch::{LaunchSpec, Started, Terminal, hold, start};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::alloc::Counting;
use sys::child::{Waited, look};
use sys::sched::scheduling;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Timeout. Only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running(Started);

impl Running {
    fn script(text: &str, policy: &str) -> Self {
        Self(start(&Self::spec(text, policy)).unwrap_or_else(|error| panic!("{error}")))
    }

    fn spec(text: &str, policy: &str) -> LaunchSpec {
        assert!(rustix::process::geteuid().is_root(), "this test must run as root (--unprivileged leaves it out)");
        let mut spec = LaunchSpec::new("burner", ["/bin/sh", "-c", text]);
        (spec.terminal, spec.require_rt) = (Terminal::Null, true);
        spec.policy = Some(policy.parse().unwrap());
        spec.cpus = Some("1".parse().unwrap());
        spec
    }

    fn watch(&self, ladder: &[Rung]) -> WatchSpec {
        watch(self.0.child, ladder)
    }

    fn pid(&self) -> i32 {
        self.0.child.pid
    }

    fn ended_by(&self) -> i32 {
        loop {
            match look(self.pid(), false).unwrap() {
                Waited::Ended(ended) => return ended.status & 0x7f,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn watch(child: ChildId, ladder: &[Rung]) -> WatchSpec {
    WatchSpec {
        child,
        ancestor: child.pid,
        budget: Budget::Share { percent: 50, period: DurNs::from_ms(100) },
        ladder: ladder.to_vec(),
        heartbeat: None,
        freezer: None,
        starved_after: DurNs::from_secs(5),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Signals the whole session, which the process leads. It may have ended already.
        let _ = self.0.process.signal_group(9);
        while matches!(look(self.pid(), false), Ok(Waited::Nothing)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn guard() -> Guard {
    let (guard, shortfalls) = Guard::start(&"1".parse().unwrap()).unwrap();
    assert!(guard.class().is_real_time(), "{shortfalls:?}");
    guard
}

fn expect(guard: &mut Guard, what: &str, wanted: impl Fn(&EventKind) -> bool) -> GuardEvent {
    let until = Instant::now() + PATIENCE;
    loop {
        match guard.next_event() {
            Some(event) if wanted(&event.what) => return event,
            Some(_) => {}
            None => {
                assert!(Instant::now() < until, "{what} did not happen");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn step(wanted: RungAction) -> impl Fn(&EventKind) -> bool {
    move |what| matches!(what, EventKind::Step { action, refused: 0, .. } if *action == wanted)
}

#[test]
fn a_fifo_loop_that_burns_its_budget_is_demoted_from_outside() {
    let mut guard = guard();
    let running = Running::script("while :; do :; done", "fifo:10");
    guard.watch(running.watch(&LADDER[..1])).unwrap();
    let event = expect(&mut guard, "the runaway", |what| matches!(what, EventKind::Runaway { .. }));
    let EventKind::Runaway { used, window } = event.what else { unreachable!() };
    assert!(used >= DurNs::from_ms(50) && window >= DurNs::from_ms(40), "{event:?}");
    assert_eq!((event.pid, event.tid), (running.pid(), running.pid()));
    expect(&mut guard, "the demotion", step(RungAction::Demote));
    assert_eq!(scheduling(running.pid()).unwrap().policy, Policy::OTHER);
    drop(running);
    expect(&mut guard, "the end", |what| *what == EventKind::Gone { by_ladder: true });
}

#[test]
fn a_loop_that_burns_from_its_first_instruction_is_watched_before_it_has_its_class() {
    let mut guard = guard();
    let held = hold(&Running::spec("while :; do :; done", "fifo:10")).unwrap_or_else(|error| panic!("{error}"));
    let child = held.child();
    let class = |pid| scheduling(pid).unwrap().policy;
    let program = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!((class(child.pid), program(child.pid)), (class(0), std::env::current_exe().unwrap()));
    // The process must not even be moved to the CPU that it will burn.
    guard.watch(watch(child, &LADDER[..1])).unwrap();
    assert_eq!((class(child.pid), program(child.pid)), (class(0), std::env::current_exe().unwrap()));
    let running = Running(held.go().unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(running.0.child, child);
    let event = expect(&mut guard, "the runaway", |what| matches!(what, EventKind::Runaway { .. }));
    assert_eq!(event.pid, child.pid);
    expect(&mut guard, "the demotion", step(RungAction::Demote));
    assert_eq!(class(child.pid), Policy::OTHER);
}

#[test]
fn a_stubborn_runaway_is_demoted_frozen_and_aborted() {
    let mut guard = guard();
    let running = Running::script("while :; do :; done", "rr:10");
    let wait = DurNs::from_ms(50);
    // After the abort, the process needs a CPU to die on, which may take any time.
    let patience = DurNs(PATIENCE.as_nanos() as i64);
    let rungs = [(RungAction::Demote, wait), (RungAction::Freeze, wait), (RungAction::Abort, patience)];
    guard.watch(running.watch(&rungs.map(|(action, wait)| Rung { action, wait }))).unwrap();
    // A wait begins when the previous step was decided. A step's time stamp is when it was done.
    let decided = expect(&mut guard, "the runaway", |what| matches!(what, EventKind::Runaway { .. })).at;
    expect(&mut guard, "demote", step(RungAction::Demote));
    let frozen = expect(&mut guard, "freeze", step(RungAction::Freeze)).at;
    let aborted = expect(&mut guard, "abort", step(RungAction::Abort)).at;
    assert!(frozen - decided >= wait, "frozen {} after the demotion was decided", frozen - decided);
    assert!(aborted - decided >= DurNs(2 * wait.0), "aborted {} after it", aborted - decided);
    expect(&mut guard, "the end", |what| *what == EventKind::Gone { by_ladder: true });
    assert_eq!(running.ended_by(), 6);
}

#[test]
fn a_runaway_is_frozen_through_its_group() {
    assert!(rustix::process::geteuid().is_root(), "this test must run as root (--unprivileged leaves it out)");
    // If v1's freezer is not mounted, v2 is.
    let v1 = "/sys/fs/cgroup/freezer";
    match std::path::Path::new(v1).exists() {
        true => freezer::freezes_and_kills(v1, "1", false),
        false => freezer::freezes_and_kills("/sys/fs/cgroup", "1", true),
    }
}

#[test]
fn a_descendant_is_watched_too() {
    let mut guard = guard();
    let running = Running::script("(while :; do :; done) & wait", "fifo:10");
    guard.watch(running.watch(&LADDER[..1])).unwrap();
    let event = expect(&mut guard, "the runaway", |what| matches!(what, EventKind::Runaway { .. }));
    assert_ne!(event.pid, running.pid());
    expect(&mut guard, "the demotion", step(RungAction::Demote));
    assert_eq!(scheduling(event.pid).unwrap().policy, Policy::OTHER);
}

#[test]
fn a_process_that_sleeps_again_after_its_demotion_is_left_running() {
    let mut guard = guard();
    // Burns the CPU until it is demoted (its class is field 41 of stat), then sleeps in each iteration.
    let script = "while read -r a < /proc/$$/stat; do set -- $a; [ ${41} = 0 ] && break; done; \
                  while :; do sleep 0.01; done";
    let running = Running::script(script, "fifo:10");
    guard.watch(running.watch(&LADDER)).unwrap();
    expect(&mut guard, "the demotion", step(RungAction::Demote));
    expect(&mut guard, "the taming", |what| *what == EventKind::Tamed);
    assert!(running.0.process.signal(0).is_ok());
}

#[test]
fn a_well_behaved_loop_is_never_demoted_and_the_guard_allocates_nothing() {
    let mut guard = guard();
    let running = Running::script("while :; do sleep 0.002; done", "fifo:10");
    // The heartbeat callback runs on the guard's thread and counts that thread's allocations.
    let (calls, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (first, beats) = (Arc::new(AtomicU64::new(u64::MAX)), (calls.clone(), looks.clone()));
    let beat: keep::guard::Beats = {
        let first = first.clone();
        Box::new(move || {
            let now = Counting::calls();
            let _ = first.compare_exchange(u64::MAX, now, Ordering::Relaxed, Ordering::Relaxed);
            beats.0.store(now, Ordering::Relaxed);
            beats.1.fetch_add(1, Ordering::Relaxed)
        })
    };
    let mut spec = running.watch(&LADDER);
    spec.heartbeat = Some((beat, MaxSilence::new(DurNs::from_ms(20))));
    guard.watch(spec).unwrap();
    let wait_for = |looks_wanted: u64| {
        let until = Instant::now() + PATIENCE;
        while looks.load(Ordering::Relaxed) < looks_wanted {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(50);
    assert_eq!(guard.next_event(), None);
    // Then a runaway that goes through all steps, with the same count.
    let other = Running::script("while :; do :; done", "fifo:10");
    let rungs = [RungAction::Demote, RungAction::Freeze, RungAction::Abort];
    let wait = DurNs::from_ms(20);
    guard.watch(other.watch(&rungs.map(|action| Rung { action, wait }))).unwrap();
    expect(&mut guard, "the end", |what| *what == EventKind::Gone { by_ladder: true });
    wait_for(looks.load(Ordering::Relaxed) + 5);
    assert_eq!(calls.load(Ordering::Relaxed), first.load(Ordering::Relaxed), "allocations on the guard's thread");
}

#[test]
fn without_a_budget_silence_is_the_runaway() {
    let mut guard = guard();
    let running = Running::script("while :; do :; done", "fifo:10");
    let begun = sys::clock::mono_now();
    // Beats for 150 ms, then stops. A poller may use its whole CPU as long as it beats.
    let alive = MonoNs(begun.0 + 150_000_000);
    let mut spec = running.watch(&LADDER[..1]);
    spec.budget = Budget::None;
    spec.heartbeat = Some((Box::new(move || sys::clock::mono_now().min(alive).0), MaxSilence::new(DurNs::from_ms(50))));
    guard.watch(spec).unwrap();
    let event = expect(&mut guard, "the silence", |what| matches!(what, EventKind::Silent { .. }));
    assert!(event.at >= alive + DurNs::from_ms(50), "{:?}", event.at - begun);
    expect(&mut guard, "the demotion", step(RungAction::Demote));
    assert_eq!(scheduling(running.pid()).unwrap().policy, Policy::OTHER);
}

#[test]
fn a_thread_kept_from_its_cpu_is_reported_as_starved() {
    let mut guard = guard();
    // The lower one spins, but the higher one keeps it off the CPU.
    let low = Running::script("while :; do :; done", "fifo:5");
    let mut spec = low.watch(&LADDER[..1]);
    (spec.budget, spec.starved_after) = (Budget::None, DurNs::from_ms(150));
    guard.watch(spec).unwrap();
    let high = Running::script("while :; do :; done", "fifo:20");
    let event = expect(&mut guard, "starvation", |what| matches!(what, EventKind::Starved { .. }));
    assert_eq!(event.pid, low.pid());
    drop(high);
}

#[test]
fn threads_and_then_processes_beyond_the_limits_of_the_guard_are_reported() {
    let mut guard = guard();
    let more = std::env::temp_dir().join(format!("tahti-guard-more-{}", std::process::id()));
    let sleepers = |count: u32| format!("i=0; while [ $i -lt {count} ]; do sleep 1000 & i=$((i+1)); done");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", more.display());
    let running = Running::script(&format!("{}; {wait}; {}; wait", sleepers(100), sleepers(200)), "fifo:3");
    guard.watch(running.watch(&LADDER[..1])).unwrap();
    expect(&mut guard, "the report of threads", |what| {
        matches!(what, EventKind::Unwatched { threads: 1.., processes: 0 })
    });
    std::fs::write(&more, "").unwrap();
    expect(&mut guard, "the report of processes", |what| matches!(what, EventKind::Unwatched { processes: 1.., .. }));
    std::fs::remove_file(&more).unwrap();
}
