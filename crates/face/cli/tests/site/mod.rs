//! A message server, equipment managers, and what a user asks of them.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn tahti() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tahti"))
}

/// A name that nobody else on this machine uses.
pub(crate) fn fresh(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A process that is ended with its test, and what it says.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command, until: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (say, lines) = channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let say = say.clone();
            // Read to the end, also when nobody listens any more, so that the process is never held up.
            std::thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(say.send(line)));
            });
        }
        let running = Self { child, lines };
        running.hears(until);
        running
    }

    pub(crate) fn hears(&self, wanted: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("never said {wanted:?}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test may have ended it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that goes with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(fresh("tahti-em"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Site {
    pub(crate) server: String,
    pub(crate) folder: Folder,
    pub(crate) messages: Option<Running>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let mut site = Self { server: fresh("em"), folder: Folder::new(), messages: None };
        site.serve();
        site
    }

    pub(crate) fn serve(&mut self) {
        self.messages = None;
        let mut command = tahti();
        command.args(["msg", "serve", "--name", &self.server]);
        self.messages = Some(Running::start(&mut command, "serving"));
    }

    pub(crate) fn manager(&self, file: &Path) -> Running {
        self.manager_with(file, &[])
    }

    /// A manager with more in its environment.
    pub(crate) fn manager_with(&self, file: &Path, env: &[(&str, &str)]) -> Running {
        let mut command = tahti();
        command.args(["em", "serve", "--server", &self.server]).arg(file).envs(env.iter().copied());
        Running::start(&mut command, "serves")
    }

    /// What a command prints on both of its outputs, and whether it went well.
    pub(crate) fn say(&self, words: &[&str]) -> (bool, String) {
        let output = tahti().args(words).env("TAHTI_MESSAGES", &self.server).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
    }

    pub(crate) fn send(&self, line: &str) -> Output {
        tahti().args(["msg", "send", "--server", &self.server, line]).output().unwrap()
    }

    /// What is printed, or what is said on stderr.
    pub(crate) fn ask(&self, line: &str) -> String {
        let output = self.send(line);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    pub(crate) fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        let mut last = String::new();
        while begun.elapsed() < LONG {
            last = self.ask(line);
            if wanted(&last) {
                return;
            }
        }
        panic!("{line} stays at {last:?}");
    }
}
