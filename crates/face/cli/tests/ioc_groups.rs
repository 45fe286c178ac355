//! Scan groups of `tahti ioc`: several owner threads behind one server, over real sockets on loopback.

use ca::wire::{Header, command};
use harness::circuit::{Circuit, double};
use harness::ioc::Ioc;

const DATABASE: &str = r#"
record(calc, "fast") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "fast") field(FLNK, "wave") field(EGU, "mm") }
record(waveform, "wave") { field(INP, "fast") field(FTVL, DOUBLE) field(NELM, 8) }
record(calc, "other") { field(SCAN, ".2 second") field(CALC, "A+1") field(INPA, "other") }
record(ao, "set") { field(SCAN, ".1 second") field(FLNK, "follows") }
record(calc, "follows") { field(CALC, "A*10") field(INPA, "set") }
record(calc, "house") { field(CALC, "A+B") field(INPA, "follows CP") field(INPB, "fast CA") }
record(ao, "writes") { field(OUT, "set.VAL CA") }
record(ao, "async") { field(DTYP, "Async Soft Channel") field(OUT, "slow.A CA") }
record(calc, "tick") { field(SCAN, ".2 second") field(INPA, "slow") }
record(calcout, "slow") { field(CALC, "A") field(ODLY, 0.5) field(OUT, "slowed PP") }
record(ao, "slowed") {}
record(calc, "waits") { field(SCAN, Event) field(EVNT, "go") field(CALC, "A+1") field(INPA, "waits") }
"#;

const GROUPS: &[&str] = &["--scan", ".1 second,Event=other", "--scan", ".2 second=other", "-d", "t.db"];

fn start() -> Ioc {
    Ioc::start(&[("t.db", DATABASE), ("more.db", "record(ai, \"more\") { field(INP, \"fast CP\") }")], GROUPS)
}

