//! Sessions of the command interpreter compared with C's: the same commands must print the same lines.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`; `cargo xtask test epics` sets it up. Everything stays on
//! loopback, on ports that were free.

use harness::epics::program;
use harness::ioc::{Ioc, both, same};
use harness::port::free_port;
use harness::process::Running;
use harness::{PATIENCE, eventually};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const RULES: &str = r#"
UAG(ops) {root,anna}
UAG(empty)
HAG(control) {localhost, HostA}
ASG(DEFAULT) { RULE(1,READ) RULE(1,WRITE,TRAPWRITE){UAG(ops)} }
ASG(locked) {
  INPA("X:lock") INPB("X:none")
  RULE(0,READ) { CALC("A<2") }
  RULE(1,WRITE) { UAG($(WHO),empty) CALC("A=0") }
  RULE(1,NONE) { CALC("B") }
  RULE(0,READ) { CALC("1") }
}
"#;

const GUARDED: &str = r#"
record(longout, "X:lock") { field(VAL, "0") field(PINI, "YES") }
record(ao, "X:guarded") { field(ASG, "locked") }
record(ao, "X:free") {}
"#;

#[test]
fn access_security_is_reported_and_enforced_as_c_does_it() {
    let files = [("rules.acf", RULES), ("test.db", GUARDED)];
    let mut iocs = both(&files, &["-m", "WHO=ops", "-a", "rules.acf", "-d", "test.db"]);
    for (command, wanted) in [
        ("asprules locked", "INPA(X:lock) value=0.000000"),
        ("asprules", ""),
        ("asdbdump", "\tINPA(X:lock)   VALID value=0.000000"),
        ("aspuag", ""),
        ("aspuag ops", ""),
        ("asphag", ""),
        ("aspmem", ""),
        ("aspmem locked 1", ""),
        ("dbpf X:lock 1", ""),
        ("asprules locked", "INPA(X:lock) value=1.000000"),
    ] {
        // C updates inputs in a separate thread: repeat until it has the value.
        let said = iocs.each_mut().map(|ioc| {
            let mut text = String::new();
            eventually(wanted, || {
                text = ioc.say(command);
                text.contains(wanted)
            });
            text
        });
        same(command, said);
    }
    for lock in ["0", "1", "2", "0"] {
        same(lock, iocs.each_mut().map(|ioc| ioc.say(&format!("dbpf X:lock {lock}"))));
        let followed = format!("INPA(X:lock) value={lock}.000000");
        for ioc in &mut iocs {
            eventually(&followed, || ioc.say("asprules locked").contains(&followed));
        }
        for name in ["X:guarded", "X:guarded.DESC", "X:free", "X:free.ASG"] {
            // C's thread prints an input's new value before it has computed the result.
            let mut rights = [String::new(), String::new()];
            let wait = Instant::now() + PATIENCE;
            while rights[0].is_empty() || (rights[0] != rights[1] && Instant::now() < wait) {
                rights = iocs.each_mut().map(|ioc| ioc.tool("cainfo", &[name]));
            }
            same(name, rights);
            // Without the read right, the tool waits for an old value that never comes.
            same(name, iocs.each_mut().map(|ioc| ioc.tool("caput", &["-w", "5", "-c", name, "5"])));
        }
    }
    let ours = &mut iocs[1];
    assert!(ours.ours && ours.tool("cainfo", &["X:guarded"]).contains("read, write"));
}

/// Lines that a program prints, until `until` returns true; then the program is ended.
fn follow(mut command: Command, mut until: impl FnMut(&[String]) -> bool) -> Vec<String> {
    let running = Running::follow(&mut command);
    let lines = &running.lines;
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        seen.push(line);
        if until(&seen) {
            break;
        }
    }
    seen
}

