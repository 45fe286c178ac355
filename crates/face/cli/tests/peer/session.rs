//! Sessions of the command interpreter, C's or ours.

use super::{PATIENCE, epics, free_port, lines_of, program};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// An IOC that takes commands and ends with the test.
pub(crate) struct Session {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) lines: Receiver<String>,
    pub(crate) port: u16,
    pub(crate) ours: bool,
    pub(crate) folder: PathBuf,
    pub(crate) marks: u32,
    pub(crate) keep: bool,
}

impl Session {
    /// Starts an IOC in a folder that holds these files.
    pub(crate) fn start(ours: bool, files: &[(&str, &str)], args: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("tahti-session-{}-{}", std::process::id(), free_port()));
        Self::start_in(folder, ours, files, args)
    }

    /// As [`start`](Self::start), in a folder that may have been used before.
    pub(crate) fn start_in(folder: PathBuf, ours: bool, files: &[(&str, &str)], args: &[&str]) -> Self {
        let port = free_port();
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut command = program(ours, "softIoc", port);
        command.current_dir(&folder).arg("-D").arg(epics().join("dbd/softIoc.dbd")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = lines_of(&mut child);
        let mut session = Self { child, stdin, lines, port, ours, folder, marks: 0, keep: false };
        session.say("echo started");
        session
    }

    /// Gives one command and returns what was printed until it was done.
    pub(crate) fn say(&mut self, command: &str) -> String {
        self.marks += 1;
        let mark = format!("--mark-{}--", self.marks);
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{command}\necho {mark}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
        let mut out = String::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let line = line.trim_start_matches("epics> ");
                    if line.ends_with(&mark) {
                        return out.replace(&self.folder.display().to_string(), "FOLDER");
                    }
                    out.push_str(line);
                    out.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => panic!("no answer to \"{command}\" in {PATIENCE:?}; so far:\n{out}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the IOC ended at \"{command}\":\n{out}"),
            }
        }
    }

    /// What one of EPICS' tools prints.
    pub(crate) fn tool(&self, tool: &str, args: &[&str]) -> String {
        let output = program(false, tool, self.port).current_dir(&self.folder).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace(&format!(":{}", self.port), ":PORT")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Both end with standard input; whoever does not is killed by its own handle.
        drop(self.stdin.take());
        let patience = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// C's IOC and ours with the same files.
pub(crate) fn both(files: &[(&str, &str)], args: &[&str]) -> [Session; 2] {
    [false, true].map(|ours| Session::start(ours, files, args))
}

pub(crate) fn same(what: &str, [theirs, ours]: [String; 2]) {
    assert_eq!(theirs, ours, "{what}: EPICS left, tahti right");
}
