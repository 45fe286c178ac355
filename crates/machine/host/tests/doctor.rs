//! The doctor's findings on captured and invented machines, compared with the expected text next to each.
//!
//! `TAHTI_BLESS=1 cargo test -p host --test doctor` writes the expected texts again. Read the difference
//! before committing it.

use base::DurNs;
use host::doctor::{
    CHECKS, ClockCost, Errno, Facts, FileContent, Files, Permissions, Probes, RemedyKind, Report, Severity, SkipReason,
    Timex, Use, examine, reads,
};
use host::knob;
use proc::chrony::Tracking;
use proc::ptp::CurrentDataSet;
use proptest::prelude::*;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

fn granted() -> Probes {
    Probes {
        clock: Ok(ClockCost { reads: 25_000, median_ns: 22, p99_ns: 31, resolution_ns: 1 }),
        timex: Ok(Timex {
            synchronised: true,
            tai_offset_s: 37,
            estimated_error_us: 12,
            maximum_error_us: 510,
            frequency_ppb: -12_345,
        }),
        chrony: Ok(Tracking {
            source: "192.0.2.1".into(),
            stratum: 2,
            offset: DurNs(-12_345),
            rms_offset: DurNs::from_us(20),
            leap: "Normal".into(),
        }),
        ptp: Ok(CurrentDataSet { steps_removed: 1, offset: DurNs(-400) }),
        permissions: Ok(Permissions {
            fifo_1: Ok(()),
            fifo_80: Ok(()),
            rr_1: Ok(()),
            deadline: Ok(()),
            memory_lock: Ok(()),
            affinity: Ok(()),
        }),
        smi_count: Ok(0),
    }
}

/// An ordinary user, or a process in a container.
fn refused() -> Probes {
    let no = Err(Errno::PERM);
    let permissions =
        Permissions { fifo_1: no, fifo_80: no, rr_1: no, deadline: no, memory_lock: Ok(()), affinity: Ok(()) };
    let smi_count = Err(SkipReason("failed to read register 0x34 from /dev/cpu/0/msr: Permission denied".into()));
    Probes { permissions: Ok(permissions), smi_count, ..granted() }
}

/// A server with a slow clock, whose firmware interrupts the CPUs often.
fn slow() -> Probes {
    let clock = ClockCost { reads: 25_000, median_ns: 1_350, p99_ns: 2_100, resolution_ns: 1 };
    Probes { clock: Ok(clock), smi_count: Ok(5_000), ..granted() }
}

