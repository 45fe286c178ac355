//! The put log: a file with all writes by clients.
#![allow(missing_docs, reason = "the tests' names are their documentation")]

use harness::circuit::Circuit;
use harness::ioc::Ioc;

const RULES: &str = "ASG(DEFAULT) { RULE(1,WRITE,TRAPWRITE) } ASG(quiet) { RULE(1,WRITE) }";
const RECORDS: &str = "record(ao, \"X:a\") {} record(ao, \"X:quiet\") { field(ASG, \"quiet\") }";

fn start() -> Ioc {
    Ioc::start(&[("rules.acf", RULES), ("test.db", RECORDS)], &["-a", "rules.acf", "-d", "test.db"])
}

/// The logged writes to `X:a`, one per line.
fn lines(log: &str) -> Vec<&str> {
    log.lines().filter_map(|line| Some(line.split_once(" X:a")?.1)).collect()
}

#[test]
fn writes_under_trapwrite_are_logged_with_user_host_and_value_and_bursts_in_one_line() {
    let mut ioc = start();
    assert_eq!(ioc.say("caPutLogInit ./put.log"), "");
    let mut circuit = Circuit::connect(ioc.port);
    let [value, precision, quiet] = ["X:a", "X:a.PREC", "X:quiet"].map(|name| circuit.create(name));
    for (field, number) in [(value, 1.0), (value, 1.0), (value, 2.5), (precision, 3.0), (quiet, 5.0)] {
        circuit.put(field, number);
    }
    ioc.until("caPutLogShow", |said| said.contains("3 logged"));
    assert_eq!(ioc.say("caPutLogReconf 2"), "");
    for number in [4.0, 4.0] {
        circuit.put(value, number);
    }
    let expected = [" new=2.5 old=0 min=1 max=2.5", ".PREC new=3 old=0", " new=4 old=2.5", " new=4 old=4"];
    let file = ioc.folder.join("put.log");
    ioc.until("echo", |_| std::fs::read_to_string(&file).is_ok_and(|log| lines(&log) == expected));
    assert_eq!(ioc.say("caPutLogShow"), "caPutLog: 5 logged, 0 dropped (queue full), 0 failed (file, server)\n");
}

#[test]
fn an_impossible_put_log_target_is_refused_with_the_expected_form() {
    let mut ioc = start();
    let said = ioc.say("caPutLogInit nowhere.invalid");
    assert!(said.contains("expected host[:port], or a file with a slash in its name: ./nowhere.invalid"), "{said}");
    let said = ioc.say("caPutLogInit /nowhere/put.log");
    assert!(said.contains("/nowhere/put.log: "), "{said}");
    let said = ioc.say("caPutLogInit");
    assert!(said.contains("expected host[:port] or ./file, or EPICS_CA_PUT_LOG_ADDR"), "{said}");
}

#[test]
fn the_log_can_be_lines_of_json_with_caputlogs_keys() {
    let mut ioc = start();
    assert_eq!(ioc.say("caPutJsonLogAddMetadata site ring"), "");
    assert_eq!(ioc.say("caPutJsonLogInit ./put.json 1 60"), "");
    let mut circuit = Circuit::connect(ioc.port);
    let [value, precision] = ["X:a", "X:a.PREC"].map(|name| circuit.create(name));
    for (field, number) in [(value, 1.0), (value, 3.0), (value, 2.5), (precision, 3.0)] {
        circuit.put(field, number);
    }
    let file = ioc.folder.join("put.json");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    ioc.until("echo", |_| read().ends_with('\n'));
    let log = read();
    let (head, tail) = log.split_once(",\"pv\":").unwrap();
    assert!(head.starts_with("{\"date\":\"20") && head.ends_with(",\"site\":\"ring\""), "{log}");
    assert_eq!(tail, "\"X:a\",\"new\":2.5,\"old\":0.0,\"min\":1.0,\"max\":3.0,\"burst\":2}\n");
    assert_eq!(ioc.say("caPutJsonLogSetBurstTimeout 0.01"), "");
    circuit.put(value, 7.0);
    ioc.until("echo", |_| {
        let log = read();
        log.contains("\"new\":7.0,\"old\":2.5}\n") && log.contains("\"X:a.PREC\",\"new\":3,\"old\":0}\n")
    });
    assert!(ioc.say("caPutJsonLogShow").starts_with("caPutJsonLog: 5 logged, 0 dropped"));
}
