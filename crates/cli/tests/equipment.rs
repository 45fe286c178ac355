//! Equipment managers as processes, with a message server: what a user sees.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

fn tahti() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tahti"))
}

/// A name that nobody else on this machine uses.
fn fresh(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A process that is ended with its test, and what it says.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command, until: &str) -> Self {
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

    fn hears(&self, wanted: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("never said {wanted:?}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    fn signal(&self, signal: &str) {
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
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(fresh("tahti-em"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
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

struct Site {
    server: String,
    folder: Folder,
    messages: Option<Running>,
}

impl Site {
    fn new() -> Self {
        let mut site = Self { server: fresh("em"), folder: Folder::new(), messages: None };
        site.serve();
        site
    }

    fn serve(&mut self) {
        self.messages = None;
        let mut command = tahti();
        command.args(["msg", "serve", "--name", &self.server]);
        self.messages = Some(Running::start(&mut command, "serving"));
    }

    fn manager(&self, file: &Path) -> Running {
        Running::start(tahti().args(["em", "serve", "--server", &self.server]).arg(file), "serves")
    }

    fn send(&self, line: &str) -> Output {
        tahti().args(["msg", "send", "--server", &self.server, line]).output().unwrap()
    }

    /// What is printed, or what is said on stderr.
    fn ask(&self, line: &str) -> String {
        let output = self.send(line);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(text).unwrap().trim().to_owned()
    }

    fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) {
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

const MAGNETS: &str = r#"
[manager]
name = "magnets"

[[device]]
name = "ps_b"
driver = "power-supply"
ramp = 10000
lag = "1ms"

[[device]]
name = "bpm_1"
driver = "bpm"
x = 0.5

[[device]]
name = "fb"
driver = "feedback"
period = "5ms"
input = "sr_bpm_1/x"
output = "sr_bpm_1"
ki = 20
low = -10
high = 10

[[map]]
verb = ["put", "set"]
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "setpoint"
unit = "A"
limits = [0, 500]
reached = { complement = "current_adc", within = 0.1, timeout = "20s" }

[[map]]
verb = "put"
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]

[[map]]
verb = "get"
object = "sr_mag_ps_{name}"
complement = "current_adc"
device = "ps_{name}"
point = "current"
unit = "A"
precision = 1

[[map]]
verb = "get"
object = "sr_bpm_{n}"
complement = "x"
device = "bpm_{n}"
point = "x"
unit = "mm"

[[map]]
verb = "put"
object = "sr_bpm_{n}"
device = "bpm_{n}"
point = "kick"
limits = [-10, 10]

[[map]]
verb = "put"
object = "sr_orbit"
device = "fb"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]
"#;

#[test]
fn a_manager_serves_its_tables_keeps_its_state_and_takes_new_tables() {
    let mut site = Site::new();
    let poll = fresh("values");
    let text = format!("{MAGNETS}\n[[poll]]\nname = \"{poll}\"\nperiod = \"20ms\"\nobjects = [\"sr_*\"]\n");
    let file = site.folder.write("magnets.toml", &text);
    let manager = site.manager(&file);
    for (line, answer) in [
        ("put/sr_mag_ps_b/on", ""),
        ("set/sr_mag_ps_b/100A", ""),
        ("get/sr_mag_ps_b/current_adc", "100.0A"),
        ("put/sr_mag_ps_b/0.6kA", "tahti: RANGE: 600A is out of range; expected 0A to 500A"),
        ("call/sr_mag_ps_b/reset", "tahti: NO_VERB: the object does not have this verb; expected one of get, put, set"),
    ] {
        assert_eq!(site.ask(line), answer, "{line}");
    }
    assert!(site.ask("describe/sr_mag_ps_b").contains("get current_adc: number A read"));

    // An agent, started by a message.
    assert_eq!(site.ask("put/sr_orbit/on"), "");
    site.until("get/sr_bpm_1/x", |x| x.trim_end_matches("mm").parse::<f64>().is_ok_and(|x| x.abs() < 0.01));

    // New tables, and some that are refused, under the running devices.
    site.folder.write("magnets.toml", &text.replace("limits = [0, 500]", "limits = [0, 50]"));
    manager.signal("-HUP");
    manager.hears("tables read anew");
    site.until("put/sr_mag_ps_b/60A", |answer| answer.contains("expected 0A to 50A"));
    assert_eq!(site.ask("get/sr_mag_ps_b/current_adc"), "100.0A", "devices go on");
    site.folder.write("magnets.toml", &text.replace("point = \"kick\"", "point = \"kik\""));
    manager.signal("-HUP");
    assert!(manager.hears("the old ones stay").contains("not taken over"));
    assert_eq!(site.ask("put/sr_mag_ps_b/40A"), "");

    // The message server is lost and comes back: loops went on, devices have kept their state.
    site.serve();
    manager.hears("serves");
    site.until("get/sr_mag_ps_b/current_adc", |answer| answer == "40.0A");

    // What is polled is read without a message, and is stale when its poller is gone.
    let values = || tahti().args(["em", "values", &poll]).output().unwrap();
    let begun = Instant::now();
    while !values().status.success() && begun.elapsed() < LONG {}
    let shown = String::from_utf8(values().stdout).unwrap();
    assert!(shown.contains("sr_mag_ps_b/current_adc  40A"), "{shown}");
    manager.signal("-TERM");
    // They are shown as stale while the process ends.
    let gone = || String::from_utf8(values().stderr).unwrap().contains("no variables are exported");
    while !gone() {
        assert!(begun.elapsed() < 2 * LONG, "{:?}", values());
    }
}

#[test]
fn a_device_that_hangs_holds_up_nobody_and_what_it_missed_is_not_executed() {
    let site = Site::new();
    let folder = site.folder.0.display().to_string();
    let script = site.folder.write(
        "valve.sh",
        &format!("#!/bin/sh\ncase $1 in get) cat {folder}/state;; put) sleep 1; echo $3 >> {folder}/state;; esac\n"),
    );
    assert!(Command::new("chmod").arg("+x").arg(&script).status().unwrap().success());
    let file = site.folder.write(
        "valve.toml",
        "[manager]\nname = \"valves\"\n\
         [[device]]\nname = \"valve\"\ndriver = \"script\"\ncommand = [\"./valve.sh\"]\ntimeout = \"10s\"\n\
         [[device]]\nname = \"memory\"\ndriver = \"memory\"\n\
         [[map]]\nverb = \"put\"\nobject = \"sr_valve\"\ndevice = \"valve\"\npoint = \"position\"\nlimits = [0, 100]\n\
         [[map]]\nverb = \"get\"\nobject = \"sr_valve\"\ncomplement = \"position\"\ndevice = \"valve\"\npoint = \"position\"\n\
         [[map]]\nverb = \"get\"\nobject = \"sr_memory\"\ncomplement = \"a\"\ndevice = \"memory\"\npoint = \"a\"\n",
    );
    let _manager = site.manager(&file);
    let slow: Vec<Child> = [("1", "20s"), ("2", "300ms"), ("3", "20s")]
        .into_iter()
        .map(|(value, limit)| {
            let line = format!("put/sr_valve/{value}");
            let mut command = tahti();
            command.args(["msg", "send", "--server", &site.server, "--timeout", limit, &line]);
            let child = command.stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            child
        })
        .collect();
    assert_eq!(site.ask("get/sr_memory/a"), "0", "while the valve moves");
    let ended: Vec<bool> = slow.into_iter().map(|mut child| child.wait().unwrap().success()).collect();
    assert_eq!(ended, [true, false, true], "the second had waited longer than it was worth");
    let state = std::fs::read_to_string(site.folder.0.join("state")).unwrap();
    assert_eq!(state, "1\n3\n");
}

/// A Modbus device with one holding register at address 100.
fn plc() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut register = [0u8; 2];
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 12];
            while stream.read_exact(&mut request).is_ok() {
                let (head, function, address) =
                    (&request[..4], request[7], u16::from_be_bytes([request[8], request[9]]));
                let answer = match (function, address) {
                    (3, 100) => vec![0, 5, request[6], 3, 2, register[0], register[1]],
                    (6, 100) => {
                        register = [request[10], request[11]];
                        [&[0, 6], &request[6..12]].concat()
                    }
                    _ => vec![0, 3, request[6], function | 0x80, 2],
                };
                if stream.write_all(&[head, &answer].concat()).is_err() {
                    break;
                }
            }
        }
    });
    port
}

