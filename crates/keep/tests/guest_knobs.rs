//! Knobs that this project's own machines lack, on a guest that has them: network queues, threads of a real-time
//! kernel, two threads a core. CPUs 2-3 are shielded.

use base::{CpuSet, Policy, Priority};
use host::plan::{Profile, Want};
use keep::RunDir;
use keep::shield::{self, Applied};
use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;
use sys::root::RootDir;
use testkit::guest;

fn root() -> RootDir {
    RootDir::machine()
}

fn dir() -> RunDir {
    RunDir::at("/run/tahti-test")
}

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("the test's own list")
}

/// Only in a guest; a shield that a failed test left is given up first.
fn begin() {
    guest::required();
    shield::release(&root(), &dir(), true).expect("a shield that another test left can be released");
}

#[track_caller]
fn apply(list: &str, profile: Profile) -> Applied {
    let want = Want { cpus: cpus(list), profile, ..Want::default() };
    shield::apply(&root(), &want, &dir()).expect("the shield can be applied")
}

#[track_caller]
fn release() {
    let released = shield::release(&root(), &dir(), false).expect("the shield can be released");
    assert!(released.is_whole(), "{released:#?}");
}

/// The first network card.
fn card() -> String {
    let names = fs::read_dir("/sys/class/net").expect("there is a network").flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| fs::exists(format!("/sys/class/net/{name}/device")).unwrap_or(false)).expect("a card")
}

/// Steering masks and requested CPUs of every queue of the card.
fn queues(card: &str) -> BTreeMap<String, CpuSet> {
    let mut queues = BTreeMap::new();
    for queue in fs::read_dir(format!("/sys/class/net/{card}/queues")).expect("a card has queues").flatten() {
        for name in ["xps_cpus", "rps_cpus"] {
            if let Ok(mask) = fs::read_to_string(queue.path().join(name)) {
                let mask = CpuSet::from_mask(mask.trim()).expect("the kernel writes masks");
                queues.insert(format!("{} {name}", queue.file_name().to_string_lossy()), mask);
            }
        }
    }
    for (key, irq) in sys::machine::snapshot(&root(), &cpus("2-3")).expect("the machine can be read").irqs {
        if key.0.contains("-input.") || key.0.contains("-output.") {
            queues.insert(key.0, irq.requested);
        }
    }
    queues
}

/// Interrupts of the card's queues on CPUs 2 and 3 so far.
fn reached() -> u64 {
    let text = guest::read("/proc/interrupts");
    let rows = text.lines().filter(|line| line.contains("-input.") || line.contains("-output."));
    let counts = rows.flat_map(|line| line.split_whitespace().skip(3).take(2).map(str::to_owned).collect::<Vec<_>>());
    counts.map(|count| count.parse::<u64>().expect("a count")).sum()
}

/// Sends datagrams from CPUs 0 and 1 in turn, to everybody on the card's network.
fn talk(card: &str) {
    let ip = |words: &[&str]| {
        let status = Command::new("ip").args(words).status().expect("ip can be run");
        assert!(status.success(), "ip {words:?}");
    };
    ip(&["link", "set", card, "up"]);
    ip(&["addr", "replace", "10.77.0.1/24", "broadcast", "10.77.0.255", "dev", card]);
    let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
    socket.set_broadcast(true).expect("a socket may send to everybody");
    for nth in 0..400u32 {
        sys::sched::set_affinity(0, &CpuSet::single((nth % 2) as u16)).expect("housekeeping CPUs are ours");
        // A full queue is no fault here.
        let _ = socket.send_to(&[0; 900], "10.77.0.255:4000");
    }
    sys::sched::set_affinity(0, &cpus("0-1")).expect("housekeeping CPUs are ours");
}

#[test]
fn network_queues_leave_the_shield_and_come_back() {
    begin();
    let card = card();
    let before = queues(&card);
    let there = |queues: &BTreeMap<String, CpuSet>| {
        queues.iter().filter(|(_, mask)| mask.intersects(&cpus("2-3"))).map(|(name, _)| name.clone()).collect()
    };
    let used: Vec<String> = there(&before);
    assert!(
        used.iter().any(|name| name.contains("xps")) && used.iter().any(|name| name.contains("-output.")),
        "{used:?}"
    );
    // A mask that no driver sets.
    let own = format!("/sys/class/net/{card}/queues/rx-1/rps_cpus");
    guest::write(&own, "c");
    let before = queues(&card);
    let applied = apply("2-3", Profile::ControlLoop);
    assert!(applied.drift.is_empty(), "{:#?}", applied.drift);
    let left: Vec<String> = there(&queues(&card));
    assert!(left.is_empty(), "{left:?}");
    // An interrupt moves when it next fires, which is once more where it was.
    talk(&card);
    let quiet = reached();
    talk(&card);
    assert_eq!(reached(), quiet, "an interrupt of a queue reached the shield");
    release();
    assert_eq!(queues(&card), before);
    guest::write(&own, "0");
}

#[test]
fn a_polling_shield_keeps_its_own_kernel_threads_above_a_loop_that_never_sleeps() {
    begin();
    let thread = |name: &str| {
        let snapshot = sys::machine::snapshot(&root(), &cpus("2")).expect("the machine can be read");
        let found = snapshot.tasks.iter().find(|(_, task)| task.comm == name).map(|(key, _)| key.tid);
        sys::sched::scheduling(found.expect(name)).expect("it lives").policy
    };
    let names = ["ktimers/2", "ksoftirqd/2", "rcuc/2", "ktimers/1"];
    let before = names.map(thread);
    assert_eq!(before[1], Policy::OTHER);
    apply("2-3", Profile::Polling);
    let during = names.map(thread);
    assert_eq!(during[..2], [Policy::Fifo(Priority(2)); 2]);
    assert_eq!(during[2].level().max(Policy::Fifo(Priority(4)).level()), during[2].level());
    assert_eq!(during[3], before[3], "another CPU's thread is left alone");
    release();
    assert_eq!(names.map(thread), before);
}

#[test]
fn what_runs_on_the_core_of_a_shielded_cpu_is_said() {
    begin();
    let applied = apply("3", Profile::ControlLoop);
    assert!(applied.notes.iter().any(|note| note.text.contains("--cpus 2-3")), "{:#?}", applied.notes);
    let mut busy = Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().expect("sh can be run");
    sys::sched::set_affinity(busy.id() as i32, &cpus("2")).expect("it is ours");
    let status = shield::watch::status(&root(), &dir(), Duration::from_secs(1));
    busy.kill().expect("it runs");
    busy.wait().expect("it ends");
    let status = status.expect("the shield can be looked at");
    let beside: Vec<(u16, CpuSet)> = status.cpus.iter().map(|cpu| (cpu.cpu, cpu.beside)).collect();
    assert_eq!(beside[2], (2, cpus("3")), "{beside:?}");
    let named = &status.cpus[2].names;
    assert!(named.iter().any(|named| named.name.ends_with(" sh")), "{named:?}");
    release();
}
