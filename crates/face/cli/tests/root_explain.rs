//! `tahti explain` on the real kernel: the culprits that the test creates are ranked first; unrelated ones are set
//! apart.
//!
//! A thread of the test wakes every millisecond on CPU 1 in a real-time class, and another thread delays it.

use base::{CpuSet, DurNs, MonoNs, Policy, Priority};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use sys::sched::Scheduling;

const PERIOD: DurNs = DurNs::from_ms(1);
/// CPU of the watched thread.
const CPU: u16 = 1;

/// Serialises the tests: all use the same CPU.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tahti(words: &[&str]) -> Output {
    assert!(
        std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t0")),
        "this test must run as root (--unprivileged leaves it out)"
    );
    Command::new(env!("CARGO_BIN_EXE_tahti")).arg("explain").args(words).stdin(Stdio::null()).output().unwrap()
}

/// Report of `tahti explain` for `tid` on its CPU.
fn explain(tid: i32, words: &[&str]) -> Value {
    let tid = tid.to_string();
    let output = tahti(&[&["--tid", &tid, "--cpus", "1", "--for", "2s", "--json"], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    for late in found["worst"].as_array().unwrap() {
        let sum: u64 = late["parts"].as_array().unwrap().iter().map(|part| part["part_ns"].as_u64().unwrap()).sum();
        assert_eq!(sum, late["ran_ns"].as_u64().unwrap() - late["due_ns"].as_u64().unwrap(), "{late}");
    }
    found
}

/// The culprits, in order of descending delay.
fn named(found: &Value) -> Vec<String> {
    let culprits = found["culprits"].as_array().unwrap();
    culprits.iter().map(|culprit| culprit["text"].as_str().unwrap().to_owned()).collect()
}

/// Sets the calling thread's CPU, name and FIFO priority (0: time sharing).
fn become_a(name: &str, cpu: u16, priority: u8) {
    sys::thread::set_name(name).unwrap();
    sys::sched::set_affinity(0, &CpuSet::single(cpu)).unwrap();
    if priority > 0 {
        let policy = Policy::Fifo(Priority(priority));
        sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: false }).unwrap();
    }
}

/// Keeps the CPU busy for `span`.
fn burn(span: DurNs) {
    let until = sys::clock::mono_now() + span;
    while sys::clock::mono_now() < until {}
}

/// Ends the threads of a test, also if it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the watched thread, which runs `work` in each cycle. Returns its thread id.
fn victim<'s>(scope: &'s Scope<'s, '_>, stop: &'s AtomicBool, mut work: impl FnMut(u64) + Send + 's) -> i32 {
    static TID: AtomicI32 = AtomicI32::new(0);
    TID.store(0, Ordering::Relaxed);
    scope.spawn(move || {
        become_a("victim", CPU, 50);
        TID.store(sys::thread::id(), Ordering::Relaxed);
        let mut due = MonoNs(sys::clock::mono_now().0 / 1_000_000 * 1_000_000);
        for cycle in 0.. {
            due = due + PERIOD;
            sys::clock::sleep_until(due);
            work(cycle);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    loop {
        match TID.load(Ordering::Relaxed) {
            0 => std::thread::yield_now(),
            tid => return tid,
        }
    }
}

/// Runs `work` repeatedly, with `pause` in between.
fn culprit<'s>(
    scope: &'s Scope<'s, '_>,
    stop: &'s AtomicBool,
    (name, cpu, priority): (&'s str, u16, u8),
    pause: DurNs,
    mut work: impl FnMut() + Send + 's,
) {
    scope.spawn(move || {
        become_a(name, cpu, priority);
        while !stop.load(Ordering::Relaxed) {
            work();
            sys::clock::sleep_until(sys::clock::mono_now() + pause);
        }
    });
}

#[test]
fn a_more_urgent_hog_is_named_with_its_priority() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| {});
        culprit(scope, &stop, ("hog", CPU, 90), DurNs::from_ms(17), || burn(DurNs::from_us(2_500)));
        let found = explain(tid, &[]);
        assert_eq!(named(&found).first().map(String::as_str), Some("preempted by hog (real-time 90)"), "{found:#}");
        assert!(found["wakeups"].as_u64().unwrap() > 500, "{found:#}");
    });
}

