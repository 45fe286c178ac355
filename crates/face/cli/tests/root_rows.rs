//! Each row of the verdict is broken in a real plant. After the fault at most two observations may still find the promise
//! kept; then the outcome names it. Runs as root. Every task that the test did not start is spared.

use base::MonoNs;
use harness::disk::Disk;
use harness::plant::{Bench, sh};
use harness::process::{alive, kill};
use harness::{fresh, machine::last_cpu};
use host::health::Claim;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Harm = Box<dyn Fn(&Bench)>;

/// One fault of one row.
struct Fault {
    claim: Claim,
    subject: String,
    fault: &'static str,
    /// Causes the fault. `None`: the process causes it by itself.
    harm: Option<Harm>,
}

fn own(claim: Claim, subject: &str, fault: &'static str) -> Fault {
    Fault { claim, subject: subject.to_owned(), fault, harm: None }
}

fn way(claim: Claim, subject: &str, fault: &'static str, harm: impl Fn(&Bench) + 'static) -> Fault {
    Fault { harm: Some(Box::new(harm)), ..own(claim, subject, fault) }
}

/// Numbers of all tests so far.
#[derive(Default)]
struct Total {
    rows: usize,
    ways: usize,
    wrong: usize,
}

/// Serialises the tests, which share the machine, and checks that they can run.
fn turn() -> MutexGuard<'static, Total> {
    static TURN: Mutex<Total> = Mutex::new(Total { rows: 0, ways: 0, wrong: 0 });
    last_cpu();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Observations that may still find a promise kept after its fault. A new claim without an entry does not compile: give it
/// a way below. Root is refused nothing on this machine: `plant.rs` has the way of `Available`, without privileges.
fn kept_max(claim: Claim) -> usize {
    use Claim::*;
    match claim {
        // Its loop may be in its longest pass.
        Serves => 2 + 6,
        Runs | Ready | Class | Threads | Cpus | Memory | Restarts | Heartbeat | Budget | Skipped | Value | Deadline
        | Stops | Fits | SafeOutput | Available => 2,
        Isolated | Journal | Bounds | Observes | Files | Records | Restored => 2,
    }
}

fn word(claim: Claim) -> String {
    serde_json::to_value(claim).unwrap().as_str().unwrap().to_owned()
}

fn row_of<'a>(status: &'a serde_json::Value, way: &Fault) -> &'a serde_json::Value {
    let rows = status["health"].as_array().unwrap();
    let found = rows.iter().find(|row| row["subject"] == *way.subject && row["claim"] == *word(way.claim));
    found.unwrap_or_else(|| panic!("{} {} in {status}", way.subject, word(way.claim)))
}

/// Whether the outcome has this row as a reason.
fn is_named(status: &serde_json::Value, way: &Fault) -> bool {
    let promise = &row_of(status, way)["promise"];
    let reasons = status["reasons"].as_array().into_iter().flatten();
    reasons.into_iter().any(|reason| reason["subject"] == *way.subject && reason["promise"] == *promise)
}

/// Causes the fault of each way and waits until the outcome names its row. Fails if one went wrong.
fn try_all(total: &mut Total, bench: &Bench, ways: &[Fault], outcome: &str) {
    let mut wrong = Vec::new();
    for way in ways {
        let shown = format!("{} {}, {}", way.subject, word(way.claim), way.fault);
        let harmed = way.harm.as_ref().map(|harm| {
            // A shield has limits where the kernel moves no interrupt.
            bench.until(&format!("{shown} not yet"), || {
                ["kept", "within"].contains(&row_of(&bench.status(), way)["state"].as_str().unwrap())
            });
            harm(bench);
            sys::clock::mono_now()
        });
        let mut kept = BTreeSet::new();
        bench.until(&format!("{shown} is a reason"), || {
            let status = bench.status();
            let row = row_of(&status, way);
            let observed = MonoNs(row["observed"].as_u64().unwrap_or(0));
            if row["state"] == "kept" && harmed.is_some_and(|harmed| observed > harmed) {
                kept.insert(observed);
            }
            // A row may already be the reason of a lesser outcome.
            status["outcome"] == outcome && is_named(&status, way)
        });
        let found = bench.status()["outcome"].clone();
        if found != outcome {
            wrong.push(format!("{shown}: the outcome is {found} afterwards, expected {outcome}"));
        }
        if kept.len() > kept_max(way.claim) {
            wrong.push(format!("{shown}: {} observations after the fault found it kept", kept.len()));
        }
    }
    total.rows += ways.iter().map(|way| (&way.subject, way.claim)).collect::<BTreeSet<_>>().len();
    total.ways += ways.len();
    total.wrong += wrong.len();
    println!("so far {} rows, {} ways, {} wrong", total.rows, total.ways, total.wrong);
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", bench.log());
}

fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn signal(process: &'static str, signal: &'static str) -> impl Fn(&Bench) {
    move |bench| kill(bench.pid(process), signal)
}

/// A program that keeps its promises until SIGUSR1. Its interpreter is no script that executes another one: `execve` unlocks memory.
const PROGRAM: &str = r#"
import ctypes, os, signal, socket, sys, time
harmed = False
def harm(*_):
    global harmed
    harmed = True
    if sys.argv[1] == "memory":
        ctypes.CDLL(None).munlockall()
    if sys.argv[1] == "budget":
        end = time.monotonic() + 2
        while time.monotonic() < end:
            pass
signal.signal(signal.SIGUSR1, harm)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if sys.argv[1] == "heartbeat":
    notify.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
while True:
    if sys.argv[1] == "heartbeat" and not harmed:
        notify.send(b"WATCHDOG=1")
    time.sleep(0.1)
"#;

fn program(name: &str, keys: &str) -> String {
    format!("[[process]]\nname = \"{name}\"\ncommand = [\"/usr/bin/python3\", \"program.py\", \"{name}\"]\n{keys}\n")
}

/// A loop that is late once, by 2 s.
fn late(name: &str, keys: &str) -> String {
    let channel = fresh(name);
    format!(
        "[[process]]\nname = \"{name}\"\ncommand = \"tahti demo llrf --period 10ms --runaway-after 100ms --channel {channel}\"\n\
         heartbeat = {{ within = \"30s\" }}\nready = {{ line = \"armed\" }}\n{keys}\n"
    )
}

