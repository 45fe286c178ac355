//! An IOC as a process: EPICS' or ours, each on a free port of the loopback.

use crate::Failed;
use crate::measure::{ended, own_program};
use base::DurNs;
use keep::shield::ShieldGroup;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use sys::root::RootDir;

use super::wire::Circuit;

/// Timeout, above the time to load a million records in C.
const WATCHDOG: Duration = Duration::from_secs(240);

/// Error output of an IOC, and the number of lines shown if it fails.
const ERRORS: &str = "errors";
const ERROR_LINES: usize = 5;

/// The IOC's implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// EPICS' `softIoc`.
    C,
    /// Ours, with one reading of the clock for each pass.
    Tahti,
    /// Ours, with one reading of the clock for each record, like C's.
    Stamped,
    /// QSRV2: C's records over PVAccess, with the servers of pvxs.
    Qsrv2,
}

/// A running IOC, ended on drop.
pub(crate) struct Ioc {
    child: Child,
    folder: PathBuf,
    /// Port of its circuits and searches.
    pub(crate) port: u16,
    /// Time from the start of the process to its first answer.
    pub(super) took: Duration,
}

/// The folder with C EPICS, set by `cargo xtask bench`.
pub(super) fn epics() -> Option<PathBuf> {
    std::env::var_os("TAHTI_EPICS").map(PathBuf::from).filter(|path| path.join("usr/bin/softIoc").exists())
}

impl Ioc {
    /// Starts an IOC with a database and further options, and waits until `probe`, one of its records, answers.
    pub(crate) fn start(kind: Kind, database: &str, probe: &str, options: &[String]) -> Result<Self, Failed> {
        Self::start_in(kind, database, probe, options, None)
    }