#[test]
fn an_overrun_of_a_thread_itself_is_attributed_to_its_code() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |cycle| {
            if cycle % 25 == 0 {
                burn(DurNs::from_ms(4));
            }
        });
        let found = explain(tid, &["--cycle-above", "2ms"]);
        // A busy host delays timers of an idle CPU by more than the test injects.
        let machines = ["host", "timer interrupt", "idle exit"];
        let injected = named(&found).into_iter().find(|name| !machines.iter().any(|word| name.starts_with(word)));
        assert_eq!(injected.as_deref(), Some("own code"), "{found:#}");
        let occasions: Vec<_> = found["worst"].as_array().unwrap().iter().map(|late| &late["occasion"]).collect();
        assert!(occasions.iter().any(|occasion| *occasion == "timer"), "{found:#}");
    });
}

/// The number of delays of which at least half is within an injection, and how many of them rank `kind` first.
fn named_first(found: &Value, injected: &[[u64; 2]], kind: &str) -> (usize, usize) {
    let trials = found["worst"].as_array().unwrap().iter().filter(|late| {
        let [due, ran] = ["due_ns", "ran_ns"].map(|key| late[key].as_u64().unwrap());
        let within = injected.iter().map(|[from, to]| ran.min(*to).saturating_sub(due.max(*from))).sum::<u64>();
        within * 2 >= ran - due
    });
    let first = |late: &Value| {
        let mut sums = std::collections::BTreeMap::<String, u64>::new();
        for part in late["parts"].as_array().unwrap() {
            *sums.entry(part["culprit"]["kind"].as_str().unwrap().to_owned()).or_default() +=
                part["part_ns"].as_u64().unwrap();
        }
        sums.into_iter().max_by_key(|(_, ns)| *ns).is_some_and(|(first, _)| first == kind)
    };
    let named: Vec<bool> = trials.map(first).collect();
    (named.iter().filter(|named| **named).count(), named.len())
}

#[test]
fn nineteen_of_twenty_injected_delays_name_their_culprit_first() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    let injected = Mutex::new(Vec::new());
    let inject = |span: DurNs| {
        let from = sys::clock::mono_now().0;
        burn(span);
        injected.lock().unwrap().push([from, sys::clock::mono_now().0]);
    };
    let words = ["--above", "1ms", "--worst", "1000"];
    let by_others = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| {});
        culprit(scope, &stop, ("hog", CPU, 90), DurNs::from_ms(17), || inject(DurNs::from_us(2_500)));
        let found = explain(tid, &words);
        named_first(&found, &injected.lock().unwrap(), "preempted")
    });
    injected.lock().unwrap().clear();
    stop.store(false, Ordering::Relaxed);
    let by_itself = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |cycle| {
            if cycle % 25 == 0 {
                inject(DurNs::from_ms(4));
            }
        });
        let found = explain(tid, &words);
        named_first(&found, &injected.lock().unwrap(), "own")
    });
    for (what, (named, trials)) in [("a hog", by_others), ("own code", by_itself)] {
        println!("{what}: named first in {named} of {trials}");
        assert!(trials >= 20 && named * 20 >= trials * 19, "{what}: {named} of {trials}");
    }
}

#[test]
fn a_delay_by_page_faults_is_attributed_to_own_code_with_its_faults() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |cycle| {
            if cycle % 25 == 0 {
                // Fresh pages each time: the allocator always returns a block of this size to the kernel at once.
                let mut pages = vec![0u8; 40 << 20];
                pages.iter_mut().step_by(4096).for_each(|page| *page = 1);
                std::hint::black_box(&pages);
            }
        });
        let found = explain(tid, &[]);
        let first = named(&found).first().cloned().unwrap_or_default();
        let faults: u64 = found["worst"].as_array().unwrap().iter().map(|late| late["faults"].as_u64().unwrap()).sum();
        assert!(faults > 0, "{found:#}");
        assert!(first.starts_with("own code"), "{found:#}");
    });
}

