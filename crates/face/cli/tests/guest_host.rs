//! What a host does to a guest, told by the guest alone: QEMU is stopped from outside for known times, and `tahti explain` within
//! puts those delays to the host.

use base::{CpuSet, DurNs, Policy, Priority};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use sys::sched::Scheduling;

/// CPU of the watched thread.
const CPU: u16 = 2;
const STOPS: usize = 6;
const STOP_MS: u64 = 80;
/// The watched thread wakes so often: a stop may begin so much after it was due.
const PERIOD: DurNs = DurNs::from_ms(2);

/// Has the whole guest stopped; between how many nanoseconds it was.
fn stopped() -> [u64; 2] {
    let told = Path::new("/out/stopped");
    fs::write("/out/stop.new", STOP_MS.to_string()).unwrap();
    fs::rename("/out/stop.new", "/out/stop").unwrap();
    loop {
        if let Ok(text) = fs::read_to_string(told) {
            fs::remove_file(told).unwrap();
            let us: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
            return [us[0] * 1000, us[1] * 1000];
        }
        sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(20));
    }
}

/// What of a delay is put to the host, for certain or perhaps.
fn hosts(late: &Value) -> u64 {
    let parts = late["parts"].as_array().unwrap().iter();
    let of_host = parts.filter(|part| part["culprit"]["kind"].as_str().unwrap().starts_with("host"));
    of_host.map(|part| part["ns"].as_u64().unwrap()).sum()
}

#[test]
fn what_the_host_takes_is_put_to_the_host_by_the_guest_alone() {
    testkit::guest::required();
    let (over, tid) = (AtomicBool::new(false), AtomicI32::new(0));
    let (found, stops) = std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::sched::set_affinity(0, &CpuSet::single(CPU)).unwrap();
            let policy = Policy::Fifo(Priority(50));
            sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: false }).unwrap();
            tid.store(sys::thread::id(), Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                sys::clock::sleep_until(sys::clock::mono_now() + PERIOD);
            }
        });
        while tid.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let (tid, cpu) = (tid.load(Ordering::Relaxed).to_string(), CPU.to_string());
        let words = ["explain", "--tid", &tid, "--cpus", &cpu, "--above", "20ms", "--worst", "1000", "--json"];
        let mut explain = Command::new(std::env::var("TAHTI").expect("the guest's script says where tahti is"));
        let explain = explain.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        // It listens within seconds, whatever the emulator takes.
        sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_secs(8));
        let stops: Vec<[u64; 2]> = (0..STOPS).map(|_| stopped()).collect();
        sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_secs(1));
        sys::child::kill(explain.id() as i32, 2).unwrap();
        let output = explain.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(output.status.success());
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), stops)
    });
    let lates = found["worst"].as_array().unwrap();
    let delays = lates.iter().map(|late| late["ran"].as_u64().unwrap() - late["due"].as_u64().unwrap());
    let (all, host) = (delays.sum::<u64>(), lates.iter().map(hosts).sum::<u64>());
    let least: u64 = stops.iter().map(|[least, _]| least).sum();
    println!(
        "stopped {STOPS} times, at least {least} ns; late {all} ns in {} delays, the host's {host} ns",
        lates.len()
    );
    // Each stop delays the thread by itself less a period at most; what the emulator and its host take besides is the host's, too.
    let error = STOPS as u64 * (PERIOD.0 as u64 + 2_000_000);
    assert!(lates.len() >= STOPS, "{found:#}");
    assert!(host + error >= least, "{host} of {least}: {found:#}");
    assert!(host * 20 >= all * 19, "{host} of {all}: {found:#}");
}
