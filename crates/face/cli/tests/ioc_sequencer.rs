//! SNL programs in `tahti ioc`: records, event flags and delays, the commands of the shell, errors.

use harness::ioc::Ioc;

const DATABASE: &str = r#"
record(bo, "X:run") { field(ZNAM, "Off") field(ONAM, "On") }
record(ao, "X:level") { field(PREC, "1") field(FLNK, "X:copy") }
record(ai, "X:copy") { field(INP, "X:level") }
record(calc, "X:ticks") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "X:ticks") }
record(stringout, "X:text") { }
record(waveform, "X:shape") { field(FTVL, "DOUBLE") field(NELM, "3") }
record(calcout, "X:slow") { field(CALC, "A") field(ODLY, "0.2") }
"#;

/// Ramps a record while a switch is on, one step each 50 ms. A second state set counts the steps by an event flag.
const RAMP: &str = r#"
program ramp("P=Z:, STEPS=5")
option +r;
%%#include <stdio.h>
#define CHANNEL(type, name) type name; assign name to "{P}" #name
CHANNEL(string, run);
monitor run;
CHANNEL(double, level);
CHANNEL(string, text);
CHANNEL(double, slow);
double shape[3];
assign shape to "{P}shape";
int copy;
assign copy to "{P}copy";
monitor copy;
evflag copied;
sync copy to copied;
evflag stepped;
int steps;

ss ramp {
    state off {
        when (strcmp(run, "On") == 0) {
            level = 0;
            pvPut(level, SYNC);
        } state on
    }
    state on {
        when (level >= atoi(macValueGet("STEPS"))) {
            pvGet(shape);
            slow = 3;
            sprintf(text, "shape %g %g, put %d", shape[0], shape[2], pvPut(slow, SYNC));
            pvPut(text);
        } state full
        when (delay(0.05)) {
            level += 1;
            pvPut(level, SYNC);
            efSet(stepped);
        } state on
    }
    state full {
        when (strcmp(run, "Off") == 0) {
            printf("ramped in %d steps, copy %d\n", steps, copy);
        } exit
    }
}

ss count {
    state wait {
        when (efTestAndClear(stepped)) {
            steps++;
        } state wait
    }
}

exit {
    printf("the ramp has ended\n");
}
"#;

const FILES: &[(&str, &str)] = &[("t.db", DATABASE), ("programs/ramp.st", RAMP)];

/// Options that scan on a separate thread, so that records have different owners.
const SCANS: [&str; 2] = ["--scan", ".1 second=other"];