#[test]
fn a_modbus_device_is_read_written_and_its_refusal_told() {
    let site = Site::new();
    let file = site.folder.write(
        "plc.toml",
        &format!(
            "[manager]\nname = \"plc\"\n\
             [[device]]\nname = \"plc\"\ndriver = \"modbus\"\naddress = \"127.0.0.1:{}\"\n\
             [[map]]\nverb = \"put\"\nobject = \"sr_pump\"\ndevice = \"plc\"\npoint = \"holding:100\"\nconvert = [{{ scale = 0.1 }}]\n\
             unit = \"bar\"\nlimits = [0, 100]\n\
             [[map]]\nverb = \"put\"\nobject = \"sr_pump\"\ncomplement = \"mode={{value}}\"\ndevice = \"plc\"\npoint = \"holding:100\"\n\
             convert = [{{ bits = \"0-1\" }}, {{ enum = {{ off = 0, slow = 1, fast = 2 }} }}]\n\
             [[map]]\nverb = \"get\"\nobject = \"sr_pump\"\ncomplement = \"pressure\"\ndevice = \"plc\"\npoint = \"holding:100\"\n\
             convert = [{{ scale = 0.1 }}]\nunit = \"bar\"\nprecision = 1\n\
             [[map]]\nverb = \"get\"\nobject = \"sr_pump\"\ncomplement = \"other\"\ndevice = \"plc\"\npoint = \"holding:7\"\n",
            plc()
        ),
    );
    let _manager = site.manager(&file);
    assert_eq!(site.ask("put/sr_pump/1200mbar"), "");
    assert_eq!(site.ask("get/sr_pump/pressure"), "1.2bar");
    assert_eq!(site.ask("put/sr_pump/mode=fast"), "");
    assert_eq!(site.ask("get/sr_pump/pressure"), "1.4bar", "12 with its lowest bits changed to 2 is 14");
    let refused = site.ask("get/sr_pump/other");
    assert!(refused.starts_with("tahti: DEVICE: the device answers with exception 2"), "{refused}");
}
