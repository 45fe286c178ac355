//! IOCs and tools of EPICS and ours as programs, on free ports of loopback.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`, `usr/bin/caget`, …; `cargo xtask test epics` sets it.
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../port/mod.rs"]
mod port;
pub(crate) mod session;

pub(crate) use port::free_port;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What an event is waited for before a test gives up: a machine may have much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn epics() -> PathBuf {
    std::env::var("TAHTI_EPICS").expect("TAHTI_EPICS is not set; run `cargo xtask test epics`").into()
}

/// A program of EPICS or of ours on a port of its own.
pub(crate) fn program(ours: bool, name: &str, port: u16) -> Command {
    let mut command = if ours {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
        command.arg(if name == "softIoc" { "ioc" } else { name });
        command
    } else {
        let mut command = Command::new(epics().join("usr/bin").join(name));
        command.env("LD_LIBRARY_PATH", epics().join("usr/lib"));
        command
    };
    for (variable, value) in [
        ("EPICS_CA_ADDR_LIST", "127.0.0.1"),
        ("EPICS_CA_AUTO_ADDR_LIST", "NO"),
        ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1"),
        ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO"),
        ("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1"),
        // The tools' own second is too short on a busy machine.
        ("EPICS_CLI_TIMEOUT", "30"),
    ] {
        command.env(variable, value);
    }
    command.env("EPICS_CA_SERVER_PORT", port.to_string()).env("EPICS_CA_REPEATER_PORT", (port + 1).to_string());
    command.stdin(Stdio::null());
    command
}

/// An IOC that ends with the test.
pub(crate) struct Ioc {
    child: Option<Child>,
    ours: bool,
    pub(crate) port: u16,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    probe: String,
}

impl Ioc {
    /// Starts an IOC with records whose names begin with `$(P)`, which is `X:`.
    pub(crate) fn start(ours: bool, database: &str) -> Self {
        Self::start_with(ours, database, &[])
    }

    /// The same with more variables.
    pub(crate) fn start_with(ours: bool, database: &str, variables: &[(&str, &str)]) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("tahti-epics-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("test.db"), database).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let probe = database.split('"').nth(1).unwrap().replace("$(P)", "X:");
        let mut ioc = Self { child: None, ours, port, folder, variables, probe };
        ioc.up();
        ioc
    }

    /// Starts the program (again) and waits until it answers.
    pub(crate) fn up(&mut self) {
        let mut command = program(self.ours, "softIoc", self.port);
        command.arg("-D").arg(epics().join("dbd/softIoc.dbd")).args(["-m", "P=X:", "-d"]);
        command.arg(self.folder.join("test.db")).envs(self.variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let patience = Instant::now() + PATIENCE;
        while !self.run(false, "caget", &["-w", "1", &self.probe]).contains(&format!("{} ", self.probe)) {
            assert!(Instant::now() < patience, "the IOC on port {} does not answer", self.port);
        }
    }

    /// Ends the program as a crash does.
    pub(crate) fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, name: &str) {
        let child = self.child.as_ref().unwrap();
        let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// What a tool prints, errors last; times and places replaced.
    pub(crate) fn run(&self, ours: bool, tool: &str, args: &[&str]) -> String {
        let output = program(ours, tool, self.port).args(args).output().unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        normal(&text, self.port)
    }

    /// What commands of the interpreter print; the last line's output.
    pub(crate) fn command(&mut self, line: &str) -> String {
        let [output, done] = ["output", "done"].map(|name| self.folder.join(name));
        let stdin = self.child.as_mut().and_then(|child| child.stdin.as_mut()).unwrap();
        writeln!(stdin, "{line} > {}\necho done > {}", output.display(), done.display()).unwrap();
        // The interpreter goes on to the second when it has closed the first.
        let said = |file| std::fs::read_to_string(file).unwrap_or_default();
        eventually(line, || said(&done) == "done\n");
        std::fs::remove_file(&done).unwrap();
        said(&output)
    }

    /// Reads fields until they are as wanted; what was read last.
    pub(crate) fn read_until(&self, fields: &[&str], wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
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
}

impl Drop for Ioc {
    fn drop(&mut self) {
        // Both end at "exit" on standard input; whoever does not is killed by its own handle.
        if let Some(mut child) = self.child.take() {
            if let Some(mut stdin) = child.stdin.take() {
                let _ = stdin.write_all(b"exit\n");
            }
            let patience = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that ends with the test, and with it all that it has started: clients of C's start repeaters that stay.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().unwrap())
    }

    /// Starts it; its lines as they come, for which its output must go through [`by_lines`] or by itself.
    pub(crate) fn follow(command: &mut Command) -> (Self, Receiver<String>) {
        let mut running = Self::start(command.stdout(Stdio::piped()));
        let lines = lines_of(&mut running.0);
        (running, lines)
    }

    /// Whether the program has ended. It is not reaped, so that nobody else gets its number.
    pub(crate) fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.0)), how).unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The lines that a program prints, as they come; its output is taken, and read to the end.
pub(crate) fn lines_of(child: &mut Child) -> Receiver<String> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    lines
}

