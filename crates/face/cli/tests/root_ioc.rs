//! Real-time scans of `tahti ioc`, as root: a FIFO thread at 1 kHz on CPU 1, for a few seconds.

use ca::wire::command;
use harness::circuit::{Circuit, double};
use harness::ioc::Ioc;
use harness::process;
use harness::shield::{Shield, Spinner, interruptions, threads};
use std::sync::{Mutex, PoisonError};

const MENU: &str = "menu(menuScan) { choice(menuScanPassive, \"Passive\") choice(menuScanEvent, \"Event\") \
    choice(menuScanI_O_Intr, \"I/O Intr\") choice(menuScan1_second, \"1 second\") choice(menuScan_001_second, \".001 second\") }";

const DATABASE: &str = r#"
record(calc, "fast") { field(SCAN, ".001 second") field(CALC, "A+1") field(INPA, "fast") field(FLNK, "wave") }
record(waveform, "wave") { field(INP, "fast") field(FTVL, DOUBLE) field(NELM, 100) }
"#;

const OPTIONS: &[&str] = &["-D", "m.dbd", "-d", "t.db", "--require-rt", "--scan", ".001 second=fifo:60@1"];

/// Clients that connect, read, subscribe and disconnect in each round.
const CONNECTS: u32 = 1_000;
/// Requests of each client to the scan thread: a channel, a value, a subscription.
const WAKES: u64 = 3;

/// All tests share CPU 1: a shield with it must not affect parallel tests.
static MACHINE: Mutex<()> = Mutex::new(());

fn start() -> Ioc {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.lines().any(|line| line.starts_with("Uid:\t0\t0")), "this test must run as root");
    Ioc::start(&[("m.dbd", MENU), ("t.db", DATABASE)], OPTIONS)
}

#[test]
fn a_scan_runs_in_the_shield_and_its_ioc_serves_outside_without_interrupting_it() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let shield = Shield::apply();
    if shield.state.contains("cgroup v2") {
        println!("not tested: where the shield is a partition of cgroup v2, a process is in it with all its threads");
        return;
    }
    let environment = [("TAHTI_RUN", shield.run.to_str().unwrap())];
    let ioc = Ioc::start_with(&[("m.dbd", MENU), ("t.db", DATABASE)], OPTIONS, &environment);
    let (scan, others): (Vec<_>, Vec<_>) = threads(ioc.child.id()).into_iter().partition(|(name, _)| name == "scan-0");
    assert_eq!(scan, [("scan-0".to_owned(), "1".to_owned())]);
    assert!(others.len() >= 2 && others.iter().all(|(_, cpus)| cpus == "0"), "{others:?}");
    // A shielded CPU idles between scans. Some machines then wake it with an interrupt in row CAL, others do not. The
    // limit allows for both.
    let connects = u64::from(CONNECTS);
    connect_in_rounds(&ioc, |grew| grew < WAKES * connects + connects / 4);
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn a_scan_thread_has_its_class_cpu_and_memory_and_scanning_allocates_nothing() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ioc = start();
    let thread = process::thread(ioc.child.id(), "scan-0").expect("a thread scan-0");
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!((words[37], words[38]), ("60", "1"), "priority and class FIFO: {stat}");
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    assert!(status.contains("Cpus_allowed_list:\t1\n") && !status.contains("VmLck:\t       0 kB"), "{status}");
    // A few hundred passes. The request for them is a job of the network thread.
    let shown = ioc.until("scanppl", |said| said.contains("lateness") && processed(said) >= 500);
    // The commands themselves allocate lists. Other allocations must be zero: 500 passes of 2 records would exceed
    // the limit.
    let jobs = number_before(&shown, " jobs done");
    assert!(number_before(&shown, " allocations") <= 40 * jobs, "{shown}");
    assert_eq!(ioc.exit(), Some(0));
}

fn number_before(text: &str, word: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with("owner ")).unwrap();
    let head = &line[..line.find(word).unwrap()];
    head.rsplit([' ', ',']).next().unwrap().parse().unwrap()
}

fn processed(text: &str) -> u64 {
    number_before(text, " records processed")
}

#[test]
fn connects_of_clients_do_not_interrupt_the_scans_cpu() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let connects = u64::from(CONNECTS);
    // A busy CPU is woken by row RES. On machines where it is not, each wake-up is counted.
    let _busy = Spinner::start();
    connect_in_rounds(&start(), |grew| grew < connects / 4 || grew.abs_diff(WAKES * connects) < connects / 4);
}

/// Clients connect and disconnect until a round shows that they do not interrupt the scan's CPU.
fn connect_in_rounds(ioc: &Ioc, fine: impl Fn(u64) -> bool) {
    // Other programs on CPU 1 only increase the counts: the quietest of several rounds is the IOC's own share.
    let mut rounds = Vec::new();
    for _ in 0..10 {
        let before = interruptions();
        for number in 0..CONNECTS {
            let mut circuit = Circuit::connect(ioc.port);
            let sid = circuit.create(if number % 2 == 0 { "fast" } else { "wave" });
            circuit.ask(sid, 1);
            assert!(double(&circuit.receive(command::READ_NOTIFY).1) >= 0.0);
            circuit.subscribe(sid, 2);
            circuit.receive(command::EVENT_ADD);
        }
        rounds.push(interruptions() - before);
        println!("TLB and CAL rows of CPU 1 grew by {rounds:?} in {CONNECTS} connects each");
        if rounds.iter().any(|grew| fine(*grew)) {
            return;
        }
    }
    panic!("grew by {rounds:?} in {CONNECTS} connects each");
}
