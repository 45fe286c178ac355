//! Ends of a plant's processes: each kind of end is distinguished from the others, with its evidence. Runs as root,
//! because some ends need real-time classes and a memory limit. Busy loops load the last CPU for a few seconds at
//! most.

use harness::plant::{Bench, sh};
use keep::evidence::{Incident, Kind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group with little memory, removed with the test.
struct LittleMemory(PathBuf);

impl LittleMemory {
    fn new(limit: &str) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (top, file) =
            if v1.exists() { (v1, "memory.limit_in_bytes") } else { (Path::new("/sys/fs/cgroup"), "memory.max") };
        let dir = top.join(format!("tahti-ends-{}", std::process::id()));
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let little = Self(dir);
        let path = little.0.join(file);
        fs::write(&path, limit).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // The group must not use swap space.
        let _ = fs::write(little.0.join("memory.swap.max"), "0");
        let _ = fs::write(little.0.join("memory.memsw.limit_in_bytes"), limit);
        little
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        // A task that has just ended leaves its group a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn incident(process: &serde_json::Value) -> Incident {
    let dir = PathBuf::from(process["evidence"].as_str().unwrap_or_else(|| panic!("evidence of {process}")));
    serde_json::from_str(&fs::read_to_string(dir.join("incident.json")).unwrap()).unwrap()
}

#[test]
fn exit_signal_hang_runaway_starvation_and_out_of_memory_are_distinguished_with_evidence() {
    let cpu = harness::machine::last_cpu();
    let never = "restart = { policy = \"never\" }\n";
    let real_time = |class: &str, keys: &str| format!("{never}class = \"{class}\"\ncpus = \"{cpu}\"\n{keys}");
    // No process ends before all are up: that would be a failed start of the plant.
    let go = "while [ ! -e go ]; do sleep 0.05; done";
    let memory = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n\
                  held = bytearray(1 << 30); held[::4096] = bytes(len(held[::4096]))";
    let hang = "import os, socket, time\nline = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                while not os.path.exists('go'): line.sendto(b'WATCHDOG=1', os.environ['NOTIFY_SOCKET']); time.sleep(0.05)\n\
                time.sleep(1000)";
    let python = |name: &str, script: &str, keys: &str| {
        format!("[[process]]\nname = \"{name}\"\ncommand = [\"python3\", \"-c\", {script:?}]\n{keys}\n")
    };
    // A process that computes continuously, within its allowance. The poller of higher priority leaves it no CPU
    // time.
    let victim = "echo up; i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; sleep 1000";
    let tahti = env!("CARGO_BIN_EXE_tahti");
    let poller = format!(
        "[[process]]\nname = \"poller\"\ncommand = [\"{tahti}\", \"demo\", \"llrf\", \"--wait\", \"spin\", \"--for\", \"2500ms\", \
         \"--channel\", \"ends-{}\"]\nafter = [\"starved\"]\n{}",
        std::process::id(),
        real_time("fifo:20", "budget = \"none\"\nheartbeat = { within = \"2s\" }\n")
    );
    let plant = [
        sh("good", "sleep 0.1", never),
        sh("exit", &format!("{go}; exit 3"), never),
        sh("signal", &format!("{go}; kill -SEGV $$"), never),
        python("hang", hang, &format!("{never}heartbeat = {{ within = \"2s\" }}")),
        sh(
            "runaway",
            &format!("{go}; while :; do :; done"),
            &real_time("fifo:30", "ladder = [\"demote 100ms\", \"kill 10s\"]"),
        ),
        sh(
            "starved",
            victim,
            &real_time("fifo:2", "budget = \"99%/60s\"\nready = { line = \"up\", within = \"60s\" }"),
        ),
        poller,
        python("memory", memory, never),
        // Killed by a signal after memory ran out elsewhere in its control group. This must not be reported as out of
        // memory.
        sh("killed", "while [ ! -e memory-gone ]; do sleep 0.05; done; kill -KILL $$", never),
    ];
    // Declared before the plant, so that it is dropped after it, also if the test fails.
    let little = LittleMemory::new("256M");
    let bench = Bench::new("ends", &plant.concat());
    let script = format!("echo $$ > {}/cgroup.procs && exec {tahti} up . --detach", little.0.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&bench.dir).env("TAHTI_RUN", bench.dir.join("run"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", harness::process::text(&output), bench.log());
    fs::write(bench.dir.join("go"), "").unwrap();
    bench.until("memory exhausted", || bench.process("memory")["ended"].is_array());
    fs::write(bench.dir.join("memory-gone"), "").unwrap();
    bench.until("starved", || bench.process("starved")["evidence"].is_string());
    for name in ["good", "exit", "signal", "hang", "runaway", "memory", "killed"] {
        bench.until(&format!("{name} ended"), || bench.process(name)["ended"].is_array());
    }
    let own = |end: serde_json::Value| serde_json::json!({ "own": end });
    for (name, ended, kind) in [
        ("exit", own(serde_json::json!({ "exit": 3 })), Kind::Exit),
        ("signal", own(serde_json::json!({ "signal": 11 })), Kind::Signal),
        ("hang", "hang".into(), Kind::Hang),
        ("runaway", "runaway".into(), Kind::Runaway),
        ("memory", own("out-of-memory".into()), Kind::OutOfMemory),
        ("killed", own(serde_json::json!({ "signal": 9 })), Kind::Signal),
    ] {
        let process = bench.process(name);
        assert_eq!(process["ended"][1], ended, "{name}\n{}", bench.log());
        bench.until("whole evidence", || incident(&bench.process(name)).exit.is_some());
        let incident = incident(&process);
        assert_eq!(incident.kind, kind, "{name}: {incident:?}");
        assert!(incident.machine.contains_key("MemAvailable"), "{incident:?}");
    }
    assert!(incident(&bench.process("memory")).summary.contains("Killed process"), "the kernel's own message");
    assert!(!incident(&bench.process("hang")).threads.is_empty(), "where it hung");
    let told = |what: &str| incident(&bench.process("runaway")).ladder.iter().any(|entry| entry.what.starts_with(what));
    for what in ["runaway: used", "demoted to time sharing", "sent SIGKILL", "gone"] {
        bench.until(what, || told(what));
    }
    let starved = incident(&bench.process("starved"));
    assert_eq!((starved.kind, starved.exit), (Kind::Starved, None));
    assert_eq!(bench.process("starved")["state"], "running", "starvation ends no process");
    assert!(bench.process("good")["evidence"].is_null(), "a good end leaves no evidence");
    let down = bench.run(&["down"]);
    assert_eq!(down.status.code(), Some(3), "{}", harness::process::text(&down));
}
