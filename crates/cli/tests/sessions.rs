//! Sessions of the command interpreter beside C's: the same commands, the same lines.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`; `cargo xtask test epics` sets it up. Everything stays on
//! loopback, on ports that were free.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a hung program is given before the test says so.
const PATIENCE: Duration = Duration::from_secs(60);

fn epics() -> PathBuf {
    std::env::var("TAHTI_EPICS").expect("TAHTI_EPICS is not set; run `cargo xtask test epics`").into()
}

/// A port that is free for TCP and UDP, and the one after it for UDP.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let free = |port| UdpSocket::bind(("127.0.0.1", port)).is_ok();
        if port < u16::MAX && free(port) && free(port + 1) {
            return port;
        }
    }
}

/// A program of EPICS or of ours on a port of its own, in a folder of its own.
fn program(ours: bool, name: &str, port: u16, folder: &Path) -> Command {
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
    ] {
        command.env(variable, value);
    }
    command.env("EPICS_CA_SERVER_PORT", port.to_string()).env("EPICS_CA_REPEATER_PORT", (port + 1).to_string());
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// An IOC that takes commands and ends with the test.
struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    port: u16,
    ours: bool,
    folder: PathBuf,
    marks: u32,
}

impl Session {
    /// Starts an IOC in a folder that holds these files.
    fn start(ours: bool, files: &[(&str, &str)], args: &[&str]) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("tahti-session-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut command = program(ours, "softIoc", port, &folder);
        command.arg("-D").arg(epics().join("dbd/softIoc.dbd")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut session = Self { child, stdin, lines, port, ours, folder, marks: 0 };
        session.say("echo started");
        session
    }

    /// Gives one command and returns what was printed until it was done.
    fn say(&mut self, command: &str) -> String {
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
    fn tool(&self, tool: &str, args: &[&str]) -> String {
        let output = program(false, tool, self.port, &self.folder).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace(&format!(":{}", self.port), ":PORT")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Both end with standard input; whoever does not is killed by its own handle.
        drop(self.stdin.take());
        for _ in 0..250 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Asks until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "still not, after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// C's IOC and ours with the same files.
fn both(files: &[(&str, &str)], args: &[&str]) -> [Session; 2] {
    [false, true].map(|ours| Session::start(ours, files, args))
}

fn same(what: &str, [theirs, ours]: [String; 2]) {
    assert_eq!(theirs, ours, "{what}: EPICS left, tahti right");
}

const RULES: &str = r#"
UAG(ops) {root,anna}
UAG(empty)
HAG(control) {localhost, HostA}
ASG(DEFAULT) { RULE(1,READ) RULE(1,WRITE,TRAPWRITE){UAG(ops)} }
ASG(locked) {
  INPA("X:lock") INPB("X:none")
  RULE(0,READ) { CALC("A<2") }
  RULE(1,WRITE) { UAG($(WHO),empty) CALC("A=0") }
  RULE(1,NONE) { CALC("B") }
  RULE(0,READ) { CALC("1") }
}
"#;

const GUARDED: &str = r#"
record(longout, "X:lock") { field(VAL, "0") field(PINI, "YES") }
record(ao, "X:guarded") { field(ASG, "locked") }
record(ao, "X:free") {}
"#;

#[test]
fn access_security_is_reported_and_enforced_as_c_does_it() {
    let files = [("rules.acf", RULES), ("test.db", GUARDED)];
    let mut iocs = both(&files, &["-m", "WHO=ops", "-a", "rules.acf", "-d", "test.db"]);
    for (command, wanted) in [
        ("asprules locked", "INPA(X:lock) value=0.000000"),
        ("asprules", ""),
        ("asdbdump", "\tINPA(X:lock)   VALID value=0.000000"),
        ("aspuag", ""),
        ("aspuag ops", ""),
        ("asphag", ""),
        ("aspmem", ""),
        ("aspmem locked 1", ""),
        ("dbpf X:lock 1", ""),
        ("asprules locked", "INPA(X:lock) value=1.000000"),
    ] {
        // C follows inputs by a thread of its own: ask until it has seen the value.
        let said = iocs.each_mut().map(|ioc| {
            let mut text = String::new();
            eventually(wanted, || {
                text = ioc.say(command);
                text.contains(wanted)
            });
            text
        });
        same(command, said);
    }
    for lock in ["0", "1", "2", "0"] {
        same(lock, iocs.each_mut().map(|ioc| ioc.say(&format!("dbpf X:lock {lock}"))));
        for name in ["X:guarded", "X:guarded.DESC", "X:free", "X:free.ASG"] {
            same(name, iocs.each_mut().map(|ioc| ioc.tool("cainfo", &[name])));
            same(name, iocs.each_mut().map(|ioc| ioc.tool("caput", &["-c", name, "5"])));
        }
    }
    let ours = &mut iocs[1];
    assert!(ours.ours && ours.tool("cainfo", &["X:guarded"]).contains("read, write"));
}

/// Lines that a program prints, until `until` says that it is enough; then the program is ended.
fn follow(mut command: Command, mut until: impl FnMut(&[String]) -> bool) -> Vec<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        seen.push(line);
        if until(&seen) {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    seen
}

#[test]
fn clients_are_told_when_their_rights_change() {
    let files = [("rules.acf", RULES), ("test.db", GUARDED)];
    for ours in [false, true] {
        let mut ioc = Session::start(ours, &files, &["-m", "WHO=ops", "-a", "rules.acf", "-d", "test.db"]);
        let mut monitor = program(false, "camonitor", ioc.port, &ioc.folder);
        monitor.args(["-F,", "X:guarded"]);
        // Without the right to read there is nothing to see; when it comes back the value is sent again.
        let lines = follow(monitor, |lines| {
            if lines.len() == 1 {
                ioc.say("dbpf X:lock 2");
                eventually("no rights", || ioc.tool("cainfo", &["X:guarded"]).contains("no read, no write"));
                ioc.say("dbpf X:lock 0");
            }
            lines.len() == 2
        });
        assert_eq!(lines.len(), 2, "{ours} {lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("X:guarded")), "{ours} {lines:?}");
    }
}

#[test]
fn a_malformed_security_file_keeps_the_ioc_from_starting() {
    let folder = std::env::temp_dir().join(format!("tahti-acf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bad.acf"), "ASG(DEFAULT) {\n  RULE(1, WRIET)\n}\n").unwrap();
    std::fs::write(folder.join("test.db"), GUARDED).unwrap();
    let mut command = program(true, "softIoc", free_port(), &folder);
    let mut child =
        command.args(["-a", "bad.acf", "-d", "test.db"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!status.success() && said.contains("bad.acf:2:11: found \"WRIET\""), "{status} {said}");
    assert!(said.contains("nearest is \"WRITE\""), "{said}");
}

const TEMPLATE: &str = r#"
record(ao, "$(P)$(N)") { field(DESC, "$(T=none)") field(VAL, "$(V=0)") info(autosaveFields, "VAL") alias("$(P)alias$(N)") }
"#;

const SUBSTITUTIONS: &str = r#"
global { P=X:, T="two words" }
file "one.db" { pattern { N, V } { a, 10 } { b "2\"0" } {"c" , 3} }
file one.db { { N=d, V='4' } global { T="it, too" } { N=e } old { N=f, T="$(Q)" } }
"#;

#[test]
fn substitutions_load_what_c_loads() {
    let substitutions = SUBSTITUTIONS.replace("2\\\"0", "20");
    let files = [("one.db", TEMPLATE), ("all.substitutions", &substitutions)];
    let script = "dbLoadTemplate all.substitutions \"Q=fox\"\niocInit\n";
    let files = [files[0], files[1], ("st.cmd", script)];
    let mut iocs = both(&files, &["st.cmd"]);
    for command in ["dbl", "dbla", "dbnr"] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        for field in ["DESC", "VAL"] {
            let command = format!("dbgf X:{name}.{field}");
            same(&command, iocs.each_mut().map(|ioc| ioc.say(&command)));
        }
    }
}

#[test]
fn the_exit_record_ends_the_ioc() {
    for (value, status) in [("0", 0), ("3", 1)] {
        // The package of C's IOC lacks the file that its -x loads: ours alone.
        let mut ioc = Session::start(true, &[], &["-x", "END"]);
        assert!(ioc.tool("caget", &["END:BaseVersion"]).contains("tahti "));
        // Writing A processes the record.
        ioc.stdin.as_mut().unwrap().write_all(format!("dbpf END:exit.A {value}\n").as_bytes()).unwrap();
        let mut ended = None;
        eventually("the IOC ends", || {
            ended = ioc.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|ended| ended.code()), Some(status));
    }
}

#[test]
fn writes_under_trapwrite_are_logged_with_who_where_and_what() {
    let files =
        [("rules.acf", "ASG(DEFAULT) { RULE(1,WRITE,TRAPWRITE) } ASG(quiet) { RULE(1,WRITE) }"), ("test.db", LOGGED)];
    let mut ioc = Session::start(true, &files, &["-a", "rules.acf", "-d", "test.db"]);
    assert_eq!(ioc.say("caPutLogInit put.log"), "");
    for (name, value) in [("X:a", "1"), ("X:a", "1"), ("X:a", "2.5"), ("X:a.DESC", "two words"), ("X:quiet", "5")] {
        ioc.tool("caput", &["-c", name, value]);
    }
    let file = ioc.folder.join("put.log");
    let mut log = String::new();
    eventually("three lines", || {
        log = std::fs::read_to_string(&file).unwrap();
        log.lines().count() == 3
    });
    let lines: Vec<&str> = log.lines().map(|line| line.split_once(" X:a").expect("a name").1).collect();
    assert_eq!(lines, [" new=1 old=0", " new=2.5 old=1", ".DESC new=\"two words\" old=\"\""], "{log}");
    assert_eq!(ioc.say("caPutLogShow"), "caPutLog: 3 logged, 0 dropped (queue full), 0 failed (file)\n");
}

const LOGGED: &str = r#"
record(ao, "X:a") {}
record(ao, "X:quiet") { field(ASG, "quiet") }
"#;
