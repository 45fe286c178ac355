//! Real-time loops on every CPU without any of the kernel's safety nets: tahti must make the machine usable again.
//!
//! Runs only in a guest of `cargo xtask test-vm`, as the machine may hang for a while.

use base::DurNs;
use host::guard::{Budget, LADDER};
use keep::guard::{Guard, WatchSpec};
use keep::launch::{LaunchSpec, Started, Terminal, start};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use testkit::guest;

/// Delay from the request to the common start of the loops. An interpreter may take seconds to start in an emulated machine.
const START_SECONDS: u64 = 8;

/// Time after which the loops end if they are not stopped.
const SPIN_SECONDS: u64 = 20;

/// A time-sharing thread that wakes 20 times a second and records the longest gap.
struct Probe {
    stop: Arc<AtomicBool>,
    longest_ms: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Probe {
    fn start() -> Self {
        let (stop, longest_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, longest) = (Arc::clone(&stop), Arc::clone(&longest_ms));
        let thread = spawn(move || {
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(50));
                let silence = u64::try_from(last.elapsed().as_millis()).unwrap_or(u64::MAX);
                longest.fetch_max(silence, Ordering::Relaxed);
                last = Instant::now();
            }
        });
        Self { stop, longest_ms, thread }
    }

    fn longest_silence(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the probe does not panic");
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }
}

/// Seconds since boot.
fn uptime() -> f64 {
    let first = guest::read("/proc/uptime").split(' ').next().and_then(|text| text.parse().ok());
    first.expect("uptime begins with seconds")
}

/// Starts a FIFO loop on each CPU. All begin and end at the same time. Returns well after they have begun.
fn hogs(mut started: impl FnMut(&Started)) -> Vec<Started> {
    let begin = uptime() + START_SECONDS as f64;
    let end = begin + SPIN_SECONDS as f64;
    let loop_ = format!(
        "import time\nwhile time.clock_gettime(time.CLOCK_BOOTTIME) < {begin}: time.sleep(0.01)\n\
         while time.clock_gettime(time.CLOCK_BOOTTIME) < {end}: pass"
    );
    let hog = |cpu: u16| {
        let mut spec = LaunchSpec::new("hog", ["/usr/bin/python3", "-c", &loop_]);
        (spec.terminal, spec.require_rt) = (Terminal::Null, true);
        spec.policy = Some("fifo:10".parse().expect("a class"));
        spec.cpus = Some(cpu.to_string().parse().expect("a CPU"));
        let hog = start(&spec).unwrap_or_else(|error| panic!("{error}"));
        started(&hog);
        hog
    };
    let hogs = (0..4).map(hog).collect();
    while uptime() < begin + 5.0 {
        sleep(Duration::from_millis(50));
    }
    hogs
}

/// Waits until the loops have ended, by themselves or killed.
fn reap(hogs: &[Started]) {
    for hog in hogs {
        let _ = hog.process.signal(9);
        while matches!(sys::child::look(hog.child.pid, false), Ok(sys::child::Waited::Nothing)) {
            sleep(Duration::from_millis(20));
        }
    }
}

/// Runs the loops without a guard, then with it.
#[test]
fn a_machine_full_of_real_time_loops_recovers() {
    guest::required();
    guest::write("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    for cpu in 0..4 {
        guest::write(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), "0");
    }
    let probe = Probe::start();
    let running = hogs(|_| ());
    let alone = probe.longest_silence();
    reap(&running);
    println!("without tahti: no answer for {alone:?}");

    let (mut guard, shortfalls) = Guard::start(&"0".parse().expect("a CPU")).expect("the guard starts");
    assert!(guard.class().is_real_time(), "{shortfalls:?}");
    let probe = Probe::start();
    let running = hogs(|hog| {
        let watch = WatchSpec {
            child: hog.child,
            ancestor: hog.child.pid,
            budget: Budget::Share { percent: 80, period: DurNs::from_ms(100) },
            ladder: LADDER.to_vec(),
            heartbeat: None,
            freezer: None,
            starved_after: DurNs::from_secs(30),
        };
        guard.watch(watch).expect("the guard accepts it");
    });
    let guarded = probe.longest_silence();
    reap(&running);
    println!("with tahti: no answer for {guarded:?}");
    assert!(alone >= Duration::from_secs(10), "the loops did not fill the machine: {alone:?}");
    assert!(guarded * 2 < alone, "the guard let the machine hang for {guarded:?}, without it {alone:?}");
}