#[test]
fn clients_are_notified_of_changes_of_their_rights() {
    let files = [("rules.acf", RULES), ("test.db", GUARDED)];
    for ours in [false, true] {
        let mut ioc = Ioc::session(ours, &files, &["-m", "WHO=ops", "-a", "rules.acf", "-d", "test.db"]);
        let mut monitor = program(false, "camonitor", ioc.port);
        monitor.current_dir(&ioc.folder);
        monitor.args(["-F,", "X:guarded"]);
        // Without the read right there are no updates. When the right returns, the value is sent again.
        let lines = follow(monitor, |lines| {
            if lines.len() == 1 {
                ioc.say("dbpf X:lock 2");
                eventually("no rights", || ioc.tool("cainfo", &["X:guarded"]).contains("no read, no write"));
                ioc.say("dbpf X:lock 0");
            }
            lines.len() == 2
        });
        assert_eq!(lines.len(), 2, "{ours} {lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("X:guarded")), "{ours} {lines:?}");
    }
}

#[test]
fn a_malformed_security_file_prevents_the_start_of_the_ioc() {
    let folder = std::env::temp_dir().join(format!("tahti-acf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bad.acf"), "ASG(DEFAULT) {\n  RULE(1, WRIET)\n}\n").unwrap();
    std::fs::write(folder.join("test.db"), GUARDED).unwrap();
    let mut command = program(true, "softIoc", free_port());
    command.current_dir(&folder);
    let mut child =
        command.args(["-a", "bad.acf", "-d", "test.db"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!status.success() && said.contains("bad.acf:2:11: found \"WRIET\""), "{status} {said}");
    assert!(said.contains("nearest is \"WRITE\""), "{said}");
}

const TEMPLATE: &str = r#"
record(ao, "$(P)$(N)") { field(DESC, "$(T=none)") field(VAL, "$(V=0)") info(autosaveFields, "VAL") alias("$(P)alias$(N)") }
"#;

const SUBSTITUTIONS: &str = r#"
global { P=X:, T="two words" }
file "one.db" { pattern { N, V } { a, 10 } { b "2\"0" } {"c" , 3} }
file one.db { { N=d, V='4' } global { T="it, too" } { N=e } old { N=f, T="$(Q)" } }
"#;

#[test]
fn substitutions_load_the_same_records_as_c() {
    let substitutions = SUBSTITUTIONS.replace("2\\\"0", "20");
    let files = [("one.db", TEMPLATE), ("all.substitutions", &substitutions)];
    let script = "dbLoadTemplate all.substitutions \"Q=fox\"\niocInit\n";
    let files = [files[0], files[1], ("st.cmd", script)];
    let mut iocs = both(&files, &["st.cmd"]);
    for command in ["dbl", "dbla", "dbnr"] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        for field in ["DESC", "VAL"] {
            let command = format!("dbgf X:{name}.{field}");
            same(&command, iocs.each_mut().map(|ioc| ioc.say(&command)));
        }
    }
}

#[test]
fn the_exit_record_ends_the_ioc() {
    for (value, status) in [("0", 0), ("3", 1)] {
        // The package of C's IOC lacks the file that its -x loads, so only ours is tested.
        let mut ioc = Ioc::session(true, &[], &["-x", "END"]);
        assert!(ioc.tool("caget", &["END:BaseVersion"]).contains("tahti "));
        // Writing A processes the record.
        ioc.command(&format!("dbpf END:exit.A {value}"));
        let mut ended = None;
        eventually("the IOC ends", || {
            ended = ioc.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|ended| ended.code()), Some(status));
    }
}

const SAVED: &str = r#"
record(ao, "X:ao") { field(PREC, "3") info(autosaveFields, "VAL PREC HIHI") info(autosaveFields_pass0, "DESC") }
record(mbbo, "X:mbbo") { field(ZRST, "zero") field(ONST, "one") info(autosaveFields, "VAL") }
record(waveform, "X:wave") { field(FTVL, "LONG") field(NELM, "5") info(autosaveFields, "VAL") }
record(longout, "X:trigger") {}
record(calc, "X:calc") { field(CALC, "A*2") field(INPA, "X:ao") field(PINI, "YES") }
"#;

const SAVING: &str = r#"
set_requestfile_path .
set_savefile_path .
save_restoreSet_status_prefix X:
set_pass0_restoreFile info_positions.sav
set_pass1_restoreFile info_settings.sav
dbLoadRecords test.db
dbLoadBuiltin save_restoreStatus.db P=X:
iocInit
makeAutosaveFiles
create_monitor_set info_positions.req 1
create_manual_set info_settings.req
create_triggered_set by_trigger.req X:trigger P=X:
"#;

#[test]
fn values_survive_a_restart_by_autosave() {
    let files = [("test.db", SAVED), ("st.cmd", SAVING), ("by_trigger.req", "$(P)ao\n$(P)absent\n")];
    let mut first = Ioc::session(true, &files, &["st.cmd"]);
    first.keep = true;
    for (name, value) in [("X:ao", "2.125"), ("X:ao.HIHI", "7"), ("X:ao.DESC", "with words"), ("X:mbbo", "one")] {
        first.tool("caput", &["-c", name, value]);
    }
    first.tool("caput", &["-c", "-a", "X:wave", "3", "1", "2", "3"]);
    assert_eq!(first.say("manual_save info_settings.req"), "");
    let file = |name: &str| std::fs::read_to_string(first.folder.join(name)).unwrap_or_default();
    let settings = file("info_settings.sav");
    let body = settings.split_once('\n').unwrap().1;
    assert_eq!(
        body,
        "X:ao.VAL 2.125\nX:ao.PREC 3\nX:ao.HIHI 7\nX:mbbo.VAL 1\nX:wave.VAL @array@ { \"1\" \"2\" \"3\" }\n<END>\n"
    );
    assert_eq!(file("info_settings.savB"), settings);
    eventually("the monitored set is saved", || file("info_positions.sav").contains("X:ao.DESC with words\n<END>"));
    assert!(file("by_trigger.sav").is_empty(), "no trigger yet");
    first.tool("caput", &["-c", "X:trigger", "1"]);
    eventually("the triggered set is saved", || file("by_trigger.sav").contains("X:ao 2.125\n#X:absent \n<END>"));
    eventually("the state is shown", || {
        first.tool("caget", &["-t", "X:SR_2_StatusStr"]) == "1 of 2 channels not found\n"
    });
    assert_eq!(first.tool("caget", &["-t", "X:SR_0_Name"]), "info_positions.req\n");
    // The last change is saved at exit. A truncated file is ignored.
    first.tool("caput", &["-c", "X:ao.DESC", "the last"]);
    let folder = first.folder.clone();
    drop(first);
    std::fs::write(folder.join("info_settings.sav"), "X:ao.VAL 99\n").unwrap();

    let mut second = Ioc::session_in(folder, true, &files, &["st.cmd"]);
    for (command, expected) in [
        ("dbgf X:ao", "DBF_DOUBLE:         2.125     \n"),
        ("dbgf X:ao.HIHI", "DBF_DOUBLE:         7         \n"),
        ("dbgf X:ao.DESC", "DBF_STRING:         \"the last\"          \n"),
        ("dbgf X:mbbo", "DBF_STRING:         \"one\"     \n"),
        ("dbgf X:wave", "DBF_LONG[3]:        1 = 0x1   2 = 0x2   3 = 0x3   \n"),
        ("dbgf X:calc", "DBF_DOUBLE:         4.25      \n"),
    ] {
        assert_eq!(second.say(command), expected, "{command}");
    }
    assert_eq!(second.tool("caget", &["-t", "X:SR_rebootStatus"]), "Ok\n");
    let copies = std::fs::read_dir(&second.folder).unwrap().flatten();
    assert_eq!(copies.filter(|entry| entry.file_name().to_string_lossy().contains(".savB_")).count(), 1);
    second.say("dbpf X:ao 1");
    assert_eq!(second.say("fdbrestore info_settings.savB"), "autosave: 5 values restored\n");
    assert_eq!(second.say("dbgf X:ao"), "DBF_DOUBLE:         2.125     \n");
}

#[test]
fn the_copy_of_a_restored_file_follows_no_link() {
    let script = "save_restoreSet_DatedBackupFiles 0\nset_pass1_restoreFile s.sav\ndbLoadRecords test.db\niocInit\n";
    let saved = "# by hand\nX:ao.VAL 2.5\n<END>\n";
    let files = [("test.db", "record(ao, \"X:ao\") {}"), ("st.cmd", script), ("s.sav", saved)];
    let mut first = Ioc::session(true, &files, &["st.cmd"]);
    first.keep = true;
    let folder = first.folder.clone();
    drop(first);
    let (copy, elsewhere) = (folder.join("s.sav.bu"), folder.join("elsewhere"));
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(&elsewhere, "somebody's").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &copy).unwrap();
    let mut second = Ioc::session_in(folder, true, &files, &["st.cmd"]);
    assert!(second.say("dbgf X:ao").contains(" 2.5 "));
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "somebody's");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), saved);
}

