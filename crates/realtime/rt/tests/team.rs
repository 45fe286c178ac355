//! A team of processes: the state after one of them is killed during its work.

use base::DurNs;
use rt::{Barrier, Condition, Lock, Met};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;

const NAME: &str = "TAHTI_TEST_TEAM";

/// Another process of the team, killed on drop.
struct Other(Child, BufReader<ChildStdout>);

impl Other {
    /// Starts the test `role` of this file as a separate process, and waits until it reports that it is ready.
    fn start(role: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--ignored", "--nocapture"]).env(NAME, name).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self(child, out);
        let mut lines = other.1.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("there")), "{role} ended early");
        other
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Whether a thread of this process is blocked in the kernel.
fn sleeps(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

#[test]
#[ignore = "the other tests start it as a separate process"]
fn holds_the_lock() {
    let lock = Lock::attach(rt::ask(&std::env::var(NAME).unwrap()).unwrap()).unwrap();
    let held = lock.lock().unwrap();
    held.lock().data()[0].store(1, Ordering::Relaxed);
    println!("there");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

#[test]
#[ignore = "the other tests start it as a separate process"]
fn waits_for_the_condition() {
    let condition = Condition::attach(rt::ask(&std::env::var(NAME).unwrap()).unwrap()).unwrap();
    let ticket = condition.ticket();
    println!("there");
    assert!(ticket.wait(None));
}

#[test]
fn a_lock_whose_owner_was_killed_goes_to_the_next_thread_with_a_notice() {
    for waits_already in [false, true] {
        let name = name(if waits_already { "waits" } else { "comes-later" });
        let lock = Lock::create(1).unwrap();
        rt::offer(&name, lock.fd()).unwrap();
        let owner = Other::start("holds_the_lock", &name);
        assert_eq!(lock.try_lock().unwrap_err().raw_os_error(), 16, "it is busy");
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let next = scope.spawn({
                let lock = &lock;
                move || {
                    tell.send(sys::thread::id()).unwrap();
                    let held = lock.lock().unwrap();
                    (held.owner_died(), held.lock().data()[0].load(Ordering::Relaxed))
                }
            });
            let tid = told.recv().unwrap();
            while waits_already && !sleeps(tid) {
                std::thread::yield_now();
            }
            owner.kill();
            assert_eq!(next.join().unwrap(), (true, 1));
        });
        assert!(!lock.lock().unwrap().owner_died(), "the next member finds it consistent");
    }
}

#[test]
fn a_waiter_that_is_killed_consumes_no_signal_of_a_condition() {
    let name = name("condition");
    let condition = Condition::new().unwrap();
    rt::offer(&name, condition.fd()).unwrap();
    Other::start("waits_for_the_condition", &name).kill();
    let ticket = condition.ticket();
    condition.signal();
    assert!(ticket.wait(None));
    let mut other = Other::start("waits_for_the_condition", &name);
    condition.signal();
    assert!(other.0.wait().unwrap().success(), "a signal reaches another process");
}

#[test]
#[ignore = "the other tests start it as a separate process"]
fn comes_to_the_barrier_twice() {
    let barrier = Barrier::attach(rt::ask(&std::env::var(NAME).unwrap()).unwrap()).unwrap();
    assert_ne!(barrier.wait(DurNs::ZERO, None), Met::Broken);
    println!("there");
    barrier.wait(DurNs::ZERO, None);
    std::thread::sleep(std::time::Duration::from_secs(600));
}

#[test]
fn a_team_detects_that_a_member_was_killed() {
    let name = name("barrier");
    let barrier = Barrier::new(2).unwrap();
    rt::offer(&name, barrier.fd()).unwrap();
    let mate = barrier.clone();
    let first = std::thread::spawn(move || mate.wait(DurNs::ZERO, None));
    let other = Other::start("comes_to_the_barrier_twice", &name);
    assert_ne!(first.join().unwrap(), Met::Broken);
    assert_ne!(barrier.wait(DurNs::ZERO, None), Met::Broken);
    other.kill();
    assert_eq!(barrier.wait(DurNs::ZERO, Some(DurNs::from_ms(20))), Met::Broken);
}
