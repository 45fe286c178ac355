//! `tahti trace` on the real kernel: the flight recorder, from its start to its end.
//!
//! Each test has a separate folder. A recorder's state in the kernel is an instance of the tracing files.

use harness::{Folder, eventually, tahti};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serialises the tests: each reads all instances.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of recorders. Recorders that run there are ended on drop.
struct Recorders(Folder);

impl Recorders {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn tahti(&self, words: &[&str]) -> Output {
        tahti().args(words).env("TAHTI_RUN", &self.0.0).stdin(Stdio::null()).output().unwrap()
    }

    /// Output of a command that must succeed.
    fn says(&self, words: &[&str]) -> String {
        let output = self.tahti(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Output of a command that must fail.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.tahti(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a recorder for the load's CPU.
    fn records(&self, load: &Load, words: &[&str]) {
        self.says(&[&["trace", "start", "--pid", &load.pid(), "--cpus", "1"], words].concat());
    }

    /// Starts the plant `rf`.
    fn up(&self, plant: &str) -> Up<'_> {
        let file = self.0.write("rf.toml", plant);
        let mut up = tahti();
        up.arg("up").arg(file).env("TAHTI_RUN", &self.0.0).stdin(Stdio::null()).stdout(Stdio::null());
        Up(self, up.spawn().unwrap())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.says(&["trace", "status", "--json"])).unwrap()
    }
}

impl Drop for Recorders {
    fn drop(&mut self) {
        let _ = self.tahti(&["trace", "stop"]);
    }
}

/// A real-time thread that wakes every millisecond on CPU 1, and a more urgent one that sometimes keeps that CPU for
/// 3 ms.
struct Load(Child);

impl Load {
    fn start() -> Self {
        let script = "import os, threading, time\n\
            os.sched_setaffinity(0, [1])\n\
            def hog():\n    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))\n    while True:\n        \
            time.sleep(0.05)\n        end = time.monotonic() + 0.003\n        while time.monotonic() < end: pass\n\
            def hold():\n    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\n    while True: time.sleep(0.001)\n\
            child = os.fork()\n\
            if child == 0:\n    import ctypes\n    ctypes.CDLL(None).prctl(15, b'hog')\n    ctypes.CDLL(None).prctl(1, 9)\n    hog()\n\
            print('ready', flush=True)\nhold()";
        let mut child =
            Command::new("python3").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = done();
        found.is_some()
    });
    found.unwrap()
}

/// Tracing instances of recorders.
fn instances() -> Vec<String> {
    let tracing = sys::tracing::Tracing::mount().unwrap();
    let names = tracing.files().list("instances").unwrap();
    names.into_iter().filter(|name| name.starts_with("tahti-recorder-")).collect()
}

#[test]
fn late_wake_ups_are_named_and_their_windows_kept_while_the_recording_continues() {
    let (_turn, place, load) = (turn(), Recorders::new(), Load::start());
    let before = instances();
    place.records(&load, &["--above", "1ms", "--after", "50ms", "--every", "1s"]);
    assert!(place.fails(&["trace", "start", "--pid", &load.pid()]).contains("a recorder already runs"));
    let hog = "preempted by hog (real-time 60)";
    let status = wait("the hog is named, and two windows kept", || {
        let status = place.status();
        let named = status["culprits"].as_array()?.iter().any(|culprit| culprit[0] == hog);
        (named && status["kept"].as_array()?.len() >= 2).then_some(status)
    });
    assert_eq!(status["lost"]["times"], 0, "{status:#}");
    assert!(status["held_bytes"].as_u64() <= status["held_bytes_max"].as_u64(), "{status:#}");
    let file = place.says(&["trace", "dump", "--reason", "beam lost"]);
    let file = file.trim();
    let found: Value =
        serde_json::from_str(&place.says(&["explain", "--file", file, "--above", "1ms", "--json"])).unwrap();
    let culprits: Vec<&str> =
        found["culprits"].as_array().unwrap().iter().map(|culprit| culprit["text"].as_str().unwrap()).collect();
    assert!(culprits.contains(&hog), "{culprits:?}");
    let chrome: Value = serde_json::from_str(&place.says(&["trace", "export", "--form", "chrome", file])).unwrap();
    assert_eq!(chrome["otherData"]["reason"], "beam lost");
    let events = place.status()["events"].as_u64().unwrap();
    wait("it still records", || (place.status()["events"].as_u64() > Some(events)).then_some(()));
    place.says(&["trace", "stop"]);
    assert_eq!(instances(), before);
    assert!(Path::new(file).exists());
    assert!(place.says(&["trace", "status"]).contains("has ended"), "its results remain readable");
}