/// A machine whose clock is not synchronised.
fn unsteered() -> Probes {
    let timex = Timex { synchronised: false, tai_offset_s: 0, ..granted().timex.unwrap() };
    Probes { timex: Ok(timex), smi_count: Err(SkipReason("no /dev/cpu/0/msr".into())), ..granted() }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn files(name: &str) -> Files {
    let text = fs::read_to_string(fixture(&format!("{name}.txt"))).unwrap();
    Files::from_capture(&text).unwrap_or_else(|error| panic!("{name}.txt: {error}"))
}

fn examined(name: &str, probes: Probes) -> Report {
    examine(&Facts { files: files(name), probes }, &Use::ALL)
}

/// A report in the form of the expected texts.
fn golden(report: &Report) -> String {
    let mut out = String::new();
    for judged in &report.uses {
        writeln!(out, "{}: {} {:?}", judged.wanted.title(), judged.verdict.title(), judged.decided_by).unwrap();
    }
    for entry in &report.findings {
        writeln!(out, "\n{} {}", entry.severity, entry.id).unwrap();
        for line in &entry.evidence {
            writeln!(out, "    {line}").unwrap();
        }
        if let Some(remedy) = &entry.remedy {
            let reboot = if entry.needs_reboot { ", reboot" } else { "" };
            writeln!(out, "    -> {} ({:?}{reboot})", remedy.text, remedy.how).unwrap();
        }
    }
    out
}

fn check(name: &str, probes: Probes) {
    let found = golden(&examined(name, probes));
    let path = fixture(&format!("{name}.expected"));
    if std::env::var_os("TAHTI_BLESS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(found == expected, "{}: first difference {differs:?}\nfound:\n{found}", path.display());
}

#[test]
fn a_laptop_with_default_settings() {
    check("laptop", refused());
}

#[test]
fn two_sockets_with_a_boot_line_copied_from_three_guides() {
    check("two-sockets", slow());
}

#[test]
fn a_guest_with_version_1_groups() {
    check("guest-v1", unsteered());
}

#[test]
fn a_guest_with_a_real_time_kernel_whose_configuration_is_not_readable() {
    check("rt-guest", unsteered());
}

#[test]
fn a_container_without_real_time_permission() {
    check("pod", refused());
}

#[test]
fn a_desktop_with_everything_switched_on() {
    check("hog", granted());
}

#[test]
fn the_machine_of_this_project_and_the_guests_of_its_tests() {
    check("captured-two-cpus", unsteered());
    for guest in ["queues", "old", "isolcpus", "numa", "v1", "systemd"] {
        check(&format!("captured-{guest}"), unsteered());
    }
}

#[test]
fn scrubbing_a_capture_changes_no_finding() {
    for entry in fs::read_dir(fixture("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".txt") else { continue };
        let examine = |files| golden(&examine(&Facts { files, probes: granted() }, &Use::ALL));
        assert_eq!(examine(files(name).scrubbed()), examine(files(name)), "{name}");
    }
}

#[test]
fn a_controller_set_up_well_is_fit_for_everything() {
    check("rt-box", granted());
    let report = examined("rt-box", granted());
    let wrong: Vec<_> = report.findings.iter().filter(|entry| entry.severity != Severity::Fine).map(|e| e.id).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_clock_is_steered_by_ptp4l_alone_or_by_phc2sys_if_it_runs() {
    let text = fs::read_to_string(fixture("hog.txt")).unwrap();
    let said = |programs: &[&str]| {
        let running: String =
            programs.iter().enumerate().map(|(nth, name)| format!("/proc/{}/comm: {name}\n", 700_000 + nth)).collect();
        let files = Files::from_capture(&(text.clone() + &running)).unwrap();
        let report = examine(&Facts { files, probes: granted() }, &Use::ALL);
        report.findings.iter().find(|entry| entry.id == "clock-sync").unwrap().evidence.join("; ")
    };
    assert!(said(&[]).starts_with("synchronised by no known program: "), "{}", said(&[]));
    let alone = said(&["ptp4l"]);
    assert!(alone.starts_with("synchronised by ptp4l, which steers this clock if it uses software timestamps: "));
    assert!(alone.ends_with("; ptp4l: -400ns from its master, 1 steps removed"), "{alone}");
    assert!(said(&["ptp4l", "phc2sys"]).starts_with("synchronised by phc2sys: "), "{}", said(&["ptp4l", "phc2sys"]));
}

#[test]
fn without_probes_their_checks_are_unknown_and_no_use_is_fit_without_reservations() {
    let report = examined("rt-box", Probes::none("not tried"));
    for entry in &report.findings {
        if entry.id.starts_with("permission-") || entry.id.starts_with("clock-cost") {
            assert_eq!((entry.severity, &entry.evidence[0][..]), (Severity::Unknown, "not tried"), "{}", entry.id);
        }
    }
    assert!(report.uses.iter().all(|judged| judged.verdict == host::doctor::Verdict::WithReservations));
}

/// Valid and invalid lines of `/proc` and `/sys`.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("0-1023".to_owned()),
        Just("4-N".to_owned()),
        Just("[always] (full) invalid".to_owned()),
        Just("cpu 1 2 3\ncpu0 18446744073709551615 18446744073709551615\n".to_owned()),
        Just("isolcpus=,, nohz_full=9999 irqaffinity=3-1 idle=poll".to_owned()),
        Just(
            "35 26 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup ro\n36 26 0:30 / /x ro - cgroup none cpu,cpuset"
                .to_owned()
        ),
        ".{0,30}",
        "[0-9:a-z,= \n\t/-]{0,60}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_machine_panics_a_check(texts in proptest::collection::vec(any_text(), 80), granted_all: bool) {
        let mut files = Files::new(true);
        for (pattern, text) in reads().into_iter().zip(texts.iter().cycle()) {
            files.insert(pattern.replace('#', "1").replace('*', "x"), FileContent::Text(text.clone()));
        }
        for path in host::doctor::reads_then(&files) {
            files.insert(path, FileContent::Text(texts[0].clone()));
        }
        let probes = if granted_all { granted() } else { refused() };
        let report = examine(&Facts { files, probes }, &Use::ALL);
        prop_assert_eq!(report.findings.len(), CHECKS.len());
        prop_assert!(report.findings.iter().all(|entry| !entry.evidence.is_empty()));
    }
}

#[test]
fn every_remedy_of_the_shield_has_a_knob() {
    // Done by a partition, and through irqbalance's socket.
    const WITHOUT_FILE: [&str; 2] = ["isolation", "irqbalance"];
    let knobs: Vec<_> = knob::ALL.iter().flat_map(|knob| knob.files()).map(|path| path.replace("{cpu}", "#")).collect();
    let mut seen = 0;
    for (name, probes) in
        [("laptop", refused()), ("two-sockets", slow()), ("guest-v1", unsteered()), ("hog", granted())]
    {
        for entry in examined(name, probes).findings {
            if entry.remedy.is_some_and(|remedy| remedy.how == RemedyKind::Shield) && !WITHOUT_FILE.contains(&entry.id)
            {
                let check = CHECKS.iter().find(|check| check.about().id == entry.id).unwrap();
                let reads = check.about().reads;
                let turned = reads.iter().any(|path| knobs.contains(&path.replace("state#", "state*")));
                assert!(turned, "{}: no knob turns any of {reads:?}", entry.id);
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "only {seen} such remedies on the captured machines");
}
