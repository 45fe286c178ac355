//! What is done to a machine from outside while it is recorded. What a host does to a guest, told by the guest alone: QEMU is stopped from outside for known times, and `tahti explain` within
//! puts those delays to the host.

use base::{CpuSet, DurNs, Policy, Priority};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::sched::Scheduling;

/// CPU of the watched thread.
const CPU: u16 = 2;
const STOPS: usize = 6;
const STOP_MS: u64 = 80;
/// The watched thread wakes so often: a stop may begin so much after it was due.
const PERIOD: DurNs = DurNs::from_ms(2);

/// One at a time: the machine is one.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program under test.
fn tahti() -> Command {
    let mut tahti = Command::new(std::env::var("TAHTI").expect("the guest's script says where tahti is"));
    tahti.stdin(Stdio::null()).stdout(Stdio::piped());
    tahti
}

fn pause(span: DurNs) {
    sys::clock::sleep_until(sys::clock::mono_now() + span);
}

/// Waits until somebody records here: a busy host has the emulator take its time until then.
fn listens() {
    let begin = sys::clock::mono_now();
    let is_on = |instance: &Path| {
        let reads_1 = |name: &str| fs::read_to_string(instance.join(name)).is_ok_and(|text| text.trim() == "1");
        reads_1("tracing_on") && reads_1("events/sched/sched_switch/enable")
    };
    loop {
        let instances = fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
        if instances.into_iter().any(|instance| is_on(&instance.path())) {
            break;
        }
        assert!(sys::clock::mono_now() - begin < DurNs::from_secs(120), "nobody has begun to record");
        pause(DurNs::from_ms(20));
    }
    // The last of its events is switched on.
    pause(DurNs::from_secs(2));
}

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
        pause(DurNs::from_ms(20));
    }
}

/// What of a delay is put to culprits whose kind begins so: those of the host for certain or perhaps.
fn part_of(late: &Value, kind: &str) -> u64 {
    let parts = late["parts"].as_array().unwrap().iter();
    let theirs = parts.filter(|part| part["culprit"]["kind"].as_str().unwrap().starts_with(kind));
    theirs.map(|part| part["part_ns"].as_u64().unwrap()).sum()
}

#[test]
fn what_the_host_takes_is_put_to_the_host_by_the_guest_alone() {
    testkit::guest::required();
    let _turn = turn();
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
        let explain = tahti().args(words).spawn().unwrap();
        listens();
        let stops: Vec<[u64; 2]> = (0..STOPS).map(|_| stopped()).collect();
        pause(DurNs::from_secs(1));
        sys::process::Process::open(explain.id() as i32).unwrap().signal(2).unwrap();
        let output = explain.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(output.status.success());
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), stops)
    });
    let lates = found["worst"].as_array().unwrap();
    // A stop that falls into the thread's own few instructions is its own time: nothing within a guest tells it from work.
    let own: u64 = lates.iter().map(|late| part_of(late, "own")).sum();
    let asleep: Vec<&Value> = lates.iter().filter(|late| part_of(late, "own") < 2_000_000).collect();
    let delays = asleep.iter().map(|late| late["ran_ns"].as_u64().unwrap() - late["due_ns"].as_u64().unwrap());
    let (all, host) = (delays.sum::<u64>(), asleep.iter().map(|late| part_of(late, "host")).sum::<u64>());
    let least: u64 = stops.iter().map(|[least, _]| least).sum();
    println!(
        "stopped {STOPS} times, at least {least} ns; late {all} ns in {} delays, the host's {host} ns; within own code {own} ns in {} more",
        asleep.len(),
        lates.len() - asleep.len()
    );
    // Each stop delays the thread by itself less a period at most; what the emulator and its host take besides is the host's, too.
    let error = STOPS as u64 * (PERIOD.0 as u64 + 2_000_000);
    assert!(lates.len() >= STOPS && asleep.len() * 2 > STOPS, "{found:#}");
    assert!(host + own + error >= least, "{host} and {own} of {least}: {found:#}");
    assert!(host * 20 >= all * 19, "{host} of {all}: {found:#}");
}

#[test]
fn a_cpu_and_a_clock_source_that_go_while_they_are_recorded_are_told_and_the_rest_is_explained() {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu3/online";
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    testkit::guest::required();
    let _turn = turn();
    let (was, another) = (testkit::guest::read(SOURCE), "hpet");
    assert_ne!(was, another);
    let pid = std::process::id().to_string();
    let explain = tahti().args(["explain", "--pid", &pid, "--cpus", "2-3", "--json"]).spawn().unwrap();
    listens();
    testkit::guest::write(ONLINE, "0");
    testkit::guest::write(SOURCE, another);
    pause(DurNs::from_secs(1));
    sys::process::Process::open(explain.id() as i32).unwrap().signal(2).unwrap();
    let output = explain.wait_with_output().unwrap();
    testkit::guest::write(ONLINE, "1");
    testkit::guest::write(SOURCE, &was);
    assert!(output.status.success());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said: Vec<&str> = found["changed"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let clock = format!("the clock source changed meanwhile, from {was} to {another}: ");
    assert!(said.len() == 2 && said[0].starts_with(&clock), "{said:?}");
    assert!(said[1].starts_with("the CPUs that are online changed meanwhile, from 0-3 to 0-2: "), "{said:?}");
    assert!(found["events"].as_u64().unwrap() > 0);
}
