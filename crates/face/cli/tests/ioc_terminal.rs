//! The interpreter of `tahti ioc` on a terminal, made by `script` (util-linux).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Typed {
    child: Child,
    keys: ChildStdin,
    bytes: Receiver<Vec<u8>>,
    seen: String,
    /// All output so far.
    all: String,
}

impl Typed {
    fn start(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("tahti-terminal-{name}-{}.db", std::process::id()));
        std::fs::write(&file, "record(ao, \"X:single\") { field(VAL, 7) field(DESC, \"\\x1b]0;mine\\a\") }").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new("script")
            .arg("-qec")
            .arg(format!("{} ioc -d {}", env!("CARGO_BIN_EXE_tahti"), file.display()))
            .arg("/dev/null")
            .env("EPICS_CA_SERVER_PORT", port.to_string())
            .env("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CA_REPEATER_PORT", port.wrapping_add(1).max(1025).to_string())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of util-linux");
        let (tell, bytes) = channel();
        let mut out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut some) {
                if tell.send(some[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = child.stdin.take().unwrap();
        let mut typed = Self { child, keys, bytes, seen: String::new(), all: String::new() };
        typed.see("epics> ");
        std::fs::remove_file(&file).unwrap();
        typed
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for a text, and removes the output up to and including it.
    fn see(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.bytes.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(some) => {
                    self.seen.push_str(&String::from_utf8_lossy(&some));
                    self.all.push_str(&String::from_utf8_lossy(&some));
                }
                Err(error) => panic!("no {text:?} ({error}) in {:?}", self.seen),
            }
        }
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn commands_and_records_are_completed_and_the_history_is_recalled() {
    let mut typed = Typed::start("keys");
    // Input before the first prompt is handled by the terminal, not by the line editor.
    let mut line = |keys: &str, output: &str| {
        typed.press(keys);
        typed.see(output);
        typed.see("epics> ");
    };
    line("dbgf X:si\t\r", "DBF_DOUBLE:         7 ");
    line("dbgf X:single.DES\t\r", "mine");
    // Arrow up twice.
    line("\x1b[A\x1b[A\r", "DBF_DOUBLE:         7 ");
    // Ctrl-C discards the line and does not end the IOC.
    line("dbgf nothing\x03", "\r\n");
    line("iocshC\t 'echo still-here'\r", "\nstill-here");
    typed.press("ex\t\r");
    let end = Instant::now() + PATIENCE;
    while typed.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "exit does not end it");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(typed.child.wait().unwrap().success());
}

#[test]
fn texts_of_records_do_not_control_the_terminal() {
    let mut typed = Typed::start("steer");
    for command in ["dbpr X:single,1\r", "echo \"\\x1b]0;mine\\a\"\r"] {
        typed.press(command);
        // Output appears below the line that is being typed.
        typed.see("\n");
        typed.see("mine");
        typed.see("epics> ");
    }
    let shown = typed.all.clone();
    assert!(!shown.contains("\x1b]0;") && shown.contains("\\x1b]0;mine\\x07"), "{shown:?}");
}
