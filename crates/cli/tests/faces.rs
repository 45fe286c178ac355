//! What people see and reach for: terminals (which `script` of util-linux makes), colours, what programs say.

mod bench;

use bench::{Bench, sh, text};
use std::process::{Command, Output, Stdio};

/// Runs a command line on a terminal.
fn on_terminal(bench: &Bench, line: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("script");
    let program = env!("CARGO_BIN_EXE_tahti");
    command.args(["-qec", &line.replace("tahti", program), "/dev/null"]).current_dir(&bench.dir);
    command.env("TAHTI_RUN", bench.dir.join("run")).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bench::finish(command.spawn().expect("script, of util-linux"))
}

/// Writes what would rename a terminal, ask where its cursor stands, and hide a line.
const MEAN: &str =
    "printf \"\\033]0;owned\\007\\033[6n\\033[8mhidden \\033[31mred\\033[0m \\302\\23331m\\n\"; sleep 1000";

#[test]
fn what_a_process_writes_never_steers_the_terminal_of_who_reads_its_log() {
    let bench = Bench::new("mean", &sh("mean", MEAN, ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("written", || text(&bench.run(&["logs", "mean"])).contains("hidden"));
    let shown = text(&on_terminal(&bench, "tahti logs mean", &[]));
    assert!(shown.contains("\\x1b]0;owned\\x07\\x1b[6n\\x1b[8mhidden \x1b[31mred\x1b[0m"), "{shown:?}");
    assert!(!shown.contains("\x1b]") && !shown.contains("\x1b[6n") && !shown.contains('\u{9b}'), "{shown:?}");
    let plain = text(&on_terminal(&bench, "tahti logs mean", &[("NO_COLOR", "1")]));
    assert!(plain.contains("hidden red") && !plain.contains('\x1b'), "{plain:?}");
    // Who pipes it may have a pager at the other end.
    let piped = bench.ok(&["logs", "mean"]);
    assert!(piped.contains("hidden red") && !piped.contains('\x1b'), "{piped:?}");
    let raw = bench.ok(&["logs", "mean", "--raw"]);
    assert!(raw.contains("\x1b]0;owned\x07\x1b[6n"), "{raw:?}");
    bench.ok(&["down"]);
}

#[test]
fn names_of_threads_and_words_of_programs_never_steer_a_terminal() {
    let name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\\\x1b]0;a\\\\x07', 0, 0, 0); import threading; \
                threading.Thread(target=lambda: time.sleep(1000), daemon=True).start(); time.sleep(1000)";
    let process = format!("[[process]]\nname = \"named\"\ncommand = [\"python3\", \"-c\", \"{name}\"]\n");
    let bench = Bench::new("named", &process);
    bench.ok(&["up", ".", "--detach"]);
    bench.until("named", || text(&bench.run(&["top", "-n", "1", "--threads"])).contains("]0;a"));
    let shown = text(&on_terminal(&bench, "tahti top -n 1 --threads", &[]));
    assert!(shown.contains("\\x1b]0;a\\x07") && !shown.contains("\x1b]"), "{shown:?}");
    bench.ok(&["down"]);
}

#[test]
fn a_console_draws_and_cannot_make_the_terminal_answer() {
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
