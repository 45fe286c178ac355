//! A machine is disturbed from outside while it is recorded: the host stops it, or takes away a CPU or the clock
//! source.

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
const STOPS: usize = 72;
/// Minimum number of stops that must be attributed to the host. Of 24 stops, with ten other programs per CPU of the
/// host, the CPU was running code of the thread or the kernel in 4 to 17 when the stop began. A guest cannot
/// distinguish such a stop from work, and the delay is attributed to that task. Therefore many stops and a low minimum.
const FOUND_MIN: usize = 8;
const STOP_MS: u64 = 80;
/// The period of the watched thread.
const PERIOD: DurNs = DurNs::from_ms(2);

/// Serialises the tests: they share one machine.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program under test.
fn tahti() -> Command {
    let mut tahti = Command::new(std::env::var("TAHTI").expect("the guest's script sets TAHTI"));
    tahti.stdin(Stdio::null()).stdout(Stdio::piped());
    tahti
}

fn pause(span: DurNs) {
    sys::clock::sleep_until(sys::clock::mono_now() + span);
}

/// Waits until a recorder is running. On a busy host this takes as long as the emulator needs.
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
        assert!(sys::clock::mono_now() - begin < DurNs::from_secs(120), "no recorder has started");
        pause(DurNs::from_ms(20));
    }
    // Time until the last of its events is enabled.
    pause(DurNs::from_secs(2));
}

/// A stop of the whole guest.
struct Stop {
    /// On the guest's clock: when the stop was requested, and when it was known to be over.
    asked_ns: u64,
    over_ns: u64,
    /// The minimum duration of the stop.
    ns_min: u64,
}

/// Stops the whole guest for a while.
fn stopped() -> Stop {
    let told = Path::new("/out/stopped");
    let asked_ns = sys::clock::mono_now().0;
    fs::write("/out/stop.new", STOP_MS.to_string()).unwrap();
    fs::rename("/out/stop.new", "/out/stop").unwrap();
    loop {
        if let Ok(text) = fs::read_to_string(told) {
            fs::remove_file(told).unwrap();
            let us: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
            return Stop { asked_ns, over_ns: sys::clock::mono_now().0, ns_min: us * 1000 };
        }
        pause(DurNs::from_ms(20));
    }
}

/// Sleeps periodically until `over`. Each sleep is due at most one period after a time at which the previous sleep
/// had not ended. So a stop at any time, also between two sleeps, delays the end of some sleep by the length of the
/// stop minus one period.
fn keep_schedule(over: &AtomicBool) {
    let mut due = sys::clock::mono_now();
    while !over.load(Ordering::Relaxed) {
        let now = sys::clock::mono_now();
        sys::clock::sleep_until(due);
        due = due.max(now) + PERIOD;
    }
}

fn delay_ns(late: &Value) -> u64 {
    late["ran_ns"].as_u64().unwrap() - late["due_ns"].as_u64().unwrap()
}

/// The longest delay of the thread during a stop.
fn longest<'a>(lates: &'a [Value], stop: &Stop) -> Option<&'a Value> {
    let during = |late: &&Value| {
        late["due_ns"].as_u64().unwrap() < stop.over_ns && late["ran_ns"].as_u64().unwrap() > stop.asked_ns
    };
    lates.iter().filter(during).max_by_key(|late| delay_ns(late))
}

/// The part of a delay that is attributed to the host, certainly or possibly.
fn part_of_host(late: &Value) -> u64 {
    let parts = late["parts"].as_array().unwrap().iter();
    let of_host = parts.filter(|part| part["culprit"]["kind"].as_str().unwrap().starts_with("host"));
    of_host.map(|part| part["part_ns"].as_u64().unwrap()).sum()
}

#[test]
fn time_taken_by_the_host_is_attributed_to_the_host_within_the_guest() {
    testkit::guest::required();
    let _turn = turn();
    let (over, tid) = (AtomicBool::new(false), AtomicI32::new(0));
    let (found, stops) = std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::sched::set_affinity(0, &CpuSet::single(CPU)).unwrap();
            let policy = Policy::Fifo(Priority(50));
            sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: false }).unwrap();
            tid.store(sys::thread::id(), Ordering::Relaxed);
            keep_schedule(&over);
        });
        while tid.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let (tid, cpu) = (tid.load(Ordering::Relaxed).to_string(), CPU.to_string());
        let words = ["explain", "--tid", &tid, "--cpus", &cpu, "--above", "20ms", "--worst", "1000", "--json"];
        let explain = tahti().args(words).spawn().unwrap();
        listens();
        let stops: Vec<Stop> = (0..STOPS).map(|_| stopped()).collect();
        pause(DurNs::from_secs(1));
        sys::process::Process::open(explain.id() as i32).unwrap().signal(2).unwrap();
        let output = explain.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(output.status.success());
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), stops)
    });
    let lates = found["worst"].as_array().unwrap();
    let mut of_host = 0;
    for stop in &stops {
        // If a stop begins within a sleep, that sleep was due up to one period after the stop began.
        let expected = stop.ns_min - PERIOD.0 as u64 - 2_000_000;
        let late = longest(lates, stop).filter(|late| delay_ns(late) >= expected);
        let late = late.unwrap_or_else(|| panic!("no delay of {expected} ns from {}: {found:#}", stop.asked_ns));
        let (delay, host) = (delay_ns(late), part_of_host(late));
        println!("stopped for at least {} ns: late {delay} ns, {host} ns of it by the host", stop.ns_min);
        of_host += usize::from(host * 20 >= delay * 19);
    }
    assert!(of_host >= FOUND_MIN, "{of_host} of {STOPS} stops were attributed to the host: {found:#}");
}

#[test]
fn the_loss_of_a_cpu_or_clock_source_is_reported_and_the_rest_is_explained() {
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
