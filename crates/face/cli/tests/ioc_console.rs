//! The interpreter: commands that it refuses, and whether a script continues after an error.

use ca::wire::command;
use harness::circuit::Circuit;
use harness::ioc::Ioc;
use std::process::Stdio;

const DATABASE: &str = r#"record(ai, "X:ai") { field(VAL, "1.5") }"#;

fn start(files: &[(&str, &str)], options: &[&str]) -> Ioc {
    Ioc::start(&[&[("x.db", DATABASE)], files].concat(), options)
}

#[test]
fn a_running_ioc_survives_another_ioc_init() {
    let mut ioc = start(&[("st.cmd", "dbLoadRecords x.db\niocInit\n")], &["st.cmd"]);
    assert!(ioc.say("iocInit").contains("IOC can only be initialized from uninitialized or stopped state"));
    assert_eq!(ioc.say("dbgf X:ai"), "DBF_DOUBLE:         1.5       \n");
    assert!(ioc.say("casr").starts_with("Channel Access Server"));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn the_server_names_its_clients_and_their_channels() {
    let mut ioc = start(&[], &["-d", "x.db"]);
    assert_eq!(ioc.say("casr"), "Channel Access Server V4.13\nNo clients connected.\n");
    let mut circuit = Circuit::connect(ioc.port);
    circuit.create("X:ai.DESC");
    let sid = circuit.create("X:ai");
    circuit.subscribe(sid, 1);
    circuit.receive(command::EVENT_ADD);
    assert!(ioc.say("casr").ends_with("1 client connected.\n"));
    let said = ioc.say("casr 1");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[1], "1 client connected:");
    assert!(lines[2].starts_with("    TCP client at 127.0.0.1:"), "{said}");
    assert!(lines[3].starts_with("\tUser '") && lines[3].ends_with("', V4.13, Priority = 0, 2 Channels"), "{said}");
    assert_eq!(lines[4], format!("CAS-TCP server on 127.0.0.1:{} with", ioc.port));
    assert_eq!(lines[5], format!("    CAS-UDP name server on 127.0.0.1:{}", ioc.port));
    assert_eq!(lines[6..8], ["Sending CAS-beacons to 1 address:", &format!("    127.0.0.1:{}", ioc.port + 1)]);
    assert!(ioc.say("casr 2").contains("        Channel: 'X:ai.DESC'\n        Channel: 'X:ai'\n"));
    let said = ioc.say("casr 3");
    assert!(said.contains("        Channel: 'X:ai.DESC'\n            # on eventq=0, access=rw\n"), "{said}");
    assert!(said.contains("        Channel: 'X:ai'\n            # on eventq=1, access=rw\n"), "{said}");
}

const DEFINITIONS: &str = r#"
device(ai, INST_IO, devOther, "other")
driver(drvOther)
registrar(otherRegistrar)
function(otherFunction)
variable(otherVariable, double)
"#;

