//! IOCs and tools of EPICS and ours as programs, on free ports of loopback.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`, `usr/bin/caget`, …; `cargo xtask test epics` sets it.
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../port/mod.rs"]
mod port;

pub(crate) use port::free_port;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

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
        let patience = Instant::now() + Duration::from_secs(30);
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

    /// What a command of the interpreter prints.
    pub(crate) fn command(&mut self, line: &str) -> String {
        let file = self.folder.join("output");
        let stdin = self.child.as_mut().and_then(|child| child.stdin.as_mut()).unwrap();
        writeln!(stdin, "{line} > {}", file.display()).unwrap();
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if !text.is_empty() || Instant::now() > patience {
                return text;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads fields until they are as wanted, or patience is over; what was read last.
    pub(crate) fn read_until(&self, fields: &[&str], wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
        let args: Vec<&str> = ["-t", "-w", "5"].into_iter().chain(fields.iter().copied()).collect();
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let text = self.run(false, "caget", &args);
            let lines: Vec<&str> = text.lines().collect();
            if wanted(&lines) || Instant::now() > patience {
                return lines.into_iter().map(str::to_owned).collect();
            }
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

/// A program that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `camonitor` that ends with the test, and its lines.
pub(crate) struct Monitor(Child, Receiver<String>);

impl Monitor {
    pub(crate) fn start(ioc: &Ioc, ours: bool, args: &[&str]) -> Self {
        let mut child = program(ours, "camonitor", ioc.port).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self(child, receive)
    }

    /// The lines of several until none has come from any for a while; each prints one at least.
    pub(crate) fn settled(all: &[Self]) -> Vec<Vec<String>> {
        let first = |monitor: &Self| monitor.1.recv_timeout(Duration::from_secs(60)).expect("camonitor prints nothing");
        let mut lines: Vec<Vec<String>> = all.iter().map(|monitor| vec![first(monitor)]).collect();
        Self::more(all, &mut lines);
        lines
    }

    /// Adds lines until none has come from any for a while.
    pub(crate) fn more(all: &[Self], lines: &mut [Vec<String>]) {
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_secs(3) {
            for (monitor, lines) in all.iter().zip(&mut *lines) {
                let before = lines.len();
                lines.extend(monitor.1.try_iter());
                if lines.len() > before {
                    last = Instant::now();
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Dates and times become TIME, the port PORT; colours go.
pub(crate) fn normal(text: &str, port: u16) -> String {
    let mut out = String::new();
    let text = text.replace(&format!(":{port}"), ":PORT").replace("\x1b[31;1m", "").replace("\x1b[0m", "");
    // What EPICS says of any list that names loopback, and the places in its source of its exceptions.
    let chatter = ["Warning: Duplicate EPICS CA Address", "    Source File: ", "    Current Time: ", "    Context: "];
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