fn ramp(options: &[&str]) {
    let mut ioc = Ioc::start_with(FILES, &[options, &["-d", "t.db"]].concat(), &[("SNL_PATH", "programs")]);
    assert!(ioc.say("seq &ramp, \"P=X:\"").contains("Spawning sequencer program \"ramp\", number 1: programs/ramp.st"));
    ioc.until("seqShow", |said| said.contains("off") && said.contains("wait"));
    ioc.say("dbpf X:shape \"[7,8,9]\"");
    ioc.say("dbpf X:run On");
    ioc.until("dbgf X:text", |said| said.contains("shape 7 9, put 0"));
    assert!(ioc.say("dbgf X:level").contains(" 5"));
    assert!(ioc.say("dbgf X:slow").contains(" 3"), "the put waited for the delay of the record");
    let detail = ioc.say("seqShow ramp");
    for part in ["Current state = \"full\"", "Previous state = \"on\"", "number of channels connected = 6"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let channels = ioc.say("seqChanShow 1 +level");
    assert!(channels.contains("level[1]: assigned to \"X:level\", connected, 1 elements"), "{channels}");
    assert!(!channels.contains("X:run"), "{channels}");
    assert!(ioc.say("seqcar").contains("Total programs=1, channels=6, connected=6, disconnected=0"));
    ioc.command("dbpf X:run Off");
    let heard = ioc.hear("the program has ended").join("\n");
    assert!(heard.contains("ramped in 5 steps, copy 5") && heard.contains("the ramp has ended"), "{heard}");
    ioc.until("seqShow", |said| !said.contains("ramp"));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn a_program_ramps_a_record_with_a_delay_and_counts_steps_by_an_event_flag() {
    ramp(&[]);
}

#[test]
fn a_program_uses_records_of_a_scan_group() {
    ramp(&SCANS);
}

/// Copies a record of another IOC, reading it after each write.
const REMOTE: &str = r#"
program remote
double level; assign level to "X:level";
double copy; assign copy to "X:copy"; monitor copy;
int n;
ss one {
    state a {
        when (n == 3) { printf("remote copy %g\n", copy); } state b
        when () {
            level = 10 + n++;
            pvPut(level, SYNC);
            level = 0;
            pvGet(level);
            printf("read %g\n", level);
        } state a
    }
    state b { when (!pvConnected(level)) { printf("lost, status %d\n", pvStatus(level)); } state c }
    state c { when (FALSE) { } state c }
}
"#;

#[test]
fn a_program_uses_the_records_of_another_ioc() {
    let mut other = Ioc::start(FILES, &["-d", "t.db"]);
    let [port, own] = [other.port, other.port + 2].map(|port| port.to_string());
    let variables = [
        ("EPICS_CA_SERVER_PORT", port.as_str()),
        // Of two servers on one UDP port, only one receives searches.
        ("EPICS_CAS_SERVER_PORT", own.as_str()),
        ("EPICS_CA_ADDR_LIST", "127.0.0.1"),
        ("EPICS_CA_AUTO_ADDR_LIST", "NO"),
    ];
    let mut ioc = Ioc::start_with(&[("remote.stt", REMOTE)], &[], &variables);
    ioc.say("iocInit");
    ioc.command("seq remote.stt");
    let heard = ioc.hear("remote copy").join("\n");
    for part in ["read 10", "read 11", "read 12"] {
        assert!(heard.contains(part), "{heard}");
    }
    other.crash();
    ioc.hear("lost, status -2");
    ioc.say("seqStop remote");
    ioc.until("seqShow", |said| !said.contains("remote"));
}

#[test]
fn a_program_named_before_the_start_runs_after_it_and_errors_are_reported() {
    let script = "dbLoadRecords t.db\nseq ramp.st \"P=X:\"\niocInit\n";
    let files = [
        ("t.db", DATABASE),
        ("ramp.st", RAMP),
        ("st.cmd", script),
        ("bad.st", "program bad\nss s { state a { when (x) { } state b } }\n"),
    ];
    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    // A program that is stopped earlier has not begun, so it does not run its exit block.
    ioc.hear("ramp: all channels connected");
    ioc.until("seqShow", |said| said.contains("off"));
    let bad = ioc.say("seq bad.st");
    assert!(bad.contains("bad.st:2: found x, which is not declared") && bad.contains("found state b"), "{bad}");
    assert!(ioc.say("seq none").contains("no program none in .: found neither none.st nor none.stt"));
    assert!(ioc.say("seqStop 7").contains("no program \"7\" is running"));
    ioc.command("seqStop 1");
    ioc.hear("the ramp has ended");
}

#[test]
fn check_reports_errors_of_programs_without_a_start() {
    let folder = std::env::temp_dir().join(harness::fresh("tahti-snl"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("c.st"),
        "program c\n%{ static int f(void); }%\nss s { state a { when () { } state a } }\n",
    )
    .unwrap();
    std::fs::write(folder.join("st.cmd"), "seq c.st\niocInit\n").unwrap();
    let checked = harness::tahti().current_dir(&folder).args(["ioc", "--check", "st.cmd"]).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(
        !checked.status.success() && said.contains("c.st:2: found embedded C code") && said.contains("try: "),
        "{said}"
    );
    let surveyed = harness::tahti().args(["ioc", "--check-site"]).arg(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&surveyed.stdout);
    assert!(said.contains("found embedded C code"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}
