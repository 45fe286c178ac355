//! IOCs of C EPICS or of tahti as processes, and their shell.

use crate::epics::{epics, normal, program};
use crate::port::free_port;
use crate::process::read_on;
use crate::{PATIENCE, eventually, fresh};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// An IOC that ends with the test.
pub struct Ioc {
    /// Process of the IOC.
    pub child: Child,
    /// Input of its shell.
    pub commands: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The IOC is that of tahti, not of C EPICS.
    pub ours: bool,
    /// Port of circuits and searches. The next port is that of the repeater.
    pub port: u16,
    /// Working folder with its files.
    pub folder: PathBuf,
    /// The folder is kept when the IOC is dropped.
    pub keep: bool,
    /// Output before it accepted commands.
    pub started: String,
    how: StartOptions,
    marks: u32,
}

/// Parameters of the start, kept for a restart.
#[derive(Default)]
struct StartOptions {
    args: Vec<String>,
    variables: Vec<(String, String)>,
    /// Lines include standard error.
    with_errors: bool,
    /// A record that is read to check that the IOC serves.
    probe: Option<String>,
}

impl StartOptions {
    fn new(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self {
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Self::default()
        }
    }
}

impl Ioc {
    /// Starts an IOC of tahti with these files and options. Lines include both outputs.
    pub fn start(files: &[(&str, &str)], options: &[&str]) -> Self {
        Self::start_with(files, options, &[])
    }

    /// As [`start`](Self::start), with additional environment variables.
    pub fn start_with(files: &[(&str, &str)], options: &[&str], variables: &[(&str, &str)]) -> Self {
        let how = StartOptions { with_errors: true, ..StartOptions::new(options, variables) };
        Self::new(true, files, how)
    }

    /// Starts an IOC with the definitions of C's `softIoc` and these files and options. Lines include standard output only.
    pub fn session(ours: bool, files: &[(&str, &str)], options: &[&str]) -> Self {
        Self::session_in(std::env::temp_dir().join(fresh("tahti-session")), ours, files, options)
    }

    /// As [`session`](Self::session), in a folder that may already have been used.
    pub fn session_in(folder: PathBuf, ours: bool, files: &[(&str, &str)], options: &[&str]) -> Self {
        Self::in_folder(folder, ours, files, with_definitions(options, &[]))
    }

    /// Starts an IOC with a database whose names begin with `$(P)`, which is set to `X:`. Waits until it answers a client of C EPICS.
    pub fn serving(ours: bool, database: &str) -> Self {
        Self::serving_with(ours, database, &[])
    }

    /// As [`serving`](Self::serving), with additional environment variables.
    pub fn serving_with(ours: bool, database: &str, variables: &[(&str, &str)]) -> Self {
        let probe = Some(database.split('"').nth(1).unwrap().replace("$(P)", "X:"));
        let how =
            StartOptions { probe, with_errors: true, ..with_definitions(&["-m", "P=X:", "-d", "test.db"], variables) };
        Self::new(ours, &[("test.db", database)], how)
    }

    fn new(ours: bool, files: &[(&str, &str)], how: StartOptions) -> Self {
        Self::in_folder(std::env::temp_dir().join(fresh("tahti-ioc")), ours, files, how)
    }

