//! Output of an operator's display that uses CAJ, the Channel Access library of Phoebus and CS-Studio: the same for
//! C's IOC and for ours, also when the IOC crashes and comes back.
//!
//! `cargo xtask test epics` gets the library. Everything stays on loopback, on free ports.

use harness::PATIENCE;
use harness::epics::repeater;
use harness::ioc::Ioc;
use harness::process::Running;
use std::io::Write;
use std::process::{Command, Stdio};

const DATABASE: &str = r#"
record(ao, "X:ao") {
    field(EGU, "A") field(PREC, "3") field(HOPR, "100") field(LOPR, "-100") field(DRVH, "90") field(DRVL, "-90")
    field(HIHI, "80") field(HIGH, "50") field(LOW, "-50") field(LOLO, "-80")
    field(HHSV, "MAJOR") field(HSV, "MINOR") field(LSV, "MINOR") field(LLSV, "MAJOR")
}
record(mbbo, "X:mbbo") {
    field(ZRST, "zero") field(ONST, "one") field(TWST, "two") field(ONVL, "1") field(TWVL, "2") field(TWSV, "MINOR")
}
record(waveform, "X:wave") { field(FTVL, "DOUBLE") field(NELM, "5") }
record(waveform, "X:chars") { field(FTVL, "CHAR") field(NELM, "8") }
record(stringout, "X:text") { field(VAL, "start") }
record(longout, "X:number") { field(EGU, "counts") field(HOPR, "1000") }
record(bi, "X:bit") { field(ZNAM, "off") field(ONAM, "on") field(OSV, "MAJOR") field(PINI, "YES") field(INP, "1") }
"#;

const CHANNELS: [&str; 11] = [
    "X:ao",
    "X:mbbo",
    "X:wave",
    "X:text",
    "X:number",
    "X:bit",
    "X:chars",
    "X:ao.EGU",
    "X:ao.DESC$",
    "X:ao.SCAN",
    "X:ao.NAME",
];

/// The display's whole output, from its first connection to its end.
fn seen(ours: bool) -> String {
    let library = std::env::var("TAHTI_CAJ").expect("TAHTI_CAJ is not set; run `cargo xtask test epics`");
    let mut ioc = Ioc::serving(ours, DATABASE);
    let _repeater = repeater(ours, ioc.port);
    let mut java = Command::new("java");
    let setting = |name: &str, value: &str| format!("-Dcom.cosylab.epics.caj.CAJContext.{name}={value}");
    java.args([setting("addr_list", "127.0.0.1"), setting("auto_addr_list", "false")]);
    java.args([setting("server_port", &ioc.port.to_string()), setting("repeater_port", &(ioc.port + 1).to_string())]);
    java.args(["-cp", &library, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/display/Display.java")]).args(CHANNELS);
    let mut display = Running::follow(java.stdin(Stdio::piped()).stderr(Stdio::null()));
    let mut go_on = display.child.stdin.take().unwrap();
    let lines = &display.lines;
    let mut said = String::new();
    loop {
        // A display that fails prints the reason before it ends.
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no further output of the display:\n{said}"));
        said += &format!("{line}\n");
        match &*line {
            "-- the IOC goes" => {
                ioc.crash();
                go_on.write_all(b"\n").unwrap();
            }
            "-- the IOC comes back" => {
                ioc.up();
                go_on.write_all(b"\n").unwrap();
            }
            "-- done" => return said,
            _ => {}
        }
    }
}

#[test]
fn a_display_with_caj_shows_the_same_of_our_ioc_and_of_cs() {
    let (theirs, ours) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| seen(false));
        let ours = seen(true);
        (theirs.join().unwrap(), ours)
    });
    assert_eq!(theirs, ours, "EPICS left, tahti right");
}