#[test]
fn the_oldest_window_is_deleted_for_the_next() {
    let (_turn, place, load) = (turn(), Recorders::new(), Load::start());
    place.records(&load, &["--above", "1s", "--after", "1ms", "--keep", "2"]);
    let files: Vec<String> = (0..4).map(|_| place.says(&["trace", "dump"]).trim().to_owned()).collect();
    wait("two of four remain", || {
        let there: Vec<bool> = files.iter().map(|file| Path::new(file).exists()).collect();
        (there == [false, false, true, true]).then_some(())
    });
}

#[test]
fn everything_left_by_a_killed_recorder_is_removed_by_the_next() {
    let (_turn, place, load) = (turn(), Recorders::new(), Load::start());
    let before = instances();
    place.records(&load, &[]);
    let pid = place.status()["pid"].as_i64().unwrap() as i32;
    let own: Vec<String> = instances().into_iter().filter(|name| !before.contains(name)).collect();
    assert!(!own.is_empty() && own.iter().all(|name| name.starts_with(&format!("tahti-recorder-{pid}-"))), "{own:?}");
    sys::process::Process::open(pid).unwrap().signal(9).unwrap();
    wait("it has ended", || place.fails(&["trace", "stop"]).contains("no recorder runs").then_some(()));
    place.records(&load, &[]);
    assert!(own.iter().all(|name| !instances().contains(name)), "the next recorder removes them");
    place.says(&["trace", "stop"]);
    assert_eq!(instances(), before);
}

#[test]
fn impossible_requests_to_the_recorder_are_refused_with_a_remedy() {
    let (_turn, place) = (turn(), Recorders::new());
    assert!(place.fails(&["trace", "status"]).contains("no recorder runs; start one with `tahti trace start`"));
    assert!(place.fails(&["trace", "start"]).contains("nothing to watch: select threads"));
    assert!(place.fails(&["trace", "start", "--pid", "1", "--cpus", "1000"]).contains("some are not online"));
    let file = place.0.write("odd.trace", "odd");
    let said = place.fails(&["trace", "export", file.to_str().unwrap()]);
    assert!(said.contains("no recording: expected a file of `tahti trace dump`"), "{said}");
    assert!(place.fails(&["explain", "--file", "/no/such.trace"]).contains("/no/such.trace: "));
}

/// A running plant, taken down on drop.
struct Up<'a>(&'a Recorders, Child);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let _ = self.0.tahti(&["down", "rf"]);
        let _ = self.1.wait();
    }
}