#[test]
fn c_code_declared_in_a_dbd_is_reported_and_leaves_its_records_active() {
    let database = "record(ai, \"X:other\") { field(DTYP, \"other\") field(INP, \"@x\") }";
    let script = "dbLoadDatabase other.dbd\ndbLoadRecords other.db\ndbLoadRecords x.db\niocInit\n";
    let files = [("other.dbd", DEFINITIONS), ("other.db", database), ("x.db", DATABASE), ("st.cmd", script)];
    let folder = std::env::temp_dir().join(format!("tahti-console-told-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
    let mut command = harness::tahti();
    let output = command.args(["ioc", "st.cmd"]).current_dir(&folder).stdin(Stdio::null()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let missing = "other.dbd refers to C code, which tahti does not load: device \"other\" of ai; driver drvOther; \
        registrar otherRegistrar; function otherFunction; variable otherVariable";
    assert!(told.contains(missing), "{told}");
    assert!(told.contains("X:other: DTYP \"other\" has no device support here; the record stays active"), "{told}");

    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    assert!(ioc.started.contains("has no device support here"), "{}", ioc.started);
    assert_eq!(ioc.say("dbgf X:other.DTYP"), "DBF_STRING:         \"other\"   \n");
    ioc.say("dbtr X:other");
    assert!(ioc.say("dbgf X:other.PACT").contains("= 0x1"));
    assert_eq!(ioc.say("dbDumpDriver"), "driver(drvOther)\n");
    assert_eq!(ioc.say("dbDumpRegistrar"), "registrar(otherRegistrar)\n");
    assert!(ioc.say("dbDumpFunction").contains("function(otherFunction)\n"));
    assert!(ioc.say("dbDumpVariable").contains("variable(otherVariable,double)\n"));
    assert_eq!(ioc.say("var otherVariable 2.5"), "");
    assert_eq!(ioc.say("var other*"), "otherVariable = 2.5\n");
}

#[test]
fn help_is_printed_in_columns() {
    let mut ioc = start(&[], &["-d", "x.db"]);
    let said = ioc.say("help");
    assert!(said.lines().any(|line| line.contains("asphag          aspmem          ")), "{said}");
    assert!(said.ends_with("Type 'help <command>' to see the arguments of <command>.  eg. 'help db*'\n"));
    assert!(ioc.say("help var").contains("    asCheckClientIP: "));
}

#[test]
fn a_put_without_a_value_writes_nothing() {
    let mut ioc = start(&[], &["-d", "x.db"]);
    assert!(ioc.say("dbpf X:ai").contains("Usage: dbpf"));
    assert_eq!(ioc.say("dbgf X:ai"), "DBF_DOUBLE:         1.5       \n");
    assert!(ioc.say("dbgf X:ai.UDF").contains("= 0x0"));
}

#[test]
fn a_record_is_removed_by_its_name_only() {
    let mut ioc = start(&[], &["-d", "x.db"]);
    for field in ["X:ai.DESC", "X:ai.VAL"] {
        assert!(ioc.say(&format!("dbDeleteRecord {field}")).contains("names a field"));
        assert_eq!(ioc.say("dbl"), "X:ai\n");
    }
    assert_eq!(ioc.say("dbDeleteRecord X:ai"), "");
    assert_eq!(ioc.say("dbl"), "");
}

/// Standard output and error of an IOC that ends with its script, and whether it exited with success.
fn run(name: &str, script: &str) -> (String, String, bool) {
    let folder = std::env::temp_dir().join(format!("tahti-console-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("x.db"), DATABASE).unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    let mut command = harness::tahti();
    command.args(["ioc", "st.cmd"]).current_dir(&folder).env("IOCSH_PS1", "").stdin(Stdio::null());
    let output = command.output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (out, err, output.status.success())
}

#[test]
fn a_script_is_printed_with_its_macros_replaced() {
    let (out, ..) = run("echo", "# as $(IT) is\n#- unseen\n\nepicsEnvSet P X:\n  echo \"P=$(P)\"\n");
    assert_eq!(out, "# as $(IT) is\nepicsEnvSet P X:\n  echo \"P=X:\"\nP=X:\n");
}

#[test]
fn on_error_break_ends_a_script_at_the_same_line_as_c() {
    let goes_on = "on error break\ndbpf X:nope 1\ndbgf X:nope\nepicsEnvSet\nasSetFilename nosuch.acf\niocLogInit\n";
    let (out, err, well) = run("goes-on", &format!("{goes_on}echo the end\n"));
    assert!(out.ends_with("\nthe end\n") && well, "{out}{err}");
    assert!(err.contains("st.cmd line 2: ") && err.contains("\"EPICS_IOC_LOG_INET\" undefined"), "{err}");
    for ends in ["< nosuch.cmd", "nosuch", "dbLoadRecords nosuch.db", "cd nosuch", "var nosuch", "iocshCmd nosuch"] {
        let (out, err, well) = run("ends", &format!("on error break\n{ends}\necho the end\n"));
        assert!(!out.contains("the end") && !well, "{ends}: {out}{err}");
        assert!(err.contains("st.cmd: stopped at line 2"), "{ends}: {err}");
    }
}

#[test]
fn a_single_h_shows_all_options() {
    let help = |option: &str| {
        let output = harness::tahti().args(["ioc", option]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help("-h").contains("-d FILE"));
    assert_eq!(help("-h"), help("--help"));
}

#[test]
fn an_autosave_set_counts_missing_channels_before_it_is_saved() {
    let request = ("hand.req", "X:ai.VAL\nX:none\n");
    let script = ("st.cmd", "dbLoadRecords x.db\ncreate_manual_set hand.req\niocInit\n");
    let mut ioc = start(&[request, script], &["st.cmd"]);
    let said = ioc.say("save_restoreShow");
    assert!(said.contains("2 channels, 1 not found, saved 0 times"), "{said}");
}
