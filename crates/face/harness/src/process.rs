//! Programs that end with the test that started them, and what they say.

use crate::PATIENCE;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that ends with the test, and with it all that it has started: clients of C's start repeaters that stay.
pub struct Running {
    /// The process.
    pub child: Child,
    /// What it says, of the outputs that were asked for.
    pub lines: Receiver<String>,
}

impl Running {
    /// Starts it as it is; of what it says nothing is kept.
    pub fn start(command: &mut Command) -> Self {
        Self { child: command.process_group(0).spawn().unwrap(), lines: channel().1 }
    }

    /// Starts it; its lines on standard output as they come, for which it must write them one by one ([`by_lines`]).
    pub fn follow(command: &mut Command) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()));
        running.lines = lines_of(&mut running.child);
        running
    }

    /// Starts it and waits until it says `until`, on whichever output.
    pub fn until(command: &mut Command, until: &str) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (say, lines) = channel();
        read_on(running.child.stdout.take().unwrap(), say.clone());
        read_on(running.child.stderr.take().unwrap(), say);
        running.lines = lines;
        running.hears(until);
        running
    }

    /// The next line with `wanted`.
    pub fn hears(&self, wanted: &str) -> String {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(wanted) => return line,
                Ok(line) => said.push(line),
                Err(error) => panic!("never said {wanted:?} ({error}): {said:#?}"),
            }
        }
    }

    /// Sends a signal by its name, as `kill` has it: `-TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether the program has ended. It is not reaped, so that nobody else gets its number.
    pub fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), how).unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test may have ended it already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The lines that a program prints, as they come; its output is taken.
pub fn lines_of(child: &mut Child) -> Receiver<String> {
    let (say, lines) = channel();
    read_on(child.stdout.take().unwrap(), say);
    lines
}

/// Reads to the end, also when nobody listens any more, so that the program is never held up.
pub(crate) fn read_on(output: impl Read + Send + 'static, say: Sender<String>) {
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(say.send(line)));
    });
}

/// The same program, each line written when it is there.
pub fn by_lines(likeness: &Command) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(likeness.get_program()).args(likeness.get_args());
    command.envs(likeness.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    command
}

/// The end of a process and all that it wrote: read while it writes, for a pipe holds little.
pub fn finish(mut child: Child) -> Output {
    let begin = Instant::now();
    let (out, err) = (child.stdout.take().map(whole), child.stderr.take().map(whole));
    let joined = |thread: Option<JoinHandle<Vec<u8>>>| thread.map_or(Vec::new(), |thread| thread.join().unwrap());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Output { status, stdout: joined(out), stderr: joined(err) };
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            let status = child.wait().unwrap();
            panic!("a command hangs: {}", text(&Output { status, stdout: joined(out), stderr: joined(err) }));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn whole(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    })
}

/// Both outputs.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether any of its threads still runs: what a process holds is let go with the last of them.
pub fn alive(pid: i32) -> bool {
    let runs =
        |stat: &Path| std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|stat| runs(&stat))
}

/// Sends a process a signal by its name: `KILL`.
pub fn kill(pid: i32, signal: &str) {
    assert!(Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap().success());
}