#[test]
fn each_broken_promise_of_a_process_fails_the_plant_within_two_intervals() {
    let mut total = turn();
    let last = last_cpu();
    let never = "restart = { policy = \"never\" }";
    let sleeps = |name: &str, keys: &str| sh(name, "exec sleep 1000", keys);
    let text = sleeps("stopped", "")
        + &sleeps("killed", never)
        + &sh("exits", "sleep 2; exit 7", never)
        + &sh("unsafe", "sleep 2; exit 7", "on_fault = [\"false\"]\nrestart = { policy = \"never\" }")
        + &sh("often", "sleep 0.5; exit 7", "restart = { backoff = \"0s\", limit = 2 }")
        + &sh(
            "unready",
            "[ -e once ] || echo up; touch once; exec sleep 1000",
            "ready = { line = \"up\", within = \"1s\" }",
        )
        + &sleeps("class", "class = \"fifo:20\"\nbudget = \"99%/1s\"")
        + &sleeps("priority", "class = \"fifo:20\"\nbudget = \"99%/1s\"")
        + &sleeps("other", "class = \"other\"")
        + &sleeps("nice", "nice = -5")
        + &sleeps("cpus", "")
        + &program("memory", "mlock = true")
        + &program("heartbeat", "heartbeat = { within = \"1s\" }\nrestart = { policy = \"never\" }")
        + &program("budget", "class = \"fifo:2\"\nbudget = \"20%/500ms\"\nrestart = { policy = \"never\" }")
        + &late("skipped", "miss_ratio_max = \"0.1%\"")
        + &late("value", "deadline = { at = \"1s\", kind = \"soft\", value = \"linear 10s\", least = \"100%\" }")
        + &late("deadline", "deadline = { at = \"300ms\", kind = \"hard\" }");
    let bench = Bench::new("rows-process", &text);
    fs::write(bench.dir.join("program.py"), PROGRAM).unwrap();
    bench.run(&["up", ".", "--detach"]);
    let ways = [
        own(Claim::Runs, "exits", "exit 7, never restarted"),
        own(Claim::SafeOutput, "unsafe", "its command fails"),
        own(Claim::Runs, "often", "more restarts than the limit"),
        own(Claim::Skipped, "skipped", "more than miss_ratio_max"),
        own(Claim::Value, "value", "less than least"),
        own(Claim::Deadline, "deadline", "a hard deadline is missed"),
        way(Claim::Ready, "unready", "no sign of readiness after a restart", signal("unready", "KILL")),
        way(Claim::Runs, "stopped", "SIGSTOP", signal("stopped", "STOP")),
        way(Claim::Runs, "killed", "SIGKILL, never restarted", signal("killed", "KILL")),
        way(Claim::Class, "class", "chrt -o", |bench| run(&["chrt", "-o", "-p", "0", &bench.pid("class").to_string()])),
        way(Claim::Class, "priority", "chrt -f 10", |bench| {
            run(&["chrt", "-f", "-p", "10", &bench.pid("priority").to_string()])
        }),
        way(Claim::Class, "other", "chrt -f 2", |bench| {
            run(&["chrt", "-f", "-p", "2", &bench.pid("other").to_string()]);
        }),
        way(Claim::Class, "nice", "renice", |bench| run(&["renice", "-n", "10", "-p", &bench.pid("nice").to_string()])),
        way(Claim::Cpus, "cpus", "taskset", move |bench| {
            // A thread is compared once it had its CPUs.
            let first = bench.row("cpus", "cpus")["observed"].as_u64().unwrap();
            bench.until("observed again", || bench.row("cpus", "cpus")["observed"].as_u64().unwrap() > first);
            run(&["taskset", "-pc", &last, &bench.pid("cpus").to_string()]);
        }),
        way(Claim::Memory, "memory", "munlockall", signal("memory", "USR1")),
        way(Claim::Heartbeat, "heartbeat", "no heartbeats", signal("heartbeat", "USR1")),
        way(Claim::Budget, "budget", "a loop without end", signal("budget", "USR1")),
    ];
    try_all(&mut total, &bench, &ways, "failed");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn what_happens_within_its_limit_degrades_the_plant() {
    let mut total = turn();
    let text = sh("restarted", "exec sleep 1000", "restart = { backoff = \"0s\" }")
        + &sh("ruled", "exec sleep 1000", "threads = [{ match = \"nosuch-*\", class = \"fifo:60\" }]")
        + &late("skipped", "")
        + &late("value", "deadline = { at = \"1s\", kind = \"firm\", least = \"1%\" }");
    let bench = Bench::new("rows-limits", &text);
    bench.ok(&["up", ".", "--detach"]);
    let ways = [
        way(Claim::Restarts, "restarted", "SIGKILL", signal("restarted", "KILL")),
        own(Claim::Threads, "ruled", "no thread matches"),
        own(Claim::Skipped, "skipped", "each one degrades the plant"),
        own(Claim::Value, "value", "late, more than least"),
    ];
    try_all(&mut total, &bench, &ways, "degraded");
    assert_eq!(bench.down().0, Some(4));
}

#[test]
fn each_service_that_stops_fails_the_plant() {
    let mut total = turn();
    let (messages, tree) = (fresh("rows"), fresh("tree"));
    let text = format!(
        "[messages]\nname = \"{messages}\"\n[[equipment]]\nname = \"em\"\nfile = \"em.toml\"\nserver = \"{messages}\"\n\
         [[ioc]]\nname = \"ioc\"\nload = [{{ file = \"t.db\" }}]\n[archive]\nname = \"archive\"\nfolder = \"archive\"\n\
         [[signal]]\nnames = [\"V:NONE\"]\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n\
         [recorder]\nname = \"recorder\"\nwatch = \"*\"\n[dashboard]\nname = \"dashboard\"\n"
    );
    let bench = Bench::new("rows-services", &text);
    let equipment = "[manager]\nname = \"magnets\"\n[[device]]\nname = \"b\"\ndriver = \"power-supply\"\n\
        [[map]]\nverb = \"get\"\nobject = \"sr_{name}\"\ncomplement = \"current\"\ndevice = \"{name}\"\npoint = \"current\"\n";
    fs::write(bench.dir.join("em.toml"), equipment).unwrap();
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(SCAN, \"10 second\") }").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let services = [messages, "em".into(), "ioc".into(), "archive".into(), "alarms".into(), "recorder".into()];
    let ways: Vec<Fault> = services
        .into_iter()
        .chain(["dashboard".to_owned()])
        .map(|name| {
            let service = name.clone();
            way(Claim::Serves, &name, "SIGSTOP", move |bench| kill(bench.pid(&service), "STOP"))
        })
        .collect();
    try_all(&mut total, &bench, &ways, "failed");
    assert_eq!(bench.down().0, Some(3));
}

/// A file that another program overwrote. Dropping it writes the old text again.
struct Overwritten(PathBuf, String);

impl Overwritten {
    fn new(path: impl AsRef<Path>, text: &str) -> Self {
        let path = path.as_ref().to_owned();
        let old = fs::read_to_string(&path).unwrap();
        assert_ne!(old.trim(), text, "another value than {}'s", path.display());
        fs::write(&path, text).unwrap();
        Self(path, old)
    }
}

impl Drop for Overwritten {
    fn drop(&mut self) {
        // The plant may have removed the file meanwhile.
        let _ = fs::write(&self.0, &self.1);
    }
}

/// The directory of the plant's only partition in the hierarchy that has this file.
fn partition_file(file: &str) -> PathBuf {
    let below =
        |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let mut all = vec![PathBuf::from("/sys/fs/cgroup")];
    for _ in 0..6 {
        all = all.iter().flat_map(|dir| below(dir)).filter(|path| path.is_dir()).collect();
        let own = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tahti-p."));
        if let Some(found) = all.iter().filter(own).map(|path| path.join(file)).find(|path| path.exists()) {
            return found;
        }
    }
    panic!("no partition with a file {file} below /sys/fs/cgroup");
}

fn shield() -> String {
    format!("[shield]\ncpus = \"{}\"\nrequired = true\n", last_cpu())
}

const STAT_INTERVAL: &str = "/proc/sys/vm/stat_interval";

#[test]
fn a_changed_shield_or_partition_or_run_folder_fails_the_plant() {
    let mut total = turn();
    let text = shield()
        + "[[partition]]\nname = \"hmi\"\ntasks_max = 24\n"
        + &sh("a", "exec sleep 1000", "partition = \"hmi\"");
    let bench = Bench::new("rows-machine", &text);
    bench.ok(&["up", ".", "--detach"]);
    let put_back = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let overwrite = |path: fn() -> PathBuf, value: &'static str| {
        let put_back = put_back.clone();
        move |_: &Bench| put_back.borrow_mut().push(Overwritten::new(path(), value))
    };
    let ways = [
        way(Claim::Isolated, "shield", "a setting is changed", overwrite(|| STAT_INTERVAL.into(), "7")),
        way(Claim::Bounds, "partition hmi", "a limit is changed", overwrite(|| partition_file("pids.max"), "25")),
        way(Claim::Journal, "shield", "the journal is removed", |bench| {
            fs::remove_file(bench.dir.join("run/shield.json")).unwrap();
        }),
        way(Claim::Files, "supervisor", "the state is removed", |bench| {
            fs::remove_file(bench.dir.join("run/p/state.json")).unwrap();
        }),
        way(Claim::Files, "supervisor", "the lock is removed", |bench| {
            fs::remove_file(bench.dir.join("run/p/lock")).unwrap();
        }),
    ];
    try_all(&mut total, &bench, &ways, "failed");
    put_back.borrow_mut().clear();
    assert_eq!(bench.down().0, Some(3));
}

