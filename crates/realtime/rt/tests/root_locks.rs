//! Priority inheritance by the kernel, read from /proc.

use base::{DurNs, Policy, Priority};
use rt::{Condition, Lock};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use sys::sched::{Scheduling, set_scheduling};

/// The present priority of a thread of this process: minus one minus its real-time priority.
fn effective(tid: i32) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(15).unwrap().parse().unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let watchdog = Instant::now();
    while !done() {
        assert!(watchdog.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn fifo(priority: u8) {
    let policy = Policy::Fifo(Priority(priority));
    set_scheduling(0, Scheduling { policy, reset_on_fork: false }).unwrap();
}

#[test]
fn the_owner_of_a_lock_runs_with_the_priority_of_its_most_urgent_waiter() {
    let lock = Lock::create(0).unwrap();
    let (tell, told) = channel();
    let (go, may_go) = channel::<()>();
    std::thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            fifo(10);
            let held = lock.lock().unwrap();
            tell.send(sys::thread::id()).unwrap();
            may_go.recv().unwrap();
            drop(held);
            tell.send(0).unwrap();
            may_go.recv().unwrap();
        });
        let owner = told.recv().unwrap();
        assert_eq!(effective(owner), -11, "no thread waits yet");
        for priority in [20, 40] {
            scope.spawn(move || {
                fifo(priority);
                drop(lock.lock().unwrap());
            });
            until("the owner with the waiter's priority", || effective(owner) == -1 - i64::from(priority));
        }
        go.send(()).unwrap();
        told.recv().unwrap();
        until("the owner has its own priority", || effective(owner) == -11);
        go.send(()).unwrap();
    });
}

#[test]
fn a_signal_wakes_the_most_urgent_waiter_first() {
    let (lock, condition) = (Lock::create(0).unwrap(), Condition::new().unwrap());
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let (lock, condition) = (&lock, &condition);
        for priority in [10, 30, 20] {
            let tell = tell.clone();
            let (waits, waiting) = channel();
            scope.spawn(move || {
                fifo(priority);
                let held = lock.lock().unwrap();
                let ticket = condition.ticket();
                waits.send(sys::thread::id()).unwrap();
                let (held, signalled) = held.without(|| ticket.wait(None)).unwrap();
                assert!(signalled);
                tell.send(priority).unwrap();
                drop(held);
            });
            let tid = waiting.recv().unwrap();
            let stat = || std::fs::read_to_string(format!("/proc/self/task/{tid}/wchan")).unwrap();
            until("the waiter asleep", || stat().contains("futex"));
        }
        for expected in [30, 20, 10] {
            condition.signal();
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(expected));
        }
    });
    assert!(!condition.ticket().wait(Some(DurNs::from_ms(1))));
}
