//! Autosave and the put log write their pending data at every kind of IOC exit.
#![allow(missing_docs, reason = "the tests' names are their documentation")]

use harness::circuit::Circuit;
use harness::ioc::Ioc;

const RULES: &str = "ASG(DEFAULT) { RULE(1,WRITE,TRAPWRITE) }";
const RECORDS: &str = "record(ao, \"X:a\") {} record(sub, \"X:exit\") { field(SNAM, \"exit\") }";
/// Autosave saves at once and then after 1,000,000 s (11.6 days). The put log writes a burst of changes after a day.
const SCRIPT: &str = "dbLoadRecords test.db\nasSetFilename rules.acf\niocInit\n\
    create_monitor_set a.req 1000000\ncaPutJsonLogInit ./put.json 0 86400\n";

fn start() -> Ioc {
    let files = [("rules.acf", RULES), ("test.db", RECORDS), ("a.req", "X:a\n"), ("st.cmd", SCRIPT)];
    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    let saved = ioc.folder.join("a.sav");
    ioc.until("echo", |_| std::fs::read_to_string(&saved).is_ok_and(|text| text.contains("X:a 0")));
    ioc
}

/// Contents of the files after the IOC's exit, and its exit status.
fn after(mut ioc: Ioc, end: impl FnOnce(&mut Ioc, &mut Circuit)) -> (String, String, Option<i32>) {
    let mut circuit = Circuit::connect(ioc.port);
    let value = circuit.create("X:a");
    circuit.put(value, 12.5);
    // The response shows that the write, which has none, was done.
    circuit.ask(value, 1);
    circuit.receive(ca::wire::command::READ_NOTIFY);
    end(&mut ioc, &mut circuit);
    let status = ioc.child.wait().unwrap().code();
    let file = |name: &str| std::fs::read_to_string(ioc.folder.join(name)).unwrap();
    (file("a.sav"), file("put.json"), status)
}

fn check((saved, log, status): (String, String, Option<i32>), expected: i32, how: &str) {
    assert!(saved.contains("X:a 12.5\n") && saved.ends_with("<END>\n"), "{how}: {saved}");
    assert!(log.contains("\"pv\":\"X:a\"") && log.contains("12.5"), "{how}: {log}");
    assert_eq!(status, Some(expected), "{how}");
}

#[test]
fn signals_and_the_exit_command_save_the_last_values_and_the_put_log() {
    for (signal, status) in [("TERM", 0), ("INT", 130), ("HUP", 129)] {
        check(after(start(), |ioc, _| ioc.signal(signal)), status, signal);
    }
    check(after(start(), |ioc, _| ioc.command("exit")), 0, "exit");
}

#[test]
fn the_exit_record_saves_the_last_values_and_the_put_log() {
    let end = |_: &mut Ioc, circuit: &mut Circuit| {
        let process = circuit.create("X:exit.PROC");
        circuit.put(process, 1.0);
    };
    check(after(start(), end), 0, "exit record");
}

#[test]
fn unsupported_commands_of_scripts_and_modules_name_the_replacement() {
    let mut ioc = Ioc::start(&[("x.db", RECORDS)], &[]);
    assert_eq!(["casr", "casr 2", "iocLogPrefix fac=X"].map(|line| ioc.say(line)), ["", "", ""]);
    assert_eq!(ioc.say("iocLogPrefix fac=X"), "");
    let said = ioc.say("iocLogPrefix fac=Y");
    assert!(said.contains("iocLogPrefix: The prefix was already set to \"fac=X\" and can't be changed."), "{said}");
    for (line, words) in [
        ("asynAutoConnect P 0 0", "ports always connect by themselves"),
        ("set_savefile_name a.req b.sav", "saved as NAME.sav"),
        ("source st.cmd", "< FILE"),
        ("require asyn", "dbLoadRecords"),
        ("drvAsynIPServerPortConfigure S \"localhost:1\"", "configure the device as the server"),
        ("pvxsl", "iocInit first"),
    ] {
        let said = ioc.say(line);
        assert!(said.contains(words), "{line}: {said}");
    }
    assert_eq!(ioc.say("drvAsynIPPortConfigure U \"127.0.0.1:5000 UDP\""), "");
    assert_eq!(ioc.say("drvAsynIPPortConfigure C \"127.0.0.1:5000 COM\""), "");
    assert_eq!(ioc.say("asynSetOption C 0 baud 19200"), "");
    let report = ioc.say("asynReport");
    assert!(report.contains("127.0.0.1:5000 UDP") && report.contains("127.0.0.1:5000 COM"), "{report}");
    ioc.say("dbLoadRecords x.db");
    ioc.say("var dbRecordsOnceOnly 1");
    let said = ioc.say("dbLoadRecords x.db");
    assert!(said.contains("defined already, and dbRecordsOnceOnly is set"), "{said}");
}

#[test]
fn latin_1_passes_from_files_and_arguments_to_clients_and_autosave_unchanged() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut ioc = Ioc::start(&[("a.req", "L:s\n")], &[]);
    let database =
        b"record(stringout, \"L:s\") { field(VAL, \"m\xb2\") } record(ai, \"L:a\") { field(EGU, \"\xb0C\") }";
    std::fs::write(ioc.folder.join("l.db"), database).unwrap();
    ioc.say("dbLoadRecords l.db");
    ioc.say("iocInit");
    assert!(ioc.say("dbgf L:a.EGU").contains("\"\\xb0C\""));
    std::io::Write::write_all(ioc.commands.as_mut().unwrap(), b"dbpf L:s '5 \xb5m'\n").unwrap();
    assert!(ioc.say("dbgf L:s").contains("\"5 \\xb5m\""));
    let caput = harness::epics::program(true, "caput", ioc.port)
        .args([std::ffi::OsStr::new("L:s"), std::ffi::OsStr::from_bytes(b"7 m\xb3")])
        .output()
        .unwrap();
    assert!(caput.status.success(), "{caput:?}");
    assert!(ioc.say("dbgf L:s").contains("\"7 m\\xb3\""));
    ioc.say("create_monitor_set a.req 1000000");
    let saved = ioc.folder.join("a.sav");
    ioc.until("echo", |_| std::fs::read_to_string(&saved).is_ok_and(|text| text.contains("L:s 7 m\\xb3\n")));
}
