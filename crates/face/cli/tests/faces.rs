//! Terminals (simulated with util-linux' `script`), colours, and messages of the command line.

use harness::plant::{Bench, sh};
use harness::process::{Running, text};
use harness::tahti;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Runs a command line on a terminal.
fn on_terminal(bench: &Bench, line: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("script");
    let program = env!("CARGO_BIN_EXE_tahti");
    command.args(["-qec", &line.replace("tahti", program), "/dev/null"]).current_dir(&bench.dir);
    command.env("TAHTI_RUN", bench.dir.join("run")).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    harness::process::finish(command.spawn().expect("script, of util-linux"))
}

/// Prints escape sequences that rename a terminal, query its cursor position, and hide a line.
const MEAN: &str =
    "printf \"\\033]0;owned\\007\\033[6n\\033[8mhidden \\033[31mred\\033[0m \\302\\23331m\\n\"; sleep 1000";

#[test]
fn output_of_a_process_never_controls_the_terminal_of_a_log_reader() {
    let bench = Bench::new("mean", &sh("mean", MEAN, ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("written", || text(&bench.run(&["logs", "mean"])).contains("hidden"));
    let shown = text(&on_terminal(&bench, "tahti logs mean", &[]));
    assert!(shown.contains("\\x1b]0;owned\\x07\\x1b[6n\\x1b[8mhidden \x1b[31mred\x1b[0m"), "{shown:?}");
    assert!(!shown.contains("\x1b]") && !shown.contains("\x1b[6n") && !shown.contains('\u{9b}'), "{shown:?}");
    let plain = text(&on_terminal(&bench, "tahti logs mean", &[("NO_COLOR", "1")]));
    assert!(plain.contains("hidden red") && !plain.contains('\x1b'), "{plain:?}");
    // Piped output may go to a pager, so colours are removed.
    let piped = bench.ok(&["logs", "mean"]);
    assert!(piped.contains("hidden red") && !piped.contains('\x1b'), "{piped:?}");
    let raw = bench.ok(&["logs", "mean", "--raw"]);
    assert!(raw.contains("\x1b]0;owned\x07\x1b[6n"), "{raw:?}");
    bench.ok(&["down"]);
}

#[test]
fn names_of_threads_and_arguments_of_programs_never_control_a_terminal() {
    let name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\\\x1b]0;a\\\\x07', 0, 0, 0); import threading; \
                threading.Thread(target=lambda: time.sleep(1000), daemon=True).start(); time.sleep(1000)";
    let process = format!("[[process]]\nname = \"named\"\ncommand = [\"python3\", \"-c\", \"{name}\"]\n");
    let bench = Bench::new("named", &process);
    bench.ok(&["up", "--detach"]);
    bench.until("named", || text(&bench.run(&["top", "-n", "1", "--threads"])).contains("]0;a"));
    let shown = text(&on_terminal(&bench, "tahti top -n 1 --threads", &[]));
    assert!(shown.contains("\\x1b]0;a\\x07") && !shown.contains("\x1b]"), "{shown:?}");
    bench.ok(&["down"]);
}

#[test]
fn a_failed_write_to_standard_output_is_not_a_success() {
    let bench = Bench::new("full", &sh("a", "sleep 1000", ""));
    let said = |words: &[&str], device: &str| {
        let device = std::fs::OpenOptions::new().write(true).open(device).unwrap();
        let mut command = tahti();
        command.args(words).current_dir(&bench.dir).env("TAHTI_RUN", bench.dir.join("run")).stdout(device);
        command.output().unwrap()
    };
    let all: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["shield", "--help"],
        &["check", "."],
        &["man"],
        &["completion", "bash"],
        &["ps"],
        &["archive", "serve", "--document"],
    ];
    for words in all {
        let output = said(words, "/dev/full");
        assert_eq!(output.status.code(), Some(74), "{words:?}: {output:?}");
        let why = String::from_utf8(output.stderr).unwrap();
        assert_eq!(why.matches("failed to print: No space left on device").count(), 1, "{words:?}: {why}");
        assert_eq!(said(words, "/dev/null").status.code(), Some(0), "{words:?}");
    }
}

#[test]
fn arguments_and_variables_in_any_encoding_are_passed_to_programs() {
    let latin = OsStr::from_bytes(b"caf\xe9");
    let output = tahti().args(["run", "--", "sh", "-c", "printf %s \"$LATIN\""]).env("LATIN", latin).output().unwrap();
    assert_eq!(output.stdout, latin.as_bytes(), "{output:?}");
    let output = tahti().args(["run", "--", "sh", "-c", "printf %s \"$1\"", "sh"]).arg(latin).output().unwrap();
    assert_eq!(output.stdout, latin.as_bytes(), "{output:?}");
    let output = tahti().args(["ioc", "--check"]).env("LATIN", latin).stdin(Stdio::null()).output().unwrap();
    assert!(!text(&output).contains("panicked"), "{output:?}");
}