#[test]
fn a_plants_recorder_names_culprits_and_keeps_the_window_of_a_fault_with_the_evidence() {
    let (_turn, place, _load) = (turn(), Recorders::new(), Load::start());
    let before = instances();
    // The load's CPU hog has a higher priority than the loop.
    let script = "import time\nprint('armed', flush=True)\nwhile True: time.sleep(0.001)";
    let plant = format!(
        "[plant]\nname = \"rf\"\noperators = \"daemon\"\n[recorder]\nname = \"recorder\"\nabove = \"1ms\"\nwindow_after = \"10ms\"\nrecord = \"1\"\n[[process]]\nname = \"loop\"\n\
         command = [\"python3\", \"-c\", {script:?}]\nclass = \"fifo:40\"\ncpus = \"1\"\nready = {{ line = \"armed\" }}\n\
         restart = {{ policy = \"never\" }}\n"
    );
    let _up = place.up(&plant);
    let top = wait("the hog is named in `tahti top`", || {
        let top = place.tahti(&["top", "rf", "-n", "1"]);
        let top = String::from_utf8_lossy(&top.stdout).into_owned();
        // The culprit is the process of the plant that started it, with the name of its thread.
        (top.contains("hog") && top.contains("(real-time 60)")).then_some(top)
    });
    assert!(top.contains("later than 1ms: "), "{top}");
    let status = place.says(&["trace", "status", "--plant", "rf"]);
    assert!(status.contains("records CPU 1") && status.contains("preempted by ") && status.contains("hog"), "{status}");
    // The plant's operators may only read; other users have no access.
    let folder = place.0.0.join("rf/recorder");
    let by = |gid: u32, program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, gid);
        command.args(words).env("TAHTI_RUN", &place.0.0).current_dir("/").output().unwrap()
    };
    let daemon = 1;
    let file = folder.join("status.json");
    assert!(by(daemon, "cat", &[file.to_str().unwrap()]).status.success());
    assert!(!by(65534, "cat", &[file.to_str().unwrap()]).status.success());
    assert!(!by(daemon, "rm", &[file.to_str().unwrap()]).status.success());
    let socket = format!(
        "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'stop', {:?})",
        folder.join("socket")
    );
    assert!(!by(daemon, "python3", &["-c", &socket]).status.success());
    // A fatal signal that is not from the supervisor.
    let status: Value = serde_json::from_str(&place.says(&["ps", "rf", "--json"])).unwrap();
    let processes = status[0]["processes"].as_array().unwrap();
    let pid = processes.iter().find(|process| process["name"] == "loop").unwrap()["pid"].as_i64().unwrap();
    sys::process::Process::open(pid as i32).unwrap().signal(11).unwrap();
    let incident: Value = wait("evidence is kept", || {
        let folder = std::fs::read_dir(place.0.0.join("rf/evidence")).ok()?.flatten().next()?.path();
        serde_json::from_str(&std::fs::read_to_string(folder.join("incident.json")).ok()?).ok()
    });
    let window = incident["recorder"]["window"].as_str().expect("the recorder received the request").to_owned();
    assert!(incident["recorder"]["last_late"].as_array().is_some_and(|last| !last.is_empty()), "{incident:#}");
    wait("its window is kept", || Path::new(&window).exists().then_some(()));
    let explained = place.says(&["explain", "--file", &window, "--above", "1ms"]);
    assert!(
        explained.starts_with("loop: ") && explained.contains("preempted by ") && explained.contains("hog"),
        "{explained}"
    );
    drop(_up);
    assert_eq!(instances(), before);
}

#[test]
fn the_window_of_an_overrun_is_kept_and_the_log_of_the_frame_names_it() {
    let (_turn, place) = (turn(), Recorders::new());
    // On CPU 0: the load of the other tests uses CPU 1.
    let plant = "[plant]\nname = \"rf\"\n[recorder]\nname = \"recorder\"\nabove = \"1s\"\nwindow_after = \"10ms\"\nrecord = \"0\"\n\
         [[frame]]\nname = \"fast\"\ncpu = 0\nclass = \"fifo:60\"\nminors = 1\nperiod = \"10ms\"\nreserve = \"50us\"\n\
         [[frame.activity]]\nname = \"late\"\nbudget = \"2ms\"\nrecovery = \"skip\"\ntolerate = 100\n\
         [[process]]\nname = \"late\"\nafter = [\"recorder\"]\n\
         command = [\"tahti\", \"demo\", \"activity\", \"fast\", \"late\", \"--work\", \"50us\", \"--bad\", \"30ms\", \"--every\", \"100\"]\n";
    let _up = place.up(plant);
    let said = "for the cause: tahti explain --file ";
    let window = wait("the frame prints the path of the window", || {
        let log = std::fs::read_to_string(place.0.0.join("rf/log/fast.log")).ok()?;
        Some(log.split_once(said)?.1.lines().next()?.trim().to_owned())
    });
    wait("it is kept", || Path::new(&window).exists().then_some(()));
    let explained = place.says(&["explain", "--file", &window]);
    assert!(explained.starts_with("frame fast: pulse ") && explained.contains("late overrun"), "{explained}");
    // The recorder's status names the culprits of the call itself, in the words of `tahti explain`.
    let told: Value = wait("the overrun is among the last that were late", || {
        let status: Value = serde_json::from_str(&place.says(&["trace", "status", "--plant", "rf", "--json"])).ok()?;
        status["last"].as_array()?.iter().find(|late| late["name"] == "fast/late overrun").cloned()
    });
    assert!(told["culprit"].as_str().is_some_and(|culprit| culprit.starts_with("own code")), "{told:#}");
    let sum: i64 = told["parts"].as_array().unwrap().iter().map(|part| part[1].as_i64().unwrap()).sum();
    assert_eq!(Some(sum), told["delay_ns"].as_i64(), "{told:#}");
}
