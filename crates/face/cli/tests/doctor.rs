//! `tahti doctor` as a user runs it.

use std::process::{Command, Output};

fn tahti(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tahti")).args(args).output().unwrap()
}

fn fixture(name: &str) -> String {
    format!("{}/../../machine/host/tests/fixtures/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_exit_status_is_the_worst_verdict_of_the_requested_uses() {
    let box_ = fixture("rt-box");
    assert_eq!(tahti(&["doctor", "--root", &box_]).status.code(), Some(1), "a capture has no permissions");
    let guest = fixture("guest-v1");
    assert_eq!(tahti(&["doctor", "--root", &guest]).status.code(), Some(2));
    assert_eq!(tahti(&["doctor", "--root", &guest, "--for", "loop-1khz,polling"]).status.code(), Some(1));
}

#[test]
fn verdicts_come_first_and_lines_stay_within_a_hundred_columns() {
    let shown = text(&tahti(&["doctor", "--root", &fixture("laptop"), "--all"]));
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("Linux 6.8.0-45-generic"), "{shown}");
    assert!(lines[2].starts_with("  1 kHz loop"), "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{shown}");
    let severities: Vec<_> = lines.iter().filter(|line| !line.starts_with(' ')).collect();
    let at = |word: &str| severities.iter().position(|line| line.starts_with(word));
    assert!(at("problem") < at("warning") && at("warning") < at("note") && at("note") < at("fine"), "{shown}");
}

#[test]
fn json_holds_every_check_and_names_the_uses() {
    let output = tahti(&["doctor", "--json", "--root", &fixture("two-sockets")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(report["capture"], true);
    assert_eq!(report["verdict"], "with-reservations");
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), host::doctor::CHECKS.len());
    let odds = findings.iter().find(|finding| finding["id"] == "boot-contradictions").unwrap();
    assert_eq!(odds["needs_reboot"], true);
    assert_eq!(odds["remedy"]["how"], "boot");
    assert_eq!(odds["effects"]["polling"], "reservation");
    assert!(odds["evidence"][0].as_str().unwrap().starts_with("irqaffinity=0-15"), "{odds}");
}

#[test]
fn every_check_has_an_explanation() {
    for check in host::doctor::CHECKS {
        let output = tahti(&["doctor", "--explain", check.about().id]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output).contains("matters"));
    }
    let output = tahti(&["doctor", "--explain", "kms"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ksm"));
}

#[test]
fn a_root_that_is_neither_directory_nor_capture_is_refused_by_line() {
    assert_eq!(tahti(&["doctor", "--root", "/no/such"]).status.code(), Some(64));
    let output = tahti(&["doctor", "--root", env!("CARGO_BIN_EXE_tahti")]);
    assert_eq!(output.status.code(), Some(64));
    let output = tahti(&["doctor", "--root", &format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"))]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1: expected a path"), "{output:?}");
}

#[test]
fn a_capture_of_this_machine_is_examined_like_the_machine() {
    let captured = tahti(&["doctor", "--capture"]);
    assert_eq!(captured.status.code(), Some(0));
    let path = std::env::temp_dir().join(format!("tahti-capture-{}.txt", std::process::id()));
    std::fs::write(&path, &captured.stdout).unwrap();
    let report = |args: &[&str]| -> serde_json::Value { serde_json::from_slice(&tahti(args).stdout).unwrap() };
    let again = report(&["doctor", "--json", "--root", path.to_str().unwrap()]);
    let live = report(&["doctor", "--json"]);
    std::fs::remove_file(&path).unwrap();
    let severity = |report: &serde_json::Value, id: &str| {
        let all = report["findings"].as_array().unwrap();
        all.iter().find(|finding| finding["id"] == id).unwrap()["severity"].clone()
    };
    for id in ["preemption", "cpuset", "cpus", "clocksource", "governor", "thp", "managed-interrupts", "watchdogs"] {
        assert_eq!(severity(&again, id), severity(&live, id), "{id}");
    }
}