#[test]
fn interrupts_between_cpus_are_named_with_their_sender() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| {});
        // Both threads share an address space: CPU 1 must flush each mapping that CPU 0 removes.
        culprit(scope, &stop, ("neighbour", CPU, 0), DurNs(0), || burn(DurNs::from_ms(3)));
        culprit(scope, &stop, ("mapper", 0, 0), DurNs(0), || {
            let mut page = vec![0u8; 40 << 20];
            page[0] = 1;
            std::hint::black_box(&page);
        });
        let found = explain(tid, &["--above", "1us"]);
        let sender =
            named(&found).into_iter().find(|name| name.starts_with("function call interrupt from mapper on CPU 0"));
        assert!(sender.is_some(), "{:#?}", named(&found));
    });
}

/// A Python program, killed on drop.
struct Script(std::process::Child);

impl Script {
    /// Starts a thread `neighbour` that computes on the watched thread's CPU. The first thread, named `maker`,
    /// repeats `work` on CPU 0.
    fn beside(work: &str) -> Self {
        let script = format!(
            "import ctypes, hashlib, mmap, os, threading\nlibc = ctypes.CDLL(None)\n\
             def neighbour():\n    os.sched_setaffinity(0, [{CPU}])\n    libc.prctl(15, b'neighbour')\n    \
             while True: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 500000)\n\
             os.sched_setaffinity(0, [0])\nlibc.prctl(1, 9)\nlibc.prctl(15, b'maker')\n\
             threading.Thread(target=neighbour, daemon=True).start()\nlibc.prctl(15, b'maker')\n{work}"
        );
        let mut program = Command::new("python3");
        Self(program.args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Senders of function calls to the watched thread's CPU while `work` runs.
fn senders_beside(work: &str) -> Vec<String> {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| {});
        let _script = Script::beside(work);
        named(&explain(tid, &["--above", "1us"])).into_iter().filter(|name| name.contains("function call")).collect()
    })
}

#[test]
fn a_memory_barrier_over_all_cpus_is_named_with_its_sender() {
    // Registers for the expedited private barrier, then issues it.
    let senders = senders_beside("libc.syscall(324, 16, 0, 0)\nwhile True: libc.syscall(324, 8, 0, 0)");
    let expected = "function call interrupt from maker on CPU 0 for ipi_mb";
    assert!(senders.iter().any(|name| name == expected), "{senders:#?}");
}

#[test]
fn a_change_of_protection_in_a_shared_address_space_is_named_with_its_sender() {
    let work = "room = mmap.mmap(-1, 1 << 20)\nat = ctypes.addressof(ctypes.c_char.from_buffer(room))\n\
                while True:\n    ctypes.memset(at, 1, 1 << 20)\n    libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(1 << 20), 1)\n    \
                libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(1 << 20), 3)";
    let senders = senders_beside(work);
    let expected = "function call interrupt from maker on CPU 0 for flush_tlb_func";
    assert!(senders.iter().any(|name| name == expected), "{senders:#?}");
}

#[test]
fn the_owner_of_a_mutex_without_priority_inheritance_is_named() {
    let (_turn, stop, lock) = (turn(), AtomicBool::new(false), Mutex::new(()));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| drop(lock.lock().unwrap()));
        culprit(scope, &stop, ("holder", CPU, 0), DurNs::from_ms(11), || {
            let _held = lock.lock().unwrap();
            burn(DurNs::from_ms(3));
        });
        // Its priority is between the two: it keeps the lock holder from its CPU.
        culprit(scope, &stop, ("middle", CPU, 40), DurNs::from_ms(7), || burn(DurNs::from_ms(2)));
        let found = explain(tid, &["--cycle-above", "2ms"]);
        assert_eq!(named(&found).first().map(String::as_str), Some("waited for holder"), "{found:#}");
    });
}

#[test]
fn soft_interrupts_of_the_network_are_named() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap();
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |_| {});
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        culprit(scope, &stop, ("sender", CPU, 0), DurNs(0), move || {
            // The receiver never reads, so its full queue drops the datagrams. The kernel's work is the same.
            (0..500).for_each(|_| _ = sender.send_to(&[0; 1400], to));
        });
        let found = explain(tid, &["--above", "1us"]);
        assert!(named(&found).iter().any(|name| name == "softirq NET_RX"), "{:#?}", named(&found));
    });
}

