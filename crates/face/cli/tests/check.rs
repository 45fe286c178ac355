//! `tahti check` opens everything that a plant file names and reports all faults at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // The folder may be left from an aborted run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Whether the check passed, and its output.
fn check(path: &Path, options: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tahti")).arg("check").arg(path).args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.success(), text)
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
}

const PLANT: &str = "
[plant]
name = \"mine\"
[[ioc]]
name = \"psu\"
load = [{ file = \"a.db\", macros = \"P=A:\" }, { file = \"b.substitutions\" }]
port = [{ name = \"L0\", address = \"127.0.0.1:1\" }]
script = \"st.cmd\"
[[equipment]]
name = \"magnets\"
file = \"magnets.toml\"
";

const SCRIPT: &str = "# loads\ndbLoadRecords(\"c.db\")\nsystem \"touch started\"\niocInit\ndbpf A:volts 1\n";

#[test]
fn a_correct_plant_passes_the_check_and_nothing_is_started() {
    let folder = folder("check-well");
    write(
        &folder,
        &[
            ("plant.toml", &PLANT[..PLANT.find("[[equipment]]").unwrap()]),
            ("a.db", "record(ai, \"$(P)volts\") { field(DTYP, \"stream\") field(INP, \"@a.proto get(1) L0\") }"),
            ("a.proto", "get { out '\\$1?'; in '%f'; }"),
            ("b.substitutions", "file a.db { { P=B: } }"),
            ("c.db", "record(calc, \"c\") { field(CALC, \"1+1\") }"),
            ("st.cmd", SCRIPT),
        ],
    );
    let (well, said) = check(&folder, &[]);
    assert!(well && said.ends_with("plant.toml: no error\n") && said.lines().count() == 1, "{said}");
    assert!(!folder.join("started").exists());
}

#[test]
fn an_error_in_the_plant_file_does_not_hide_errors_in_other_files() {
    let folder = folder("check-all");
    let database = "record(nosuchtype, \"a\") {}\n";
    let ioc = "[[ioc]]\nname = \"psu\"\nload = [{ file = \"a.db\" }, { file = \"missing.db\" }]\n";
    let frame =
        "[[frame]]\nname = \"f\"\nminors = 1\nperiod = \"1ms\"\n[[frame.activity]]\nname = \"a\"\nbudget = \"2ms\"\n";
    for (wrong, message) in [
        ("[dashboard]\nname = \"d\"\nlisten = \"nowhere\"\n", "`listen`"),
        (frame, "budget"),
        ("[[process]]\nname = \"a\"\ncommand = \"sleep 1\"\nclass = \"fast\"\n", "`class`"),
    ] {
        write(&folder, &[("plant.toml", &format!("[plant]\nname = \"mine\"\n{wrong}{ioc}")), ("a.db", database)]);
        let (well, said) = check(&folder, &[]);
        for part in [message, "nosuchtype", "process \"psu\" cannot read \"missing.db\""] {
            assert!(!well && said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("No such file"), "once, with its place: {said}");
    }
    // A syntax error is reported once, at its location, and the rest of the file is checked.
    write(&folder, &[("plant.toml", &format!("[plant\nname = \"mine\"\n{ioc}")), ("a.db", database)]);
    let (well, said) = check(&folder, &[]);
    assert!(!well && said.matches("plant.toml:1:").count() == 1, "{said}");
    assert!(said.contains("nosuchtype") && said.contains("missing.db"), "{said}");
}

#[test]
fn a_channel_that_is_nearly_a_record_of_the_plant_is_a_warning_and_one_of_another_host_is_not() {
    let folder = folder("check-channels");
    let plant = "[plant]\nname = \"mine\"\n[[ioc]]\nname = \"i\"\nload = [{ file = \"a.db\", macros = \"P=t-ioc:\" }]\n\
                 [archive]\nname = \"archive\"\nfolder = \"archive\"\n\
                 [[signal]]\nnames = [\"t-ioc:Heatr.RVAL\", \"t-ioc:Heater\", \"OTHER:CURRENT\"]\n";
    write(&folder, &[("plant.toml", plant), ("a.db", "record(ai, \"$(P)Heater\") {}\n")]);
    let (well, said) = check(&folder, &[]);
    assert!(well && said.contains("no IOC of this plant has a record for \"t-ioc:Heatr.RVAL\""), "{said}");
    assert!(said.contains("plant.toml:10:10") && said.contains("did you mean \"t-ioc:Heater.RVAL\"?"), "{said}");
    assert!(said.matches("warning: ").count() == 1 && !said.contains("for \"OTHER"), "{said}");
}

#[test]
fn a_plant_file_in_another_encoding_is_refused_with_the_place_and_the_remedy() {
    let folder = folder("encoding");
    let file = folder.join("plant.toml");
    for (bytes, expected) in [
        (
            &b"[plant]\nname = \"caf\xe9\"\n"[..],
            "plant.toml: line 2, column 12: byte 0xe9 is no UTF-8; in Latin-1 it is 'é'; expected UTF-8: `iconv -f latin1",
        ),
        (b"\xff\xfe[\0p\0", "plant.toml: line 1, column 1: the file is UTF-16; expected UTF-8: `iconv -f utf-16"),
    ] {
        fs::write(&file, bytes).unwrap();
        let (good, said) = check(&file, &[]);
        assert!(!good && said.contains(expected), "{said}");
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_with_its_remedy() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder("check-programs");
    let process = |name: &str| format!("[[process]]\nname = \"{name}\"\ncommand = \"./{name}\"\n");
    let plant = "[plant]\nname = \"mine\"\n".to_owned() + &["plain", "missing", "dos"].map(process).concat();
    let scripts = [("plain", "#!/bin/sh\n"), ("missing", "#!/usr/bin/pythn3\n"), ("dos", "#!/bin/sh\r\necho\r\n")];
    write(&folder, &[("plant.toml", &plant)]);
    write(&folder, &scripts);
    for name in ["missing", "dos"] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (well, said) = check(&folder, &[]);
    assert!(!well && said.matches("error: program").count() == 3, "{said}");
    let at = |name: &str| folder.join(name).display().to_string();
    for expected in [
        format!("{} is no executable file", at("./plain")),
        format!("help: chmod +x {}", at("./plain")),
        format!("{} names the interpreter \"/usr/bin/pythn3\", which does not exist", at("missing")),
        format!("help: its lines end with CR LF: sed -i 's/\\r$//' {}", at("dos")),
    ] {
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
}

#[test]
fn a_program_that_its_user_may_not_execute_is_an_error_with_its_remedy() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("tahti-check-user-{}", std::process::id()));
    fs::create_dir_all(folder.join("private")).unwrap();
    let process = |name: &str, command: &str| {
        format!("[[process]]\nname = \"{name}\"\ncommand = \"{command}\"\nuser = \"nobody\"\n")
    };
    let plant = "[plant]\nname = \"mine\"\n".to_owned()
        + &process("good", "./good")
        + &process("own", "./own")
        + &process("inside", "private/good");
    write(&folder, &[("plant.toml", &plant), ("good", "#!/bin/sh\n"), ("own", "#!/bin/sh\n")]);
    write(&folder.join("private"), &[("good", "#!/bin/sh\n")]);
    for (name, mode) in [("", 0o755), ("good", 0o755), ("own", 0o700), ("private/good", 0o755), ("private", 0o700)] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (well, said) = check(&folder, &[]);
    let at = |name: &str| folder.join(name).display().to_string();
    assert!(!well && said.matches("error: program").count() == 2, "{said}");
    for expected in [
        format!("user \"nobody\" may not execute {}", at("own")),
        format!("help: chmod o+rx {}", at("own")),
        format!("user \"nobody\" may not enter {}", at("private")),
        format!("help: chmod o+x {}", at("private")),
    ] {
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn all_errors_are_counted_also_those_of_processes() {
    let folder = folder("check-count");
    let plant = "[plant]\nname = \"p\"\nnonsense = 1\n[[ioc]]\nname = \"i\"\nload = [{ file = \"a.db\" }]\n";
    let wrong = "record(ai, \"a\") { field(NOPE, \"1\") }\nrecord(foo, \"b\") {}\n";
    write(&folder, &[("plant.toml", plant), ("a.db", wrong)]);
    let (well, said) = check(&folder, &[]);
    assert!(!well && said.contains("i: a.db:1:") && said.ends_with("plant.toml: 3 errors\n"), "{said}");
    assert_eq!(said.matches(" errors").count(), 1, "{said}");
}

#[test]
fn mistakes_in_all_files_are_reported_with_their_place() {
    let folder = folder("check-wrong");
    write(
        &folder,
        &[
            ("plant.toml", PLANT),
            ("a.db", "record(ai, \"$(P)volts\") { field(DTYP, \"stream\") field(INP, \"@a.proto get(1) L0\") }"),
            ("a.proto", "get {\n  out '\\$1?';\n  in '%y';\n}"),
            ("b.substitutions", "file none.db { { P=B: } }"),
            ("c.db", "record(ai, \"x\") {\n  field(NONE, \"1\")\n}"),
            ("st.cmd", &format!("{SCRIPT}frobnicate\nsite_registerRecordDeviceDriver pdbbase\nseq prog\n")),
            ("magnets.toml", "nonsense = 1\n"),
        ],
    );
    let (well, said) = check(&folder, &[]);
    assert!(!well && !said.contains("no error"), "{said}");
    let wanted = [
        "psu: A:volts: DTYP \"stream\": a.proto:3:3: unknown conversion %y",
        "psu: ",
        "none.db",
        "c.db:2:",
        "st.cmd line 2: ",
        "st.cmd line 6: Command frobnicate not found.",
        "st.cmd line 8: seq: no program prog in .: found neither prog.st nor prog.stt",
        "magnets: ",
        "magnets.toml:1:1",
    ];
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted} in\n{said}");
    }
    assert!(!said.contains("st.cmd line 7"), "all is registered, with any name of the application: {said}");
    let (_, json) = check(&folder, &["--json"]);
    assert!(json.contains("\"process\":\"magnets\"") && json.contains("a.proto:3:3"), "{json}");
    let (well, said) = check(&folder.join("st.cmd"), &[]);
    assert!(!well && said.contains("st.cmd line 6: Command frobnicate not found."), "{said}");
}

#[test]
fn scan_groups_and_autosave_files_are_checked_too() {
    let folder = folder("check-saves");
    let plant =
        "[plant]\nname = \"mine\"\n[[ioc]]\nname = \"psu\"\nload = [{ file = \"a.db\" }]\nscript = \"st.cmd\"\n";
    let groups =
        "scan = [{ rates = [\".1 second\"], class = \"other\" }, { rates = [\"now and then\"], class = \"other\" }]\n";
    let script = "set_requestfile_path(\".\")\nset_savefile_path(\".\")\nset_pass0_restoreFile(\"old.sav\")\n\
                  set_pass0_restoreFile(\"first.sav\")\niocInit\ncreate_monitor_set(\"good.req\", 5, \"P=A:\")\n\
                  create_monitor_set(\"bad.req\", 5, \"P=A:\")\ncreate_periodic_set(\"open.req\", 5)\ncreate_periodic_set(\"none.req\", 5)\n";
    write(
        &folder,
        &[
            ("plant.toml", &format!("{plant}{groups}")),
            ("a.db", "record(ao, \"A:volts\") { field(SCAN, \".1 second\") }"),
            ("st.cmd", script),
            ("good.req", "$(P)volts\n$(P)volts.DESC\n"),
            ("bad.req", "# all\nfile good.req P=A:\n  $(P)amps.PREC\n$(P)volts.NONE\n"),
            ("open.req", "A:volts\n$(Q)volts\n"),
            ("old.sav", "# autosave\nA:volts 1\n"),
        ],
    );
    let (well, said) = check(&folder, &[]);
    assert!(!well && !said.contains("good.req") && !said.contains("first.sav"), "{said}");
    let wanted = [
        "psu: bad.req:3:3: A:amps.PREC: ",
        "psu: bad.req:4:1: A:volts.NONE: ",
        "psu: open.req:2:1: macro Q is undefined; the line is left out",
        "psu: st.cmd line 9: none.req: ",
        "old.sav:2:1: found the end of the file",
        "plant.toml:7:64",
        "ioc \"psu\": scan \"now and then\" is not in menuScan",
        "expected: one of \"Passive\"",
    ];
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted} in\n{said}");
    }
    let (_, json) = check(&folder, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["findings"][0]["line"], &json["findings"][0]["column"]), (&7.into(), &64.into()), "{json}");
    // The corrected files.
    write(&folder, &[("plant.toml", plant), ("st.cmd", &script[..script.find("create_monitor_set(\"bad").unwrap()])]);
    fs::remove_file(folder.join("old.sav")).unwrap();
    let (well, said) = check(&folder, &[]);
    assert!(well, "{said}");
}

#[test]
fn an_error_in_an_included_file_is_reported_with_that_file_and_line() {
    let folder = folder("check-include");
    fs::create_dir_all(folder.join("parts")).unwrap();
    let main = "include = [\"parts/*.toml\"]\n[plant]\nname = \"mine\"\n";
    let part = "[variables]\nWAIT = \"1\"\n[[process]]\nname = \"a\"\ncommand = [\"/bin/sleep\", \"${WAIT}\"]\n";
    write(&folder, &[("plant.toml", main), ("parts/a.toml", part), ("parts/.a.toml.swp", "no TOML")]);
    let (well, said) = check(&folder, &[]);
    assert!(well, "{said}");
    let (well, said) = check(&folder, &["--print"]);
    assert!(well && said.contains("parts/a.toml\n") && said.contains("[\"/bin/sleep\", \"1\"]"), "{said}");
    assert!(!said.contains("include =") && !said.contains("[variables]"), "{said}");

    write(&folder, &[("parts/b.toml", "\n[[process]]\nname = \"b\"\ncommand = [\"/bin/true\"]\nafter = [\"c\"]\n")]);
    let (well, said) = check(&folder, &[]);
    assert!(!well && said.contains("parts/b.toml:5:10") && said.contains("5 | after = [\"c\"]"), "{said}");
    let (_, said) = check(&folder, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let finding = &json["findings"][0];
    assert!(finding["file"].as_str().unwrap().ends_with("parts/b.toml") && finding["line"] == 5, "{said}");

    write(&folder, &[("plant.toml", "include = [\"none.toml\", \"nowhere/*.toml\"]\n[plant]\nname = \"mine\"\n")]);
    let (well, said) = check(&folder, &[]);
    let errors = said.matches("error: `include` names").count();
    assert!(
        !well && errors == 2 && said.contains("plant.toml:1:12") && said.contains("none.toml: No such file"),
        "{said}"
    );
}

#[test]
fn check_reads_the_members_of_all_profiles_and_up_only_those_that_start() {
    let folder = folder("check-profiles");
    let process = |name: &str, more: &str| format!("[[process]]\nname = \"{name}\"\ncommand = \"/bin/true\"\n{more}\n");
    let plant = format!(
        "[plant]\nname = \"mine\"\n{}{}",
        process("a", "profiles = [\"debug\"]\nclas = 1"),
        process("b", "after = [\"a\"]")
    );
    write(&folder, &[("plant.toml", &plant)]);
    let (well, said) = check(&folder, &[]);
    assert!(!well && said.contains("unknown key `clas`"), "{said}");
    assert!(said.contains("names \"a\", which is only in profile debug") && said.ends_with("2 errors\n"), "{said}");
    assert!(said.contains("use `--profile debug`"), "{said}");
    write(&folder, &[("plant.toml", &plant.replace("clas = 1", ""))]);
    let (well, said) = check(&folder, &["--profile", "debug"]);
    assert!(well, "{said}");
    let (well, said) = check(&folder, &["--profile", "debgu"]);
    assert!(!well && said.contains("has the profile \"debgu\"") && said.contains("did you mean \"debug\"?"), "{said}");
}

#[test]
fn the_example_of_several_files_is_sound_in_each_cell() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/parts");
    let output = Command::new(env!("CARGO_BIN_EXE_tahti"))
        .args(["check", "--print"])
        .arg(&example)
        .env("CELL", "2")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for part in ["name = \"cell-2\"", "sleep 1; date", "echo ${NAME} runs", "name = \"probe\""] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_certificate_that_the_dashboard_cannot_use_is_an_error_of_the_check() {
    let folder = folder("certificate");
    let dashboard = "[dashboard]\nlisten = \"127.0.0.1:0\"\ncertificate = \"c.pem\"\nkey = \"c.key\"\n";
    let plant = format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"sleep 1\"\n{dashboard}");
    write(&folder, &[("plant.toml", &plant), ("c.pem", ""), ("c.key", "")]);
    let (good, said) = check(&folder.join("plant.toml"), &[]);
    let reason = if cfg!(feature = "tls") { "c.key" } else { "this build has no TLS" };
    assert!(!good && said.contains("dashboard: ") && said.contains(reason), "{said}");
    fs::remove_dir_all(folder).unwrap();
}
