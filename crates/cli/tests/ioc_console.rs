//! The interpreter: what it refuses, and when a script goes on.

mod ioc;

use ioc::{Circuit, Ioc};
use std::process::{Command, Stdio};

const DATABASE: &str = r#"record(ai, "X:ai") { field(VAL, "1.5") }"#;

fn start(name: &str, files: &[(&str, &str)], options: &[&str]) -> Ioc {
    Ioc::start(&format!("console-{name}"), &[&[("x.db", DATABASE)], files].concat(), options)
}

#[test]
fn a_running_ioc_survives_another_ioc_init() {
    let mut ioc = start("init", &[("st.cmd", "dbLoadRecords x.db\niocInit\n")], &["st.cmd"]);
    assert!(ioc.say("iocInit").contains("IOC can only be initialized from uninitialized or stopped state"));
    assert_eq!(ioc.say("dbgf X:ai"), "DBF_DOUBLE:         1.5       \n");
    assert!(ioc.say("casr").starts_with("Channel Access Server"));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn the_server_names_its_clients_and_their_channels() {
    let mut ioc = start("casr", &[], &["-d", "x.db"]);
    assert!(ioc.say("casr").ends_with("No clients connected.\n"));
    let mut circuit = Circuit::connect(ioc.port);
    circuit.create("X:ai.DESC");
    assert!(ioc.say("casr").contains("1 clients connected"));
}

#[test]
fn a_put_without_a_value_writes_nothing() {
    let mut ioc = start("put", &[], &["-d", "x.db"]);
    assert!(ioc.say("dbpf X:ai").contains("Usage: dbpf"));
    assert_eq!(ioc.say("dbgf X:ai"), "DBF_DOUBLE:         1.5       \n");
    assert!(ioc.say("dbgf X:ai.UDF").contains("= 0x0"));
}

#[test]
fn a_record_is_removed_by_its_own_name_alone() {
    let mut ioc = start("remove", &[], &["-d", "x.db"]);
    for field in ["X:ai.DESC", "X:ai.VAL"] {
        assert!(ioc.say(&format!("dbDeleteRecord {field}")).contains("names a field"));
        assert_eq!(ioc.say("dbl"), "X:ai\n");
    }
    assert_eq!(ioc.say("dbDeleteRecord X:ai"), "");
    assert_eq!(ioc.say("dbl"), "");
}

/// Standard output and error of an IOC that ends with its script, and whether it ended well.
fn run(name: &str, script: &str) -> (String, String, bool) {
    let folder = std::env::temp_dir().join(format!("tahti-console-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("x.db"), DATABASE).unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tahti"));
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
fn on_error_break_ends_a_script_where_c_ends_it() {
    let goes_on = "on error break\ndbpf X:nope 1\ndbgf X:nope\nepicsEnvSet\nasSetFilename nosuch.acf\niocLogInit\n";
    let (out, err, well) = run("goes-on", &format!("{goes_on}echo the end\n"));
    assert!(out.ends_with("\nthe end\n") && well, "{out}{err}");
    assert!(err.contains("st.cmd line 2: ") && err.contains("iocLogInit of C's IOC is not here"), "{err}");
    for ends in ["< nosuch.cmd", "nosuch", "dbLoadRecords nosuch.db", "cd nosuch", "var nosuch", "iocshCmd nosuch"] {
        let (out, err, well) = run("ends", &format!("on error break\n{ends}\necho the end\n"));
        assert!(!out.contains("the end") && !well, "{ends}: {out}{err}");
        assert!(err.contains("st.cmd: stopped at line 2"), "{ends}: {err}");
    }
}

#[test]
fn a_single_h_shows_all_options() {
    let help = |option: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tahti")).args(["ioc", option]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help("-h").contains("-d FILE"));
    assert_eq!(help("-h"), help("--help"));
}
