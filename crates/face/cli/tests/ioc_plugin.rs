//! C functions for sub and aSub records: the plug-in of `examples/functions`, built with the machine's C compiler.

use harness::ioc::Ioc;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a plug-in from C in the build's output folder and returns its path.
fn build(name: &str, source: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC", "-I"]);
    cc.arg(root.join("crates/face/capi/include")).arg("-o").arg(&library).arg(source).arg("-pthread");
    let built = cc.output().expect("cc, which building Rust needs too");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

fn source(name: &str, text: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.c", std::process::id()));
    std::fs::write(&file, text).unwrap();
    file
}

fn example() -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/functions");
    (folder.join("functions.c"), std::fs::read_to_string(folder.join("functions.db")).unwrap())
}

#[test]
fn the_example_computes_numbers_arrays_texts_and_alarms() {
    let (source, records) = example();
    let library = build("example", &source);
    let library = library.to_str().unwrap();
    let mut ioc = Ioc::start(&[("t.db", &records)], &["--plugin", library, "-m", "P=X:", "-d", "t.db"]);
    ioc.say("dbpf X:volts 5");
    ioc.until("dbgf X:power", |said| said.contains(" 10 "));
    assert!(ioc.say("dbgf X:power.SEVR").contains("NO_ALARM"));
    ioc.say("dbpf X:volts 30");
    ioc.until("dbgf X:power", |said| said.contains(" 60 "));
    assert!(ioc.say("dbgf X:power.STAT").contains("HIGH") && ioc.say("dbgf X:power.SEVR").contains("MINOR"));
    ioc.say("dbpf X:volts -1");
    ioc.until("dbgf X:power.STAT", |said| said.contains("SOFT"));
    assert!(ioc.say("dbgf X:power.SEVR").contains("INVALID"));

    ioc.say("dbpf X:samples \"[3,1,2]\"");
    ioc.until("dbgf X:ends", |said| said.contains("DBF_DOUBLE[2]:      1         3"));
    assert!(ioc.say("dbgf X:sorted.VALA").contains("DBF_DOUBLE[3]:      1         2         3"));
    assert!(ioc.say("dbgf X:sorted.VALC").contains("\"X:sorted\""));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn calls_that_end_later_end_on_every_owners_thread() {
    let (source, records) = example();
    let library = build("later", &source);
    let library = library.to_str().unwrap();
    let more = format!(
        "{records}\nrecord(sub, \"X:scanned\") {{ field(SCAN, \".1 second\") field(SNAM, \"slow\") field(A, 0.01) }}"
    );
    let script = format!("dlload {library}\ndbLoadRecords t.db P=X:\niocInit\n");
    let files = [("t.db", &*more), ("st.cmd", &script)];
    let mut ioc = Ioc::start(&files, &["--scan", ".1 second=other", "st.cmd"]);
    ioc.say("dbpf X:slow.PROC 1");
    ioc.until("dbgf X:slow", |said| said.contains(" 1 "));
    assert!(ioc.say("dbgf X:slow.PACT").contains(" 0 "));
    // The value may have advanced between two reads.
    let value = |said: &str| said.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    ioc.until("dbgf X:scanned", |said| value(said).is_some_and(|value| value >= 3.0));
    // Records that are loaded later find the functions, and functions that are loaded later are found by records.
    std::fs::write(
        ioc.folder.join("more.db"),
        "record(sub, \"Y\") { field(SNAM, \"power\") field(A, 2) field(B, 4) field(C, 99) }",
    )
    .unwrap();
    ioc.say("dbLoadRecords more.db");
    ioc.say("dbpf Y.PROC 1");
    assert!(ioc.say("dbgf Y").contains(" 8 "));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn a_plug_in_of_another_version_or_a_plain_library_is_refused_with_the_reason() {
    let old = source(
        "old",
        "#include \"tahti.h\"\nextern int x;\nint x;\n__attribute__((visibility(\"default\"))) uint32_t tahti_plugin_version(void);\nuint32_t tahti_plugin_version(void) { return 99; }\n",
    );
    let twice = source(
        "twice",
        "#include \"tahti.h\"\nstatic int f(tahti_call *call) { (void)call; return 0; }\nTAHTI_PLUGIN(host) { host->add(host, \"f\", TAHTI_SUB, f); return host->add(host, \"f\", TAHTI_SUB, f); }\n",
    );
    let none = source("none", "int nothing(void);\nint nothing(void) { return 0; }\n");
    for (name, file, said) in [
        ("old", old, "found version 99 of the plug-in interface, expected 1"),
        ("twice", twice, "add: \"f\" is added twice"),
        ("none", none, "found a library without tahti_plugin_version; expected a plug-in written against tahti.h"),
    ] {
        let library = build(name, &file);
        let ended = harness::tahti()
            .args(["ioc", "-S", "--plugin"])
            .arg(&library)
            .env("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && error.contains(said), "{name}: {error}");
    }
}