/// A mount that is removed on drop.
struct Mount(PathBuf);

impl Mount {
    fn new(words: &[&str], at: &Path) -> Self {
        run(&[&["mount"], words, &[at.to_str().unwrap()]].concat());
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A lazy unmount always succeeds.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_machine_that_cannot_be_restored_fails_the_plant_at_its_end() {
    let mut total = turn();
    let before = fs::read_to_string(STAT_INTERVAL).unwrap();
    let bench = Bench::new("rows-restored", &(shield() + &sh("a", "exec sleep 1000", "")));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let read_only = Mount::new(&["--bind", "-o", "ro", STAT_INTERVAL], Path::new(STAT_INTERVAL));
    let (code, said) = bench.down();
    drop(read_only);
    bench.ok(&["shield", "release"]);
    assert_eq!(fs::read_to_string(STAT_INTERVAL).unwrap(), before);
    assert!(code == Some(3) && said.contains("failed: machine: "), "{said}");
    (total.rows, total.ways) = (total.rows + 1, total.ways + 1);
}

#[test]
fn a_full_disk_of_the_logs_and_a_stopped_supervisor_fail_the_plant() {
    let mut total = turn();
    let bench = Bench::new("rows-supervisor", &sh("a", "exec sleep 1000", ""));
    let run_folder = bench.dir.join("run");
    let disk = Disk::mount(run_folder, "2m");
    bench.ok(&["up", ".", "--detach"]);
    let ways = [
        way(Claim::Records, "supervisor", "the disk is full", |bench| {
            let fill = bench.dir.join("run/fill");
            // The disk ends the write.
            let _ = fs::write(fill, vec![0; 4 << 20]);
        }),
        way(Claim::Observes, "supervisor", "SIGSTOP", |bench| {
            let _ = fs::remove_file(bench.dir.join("run/fill"));
            let supervisor = bench.supervisor();
            kill(supervisor, "STOP");
            // Each request waits for more than two intervals.
            assert!(!bench.run(&["ps", "p"]).status.success());
            kill(supervisor, "CONT");
            assert!(alive(supervisor));
        }),
    ];
    try_all(&mut total, &bench, &ways, "failed");
    assert_eq!(bench.down().0, Some(3));
    drop(disk);
}
