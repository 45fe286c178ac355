//! Records loaded and removed while `tahti ioc` runs with scan groups.

use ca::wire::command;
use harness::circuit::{Circuit, double};
use harness::ioc::Ioc;

const DATABASE: &str = r#"
record(calc, "fast") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "fast") }
record(calc, "second") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "second") }
record(ao, "quiet") { field(SCAN, ".1 second") }
record(calc, "waits") { field(CALC, "A") field(INPA, "late CP") }
record(ao, "into") { field(OUT, "late.B CA") }
record(calc, "inside") { field(SCAN, ".1 second") field(CALC, "A") field(INPA, "late CA") }
record(calc, "old") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "old") field(FLNK, "after") }
record(calc, "after") { field(CALC, "A+1") field(INPA, "after") }
"#;

const LATE: &str = r#"
record(calc, "late") { field(SCAN, ".1 second") field(CALC, "A+1") field(INPA, "late") field(FLNK, "late:next") field(EGU, "mm") }
record(calc, "late:next") { field(CALC, "A*10") field(INPA, "late") }
record(calc, "late:sees") { field(SCAN, ".1 second") field(CALC, "A") field(INPA, "fast CP") }
record(calc, "late:event") { field(SCAN, "Event") field(EVNT, "go") field(CALC, "A+1") field(INPA, "late:event") }
record(calc, "late:pini") { field(SCAN, "1 second") field(PINI, "YES") field(CALC, "42") }
record(ai, "late:signal") { field(SCAN, ".1 second") field(DTYP, "tahti Simulation") field(INP, "@counter") }
record(ai, "late:home") { field(SCAN, ".2 second") field(DTYP, "tahti Simulation") field(INP, "@counter") }
"#;

/// A group whose rate runs on two CPUs, if the process may use two.
fn groups() -> Vec<String> {
    let mine = rustix::thread::sched_getaffinity(None).unwrap();
    let cpus: Vec<String> =
        (0..1024).filter(|cpu| mine.is_set(*cpu)).take(2).map(|cpu: usize| cpu.to_string()).collect();
    let group = format!(".1 second,Event,1 second=other@{}", cpus.join(","));
    ["--scan", &group, "-d", "t.db"].map(String::from).to_vec()
}

