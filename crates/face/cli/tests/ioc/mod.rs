//! `tahti ioc` as a process, and a client that speaks Channel Access by hand.

#[path = "../port/mod.rs"]
pub(crate) mod port;

use ca::wire::{Header, command, messages, padded};
use port::free_port;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// An IOC that ends with the test.
pub(crate) struct Ioc {
    pub(crate) child: Child,
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    commands: ChildStdin,
    /// Its output without prompts, line by line.
    lines: Receiver<String>,
}

impl Ioc {
    /// Starts an IOC with files and options; waits until it serves.
    #[allow(dead_code, reason = "not every test starts it so")]
    pub(crate) fn start(name: &str, files: &[(&str, &str)], options: &[&str]) -> Self {
        Self::start_with(name, files, options, &[])
    }

    /// As [`start`](Self::start), with more variables in its environment.
    pub(crate) fn start_with(
        name: &str,
        files: &[(&str, &str)],
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = std::env::temp_dir().join(format!("tahti-ioc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let port = free_port();
        // One pipe for both, so that what a command says stands before what the next one prints.
        let (output, into) = std::io::pipe().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tahti"))
            .arg("ioc")
            .args(options)
            .current_dir(&folder)
            .env("EPICS_CA_SERVER_PORT", port.to_string())
            .env("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CA_REPEATER_PORT", (port + 1).to_string())
            .env("IOCSH_PS1", "\n")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(into.try_clone().unwrap())
            .stderr(into)
            .spawn()
            .unwrap();
        let (tell, lines) = channel();
        std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|l| tell.send(l)));
        let commands = child.stdin.take().unwrap();
        let ioc = Self { child, port, folder, commands, lines };
        ioc.hear("iocRun: All initialization complete");
        ioc
    }

    /// Reads lines until one holds `word`; all of them.
    pub(crate) fn hear(&self, word: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => all.push(line),
                Err(error) => panic!("no {word:?} ({error}) in {all:#?}"),
            }
            if all.last().is_some_and(|line| line.contains(word)) {
                return all;
            }
        }
    }

    /// What a command of the interpreter prints.
    pub(crate) fn say(&mut self, line: &str) -> String {
        writeln!(self.commands, "{line}\necho END-OF-COMMAND").unwrap();
        let lines = self.hear("END-OF-COMMAND");
        lines[..lines.len() - 1]
            .iter()
            .filter(|line| !line.is_empty())
            .fold(String::new(), |all, line| all + line + "\n")
    }

    /// Repeats a command until it prints something good.
    #[allow(dead_code, reason = "not every test waits so")]
    pub(crate) fn until(&mut self, line: &str, good: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.say(line);
            if good(&said) {
                return said;
            }
            assert!(Instant::now() < end, "{line} still prints {said}");
        }
    }

    /// Ends it by `exit`; its exit status.
    #[allow(dead_code, reason = "not every test ends its IOC by hand")]
    pub(crate) fn exit(mut self) -> Option<i32> {
        writeln!(self.commands, "exit").unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client's circuit.
pub(crate) struct Circuit {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Circuit {
    #[allow(dead_code, reason = "not every test leaves it at the lowest priority")]
    pub(crate) fn connect(port: u16) -> Self {
        Self::connect_as(port, 0)
    }

    /// A circuit of a priority, 0 to 99.
    pub(crate) fn connect_as(port: u16, priority: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut circuit = Self { stream, received: Vec::new() };
        circuit.send(Header::bare(command::VERSION, priority, 13, 0, 0), &[]);
        circuit
    }

    pub(crate) fn send(&mut self, header: Header, payload: &[u8]) {
        let mut out = Vec::new();
        Header { size: padded(payload.len()) as u32, ..header }.write(&mut out);
        out.extend_from_slice(payload);
        out.resize(out.len() + padded(payload.len()) - payload.len(), 0);
        self.stream.write_all(&out).unwrap();
    }

    /// Sends messages in one piece.
    #[allow(dead_code, reason = "not every test has much to say")]
    pub(crate) fn send_whole(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes as far as the server takes them now; the rest is thrown away. Then it reads no more for this circuit.
    #[allow(dead_code, reason = "not every test has clients of this kind")]
    pub(crate) fn send_some(&mut self, bytes: &[u8]) {
        self.stream.set_nonblocking(true).unwrap();
        // Full, or hung up by the server: both are what was wanted.
        let _ = self.stream.write(bytes);
        self.stream.set_nonblocking(false).unwrap();
    }

    /// The next message of a kind; others are passed over.
    pub(crate) fn receive(&mut self, command: u16) -> (Header, Vec<u8>) {
        loop {
            let found = messages(&self.received).next().map(|(header, payload)| (header, payload.to_vec()));
            if let Some((header, payload)) = found {
                self.received.drain(..if header.is_wide() { 24 } else { 16 } + payload.len());
                if header.command == command {
                    return (header, payload);
                }
                continue;
            }
            let mut bytes = [0; 65_536];
            let len = self.stream.read(&mut bytes).unwrap();
            assert!(len > 0, "the server hung up");
            self.received.extend_from_slice(&bytes[..len]);
        }
    }

    /// Makes a channel; its number at the server.
    pub(crate) fn create(&mut self, name: &str) -> u32 {
        self.send(Header::bare(command::CREATE_CHAN, 0, 0, 1, 13), format!("{name}\0").as_bytes());
        self.receive(command::CREATE_CHAN).0.p2
    }

    /// Asks for a double; `receive(READ_NOTIFY)` has it.
    #[allow(dead_code, reason = "some ask for many at once")]
    pub(crate) fn ask(&mut self, sid: u32, id: u32) {
        self.send(Header::bare(command::READ_NOTIFY, 6, 1, sid, id), &[]);
    }

    #[allow(dead_code, reason = "not every test writes")]
    pub(crate) fn put(&mut self, sid: u32, value: f64) {
        self.send(Header::bare(command::WRITE, 6, 1, sid, 1), &value.to_be_bytes());
    }

    #[allow(dead_code, reason = "not every test subscribes")]
    pub(crate) fn subscribe(&mut self, sid: u32, id: u32) {
        let mut payload = [0; 16];
        payload[13] = 5;
        self.send(Header::bare(command::EVENT_ADD, 6, 1, sid, id), &payload);
    }
}

/// The double of a message.
#[allow(dead_code, reason = "not every test reads numbers")]
pub(crate) fn double(payload: &[u8]) -> f64 {
    f64::from_be_bytes(payload[..8].try_into().unwrap())
}
