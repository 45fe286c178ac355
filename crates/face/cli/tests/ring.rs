//! `examples/ring`: a small accelerator that behaves as its README documents.

use harness::port::free_port;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for a hanging program.
const PATIENCE: Duration = Duration::from_secs(60);

struct Ring {
    child: Child,
    folder: PathBuf,
    port: u16,
}

fn tahti(port: u16) -> Command {
    let mut command = harness::tahti();
    command.env("EPICS_CA_ADDR_LIST", "127.0.0.1").env("EPICS_CA_AUTO_ADDR_LIST", "NO");
    command.env("EPICS_CA_SERVER_PORT", port.to_string());
    command
}

impl Ring {
    fn start(folder: &Path) -> Self {
        let port = free_port();
        let mut command = tahti(port);
        command.args(["ioc", "st.cmd"]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        Self { child: command.spawn().unwrap(), folder: folder.to_owned(), port }
    }

    fn tool(&self, args: &[&str]) -> (bool, String) {
        let output = tahti(self.port).args(args).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn put(&self, name: &str, value: &str) -> bool {
        self.tool(&["caput", "-c", name, value]).0
    }

    /// Reads a channel until its value satisfies `wanted`.
    fn until(&self, name: &str, wanted: impl Fn(f64) -> bool) {
        let start = Instant::now();
        loop {
            let text = self.tool(&["caget", "-t", name]).1;
            if text.parse().is_ok_and(&wanted) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{name} is {text:?} after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the IOC as an operator does.
    fn exit(mut self) {
        self.child.stdin.take().unwrap().write_all(b"exit\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After `exit` the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_ring_stores_beam_locks_its_magnets_and_remembers_its_set_points() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/ring");
    let folder = std::env::temp_dir().join(format!("tahti-ring-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("state")).unwrap();
    for entry in std::fs::read_dir(&source).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }

    let ring = Ring::start(&folder);
    ring.until("SR:RF1:Volts", |volts| volts > 400.0);
    assert!(ring.put("SR:Beam:Inject", "inject"));
    ring.until("SR:Beam:Current", |current| current > 90.0);
    assert!(ring.put("SR:CH1:Set", "9"));
    ring.until("SR:BPM1:X", |position| position > 1.0);
    assert_ne!(ring.tool(&["caget", "-t", "SR:BPM1:X.SEVR"]).1, "NO_ALARM");
    assert!(ring.put("SR:Beam:Shutter", "open"));
    assert!(!ring.put("SR:CH1:Set", "5"), "the shutter is open");
    assert!(ring.put("SR:Beam:Shutter", "closed") && ring.put("SR:CH1:Set", "4"));
    assert!(ring.put("SR:RF1:Enable", "off"));
    ring.until("SR:Beam:Current", |current| current == 0.0);
    let log = ring.folder.join("state/put.log");
    ring.exit();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("SR:CH1:Set new=4 old=5 min=4 max=9"), "{log}");

    let ring = Ring::start(&folder);
    ring.until("SR:CH1:Set", |current| current == 4.0);
    ring.exit();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_rings_plant_is_well_formed() {
    let plant = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/ring");
    let output = harness::tahti().args(["check", plant]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