/// The same program, each line written when it is there.
pub(crate) fn by_lines(likeness: &Command) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(likeness.get_program()).args(likeness.get_args());
    command.envs(likeness.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    command
}

/// Starts a repeater on the port that [`program`] tells clients, and waits until it has it. C's clients start none then.
pub(crate) fn repeater(ours: bool, port: u16) -> Running {
    let mut command = program(ours, if ours { "carepeater" } else { "caRepeater" }, port);
    let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    eventually("the repeater takes its port", || UdpSocket::bind(("0.0.0.0", port + 1)).is_err());
    running
}

/// Asks until it is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "still not, after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `camonitor` that ends with the test, and its lines.
pub(crate) struct Monitor(Running, Receiver<String>);

impl Monitor {
    pub(crate) fn start(ioc: &Ioc, ours: bool, args: &[&str]) -> Self {
        let (running, lines) = Running::follow(program(ours, "camonitor", ioc.port).args(args));
        Self(running, lines)
    }

    /// The first lines of several; each prints one at least.
    pub(crate) fn settled(all: &[Self], ioc: &Ioc) -> Vec<Vec<String>> {
        let first = |monitor: &Self| monitor.1.recv_timeout(PATIENCE).expect("camonitor prints nothing");
        let mut lines: Vec<Vec<String>> = all.iter().map(|monitor| vec![first(monitor)]).collect();
        Self::more(all, ioc, &mut lines);
        lines
    }

    /// Adds lines until none comes from any while ten other clients come, read and go one after another, which takes the longer
    /// the busier the machine is.
    pub(crate) fn more(all: &[Self], ioc: &Ioc, lines: &mut [Vec<String>]) {
        let mut rounds = 0;
        while rounds < 10 {
            rounds += 1;
            let round = Instant::now() + Duration::from_millis(150);
            ioc.run(false, "caget", &[&ioc.probe]);
            std::thread::sleep(round.saturating_duration_since(Instant::now()));
            for (monitor, lines) in all.iter().zip(&mut *lines) {
                let before = lines.len();
                lines.extend(monitor.1.try_iter());
                if lines.len() > before {
                    rounds = 0;
                }
            }
        }
    }
}

/// Dates and times become TIME, the port PORT; colours go.
pub(crate) fn normal(text: &str, port: u16) -> String {
    let mut out = String::new();
    let text = text.replace(&format!(":{port}"), ":PORT").replace("\x1b[31;1m", "").replace("\x1b[0m", "");
    // What EPICS says of any list that names loopback, and the places in its source of its exceptions.
    let chatter = ["Warning: Duplicate EPICS CA Address", "    Source File: ", "    Current Time: "];
    let lines = text.split_inclusive('\n').filter(|line| !chatter.iter().any(|start| line.starts_with(start)));
    for word in lines.flat_map(|line| line.split_inclusive(char::is_whitespace)) {
        let body = word.trim_end();
        let date = body.len() == 10 && body.as_bytes()[4] == b'-' && body.as_bytes()[7] == b'-';
        let time = body.len() == 15 && body.as_bytes()[2] == b':' && body.as_bytes()[8] == b'.';
        if date || time {
            out.push_str("TIME");
            out.push_str(&word[body.len()..]);
        } else {
            out.push_str(word);
        }
    }
    out
}

pub(crate) fn same(what: &str, theirs: &str, ours: &str) {
    for (number, (a, b)) in theirs.lines().zip(ours.lines()).enumerate() {
        assert_eq!(a, b, "{what}, line {}: EPICS left, tahti right", number + 1);
    }
    assert_eq!(theirs.lines().count(), ours.lines().count(), "{what}:\n{theirs}\n---\n{ours}");
}
