//! Programs of EPICS and their counterparts in tahti, on free ports of the loopback interface.
//!
//! `TAHTI_EPICS` is the folder with `usr/bin/softIoc`, `usr/bin/caget` and so on. `cargo xtask test epics` sets it.

use crate::ioc::Ioc;
use crate::process::Running;
use crate::{PATIENCE, eventually};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The folder of C EPICS.
pub fn epics() -> PathBuf {
    std::env::var("TAHTI_EPICS").expect("TAHTI_EPICS is not set; run `cargo xtask test epics`").into()
}

/// A program of EPICS, or of tahti if `ours` is set, on a separate port.
pub fn program(ours: bool, name: &str, port: u16) -> Command {
    let mut command = if ours {
        let mut command = crate::tahti();
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
        // The tools' default of one second is too short on a busy machine.
        ("EPICS_CLI_TIMEOUT", "30"),
    ] {
        command.env(variable, value);
    }
    command.env("EPICS_CA_SERVER_PORT", port.to_string()).env("EPICS_CA_REPEATER_PORT", (port + 1).to_string());
    for (variable, value) in pvaccess(port) {
        command.env(variable, value);
    }
    command.stdin(Stdio::null());
    command
}

/// Variables of PVAccess for servers and clients of the IOC whose first port is `port`.
pub fn pvaccess(port: u16) -> [(&'static str, String); 5] {
    [
        ("EPICS_PVA_ADDR_LIST", "127.0.0.1".into()),
        ("EPICS_PVA_AUTO_ADDR_LIST", "NO".into()),
        ("EPICS_PVAS_INTF_ADDR_LIST", "127.0.0.1".into()),
        ("EPICS_PVA_SERVER_PORT", (port + 4).to_string()),
        ("EPICS_PVA_BROADCAST_PORT", (port + 5).to_string()),
    ]
}

/// Starts a repeater on the port that [`program`] sets for clients, and waits until it is bound. The clients of C EPICS then do not start one.
pub fn repeater(ours: bool, port: u16) -> Running {
    let mut command = program(ours, if ours { "carepeater" } else { "caRepeater" }, port);
    let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    eventually("the repeater takes its port", || UdpSocket::bind(("0.0.0.0", port + 1)).is_err());
    running
}

/// A `camonitor` that ends with the test.
pub struct Monitor(Running);

impl Monitor {
    /// Starts `camonitor` of C EPICS or of tahti on the port of an IOC.
    pub fn start(ioc: &Ioc, ours: bool, args: &[&str]) -> Self {
        Self(Running::follow(program(ours, "camonitor", ioc.port).args(args)))
    }

    /// First lines of several monitors. Each must print at least one.
    pub fn settled(all: &[Self], ioc: &Ioc) -> Vec<Vec<String>> {
        let first = |monitor: &Self| monitor.0.lines.recv_timeout(PATIENCE).expect("camonitor prints nothing");
        let mut lines: Vec<Vec<String>> = all.iter().map(|monitor| vec![first(monitor)]).collect();
        Self::more(all, ioc, &mut lines);
        lines
    }

    /// Appends lines until no monitor prints for the duration of ten successive runs of another client. A run takes longer on a busier machine.
    pub fn more(all: &[Self], ioc: &Ioc, lines: &mut [Vec<String>]) {
        let mut rounds = 0;
        while rounds < 10 {
            rounds += 1;
            let round = Instant::now() + Duration::from_millis(150);
            ioc.run(false, "caget", &[ioc.probe()]);
            std::thread::sleep(round.saturating_duration_since(Instant::now()));
            for (monitor, lines) in all.iter().zip(&mut *lines) {
                let before = lines.len();
                lines.extend(monitor.0.lines.try_iter());
                if lines.len() > before {
                    rounds = 0;
                }
            }
        }
    }
}

/// Normalises output: dates and times become TIME, the port becomes PORT, and colours are removed.
pub fn normal(text: &str, port: u16) -> String {
    let mut out = String::new();
    let text = text.replace(&format!(":{port}"), ":PORT").replace("\x1b[31;1m", "").replace("\x1b[0m", "");
    // EPICS warns about any address list with loopback, and prints source locations of its exceptions.
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

/// Asserts that both outputs are equal, line by line.
pub fn same(what: &str, theirs: &str, ours: &str) {
    for (number, (a, b)) in theirs.lines().zip(ours.lines()).enumerate() {
        assert_eq!(a, b, "{what}, line {}: EPICS left, tahti right", number + 1);
    }
    assert_eq!(theirs.lines().count(), ours.lines().count(), "{what}:\n{theirs}\n---\n{ours}");
}

/// Runs a story for each pair of a source and a holder of links, each ours if set, and compares all with that of the
/// reference alone.
pub fn any_two(story: impl Fn([bool; 2]) -> Vec<Vec<String>> + Sync, reference: &str, fields: &[&str]) {
    let pairs = [[false, false], [false, true], [true, false], [true, true]];
    // In parallel: most of the time is waiting for clients to search again.
    let stories = std::thread::scope(|scope| {
        let story = &story;
        let threads = pairs.map(|ours| scope.spawn(move || story(ours)));
        threads.map(|thread| thread.join().unwrap())
    });
    for (ours, story) in pairs.iter().zip(&stories) {
        for (step, (a, b)) in stories[0].iter().zip(story).enumerate() {
            assert_eq!(
                a, b,
                "source and holder ours: {ours:?}, step {step}: {reference}'s left, ours right, of {fields:?}"
            );
        }
    }
}
