//! `tahti check` opens what a plant names and says all that is wrong with it, at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Left over from a run that was broken off.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Whether all is well, and what was said.
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
fn a_plant_whose_files_are_well_is_well_and_nothing_is_started() {
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
fn what_is_wrong_in_all_files_is_said_with_its_place() {
    let folder = folder("check-wrong");
    write(
        &folder,
        &[
            ("plant.toml", PLANT),
            ("a.db", "record(ai, \"$(P)volts\") { field(DTYP, \"stream\") field(INP, \"@a.proto get(1) L0\") }"),
            ("a.proto", "get {\n  out '\\$1?';\n  in '%y';\n}"),
            ("b.substitutions", "file none.db { { P=B: } }"),
            ("c.db", "record(ai, \"x\") {\n  field(NONE, \"1\")\n}"),
            ("st.cmd", &format!("{SCRIPT}frobnicate\n")),
            ("magnets.toml", "nonsense = 1\n"),
        ],
    );
    let (well, said) = check(&folder, &[]);
    assert!(!well && !said.contains("no error"), "{said}");
    let wanted = [
        "psu: A:volts: DTYP \"stream\": a.proto:3:3: conversion %y is not known here",
        "psu: ",
        "none.db",
        "c.db:2:",
        "st.cmd line 2: ",
        "st.cmd line 6: Command frobnicate not found.",
        "magnets: ",
        "magnets.toml:1:1",
    ];
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted} in\n{said}");
    }
    let (_, json) = check(&folder, &["--json"]);
    assert!(json.contains("\"process\":\"magnets\"") && json.contains("a.proto:3:3"), "{json}");
    let (well, said) = check(&folder.join("st.cmd"), &[]);
    assert!(!well && said.contains("st.cmd line 6: Command frobnicate not found."), "{said}");
}