#[test]
fn field_tests_print_the_same_as_c() {
    let mut iocs = both(&[("test.db", TRIED)], &["-d", "test.db"]);
    for command in [
        "dbtpf X:ao 5",
        "dbtpf X:ao 2.5",
        "dbtpf X:ao.DESC 7",
        "dbtpf X:bo 1",
        "dbtpf X:long 1000",
        "dbtpf X:absent 1",
        "dbli",
        "dbli foo",
        "dbli f*",
        "dbgf X:words",
        "dbl bo",
        "dbl ao \"DESC recordType nothing\"",
        "dbgrep X:*o",
    ] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
}

#[test]
fn commands_that_inspect_the_ioc_print_the_same_as_c() {
    let mut iocs = both(&[("test.db", LOOKED)], &["-d", "test.db"]);
    for command in
        ["iocPause", "iocPause", "iocRun", "iocRun", "dbstat", "dbhcr", "dbior", "dbpf X:chars hello", "dbgf X:chars"]
    {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    for command in ["dbpf X:longs \"[1,2,3]\"", "dbpf X:longs 7", "dbpf X:longs []", "dbpf X:texts '[\"a\",\"b c\"]'"] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    // C prints memory addresses first.
    for name in ["X:ai", "X:ai.DESC", "X:ai.SCAN", "X:ai.INP", "X:longs", "X:mbbo", "X:ai.FLNK", "X:ai.LINR", "absent"]
    {
        let command = format!("dba {name}");
        let without = |text: String| {
            text.lines()
                .filter(|line| !line.starts_with("Record Address"))
                .fold(String::new(), |all, line| all + line + "\n")
        };
        same(&command, iocs.each_mut().map(|ioc| without(ioc.say(&command))));
    }
    // C prints garbled lines of properties (its own fault), so only the values are compared, in all types.
    for name in ["X:ai", "X:ai.DESC", "X:chars", "X:mbbo", "X:longs", "X:ai.SCAN"] {
        let command = format!("dbtgf {name}");
        let values = |text: String| {
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("DBF_")).collect();
            lines[lines.len().saturating_sub(12)..].join("\n")
        };
        let said = iocs.each_mut().map(|ioc| values(ioc.say(&command)));
        assert_eq!(said[0].lines().count(), 12, "{}", said[0]);
        same(&command, said);
    }
    // Lock sets are numbered in order of creation, and C prints the mutex of each.
    let sets = |text: String| {
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| match line.strip_prefix("Lock Set ") {
                Some(rest) => rest
                    .split_once(' ')
                    .map_or(String::new(), |(_, rest)| rest.split(" members").next().unwrap_or("").to_owned()),
                None => line.to_owned(),
            })
            .collect();
        lines.sort();
        lines.join("\n")
    };
    for command in ["dblsr X:ai", "dblsr X:ai 1", "dblsr X:ai 2", "dblsr \"\" 2"] {
        same(command, iocs.each_mut().map(|ioc| sets(ioc.say(command))));
    }
    let head = |text: String| text.lines().next().unwrap_or_default().to_owned();
    for command in ["scanOnceQueueShow", "callbackQueueShow", "dbjlr X:json", "dbjlr"] {
        same(command, iocs.each_mut().map(|ioc| head(ioc.say(command))));
    }
    let parameters = iocs.each_mut().map(|ioc| {
        ioc.say("epicsParamShow")
            .lines()
            .filter(|line| line.starts_with("EPICS_CA"))
            .map(|line| line.split(':').next().unwrap_or("").split(' ').next().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(parameters[0], parameters[1]);
    // Commands that C's IOC has and ours lacks are refused with a reason. No command of its list is unknown.
    let [theirs, ours] = &mut iocs;
    let names: Vec<String> =
        theirs.say("help").split("Type 'help").next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
    assert!(names.len() > 100, "{names:?}");
    let known = ours.say("help");
    let absent = names.iter().filter(|name| *name != "#" && !known.split_whitespace().any(|word| word == **name));
    let script = absent.fold(String::new(), |all, name| all + name + "\n");
    assert!(script.contains("dbel\n"), "{script}");
    let mut command = program(true, "softIoc", free_port());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(!said.contains("not found"), "{said}");
    assert_eq!(said.matches("of C's IOC is not available: ").count(), script.lines().count(), "{said}");
}

#[test]
fn records_menus_and_tables_are_dumped_as_c_does_it() {
    let table = "breaktable(\"curve\") { 0 0  10 5.5  1000 700 }";
    let script = "dbLoadDatabase t.dbd\ndbLoadRecords test.db\niocInit\n";
    let mut iocs = both(&[("test.db", DUMPED), ("t.dbd", table), ("st.cmd", script)], &["st.cmd"]);
    for command in [
        "dbDumpPath pdbbase",
        "dbDumpRecord pdbbase",
        "dbDumpRecord pdbbase ai",
        "dbDumpRecord pdbbase bo 1",
        "dbDumpRecord pdbbase absent",
        "dbDumpMenu pdbbase menuScan",
        "dbDumpMenu pdbbase absent",
        "dbDumpBreaktable pdbbase curve",
        "dbDumpDriver pdbbase",
        "dbnr",
        "dbnr 1",
        "dbl",
        "dbl ai \"VAL PREC INP DESC DTYP\"",
        "dbl bo \"VAL OUT SCAN NAME\"",
        "dbpr X:ai 3",
        "dbpr X:bo 1",
        "dbpr X:small 2",
        "dbpr X:mbbo 1",
        "epicsEnvShow EPICS_CAS_INTF*",
        "date \"%% %Z\"",
    ] {
        let [theirs, ours] = iocs.each_mut().map(|ioc| ioc.say(command));
        let is_of_c = |line: &&str| !line.split_whitespace().last().is_some_and(|word| BEYOND_C.contains(&word));
        same(command, [theirs, ours.split_inclusive('\n').filter(is_of_c).collect()]);
    }
}

/// Record types of synApps, which EPICS' own softIoc does not have.
const BEYOND_C: &[&str] = &[
    "acalcout",
    "asyn",
    "busy",
    "epid",
    "motor",
    "scalcout",
    "scaler",
    "sscan",
    "sseq",
    "swait",
    "table",
    "transform",
];

const DUMPED: &str = r#"
record(ai, "X:ai") { field(INP, "X:b PP MS") field(FLNK, "X:calc") field(DESC, "it's \"a\" word") field(PREC, "2") field(VAL, "3") }
record(ai, "X:b") { field(VAL, "3.25") field(EGU, "mm") field(UDFS, "MINOR") info(autosave, "VAL \"x\"") alias("X:c") }
record(calc, "X:calc") { field(INPA, "X:b NPP") field(INPB, "4.5") field(CALC, "A<5?B:0") field(SCAN, "10 second") }
record(ao, "X:const") { field(DOL, "7") field(OMSL, "closed_loop") field(DRVH, "1e10") field(OUT, {state:s}) }
record(bo, "X:bo") { field(ZNAM, "off") field(VAL, "1") field(PINI, "YES") field(OUT, "X:mbbo PP") }
record(mbbo, "X:mbbo") { field(ZRST, "zero") field(ONVL, "7") field(ZRSV, "MAJOR") field(IVOA, "Don't drive outputs") }
record(waveform, "X:wave") { field(FTVL, "CHAR") field(NELM, "8") field(INP, ["text"]) }
record(stringin, "X:text") { field(DTYP, "getenv") field(INP, "@HOME") field(TSE, "-2") }
record(lso, "X:long") { field(SIZV, "80") field(DOL, ["a text"]) }
record(ai, "X:small") { field(HIGH, "0.001") field(LOW, "-0.1") field(HYST, "1e-7") field(ADEL, "123456.789") field(MDEL, "0.3333333333333333") field(HOPR, "29.999999999999999") }
"#;

const LOOKED: &str = r#"
record(ai, "X:ai") { field(INP, "X:b PP MS") field(FLNK, "X:c") field(DESC, "a word") field(PREC, "2") field(VAL, "3") }
record(ai, "X:b") { field(VAL, "3") }
record(calc, "X:c") { field(INPA, "X:b NPP") field(CALC, "A") }
record(ai, "X:json") { field(INP, {const:5}) }
record(mbbo, "X:mbbo") { field(ZRST, "zero") field(ONST, "one") field(VAL, "1") }
record(waveform, "X:chars") { field(FTVL, "CHAR") field(NELM, "8") }
record(waveform, "X:longs") { field(FTVL, "LONG") field(NELM, "8") }
record(waveform, "X:texts") { field(FTVL, "STRING") field(NELM, "3") }
"#;

const TRIED: &str = r#"
record(ao, "X:ao") { info(foo, "bar") info(other, "two words") }
record(bo, "X:bo") { info(far, "x") alias("X:also") }
record(longout, "X:long") {}
record(waveform, "X:words") { field(FTVL, "STRING") field(NELM, "3") }
"#;

#[test]
fn the_ioc_reports_its_health_under_the_names_of_iocstats() {
    let ioc = Ioc::session(true, &[("st.cmd", "dbLoadBuiltin iocAdminSoft.db IOC=H\niocInit\n")], &["st.cmd"]);
    let number = |name: &str| ioc.tool("caget", &["-t", name]).trim().parse::<f64>().unwrap_or(0.0);
    eventually("the heart beats", || number("H:HEARTBEAT") >= 1.0);
    for name in [
        "H:MEM_USED",
        "H:MEM_FREE",
        "H:MEM_MAX",
        "H:FD_CNT",
        "H:FD_MAX",
        "H:FD_FREE",
        "H:CPU_CNT",
        "H:PROCESS_ID",
        "H:PARENT_ID",
    ] {
        assert!(number(name) > 0.0, "{name}");
    }
    assert_eq!(number("H:PROCESS_ID"), f64::from(ioc.child.id()));
    assert_eq!(number("H:RECORD_CNT"), 47.0);
    let text = |name: &str| ioc.tool("caget", &["-t", "-S", name]).trim().to_owned();
    assert_eq!((text("H:ST_SCRIPT"), text("H:CAS_ADDR_LIST")), ("st.cmd".into(), "127.0.0.1".into()));
    assert_eq!(
        (text("H:CA_SRCH_TIME"), text("H:START_CNT"), text("H:ACCESS")),
        ("300.0".into(), "1".into(), "Running".into())
    );
    // Format: 11/22/2026 09:52:59.
    let start = ioc.tool("caget", &["-t", "H:STARTTOD"]);
    let is_time = start.trim().bytes().zip(*b"00/00/0000 00:00:00").all(|(a, b)| a == b || a.is_ascii_digit());
    assert!(is_time && start.trim().len() == 19, "{start}");
    let mut monitor = program(false, "camonitor", ioc.port);
    monitor.current_dir(&ioc.folder);
    monitor.args(["-F,", "H:CA_CLNT_CNT"]);
    let is_one = |line: &String| line.ends_with(",1") || line.contains(",1,");
    let lines = follow(monitor, |lines| lines.last().is_some_and(is_one));
    assert!(lines.last().is_some_and(is_one), "{lines:?}");
}