fn start(late: &str) -> Ioc {
    let files = [
        ("t.db", DATABASE),
        ("late.db", late),
        ("bad.db", "record(ai, \"bad\") {}\nrecord(ai, \"worse\") { field(NO, 1) }"),
    ];
    let groups = groups();
    Ioc::start(&files, &groups.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The number in the output of `dbgf`.
fn value(said: &str) -> Option<f64> {
    said.lines().find(|line| line.starts_with("DBF"))?.split_whitespace().nth(1)?.parse().ok()
}

/// The number in the output of `dbgf`; 0 if there is none.
fn number(ioc: &mut Ioc, field: &str) -> f64 {
    value(&ioc.say(&format!("dbgf {field}"))).unwrap_or_default()
}

#[test]
fn records_loaded_later_are_scanned_on_the_threads_of_their_rate() {
    let mut ioc = start(LATE);
    assert_eq!(ioc.say("dbLoadRecords late.db"), "");
    let mut circuit = Circuit::connect(ioc.port);
    let (late, next) = (circuit.create("late"), circuit.create("late:next"));
    circuit.subscribe(late, 1);
    let mut values: Vec<f64> = (0..5).map(|_| double(&circuit.receive(command::EVENT_ADD).1)).collect();
    // A client that subscribes during a pass may get its value twice: as the current value, and as the pass's update.
    values.dedup();
    let each = values.windows(2).all(|pair| pair[1] == pair[0] + 1.0);
    assert!(each && values.len() >= 4, "every pass is seen: {values:?}");
    // Its forward link leads to a record that was loaded with it.
    circuit.ask(next, 9);
    assert_eq!(double(&circuit.receive(command::READ_NOTIFY).1) % 10.0, 0.0);
    let scans = ioc.say("scanppl");
    let home: Vec<&str> = scans.split("Records with").filter(|list| !list.contains("owner")).collect();
    assert!(home.iter().any(|list| list.contains("late:home")), "a rate that no group claims: {scans}");
    assert!(home.iter().all(|list| !list.contains("late:sees") && !list.contains("late ")), "{scans}");
    assert_eq!(scans.matches("    late:signal ").count(), 1, "{scans}");
    // PINI, a device, an event, and a link to an older record of another owner.
    assert_eq!(number(&mut ioc, "late:pini"), 42.0);
    for field in ["late:signal", "late:home", "late:sees"] {
        ioc.until(&format!("dbgf {field}"), |said| said.contains("DBF_DOUBLE:") && !said.contains(" 0 "));
    }
    ioc.say("postEvent go");
    ioc.until("dbgf late:event", |said| said.contains(" 1 "));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn links_of_earlier_records_follow_records_that_are_loaded_removed_and_loaded_again() {
    let mut ioc = start(LATE);
    assert_eq!(number(&mut ioc, "waits"), 0.0);
    for _ in 0..2 {
        assert_eq!(ioc.say("dbLoadRecords late.db"), "");
        // A CP link from the housekeeping shard, a CA link from an owner's record, a write.
        let before = number(&mut ioc, "late");
        ioc.until("dbgf waits", |said| value(said).is_some_and(|value| value > before));
        ioc.until("dbgf inside", |said| value(said).is_some_and(|value| value > before));
        ioc.until("dbpf into 3\ndbgf late.B", |said| said.contains("DBF_DOUBLE:         3 "));
        for name in ["late", "late:next", "late:sees", "late:event", "late:pini", "late:signal", "late:home"] {
            ioc.say(&format!("dbDeleteRecord {name}"));
        }
        assert!(ioc.say("dbgf late").contains("not found"));
        let held = number(&mut ioc, "waits");
        ioc.say("epicsThreadSleep 0.3");
        assert_eq!(number(&mut ioc, "waits"), held, "nothing of it remains");
        assert!(!ioc.say("scanppl").contains("    late"));
    }
}

#[test]
fn a_replaced_record_is_found_by_forward_links_of_its_thread() {
    let again = "record(calc, \"after\") { field(CALC, \"A+100\") field(INPA, \"after\") field(SCAN, \"Passive\") }";
    let mut ioc = start(again);
    ioc.until("dbgf after", |said| said.contains("DBF_DOUBLE:") && !said.contains(" 0 "));
    let mut circuit = Circuit::connect(ioc.port);
    let after = circuit.create("after");
    ioc.say("dbDeleteRecord after");
    // The server notifies the client, which finds the new record under the same name.
    let (header, _) = circuit.receive(command::SERVER_DISCONN);
    assert_eq!(header.p1, 1, "the client's own number of the channel {after}");
    let old = number(&mut ioc, "old");
    ioc.until("dbgf old", |said| !said.contains(&format!(" {old} ")));
    // The existing link reconnects without being written again.
    assert_eq!(ioc.say("dbLoadRecords late.db"), "");
    ioc.until("dbgf after", |said| said.contains("00 "));
}

#[test]
fn a_late_load_with_an_error_loads_the_rest_and_a_template_counts_as_one_load() {
    let mut ioc =
        start("record(calc, \"$(N)\") { field(SCAN, \".1 second\") field(CALC, \"A+1\") field(INPA, \"$(N)\") }");
    ioc.until("dbLoadRecords bad.db", |said| said.contains("no field \"NO\""));
    ioc.until("dbgf bad", |said| said.contains("DBF_DOUBLE:"));
    let rows: String = (0..200).map(|nth| format!("{{ N=many{nth} }}\n")).collect();
    std::fs::write(ioc.folder.join("many.substitutions"), format!("file late.db {{\n{rows}}}\n")).unwrap();
    assert_eq!(ioc.say("dbLoadTemplate many.substitutions"), "");
    ioc.until("dbgf many199", |said| said.contains("DBF_DOUBLE:") && !said.contains(" 0 "));
    let scans = ioc.say("scanppl");
    assert_eq!(scans.lines().filter(|line| line.contains("    many")).count(), 200);
    // Loads above the limit of a scan thread are reported, and still scanned.
    for nth in 0..140 {
        ioc.say(&format!("dbLoadRecords late.db N=one{nth}"));
    }
    ioc.until("dbLoadRecords late.db N=last", |said| said.contains("1 records stay out of the scan group"));
    ioc.until("dbgf last", |said| said.contains("DBF_DOUBLE:") && !said.contains(" 0 "));
}