#[test]
fn reads_writes_and_monitors_reach_every_owner_and_keep_their_order() {
    let ioc = start();
    let mut circuit = Circuit::connect(ioc.port);
    let (set, follows, fast, plain) =
        (circuit.create("set"), circuit.create("follows"), circuit.create("fast"), circuit.create("writes"));
    for number in 1..=300u32 {
        // A write, followed by reads of the written record, of a record of another owner, and of this owner again.
        circuit.put(set, f64::from(number));
        circuit.ask(set, number);
        circuit.ask(plain, 10_000 + number);
        circuit.ask(fast, 20_000 + number);
    }
    for number in 1..=300 {
        for (id, expected) in [(number, Some(f64::from(number))), (10_000 + number, Some(0.0)), (20_000 + number, None)]
        {
            let (header, payload) = circuit.receive(command::READ_NOTIFY);
            assert_eq!((header.p1, header.p2), (1, id), "answers are in the order of the requests");
            assert!(expected.is_none_or(|value| double(&payload) == value), "{id}: {}", double(&payload));
        }
    }
    circuit.subscribe(fast, 7);
    let values: Vec<f64> = (0..4).map(|_| double(&circuit.receive(command::EVENT_ADD).1)).collect();
    assert!(values.windows(2).all(|pair| pair[1] == pair[0] + 1.0), "{values:?}");
    circuit.subscribe(follows, 8);
    // The other subscription continues.
    let first = std::iter::repeat_with(|| circuit.receive(command::EVENT_ADD)).find(|(header, _)| header.p2 == 8);
    assert_eq!(double(&first.unwrap().1) % 10.0, 0.0);
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn links_between_owners_work_as_over_channel_access() {
    let mut ioc = start();
    // A CP link follows its source; a CA link reads without processing.
    for value in ["3", "4", "5"] {
        ioc.say(&format!("dbpf set {value}"));
        ioc.say("dbpf set.PROC 1");
        ioc.until("dbgf house.A", |said| said.contains(&format!(" {value}0 ")));
    }
    ioc.until("dbpf house.PROC 1\ndbgf house.B", |said| !said.contains("DBF_DOUBLE:         0 "));
    // A write through a link reaches the other owner.
    ioc.say("dbpf writes 12");
    ioc.until("dbgf set", |said| said.contains(" 12 "));
    // The same for a link made while the IOC runs.
    ioc.say("dbpf house.INPC \"other CP\"");
    ioc.until("dbgf house.C", |said| !said.contains("DBF_DOUBLE:         0 "));
    ioc.say("postEvent go");
    ioc.until("dbgf waits", |said| said.contains(" 1 "));
    assert!(ioc.say("scanpel").contains("waits"));
}

#[test]
fn commands_find_records_of_all_owners() {
    let mut ioc = start();
    let names = ioc.say("dbl");
    assert_eq!(names.lines().count(), 12, "{names}");
    assert_eq!(ioc.say("dbl * NAME").lines().count(), 12);
    assert!(ioc.say("dbpr fast 0").contains("EGU") || ioc.say("dbpr fast 1").contains("mm"));
    // A scan that has not run yet has no lateness.
    let scans = ioc.until("scanppl", |said| said.contains("'.1 second' of"));
    for expected in ["owner .1 second,Event=other", "owner .2 second=other", "'.1 second' of", "lateness p50"] {
        assert!(scans.contains(expected), "no {expected:?} in {scans}");
    }
    ioc.say("dbDeleteRecord wave");
    assert!(ioc.say("dbgf wave").contains("not found"));
    // New records belong to the housekeeping shard, and may link to records of the groups.
    ioc.say("dbLoadRecords more.db");
    ioc.until("dbgf more", |said| !said.contains("DBF_DOUBLE:         0 "));
}

#[test]
fn an_asynchronous_output_waits_for_another_owners_record() {
    let mut ioc = start();
    ioc.say("dbpf async 3");
    assert!(ioc.say("dbgf async.PACT").contains(" 1 "), "the other owner's record needs half a second");
    ioc.until("dbgf async.PACT", |said| said.contains(" 0 "));
    assert!(ioc.say("dbgf slowed").contains(" 3 "));
    assert!(ioc.say("dbcar").contains("Total 4 CA links; 4 connected"), "links between owners are in its list");
}

#[test]
fn rules_and_the_put_log_apply_to_records_of_other_owners() {
    let rules = "ASG(DEFAULT) { INPA(\"limit\") RULE(1,READ) RULE(1,WRITE,TRAPWRITE) { CALC(\"A<5\") } }
        ASG(open) { RULE(1,WRITE,TRAPWRITE) }";
    let records = "record(ao, \"limit\") { field(SCAN, \".1 second\") }
        record(ao, \"set\") { field(SCAN, \".2 second\") field(VAL, 1.5) field(PINI, YES) }";
    let options = [&["-a", "rules.acf"], GROUPS].concat();
    let mut ioc = Ioc::start(&[("rules.acf", rules), ("t.db", records)], &options);
    ioc.until("astac set me here", |said| said.contains("put Yes"));
    ioc.say("dbpf limit 7");
    ioc.until("astac set me here", |said| said.contains("put No"));
    // A change of the access security group takes effect at once. Its previous value is known without a subscription.
    ioc.say("dbpf set.ASG open");
    ioc.until("astac set me here", |said| said.contains("put Yes"));
    ioc.say("caPutLogInit ./put.log");
    let mut circuit = Circuit::connect(ioc.port);
    let set = circuit.create("set");
    circuit.put(set, 4.0);
    ioc.until("caPutLogShow", |said| said.contains("1 logged"));
    let file = ioc.folder.join("put.log");
    ioc.until("echo", |_| std::fs::read_to_string(&file).is_ok_and(|log| log.contains("set new=4 old=1.5\n")));
    ioc.say("dbDeleteRecord limit");
    ioc.say("dbpf set.ASG \"\"");
    ioc.until("astac set me here", |said| said.contains("put No"));
}

#[test]
fn statistics_of_a_scan_are_in_records_and_can_be_reset() {
    let mut ioc = start();
    assert!(ioc.say("dbLoadBuiltin scanStats.db \"IOC=S,NAME=fast,SCAN=.1 second\"").is_empty());
    let number = |said: &str| said.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(-1.0);
    ioc.until("dbgf S:fast:PASSES", |said| number(said) >= 5.0);
    // The statistics are those of the group's owner: the housekeeping shard has no records of this rate.
    assert_eq!(number(&ioc.say("dbgf S:fast:RECORDS")), 2.0);
    for word in ["LATE_P50", "LATE_P99", "LATE_MAX", "DUR_P50", "DUR_P99", "DUR_MAX"] {
        assert!(number(&ioc.say(&format!("dbgf S:fast:{word}"))) > 0.0, "{word}");
    }
    assert!(ioc.say("dbgf S:fast:LATE_HIST").contains("DBF_DOUBLE[24]:"));
    let before = number(&ioc.say("dbgf S:fast:PASSES"));
    ioc.say("dbpf S:fast:RESET reset");
    ioc.until("dbgf S:fast:RESET", |said| said.contains("measuring"));
    ioc.until("dbgf S:fast:PASSES", |said| number(said) < before + 5.0);
    let refused = "dbLoadBuiltin scanStats.db \"IOC=S,NAME=x,SCAN=3 second\"";
    ioc.until(refused, |said| said.contains("found SCAN=\"3 second\", expected one of \"10 second\""));
}

#[test]
fn scans_of_all_owners_are_paused_and_continued() {
    let mut ioc = start();
    // The interpreter may print messages in between.
    let value = |ioc: &mut Ioc, name: &str| -> String {
        ioc.say(&format!("dbgf {name}")).lines().filter(|line| line.starts_with("DBF")).collect()
    };
    ioc.until("dbgf other", |said| !said.contains(" 0 "));
    ioc.say("iocPause");
    // A running pass ends within this time.
    ioc.say("epicsThreadSleep 0.2");
    let held = ["fast", "other"].map(|name| value(&mut ioc, name));
    ioc.say("epicsThreadSleep 0.5");
    assert_eq!(["fast", "other"].map(|name| value(&mut ioc, name)), held);
    ioc.say("iocRun");
    for (name, held) in ["fast", "other"].into_iter().zip(held) {
        ioc.until(&format!("dbgf {name}"), |said| !said.contains(&held));
    }
    assert!(ioc.say("callbackQueueShow").contains("owner .1 second,Event=other:"));
}

#[test]
fn arrays_and_properties_come_from_their_owner() {
    let ioc = start();
    let mut circuit = Circuit::connect(ioc.port);
    let (wave, fast) = (circuit.create("wave"), circuit.create("fast"));
    circuit.subscribe(wave, 3);
    let mut values: Vec<f64> = (0..6).map(|_| double(&circuit.receive(command::EVENT_ADD).1)).collect();
    // A read triggered by a pass's update may already return the next pass's value, which is then posted again.
    values.dedup();
    assert!(values.len() >= 3 && values.windows(2).all(|pair| pair[1] > pair[0]), "{values:?}");
    // DBR_CTRL_DOUBLE: status, severity, precision, padding, then the units.
    circuit.send(Header::bare(command::READ_NOTIFY, 34, 1, fast, 9), &[]);
    let (_, payload) = circuit.receive(command::READ_NOTIFY);
    assert_eq!(&payload[8..10], b"mm");
}

#[test]
fn a_link_field_has_the_properties_of_its_source_also_with_another_owner() {
    let mut ioc = start();
    let mut circuit = Circuit::connect(ioc.port);
    // Inputs of a calc have the properties of their sources: here of "fast", and of a link that is written later.
    ioc.say("dbpf house.INPC \"fast CP\"");
    for (id, field) in [(1, "house.B"), (2, "house.C")] {
        let sid = circuit.create(field);
        let mut units = Vec::new();
        for _ in 0..100_000 {
            circuit.send(Header::bare(command::READ_NOTIFY, 34, 1, sid, id), &[]);
            units = circuit.receive(command::READ_NOTIFY).1[8..16].to_vec();
            if units[0] != 0 {
                break;
            }
        }
        assert_eq!(&units, b"mm\0\0\0\0\0\0", "{field}");
    }
}

#[test]
fn clients_beyond_the_descriptors_are_refused_and_the_others_are_served() {
    let mut ioc = start();
    let mut early = Circuit::connect(ioc.port);
    let set = early.create("set");
    let pid = rustix::process::Pid::from_child(&ioc.child);
    let few = rustix::process::Rlimit { current: Some(40), maximum: Some(40) };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, few).unwrap();
    // The kernel completes each connection. The IOC accepts up to its limit and closes the others.
    let _many: Vec<_> = (0..60).map(|_| std::net::TcpStream::connect(("127.0.0.1", ioc.port)).unwrap()).collect();
    ioc.until("casr 1", |said| said.contains("connections refused") && !said.contains(" 0 connections refused"));
    early.put(set, 5.0);
    early.ask(set, 1);
    assert_eq!(double(&early.receive(command::READ_NOTIFY).1), 5.0);
}

#[test]
fn a_missing_scan_fails_the_start_and_is_named() {
    let output = harness::tahti()
        .args(["ioc", "--scan", "3 parsec=other", "-x", "X:"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("\"3 parsec\"") && said.contains("\".1 second\""), "{said}");
}

#[test]
fn an_unavailable_but_required_cpu_ends_the_ioc_with_any_start_script() {
    let folder = std::env::temp_dir().join(format!("tahti-ioc-required-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("t.db"), DATABASE).unwrap();
    std::fs::write(folder.join("inner.cmd"), "dbLoadRecords t.db\niocInit\n").unwrap();
    std::fs::write(folder.join("st.cmd"), "< inner.cmd\n").unwrap();
    // This machine has no such CPU. The IOC must exit at startup; otherwise the interpreter would wait for ever.
    let group = ["--require-rt", "--scan", ".1 second=other@1000"];
    for start in [["-d", "t.db"], ["-s", "st.cmd"]] {
        let mut child = harness::tahti()
            .arg("ioc")
            .args(group)
            .args(start)
            .current_dir(&folder)
            .env("EPICS_CA_SERVER_PORT", harness::port::free_port().to_string())
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{start:?}: {said}");
        assert!(said.contains("CPU 1000") && said.contains("--require-rt"), "{start:?}: {said}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