#[test]
fn a_console_draws_but_sends_no_requests_to_the_terminal() {
    let script = "while read -r line; do printf \"\\033[6n\\033]52;c;eA==\\007\\033[1;32mgot $line\\033[0m\\n\"; done";
    let bench = Bench::new("console", &sh("echo", script, ""));
    bench.ok(&["up", ".", "--detach"]);
    let attach = |options: &str| {
        let line = format!("(sleep 1; echo hello; sleep 1; printf '\\035') | tahti attach echo {options}");
        String::from_utf8_lossy(&on_terminal(&bench, &line, &[]).stdout).into_owned()
    };
    let shown = attach("");
    assert!(shown.contains("\x1b[1;32mgot hello\x1b[0m") && !shown.contains("\x1b[6n"), "{shown:?}");
    assert!(!shown.contains("\x1b]52") && shown.contains("detached"), "{shown:?}");
    assert!(attach("--raw").contains("\x1b[6n\x1b]52;c;eA==\x07"));
    bench.ok(&["down"]);
}

#[test]
fn a_process_is_stopped_stays_down_and_is_started_again_by_its_name() {
    let bench = Bench::new("single", &(sh("a", "sleep 1000", "") + &sh("b", "sleep 1000", "after = [\"a\"]")));
    bench.ok(&["up", ".", "--detach"]);
    let refused = text(&bench.run(&["stop", "a"]));
    assert!(refused.contains("b runs only after it") && refused.contains("`tahti stop a b`"), "{refused}");
    // Results go to standard output; progress goes to standard error.
    let said = |words: &[&str]| String::from_utf8(bench.run(words).stdout).unwrap();
    assert_eq!(said(&["stop", "a", "b", "--plant", "p"]), "a: stopped (SIGTERM)\nb: stopped (SIGTERM)\n");
    // A supervisor that continues the plant leaves stopped processes down.
    let supervisor = bench.supervisor();
    harness::process::kill(supervisor, "KILL");
    bench.until("killed", || !harness::process::alive(supervisor));
    bench.ok(&["up", "--plant", ".", "--detach"]);
    assert_eq!((&bench.process("a")["state"], &bench.process("b")["state"]), (&"stopped".into(), &"stopped".into()));
    let output = bench.run(&["status", "b"]);
    assert!(output.status.code() == Some(3) && text(&output).contains("stopped"), "{}", text(&output));
    let refused = text(&bench.run(&["start", "b"]));
    assert!(refused.contains("a must run before it") && refused.contains("`tahti start b a`"), "{refused}");
    assert_eq!(said(&["start", "b", "a"]), "b: running\na: running\n");
    let shown = bench.ok(&["status", "b"]);
    assert!(shown.contains("running") && shown.contains("2 starts") && !shown.contains("  a "), "{shown}");
    let wrong = text(&bench.run(&["stop", "c"]));
    assert!(wrong.contains("no process \"c\"") && wrong.contains("it has: a, b"), "{wrong}");
    assert!(bench.ok(&["down", "--plant", "p"]).ends_with("good\n"));
}

#[test]
fn a_process_that_has_just_died_is_started_and_not_reported_as_running() {
    let bench = Bench::new("died", &sh("a", "sleep 1000", "restart = { policy = \"never\" }"));
    bench.ok(&["up", ".", "--detach"]);
    let killed = bench.pid("a");
    let stat = std::fs::read_to_string(format!("/proc/{killed}/stat")).unwrap();
    let keeper: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    // The keeper is stopped, so it cannot report the end to the supervisor.
    harness::process::kill(keeper, "STOP");
    harness::process::kill(killed, "KILL");
    bench.until("dead", || !harness::process::alive(killed));
    let start = Running::follow(&mut bench.tahti(&["start", "a"]));
    // Long enough for a wrong answer to arrive.
    std::thread::sleep(Duration::from_millis(300));
    let is_patient = !start.has_ended();
    harness::process::kill(keeper, "CONT");
    assert!(is_patient, "a: it reports that it runs");
    start.hears("a: running");
    assert_ne!(bench.pid("a"), killed);
    assert!(bench.ok(&["down", "p"]).contains("up for "));
}