    fn in_folder(folder: PathBuf, ours: bool, files: &[(&str, &str)], how: StartOptions) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let port = free_port();
        let (child, commands, lines) = spawn(ours, port, &folder, &how);
        let mut ioc =
            Self { child, commands, lines, ours, port, folder, keep: false, started: String::new(), how, marks: 0 };
        ioc.wait();
        ioc
    }

    /// Waits until the IOC accepts commands and serves.
    fn wait(&mut self) {
        self.started = self.say("");
        if let Some(probe) = self.how.probe.clone() {
            eventually("the IOC answers", || {
                self.run(false, "caget", &["-w", "1", &probe]).contains(&format!("{probe} "))
            });
        }
    }

    /// A record of the IOC. Requires that it was started with one.
    pub(crate) fn probe(&self) -> &str {
        self.how.probe.as_deref().expect("an IOC that was started as serving")
    }

    /// Kills the process, as a crash does.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Restarts the process after a crash and waits until it answers.
    pub fn up(&mut self) {
        (self.child, self.commands, self.lines) = spawn(self.ours, self.port, &self.folder, &self.how);
        self.wait();
    }

    /// Sends a signal to the process, by name such as `STOP`.
    pub fn signal(&self, name: &str) {
        crate::process::kill(self.child.id() as i32, name);
    }

    /// Sends a command without waiting for it.
    pub fn command(&mut self, line: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Runs a command and returns its output. The folder's path becomes FOLDER.
    pub fn say(&mut self, line: &str) -> String {
        self.marks += 1;
        let mark = format!("--mark-{}--", self.marks);
        self.command(&format!("{line}\necho {mark}"));
        let mut said = self.hear(&mark);
        said.pop();
        let text = said.iter().fold(String::new(), |all, line| all + line + "\n");
        text.replace(&self.folder.display().to_string(), "FOLDER")
    }

    /// Reads lines until one contains `word`, and returns all of them without prompts.
    pub fn hear(&self, word: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => all.push(line.trim_start_matches("epics> ").to_owned()),
                Err(RecvTimeoutError::Timeout) => panic!("no {word:?} in {PATIENCE:?}; so far: {all:#?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the IOC ended before {word:?}: {all:#?}"),
            }
            if all.last().is_some_and(|line| line.contains(word)) {
                return all;
            }
        }
    }

    /// Repeats a command until its output is as required.
    pub fn until(&mut self, line: &str, good: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.say(line);
            if good(&said) {
                return said;
            }
            assert!(Instant::now() < end, "{line} still prints {said}");
        }
    }

    /// Output of a tool on the IOC's port, standard error last, normalised.
    pub fn run(&self, ours: bool, tool: &str, args: &[&str]) -> String {
        let output = program(ours, tool, self.port).current_dir(&self.folder).args(args).output().unwrap();
        normal(&crate::process::text(&output), self.port)
    }

    /// Standard output of a tool of C EPICS.
    pub fn tool(&self, tool: &str, args: &[&str]) -> String {
        let output = program(false, tool, self.port).current_dir(&self.folder).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace(&format!(":{}", self.port), ":PORT")
    }

    /// Reads fields until they are as required, and returns the last values.
    pub fn read_until(&self, fields: &[&str], wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
        let args: Vec<&str> = ["-t", "-w", "5"].into_iter().chain(fields.iter().copied()).collect();
        let patience = Instant::now() + PATIENCE;
        loop {
            let text = self.run(false, "caget", &args);
            let lines: Vec<&str> = text.lines().collect();
            if wanted(&lines) {
                return lines.into_iter().map(str::to_owned).collect();
            }
            assert!(Instant::now() < patience, "{fields:?} are still {lines:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the IOC with `exit` and returns its exit status.
    pub fn exit(mut self) -> Option<i32> {
        self.command("exit");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        // Both IOCs end at "exit". One that does not is killed.
        if let Some(commands) = &mut self.commands {
            let _ = commands.write_all(b"exit\n");
        }
        self.commands = None;
        let patience = Instant::now() + if std::thread::panicking() { Duration::ZERO } else { PATIENCE };
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Options for C's record type definitions, for comparisons with C EPICS.
fn with_definitions(options: &[&str], variables: &[(&str, &str)]) -> StartOptions {
    let definitions = epics().join("dbd/softIoc.dbd");
    StartOptions::new(&[&["-D", definitions.to_str().unwrap()], options].concat(), variables)
}

fn spawn(ours: bool, port: u16, folder: &PathBuf, how: &StartOptions) -> (Child, Option<ChildStdin>, Receiver<String>) {
    let mut command: Command = program(ours, "softIoc", port);
    command.current_dir(folder).args(&how.args).envs(how.variables.iter().cloned());
    let (say, lines) = channel();
    // Both outputs share a pipe, so that their order is preserved.
    let (output, into) = std::io::pipe().unwrap();
    if how.with_errors {
        command.stderr(into.try_clone().unwrap());
    }
    let mut child = command.stdin(Stdio::piped()).stdout(into).spawn().unwrap();
    // Closes the command's copies of the pipe's write end.
    drop(command);
    read_on(output, say);
    let commands = child.stdin.take();
    (child, commands, lines)
}

/// An IOC of C EPICS and one of tahti with the same files.
pub fn both(files: &[(&str, &str)], options: &[&str]) -> [Ioc; 2] {
    [false, true].map(|ours| Ioc::session(ours, files, options))
}

/// Asserts that both outputs are equal.
pub fn same(what: &str, [theirs, ours]: [String; 2]) {
    assert_eq!(theirs, ours, "{what}: EPICS left, tahti right");
}