#[test]
fn a_stopped_program_is_distinguished_from_a_late_one() {
    let _turn = turn();
    // In a real-time class, so that other load does not affect it.
    let script = "import os, time\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\n\
                  print('ready', flush=True)\nwhile True: time.sleep(0.002)";
    let mut program = Command::new("python3");
    program.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let pid = program.id() as i32;
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let _stop = Stop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sys::process::Process::open(pid).unwrap().signal(19).unwrap();
                sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(30));
                sys::process::Process::open(pid).unwrap().signal(18).unwrap();
                sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(50));
            }
        });
        tahti(&["--pid", &pid.to_string(), "--for", "2s", "--json"])
    });
    program.kill().unwrap();
    program.wait().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(named(&found).first().map(String::as_str), Some("stopped by a signal"), "{found:#}");
}

#[test]
fn explain_leaves_no_tracing_instance_behind_also_after_a_kill() {
    let _turn = turn();
    let tracing = sys::tracing::Tracing::mount().unwrap();
    let ours = || {
        let names = tracing.files().list("instances").unwrap();
        names.into_iter().filter(|name| name.starts_with("tahti-recorder-")).collect::<Vec<_>>()
    };
    let before = ours();
    // An instance of another program is kept, whatever its name.
    let theirs = format!("not-tahti-recorder-{}-1", std::process::id());
    let foreign = sys::tracing::Instance::make(&tracing.place(), &theirs).unwrap();
    let program =
        Command::new(env!("CARGO_BIN_EXE_tahti")).args(["explain", "--pid", "1"]).stdout(Stdio::null()).spawn();
    let mut killed = program.unwrap();
    let name = format!("tahti-recorder-{}-", killed.id());
    while !ours().iter().any(|of| of.starts_with(&name)) {
        assert!(killed.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(ours().iter().any(|of| of.starts_with(&name)), "the kernel removed it");
    let output = tahti(&["--pid", &std::process::id().to_string(), "--for", "100ms"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = ours().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(left, Vec::<String>::new());
    assert!(tracing.files().exists(&format!("instances/{theirs}")));
    drop(foreign);
}

#[test]
fn events_that_the_thread_itself_reports_are_counted_and_shown_with_its_delays() {
    let (_turn, stop) = (turn(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let tid = victim(scope, &stop, |cycle| {
            rt::program_event("cycle", cycle as i64).unwrap();
            if cycle % 25 == 0 {
                burn(DurNs::from_ms(4));
            }
        });
        let found = explain(tid, &["--cycle-above", "2ms"]);
        assert!(found["program_events"]["cycle"].as_u64().unwrap() > 500, "{found:#}");
        assert_eq!(found["program_events_lost"], 0);
        let worst = found["worst"].as_array().unwrap();
        assert!(!worst.is_empty(), "{found:#}");
        for late in worst {
            // Each cycle reports one event: they are in order. A busy host may make wake-ups later than any cycle is long.
            let events = late["program_events"].as_array().unwrap();
            assert!(events.iter().all(|event| event["name"] == "cycle"), "{late:#}");
            let values: Vec<i64> = events.iter().map(|event| event["value"].as_i64().unwrap()).collect();
            assert!(values.windows(2).all(|pair| pair[1] == pair[0] + 1), "{values:?}");
            if late["occasion"] == "cycle" {
                assert_eq!(values.last().map(|value| value % 25), Some(0), "{late:#}");
            }
        }
        assert!(worst.iter().any(|late| !late["program_events"].as_array().unwrap().is_empty()), "{found:#}");
    });
}

#[test]
fn threads_that_cannot_be_watched_are_reported() {
    let said = |words: &[&str]| {
        let output = tahti(words);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&[]).contains("nothing to watch: select threads"), "{}", said(&[]));
    assert!(said(&["--tid", "2147483646"]).contains("--tid 2147483646: no such thread"));
    assert!(said(&["--pid", "2147483646"]).contains("--pid 2147483646: no such process; "));
    assert!(said(&["--tid", "1", "--cpus", "1000"]).contains("not all of them are online"));
    assert!(said(&["--name", "no-such-*", "--for", "50ms"]).contains("no thread is named \"no-such-*\""));
    assert!(said(&["--", "/no/such/program"]).contains("`/no/such/program` could not be started"));
}