#[test]
fn a_second_ctrl_c_names_the_remaining_processes_and_a_third_one_kills_them() {
    let bench = Bench::new(
        "impatient",
        &sh("deaf", "trap '' TERM; echo on; while :; do sleep 0.1; done", "stop = [\"TERM 1000s\"]"),
    );
    let up = bench.tahti(&["up"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.until("up", || bench.run(&["status", "deaf"]).status.success());
    let press = |sign: &str| {
        harness::process::kill(up.id() as i32, "INT");
        bench.until(sign, || bench.log().contains(sign));
    };
    press("SIGINT: the plant goes down");
    press("still running: deaf (SIGKILL in 1000 s); press Ctrl-C again to kill them now");
    press("Ctrl-C again: SIGKILL for deaf");
    let output = harness::process::finish(up);
    assert!(output.status.code() == Some(4) && text(&output).contains("stopped (SIGKILL)"), "{}", text(&output));
}

#[test]
fn shells_complete_commands_and_every_command_has_a_manual_page() {
    let bench = Bench::new("words", "");
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef tahti"), ("fish", "complete -c tahti")] {
        let text = long(&bench, &["completion", shell]);
        assert!(text.contains(word) && text.contains("restart") && text.contains("no-wait"), "{shell}");
        assert!(
            !text.contains(" await-confirmation") && !text.contains("'await-confirmation:"),
            "{shell} completes hidden words"
        );
    }
    let completion = bench.dir.join("tahti.bash");
    std::fs::write(&completion, long(&bench, &["completion", "bash"])).unwrap();
    let script = "source \"$0\"; COMP_WORDS=(tahti sta); COMP_CWORD=1; _tahti tahti sta tahti; echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["-c", script]).arg(&completion).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "start status", "{}", text(&output));
    let page = bench.ok(&["man", "shield", "apply"]);
    assert!(page.contains(".TH tahti-shield-apply 1") && page.contains("confirm"), "{page}");
    bench.ok(&["man", "--all", "."]);
    for name in ["tahti", "tahti-stop", "tahti-msg-send"] {
        assert!(bench.dir.join(format!("{name}.1")).exists(), "{name}");
    }
}

#[test]
fn colours_are_shown_on_a_terminal_unless_disabled() {
    let bench = Bench::new("colours", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let shown = |environment: &[(&str, &str)]| text(&on_terminal(&bench, "tahti ps", environment));
    assert!(shown(&[]).contains("\x1b[32mrunning"), "{:?}", shown(&[]));
    assert!(shown(&[("NO_COLOR", "")]).contains('\x1b'));
    for unwanted in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!shown(&[unwanted]).contains('\x1b'), "{unwanted:?}");
    }
    assert!(!bench.ok(&["ps"]).contains('\x1b'));
    bench.ok(&["down"]);
}

/// The output of a command that prints more than a pipe holds.
fn long(bench: &Bench, words: &[&str]) -> String {
    text(&bench.tahti(words).output().unwrap())
}

#[test]
fn shells_complete_the_names_of_processes_plants_and_records() {
    let ioc = "[[ioc]]\nname = \"supplies\"\nload = [{ file = \"a.db\", macros = \"P=RF:\" }]\nenv = { EPICS_CAS_INTF_ADDR_LIST = \"127.0.0.1\" }\n";
    let bench = Bench::new("names", &(sh("loop", "sleep 1000", "") + &sh("logger", "sleep 1000", "") + ioc));
    std::fs::write(bench.dir.join("a.db"), "record(ai, \"$(P)volts\") {}\nrecord(ao, \"$(P)amps\") {}\n").unwrap();
    bench.ok(&["up", ".", "--detach", "--no-dashboard"]);
    let names = |words: &[&str]| long(&bench, &[&["complete", "--"], words].concat());
    assert_eq!(names(&["restart", "lo"]), "logger\nloop\n");
    assert_eq!(names(&["restart", "--plant", "p", "su"]), "supplies\n");
    assert_eq!(names(&["down", ""]), "p\n");
    assert_eq!(names(&["caget", "RF:v"]), "RF:volts\n");
    assert_eq!(names(&["up", ""]), "");
    // bash replaces only what is behind the last colon.
    let completion = bench.dir.join("tahti.bash");
    std::fs::write(&completion, long(&bench, &["completion", "bash"])).unwrap();
    let script = "source \"$0\"; COMP_LINE='tahti caget RF:a'; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(tahti caget RF : a); COMP_CWORD=4; \
                  _tahti_names tahti a :; echo ${COMPREPLY[@]}";
    let tahti = Path::new(env!("CARGO_BIN_EXE_tahti")).parent().unwrap().display().to_string();
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).arg(&completion).env("TAHTI_RUN", bench.dir.join("run"));
    let path = std::env::var("PATH").unwrap();
    let output = bash.env("PATH", format!("{tahti}:{path}")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "amps"), "{}", text(&output));
    bench.ok(&["down"]);
}
