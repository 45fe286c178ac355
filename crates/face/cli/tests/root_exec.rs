//! Processes that end before their first instruction, while their memory is being locked: handled like any other end.
//! Runs as root for memory bounds, real-time classes, and process ids chosen by the test.

use harness::plant::{Bench, sh};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A program whose static memory exceeds its bound when locked.
const HUGE: &str = "#include <unistd.h>\n\
    volatile char frames[256 << 20];\n\
    int main(void) { frames[5] = 1; for (;;) sleep(1000); }\n";

/// Starts a process with the given process id in a separate session, prints that it runs, and later how it ended. The
/// process ends when standard input does.
const TAKE: &str = "#define _GNU_SOURCE\n\
    #include <linux/sched.h>\n#include <signal.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    #include <string.h>\n#include <sys/syscall.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
    int main(int count, char **words) {\n\
      pid_t want = atoi(words[1]); struct clone_args args; memset(&args, 0, sizeof args);\n\
      args.exit_signal = SIGCHLD; args.set_tid = (uintptr_t)&want; args.set_tid_size = 1;\n\
      pid_t pid = syscall(SYS_clone3, &args, sizeof args);\n\
      if (pid < 0) { perror(\"clone3\"); return 1; }\n\
      if (!pid) { char c; setsid(); write(1, \"runs\\n\", 5); while (read(0, &c, 1) > 0); _exit(7); }\n\
      int status; waitpid(pid, &status, 0);\n\
      if (WIFSIGNALED(status)) printf(\"signal %d\\n\", WTERMSIG(status)); else printf(\"exit %d\\n\", WEXITSTATUS(status));\n\
    }\n";

fn compile(bench: &Bench, name: &str, text: &str) -> PathBuf {
    let (source, program) = (bench.dir.join(format!("{name}.c")), bench.dir.join(name));
    fs::write(&source, text).unwrap();
    let done = Command::new("cc").arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

fn finish(mut child: Child) -> bool {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it never ended");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A plant in the foreground that never becomes completely up.
struct Foreground(Option<Child>);

impl Foreground {
    fn up(bench: &Bench) -> Self {
        let up = bench.tahti(&["up", "."]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(Some(up.unwrap()))
    }

    /// Sends SIGTERM to the supervisor itself.
    fn term(mut self) {
        let child = self.0.take().unwrap();
        harness::process::kill(child.id() as i32, "TERM");
        finish(child);
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill().and_then(|()| child.wait().map(drop));
        }
    }
}

/// An unrelated process with a process id chosen by the test.
struct Taker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Taker {
    fn take(program: &PathBuf, pid: i64) -> Self {
        let mut child =
            Command::new(program).arg(pid.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut taker = Self { child, lines };
        assert_eq!(taker.line(), "runs", "process {pid}: this test needs Linux 5.5 and root");
        taker
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Lets the process end by itself, and returns how it ended.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let line = self.line();
        self.child.wait().unwrap();
        line
    }
}

/// The ends of a process, as recorded by its keeper.
fn exits(bench: &Bench, name: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(bench.dir.join(format!("run/p/keep/{name}/exits.jsonl"))).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn restarting(program: &str, keys: &str, backoff: &str) -> String {
    let process = |name: &str, more: &str| format!("[[process]]\nname = \"{name}\"\n{more}\n");
    let first = format!(
        "command = {program}\nclass = \"fifo:10\"\n{keys}\nrestart = {{ policy = \"always\", backoff = \"{backoff}\", \
         backoff_max = \"{backoff}\", limit = 1000 }}"
    );
    process("x", &first) + &sh("behind", "touch started; sleep 1000", "after = [\"x\"]")
}

#[test]
fn a_process_killed_while_its_memory_is_locked_is_restarted_and_blocks_nothing() {
    harness::machine::last_cpu();
    let bench = Bench::new("root-exec-oom", "");
    let huge = compile(&bench, "huge", HUGE);
    bench.write(&restarting(&format!("{huge:?}"), "memory_max = \"32MiB\"", "100ms"));
    let up = Foreground::up(&bench);
    bench.until("restarted", || exits(&bench, "x").len() >= 3);
    let ends = exits(&bench, "x");
    assert!(ends.iter().all(|end| end["end"]["signal"]["signal"] == 9), "{ends:?}");
    bench.until("its cause", || bench.log().contains("out of memory"));
    assert!(!bench.dir.join("started").exists(), "its dependents do not start");
    let log = bench.log();
    assert!(!log.lines().any(|line| line.contains(" x ") && line.contains("started")), "{log}");
    // The plant goes down on request.
    assert!(!bench.ok(&["ps"]).is_empty());
    bench.run(&["down"]);
    finish({
        let mut up = up;
        up.0.take().unwrap()
    });
    assert_eq!(bench.ok(&["ps"]), "no plant is up\n");
}

#[test]
fn a_reused_pid_gets_no_signal_meant_for_an_ended_process() {
    harness::machine::last_cpu();
    let bench = Bench::new("root-exec-reuse", "");
    let (huge, take) = (compile(&bench, "huge", HUGE), compile(&bench, "take", TAKE));
    bench.write(&restarting(&format!("{huge:?}"), "memory_max = \"32MiB\"", "600s"));
    let up = Foreground::up(&bench);
    bench.until("its end", || exits(&bench, "x").len() == 1);
    let taker = Taker::take(&take, exits(&bench, "x")[0]["child"]["pid"].as_i64().unwrap());
    assert_eq!(bench.process("x")["state"], "back-off", "{}", bench.log());
    up.term();
    assert_eq!(taker.end(), "exit 7", "the process that has the number now");
}

#[test]
fn a_truncated_program_ends_by_its_signal_and_the_supervisor_still_ends_on_request() {
    harness::machine::last_cpu();
    let bench = Bench::new("root-exec-cut", "");
    let program = bench.dir.join("cut");
    let whole = fs::read("/bin/sleep").unwrap();
    fs::write(&program, &whole[..whole.len().min(32768)]).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    bench.write(&restarting(&format!("[{program:?}, \"100\"]"), "", "100ms"));
    let up = Foreground::up(&bench);
    bench.until("restarted", || exits(&bench, "x").len() >= 3);
    for end in exits(&bench, "x") {
        assert!([7, 11].contains(&end["end"]["signal"]["signal"].as_i64().unwrap_or(0)), "{end}");
    }
    up.term();
    assert_eq!(bench.ok(&["ps"]), "no plant is up\n");
}
