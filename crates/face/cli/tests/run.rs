//! `tahti run` and `tahti attach` as a user calls them. Needs no privilege.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn tahti(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    tahti(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    for (script, expected) in [("exit 0", 0), ("exit 42", 42), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)] {
        let output = run(&["run", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(expected), "{script}: {}", said(&output));
    }
}

#[test]
fn the_environment_of_the_caller_is_passed_on_without_variables_of_systemd() {
    let mut command = tahti(&["run", "--", "env"]);
    command.env("EPICS_CA_ADDR_LIST", "10.0.0.255").env("NOTIFY_SOCKET", "/nowhere").env("WATCHDOG_USEC", "1000000");
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains("EPICS_CA_ADDR_LIST=10.0.0.255\n"), "{said}");
    assert!(!said.contains("NOTIFY_SOCKET") && !said.contains("WATCHDOG_USEC"), "{said}");
}

#[test]
fn standard_streams_pass_through_unchanged() {
    let output = run(&["run", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn a_program_is_ended_when_its_time_is_over() {
    let output = run(&["run", "--for", "200ms", "--", "sleep", "60"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // A process that ignores the request is killed; one that ends by itself keeps its exit code.
    let output = run(&["run", "--for", "200ms", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = run(&["run", "--for", "20s", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_heartbeat_counts_in_every_class_and_its_silence_is_a_hang() {
    let evidence = std::env::temp_dir().join(format!("tahti-run-hang-{}", std::process::id()));
    let words = ["run", "--heartbeat", "200ms", "--for", "50s", "--evidence", evidence.to_str().unwrap(), "--"];
    let beats = "
import os, signal, socket, time
signal.signal(signal.SIGABRT, signal.DEFAULT)
name = os.environ['NOTIFY_SOCKET'].replace('@', '\\0')
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'WATCHDOG=1', name)
while True: time.sleep(1)
";
    let hangs = |reaction: &str| {
        let script = beats.replace("DEFAULT", reaction);
        run(&[&words[..], &["python3", "-c", &script]].concat())
    };
    let output = hangs("SIG_DFL");
    assert_eq!(output.status.code(), Some(134), "{}", said(&output));
    assert!(said(&output).contains("no heartbeat for 2") && said(&output).contains("hangs"), "{}", said(&output));
    assert!(evidence.read_dir().unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with("-hang")));
    // A process that survives SIGABRT is killed.
    let output = hangs("SIG_IGN");
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    std::fs::remove_dir_all(&evidence).unwrap();
    // A process that finds a fault itself does not wait for the end of its heartbeat.
    let script = beats.replace("DEFAULT", "SIG_DFL").replace("WATCHDOG=1", "WATCHDOG=trigger");
    let words = words.map(|word| if word == "200ms" { "10h" } else { word });
    let output = run(&[&words[..], &["python3", "-c", &script]].concat());
    assert_eq!(output.status.code(), Some(134), "{}", said(&output));
    assert!(evidence.read_dir().unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with("-hang")));
    std::fs::remove_dir_all(evidence).unwrap();
}

#[test]
fn signals_are_passed_on() {
    let script = "trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let mut child = tahti(&["run", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    sys::process::Process::open(child.id() as i32).unwrap().signal(10).unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let status = child.wait().unwrap();
    assert_eq!((line.as_str(), status.code(), status.signal()), ("got it\n", Some(9), None));
}

#[test]
fn a_program_with_a_heartbeat_gets_the_watchdog_variables_of_systemd() {
    let output = run(&["run", "--heartbeat", "5s", "--", "sh", "-c", "echo $WATCHDOG_USEC $((WATCHDOG_PID - $$))"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5000000 0\n", "{}", said(&output));
}

#[test]
fn descendants_end_with_the_program() {
    let output = run(&["run", "--", "sh", "-c", "setsid sleep 61 >/dev/null 2>&1 & echo $!"]);
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // After the kill it may still be a zombie until init reaps it.
    let lives = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| !text.contains(") Z "));
    while lives() {
        assert!(std::time::Instant::now() < until, "process {pid} still runs");
        std::thread::yield_now();
    }
}

#[test]
fn wrong_arguments_are_refused_with_an_explanation() {
    for (words, expected) in [
        (&["run", "--", "no-such-program-of-tahti"][..], "in no folder of PATH"),
        (&["run", "--", "/etc/passwd"], "no executable file"),
        (&["run", "--policy", "fifo:1", "--rt-budget", "none", "--", "true"], "needs --heartbeat"),
        (&["run", "--cpus", "", "--", "true"], "the list is empty"),
        (&["run", "--cpus", "900", "--", "true"], "no CPUs 900 on this machine; online are 0"),
        (&["run", "--cpus", "0,900-901", "--", "true"], "no CPUs 900-901 on this machine"),
        (&["run", "--user", "no-such-user", "--", "true"], "user \"no-such-user\" is not in /etc/passwd"),
        (&["run", "--capabilities", "CAP_X", "--", "true"], "CAP_SYS_NICE"),
        (&["attach", "x", "--plant", "no-such-plant-of-tahti"], "no console"),
    ] {
        let output = run(words);
        let (code, said) = (output.status.code(), said(&output));
        assert!(said.contains(expected) && matches!(code, Some(125 | 1)), "{words:?}: {code:?} {said}");
    }
    for words in [
        &["run", "--policy", "fifo:100", "true"][..],
        &["run", "--rt-budget", "80", "true"],
        &["run", "--polcy", "x", "true"],
        &["run"],
    ] {
        assert_eq!(run(words).status.code(), Some(64), "{words:?}");
    }
}