    /// As [`start`](Self::start), in a shield's group.
    pub(super) fn start_in(
        kind: Kind,
        database: &str,
        probe: &str,
        options: &[String],
        place: Option<&ShieldGroup>,
    ) -> Result<Self, Failed> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("tahti-bench-{}-{port}", std::process::id()));
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).map_err(Failed::file(&folder));
        std::fs::create_dir_all(&folder).map_err(Failed::file(&folder))?;
        write("bench.db", database)?;
        if kind == Kind::Qsrv2 {
            write("ioc.py", QSRV2)?;
        }
        let stamped = if kind == Kind::Stamped { "var stampEachRecord 1\n" } else { "" };
        write("st.cmd", &format!("{stamped}dbLoadRecords(\"{}\")\niocInit\n", folder.join("bench.db").display()))?;
        let mut command = command(kind)?;
        if kind == Kind::Qsrv2 {
            command.arg(folder.join("ioc.py")).arg(folder.join("bench.db"));
        } else {
            command.args(options).arg(folder.join("st.cmd"));
        }
        for (variable, value) in environment(port) {
            command.env(variable, value);
        }
        let begin = Instant::now();
        if place.is_some() {
            command = gated(&command);
        }
        let errors = std::fs::File::create(folder.join(ERRORS)).map_err(Failed::file(&folder))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn();
        let child = child.map_err(Failed::process(&format!("{command:?}")))?;
        let mut ioc = Self { child, folder, port, took: Duration::ZERO };
        if let Some(place) = place {
            place.enter(&RootDir::machine(), ioc.child.id() as i32)?;
            ioc.send("go\n")?;
        }
        ioc.wait(probe, begin)?;
        ioc.took = begin.elapsed();
        Ok(ioc)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn wait(&mut self, probe: &str, begin: Instant) -> Result<(), Failed> {
        loop {
            if Circuit::open(self.port).is_ok_and(|mut circuit| circuit.channel(probe).is_ok()) {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || begin.elapsed() > WATCHDOG {
                let found = ended.map_or_else(|| "none".to_owned(), |status| format!("its end ({status})"));
                let errors = std::fs::read_to_string(self.folder.join(ERRORS)).unwrap_or_default();
                let lines: Vec<&str> = errors.lines().collect();
                let errors = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
                let expected = format!("an answer of {probe} within {} s", WATCHDOG.as_secs());
                return Err(Failed::answer("the IOC", expected, format!("{found}; it printed\n{errors}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The output of a command of the IOC's interpreter.
    pub(crate) fn run_command(&mut self, command: &str) -> Result<String, Failed> {
        let (output, done) = (self.folder.join("output"), self.folder.join("done"));
        // If the second file exists, the first one is complete.
        self.send(&format!("{command} > {}\necho done > {}\n", output.display(), done.display()))?;
        let begin = Instant::now();
        while std::fs::read(&done).unwrap_or_default().is_empty() {
            if begin.elapsed() > WATCHDOG {
                return Err(Failed::answer("the IOC", format!("an answer to {command:?}"), "none"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = std::fs::read_to_string(&output).map_err(Failed::file(&output));
        let _ = std::fs::remove_file(done);
        text
    }

    fn send(&mut self, text: &str) -> Result<(), Failed> {
        let Some(stdin) = &mut self.child.stdin else { return Ok(()) };
        stdin.write_all(text.as_bytes()).map_err(Failed::process("the IOC"))
    }

    /// Processor time used so far, all threads together.
    pub(crate) fn cpu(&self) -> Result<DurNs, Failed> {
        Ok(sys::clock::process_cpu(self.pid())?)
    }

    /// Runs a function; returns the IOC's processor time and the elapsed time, in ns.
    pub(crate) fn measure(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<(f64, f64), Failed> {
        let (cpu, begin) = (self.cpu()?, Instant::now());
        work()?;
        Ok(((self.cpu()?.0 - cpu.0) as f64, begin.elapsed().as_nanos() as f64))
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) * 1024.0
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.write_all(b"exit\n");
        }
        ended(&mut self.child);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts QSRV2 with a database. Its interpreter waits for the end of its input.
const QSRV2: &str = "\
import os, sys
os.environ.setdefault('PVXS_QSRV_ENABLE', 'YES')
import pvxslibs.path
from epicscorelibs import ioc
ioc.start_ioc(dbs=[(sys.argv[1], '')], extra_dbd_load=(('pvxsIoc.dbd', pvxslibs.path.dbd_path),),
              extra_dso_load=('pvxslibs.lib.pvxsIoc',))
sys.stdin.read()
";

/// The Python with pvxslibs, set by `cargo xtask bench`.
pub(crate) fn qsrv2() -> Option<PathBuf> {
    std::env::var_os("TAHTI_QSRV2").map(PathBuf::from).filter(|path| path.exists())
}

fn command(kind: Kind) -> Result<Command, Failed> {
    if kind == Kind::Qsrv2 {
        return qsrv2().map(Command::new).ok_or(Failed::Needs("QSRV2: set TAHTI_QSRV2 to a Python with pvxslibs"));
    }
    if kind != Kind::C {
        let mut command = Command::new(own_program()?);
        command.arg("ioc");
        return Ok(command);
    }
    let root = epics().ok_or(Failed::Needs("EPICS: set TAHTI_EPICS to a folder with usr/bin/softIoc"))?;
    let mut command = Command::new(root.join("usr/bin/softIoc"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib")).arg("-D").arg(root.join(Path::new("dbd/softIoc.dbd")));
    Ok(command)
}

/// A shell that reads one line and then executes the program: it is in its group before its first instruction.
fn gated(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read -r go && exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// Environment for the loopback only, on private ports.
pub(crate) fn environment(port: u16) -> [(&'static str, String); 12] {
    let here = || "127.0.0.1".to_owned();
    [
        ("EPICS_CA_ADDR_LIST", here()),
        ("EPICS_CA_AUTO_ADDR_LIST", "NO".into()),
        ("EPICS_CAS_INTF_ADDR_LIST", here()),
        ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO".into()),
        ("EPICS_CAS_BEACON_ADDR_LIST", here()),
        ("EPICS_CA_SERVER_PORT", port.to_string()),
        ("EPICS_CA_REPEATER_PORT", (port + 1).to_string()),
        ("EPICS_PVAS_INTF_ADDR_LIST", here()),
        ("EPICS_PVAS_AUTO_BEACON_ADDR_LIST", "NO".into()),
        ("EPICS_PVAS_BEACON_ADDR_LIST", here()),
        ("EPICS_PVAS_SERVER_PORT", (port + PVACCESS).to_string()),
        ("EPICS_PVAS_BROADCAST_PORT", (port + PVACCESS + 1).to_string()),
    ]
}

/// Ports of measured IOCs: below the kernel's ephemeral ports, or a client that probes an IOC could connect to itself. The
/// next port is the repeater's, and the two after it are those of PVAccess.
const PORTS: std::ops::Range<u16> = 8_000..12_000;

/// Number of the TCP port of PVAccess after an IOC's first port. Its port of searches is the next one.
pub(crate) const PVACCESS: u16 = 2;
/// Number of ports of an IOC.
const PORTS_EACH: u16 = 4;

/// A port that is free for TCP and UDP, with those after it.
pub(crate) fn free_port() -> Result<u16, Failed> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let slots = u32::from(PORTS.end - PORTS.start) / u32::from(PORTS_EACH);
    for _ in 0..slots {
        let slot = (std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))) % slots;
        let port = PORTS.start + PORTS_EACH * slot as u16;
        let is_free =
            |port: u16| UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (port..port + PORTS_EACH).all(is_free) {
            return Ok(port);
        }
    }
    Err(Failed::Needs("a free port on 127.0.0.1 from 8000 to 12000"))
}
