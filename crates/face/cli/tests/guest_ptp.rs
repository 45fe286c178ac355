//! PTP between two guests connected by a wire: linuxptp's `ptp4l` with software time stamps in both, this one the
//! slave. `TAHTI_PTP` is the folder of its programs.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Initial error of this guest's clock. It exceeds the clock differences of guests that start on a busy host.
const WRONG: Duration = Duration::from_secs(1000);
/// Number of offsets checked once it is a slave, one per second.
const LAST: usize = 20;
/// Number of attempts to get ptp4l's state from doctor.
const ASKED: usize = 5;

fn succeeds(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Offset of this clock from its master in nanoseconds, as printed by ptp4l.
fn offset(line: &str) -> Option<i64> {
    line.split("master offset").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// Output of doctor, as JSON.
fn doctor() -> String {
    let mut doctor = Command::new(std::env::var("TAHTI").expect("the guest's script sets TAHTI"));
    let said = doctor.args(["doctor", "--all", "--json"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("synchronised by ptp4l, "), "{said}");
    said
}

#[test]
fn a_guest_follows_the_clock_of_another_by_ptp_and_doctor_reports_the_offset() {
    testkit::guest::required();
    let ptp = PathBuf::from(std::env::var("TAHTI_PTP").expect("the guest's script sets TAHTI_PTP"));
    succeeds(Command::new("ip").args(["link", "set", "eth1", "up"]));
    let wrong = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + WRONG;
    succeeds(Command::new("date").arg("-s").arg(format!("@{}.{:09}", wrong.as_secs(), wrong.subsec_nanos())));
    let mut ptp4l = Command::new(ptp.join("ptp4l"));
    ptp4l.args(["-2", "-S", "-s", "-m", "-i", "eth1", "--tx_timestamp_timeout=1000"]);
    let mut ptp4l = ptp4l.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut offsets, mut before) = (Vec::new(), None);
    // The reader is kept to the end: ptp4l ends if its output is closed.
    let mut said = BufReader::new(ptp4l.stdout.take().unwrap()).lines();
    for line in said.by_ref() {
        let line = line.unwrap();
        println!("{line}");
        if line.contains("UNCALIBRATED to SLAVE") {
            before = Some(offsets.len());
        }
        offsets.extend(offset(&line));
        if before.is_some_and(|before| offsets.len() >= before + LAST) {
            break;
        }
    }
    assert!(before.is_some_and(|before| offsets.len() >= before + LAST), "ptp4l ended: {:?}", ptp4l.wait());
    // While it follows, doctor reports both the kernel's view and ptp4l's.
    std::os::unix::fs::symlink(ptp.join("pmc"), "/usr/sbin/pmc").unwrap();
    // pmc waits for only 0.1 s, which may be too short for an emulator on a busy host.
    let doctor = (0..ASKED).map(|_| doctor()).find(|said| said.contains("from its master"));
    std::fs::remove_file("/usr/sbin/pmc").unwrap();
    let doctor = doctor.unwrap_or_else(|| panic!("ptp4l did not answer {ASKED} requests"));
    ptp4l.kill().unwrap();
    ptp4l.wait().unwrap();
    let said = doctor.split('"').find(|text| text.starts_with("ptp4l: ")).unwrap();
    println!("doctor: {said}");
    assert!(said.ends_with(" from its master, 1 steps removed"), "{said}");
    let far = |offset: &i64| offset.unsigned_abs();
    let first = far(&offsets[0]);
    let mut last: Vec<u64> = offsets[offsets.len() - LAST..].iter().map(far).collect();
    last.sort_unstable();
    println!("first {first} ns from its master, the last {LAST} {last:?} ns");
    assert!(u128::from(first) > WRONG.as_nanos() / 2, "the clocks differ: {offsets:?}");
    assert!(last[LAST / 2] < first / 5000, "it follows: {offsets:?}");
}
