//! `tahti run` with real-time classes, as root. Runaway processes use one CPU for well under a second.

use keep::evidence::{Incident, Kind};
use std::process::{Command, Output, Stdio};

fn run(words: &[&str]) -> Output {
    assert!(
        std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t0")),
        "this test must run as root (--unprivileged leaves it out)"
    );
    Command::new(env!("CARGO_BIN_EXE_tahti")).arg("run").args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_program_gets_its_class_cpus_and_memory_lock() {
    let script = "cut -d' ' -f40,41 /proc/self/stat; grep Cpus_allowed_list /proc/self/status; ulimit -n";
    let output = run(&["--policy", "rr:7", "--cpus", "1", "--require-rt", "--", "sh", "-c", script]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("7 2\nCpus_allowed_list:\t1\n"), "{text} {}", String::from_utf8_lossy(&output.stderr));
    let output = run(&["--mlock", "--require-rt", "--", "grep", "VmLck", "/proc/self/status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("VmLck") && !text.contains(" 0 kB"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_reservation_is_not_inherited_so_that_its_process_may_fork() {
    // Field 41 is the policy: 6 is DEADLINE, 0 time sharing.
    let script = "read -r line < /proc/$$/stat; set -- $line; echo ${41}; cut -d' ' -f41 /proc/self/stat";
    let output = run(&["--policy", "deadline:1ms/10ms/10ms", "--require-rt", "--", "sh", "-c", script]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "6\n0\n", "{said}");
}

#[test]
fn a_runaway_is_ended_and_evidence_is_kept() {
    let folder = std::env::temp_dir().join(format!("tahti-root-run-{}", std::process::id()));
    let shown = folder.to_str().unwrap();
    let words = ["--policy", "fifo:50", "--cpus", "1", "--rt-budget", "50%/100ms", "--evidence", shown, "--"];
    let output = run(&[&words[..], &["sh", "-c", "while :; do :; done"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(134), "{said}");
    for expected in ["runaway: used", "evidence is kept in", "demoted to time sharing (1)", "frozen (1)", "SIGABRT"] {
        assert!(said.contains(expected), "no {expected:?} in {said}");
    }
    let dirs: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(dirs.len(), 1);
    let file = dirs[0].as_ref().unwrap().path().join("incident.json");
    let incident: Incident = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((incident.kind, incident.name.as_str()), (Kind::Runaway, "sh"));
    assert!(incident.ladder.len() >= 4 && incident.exit.is_some());
    let thread = &incident.threads[0];
    assert!(thread.registers.contains_key("rip") && thread.status.contains_key("State"), "{thread:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn evidence_of_a_loop_holds_its_last_cycles() {
    let folder = std::env::temp_dir().join(format!("tahti-root-cycles-{}", std::process::id()));
    let (shown, tahti) = (folder.to_str().unwrap(), env!("CARGO_BIN_EXE_tahti"));
    let words = ["--policy", "fifo:50", "--cpus", "1", "--evidence", shown, "--for", "20s", "--", tahti];
    let channel = format!("root-cycles-{}", std::process::id());
    let output = run(&[&words[..], &["demo", "llrf", "--channel", &channel, "--runaway-after", "200ms"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(134), "{said}");
    let dir = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(dir.join("incident.json")).unwrap();
    let incident: Incident = serde_json::from_str(&text).unwrap();
    assert_eq!(incident.kind, Kind::Runaway, "{text}");
    assert_eq!(incident.cycles.len(), 100, "{text}");
    let pulses: Vec<u64> = incident.cycles.iter().map(|cycle| cycle["pulse"].as_u64().unwrap()).collect();
    assert!(pulses.windows(2).all(|pair| pair[0] < pair[1]), "{pulses:?}");
    assert!(incident.machine.contains_key("MemAvailable") && !incident.threads.is_empty(), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn threads_get_their_rules_while_the_program_runs() {
    let script = "
import threading, time, ctypes
def work():
    ctypes.CDLL(None).prctl(15, b'scan-1', 0, 0, 0)
    for _ in range(100):
        text = open('/proc/thread-self/stat').read().rsplit(')', 1)[1].split()
        if text[37] == '11':
            print('scan-1 has', text[37], text[38]); return
        time.sleep(0.05)
t = threading.Thread(target=work); t.start(); t.join()
";
    let output = run(&["--thread", "scan-*=fifo:11", "--", "python3", "-c", script]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "scan-1 has 11 1\n", "{said}");
}

#[test]
fn a_polling_program_is_caught_when_its_heartbeats_stop() {
    let script = "
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = os.environ['NOTIFY_SOCKET'].replace('@', '\\0')
for _ in range(15):
    end = time.monotonic() + 0.01
    while time.monotonic() < end: pass
    s.sendto(b'WATCHDOG=1', name)
while True: pass
";
    let words = ["--policy", "fifo:9", "--cpus", "1", "--rt-budget", "none", "--heartbeat", "100ms", "--for", "20s"];
    let words = [&words[..], &["--evidence"]].concat();
    let folder = std::env::temp_dir().join(format!("tahti-root-silent-{}", std::process::id()));
    let output = run(&[&words[..], &[folder.to_str().unwrap(), "--", "python3", "-c", script]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(134), "{said}");
    assert!(said.contains("no heartbeat for 1"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn heartbeats_of_another_process_do_not_keep_a_silent_program_alive() {
    // The socket is connected as root and then used as nobody, as if its file mode had admitted an unrelated user.
    let stranger = "
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    other.connect(sys.argv[1])
    print('a stranger may write to the socket')
except PermissionError: print('refused', flush=True)
for _ in range(1000):
    try: s.send(b'WATCHDOG=1')
    except OSError: break
    time.sleep(0.01)
";
    let folder = std::env::temp_dir().join(format!("tahti-root-stranger-{}", std::process::id()));
    let script = "
import os, socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'WATCHDOG=1', os.environ['NOTIFY_SOCKET'])
with open('socket', 'w') as file: file.write(os.environ['NOTIFY_SOCKET'] + '\\n')
while True: pass
";
    let words = ["--policy", "fifo:9", "--cpus", "1", "--rt-budget", "none", "--heartbeat", "1s", "--for", "30s"];
    std::fs::create_dir_all(&folder).unwrap();
    let mut tahti = Command::new(env!("CARGO_BIN_EXE_tahti"));
    tahti.arg("run").args(words).args(["--evidence", folder.to_str().unwrap(), "--", "python3", "-c", script]);
    tahti.current_dir(&folder).env("TAHTI_RUN", folder.join("run")).stderr(Stdio::piped());
    let tahti = tahti.spawn().unwrap();
    let socket = loop {
        match std::fs::read_to_string(folder.join("socket")) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let mut attack = Command::new("python3");
    let attack = attack.args(["-c", stranger, &socket]).stdout(Stdio::piped()).spawn().unwrap();
    let output = tahti.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let attack = String::from_utf8_lossy(&attack.wait_with_output().unwrap().stdout).into_owned();
    assert_eq!(attack, "refused\n");
    assert!(said.contains("no heartbeat for 1"), "{said}");
    assert!(said.contains("of user 65534 sent a message to") && said.contains("message ignored"), "{said}");
    let own_only = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt;
        path.metadata().unwrap().mode() & 0o077 == 0
    };
    let evidence = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
    let evidence = evidence.filter(|path| path.join("incident.json").exists()).collect::<Vec<_>>();
    assert!(evidence.len() == 1 && own_only(&evidence[0]), "{evidence:?}");
    assert!(!std::path::Path::new(&socket).exists(), "the socket is removed with the runner");
    std::fs::remove_dir_all(folder).unwrap();
}
