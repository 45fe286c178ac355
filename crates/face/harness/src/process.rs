//! Programs that end with their test, and their output.

use crate::PATIENCE;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The folder below `/proc` of a process's first thread with a name; `None` if there is none.
pub fn thread(process: impl Display, name: &str) -> Option<PathBuf> {
    let mut tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten().map(|task| task.path());
    // A thread may end meanwhile.
    tasks.find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name))
}

/// A program that ends with the test, including its children. Clients of C EPICS start repeaters that remain.
pub struct Running {
    /// The process.
    pub child: Child,
    /// Lines of the captured outputs.
    pub lines: Receiver<String>,
}

impl Running {
    /// Starts a program without capturing its output.
    pub fn start(command: &mut Command) -> Self {
        Self { child: command.process_group(0).spawn().unwrap(), lines: channel().1 }
    }

    /// Starts a program and captures its standard output by lines. The program must flush each line ([`by_lines`]).
    pub fn follow(command: &mut Command) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()));
        running.lines = lines_of(&mut running.child);
        running
    }

    /// Starts a program and waits until it prints `until` on either output.
    pub fn until(command: &mut Command, until: &str) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (say, lines) = channel();
        read_on(running.child.stdout.take().unwrap(), say.clone());
        read_on(running.child.stderr.take().unwrap(), say);
        running.lines = lines;
        running.hears(until);
        running
    }

    /// Waits for the next line that contains `wanted`.
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

    /// Sends a signal, by its option of `kill` such as `-TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// The program has ended. It is not reaped, so its process id is not reused.
    pub fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), how).unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The test may have ended the program already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Lines of a program's standard output, as they arrive. Takes the output.
pub fn lines_of(child: &mut Child) -> Receiver<String> {
    let (say, lines) = channel();
    read_on(child.stdout.take().unwrap(), say);
    lines
}

/// Reads to the end even if the receiver is gone, so that the program does not block.
pub(crate) fn read_on(output: impl Read + Send + 'static, say: Sender<String>) {
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(say.send(line)));
    });
}

/// The same program with line-buffered output.
pub fn by_lines(likeness: &Command) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(likeness.get_program()).args(likeness.get_args());
    command.envs(likeness.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    command
}

/// Waits for a process and returns its output. Reads while it runs, because a pipe holds little.
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

/// A thread of the process still runs. The process releases its resources with the last thread.
pub fn alive(pid: i32) -> bool {
    let runs =
        |stat: &Path| std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|stat| runs(&stat))
}

/// Sends a signal to a process, by name such as `KILL`.
pub fn kill(pid: i32, signal: &str) {
    assert!(Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap().success());
}
