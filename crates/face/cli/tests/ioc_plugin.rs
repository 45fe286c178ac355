//! C functions for sub and aSub records, built with the machine's C compiler: the plug-in of `examples/functions`, and functions as sites
//! write them for C EPICS (`functions/site.c`).

use harness::ioc::Ioc;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a plug-in against `tahti.h` in the build's output folder and returns its path.
fn build(name: &str, source: &Path) -> PathBuf {
    compile(name, source, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include"))
}

/// Builds the functions of a site against the headers that `tahti ioc --headers` writes.
fn build_site(name: &str) -> PathBuf {
    let headers = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("headers-{name}-{}", std::process::id()));
    let written = harness::tahti().args(["ioc", "--headers"]).arg(&headers).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    compile(name, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/functions/site.c"), &headers)
}

fn compile(name: &str, source: &Path, headers: &Path) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC", "-I"]);
    cc.arg(headers).arg("-o").arg(&library).arg(source).arg("-pthread");
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
    for place in ["", "inside"] {
        end_later(library.to_str().unwrap(), place, &records);
    }
}

fn end_later(library: &str, place: &str, records: &str) {
    let more = format!(
        "{records}\nrecord(sub, \"X:scanned\") {{ field(SCAN, \".1 second\") field(SNAM, \"slow\") field(A, 0.01) }}"
    );
    let script = format!("dlload {library} {place}\ndbLoadRecords t.db P=X:\niocInit\n");
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

/// Records of the functions in `functions/site.c`.
const SITE: &str = r#"
record(aSub, "X:stat") {
    field(SNAM, "statistics") field(FTA, "DOUBLE") field(NOA, "8") field(INPA, [1, 2, 3, 4, 5])
    field(FTVA, "DOUBLE") field(FTVB, "DOUBLE") field(NOVB, "3") field(FTVC, "LONG") field(OUTA, "X:mean PP")
}
record(ao, "X:mean") { }
record(aSub, "X:text") {
    field(SNAM, "text") field(FTA, "STRING") field(INPA, ["abcdefghijklmnop"]) field(FTB, "LONG") field(INPB, "X:times")
    field(NOA, "0") field(NOB, "2") field(FTVA, "STRING") field(FTVB, "LONG")
}
record(longout, "X:times") { field(VAL, "2") }
record(sub, "X:count") { field(INAM, "counterInit") field(SNAM, "counterProc") field(A, "4") }
record(aSub, "X:status") { field(SNAM, "status") field(INPA, "X:wanted") field(OUTA, "X:written PP") field(BRSV, "MINOR") }
record(ao, "X:wanted") { field(VAL, "1") }
record(ao, "X:written") { }
record(aSub, "X:described") { field(SNAM, "described") field(FTVA, "STRING") field(DESC, "pump 3") field(PRIO, "HIGH") }
record(aSub, "X:slow") { field(SNAM, "slow") }
record(sub, "X:fault") { field(SNAM, "fault") }
"#;

#[test]
fn functions_of_a_site_compile_unchanged_and_behave_as_the_reference_manual_says() {
    let library = build_site("site");
    for option in ["--plugin", "--plugin-inside"] {
        let mut ioc = Ioc::start(&[("t.db", SITE)], &[option, library.to_str().unwrap(), "-d", "t.db"]);
        // Arrays: NEVB above NOVB is limited to it. The output link is written after status 0.
        ioc.say("dbpf X:stat.PROC 1");
        assert!(ioc.say("dbgf X:stat.VALB").contains("DBF_DOUBLE[3]:      -2        -1        0"), "{option}");
        assert!(ioc.say("dbgf X:stat.NEVB").contains(" 3 ") && ioc.say("dbgf X:stat.VALC").contains(" 5 "));
        assert!(ioc.say("dbgf X:mean").contains(" 3 "));
        // A text fills its 40 bytes to the last but one. NOA 0 becomes 1.
        ioc.say("dbpf X:times 9");
        ioc.say("dbpf X:text.PROC 1");
        assert!(ioc.say("dbgf X:text.VALA").contains("\"abcdefghijklmnopabcdefghijklmnopabcdefg\""), "{option}");
        assert!(ioc.say("dbgf X:text.VALB").contains(" 3 "));
        // DPVT is kept from the call of INAM on. A change of an input is stored, an alarm raised.
        let severities: Vec<String> = (0..3)
            .map(|_| {
                ioc.say("dbpf X:count.PROC 1");
                ioc.say("dbgf X:count.SEVR")
            })
            .collect();
        assert!(ioc.say("dbgf X:count").contains(" 103 ") && ioc.say("dbgf X:count.B").contains(" 8 "), "{option}");
        assert!(severities[1].contains("MINOR") && severities[2].contains("NO_ALARM"), "{severities:?}");
        // A positive status writes no output and raises no alarm; a negative one raises the alarm with the severity of BRSV.
        ioc.say("dbpf X:status.PROC 1");
        assert!(ioc.say("dbgf X:written").contains(" 0 ") && ioc.say("dbgf X:status.SEVR").contains("NO_ALARM"));
        assert!(ioc.say("dbgf X:status").contains(" 1 "));
        ioc.say("dbpf X:wanted -2");
        ioc.say("dbpf X:status.PROC 1");
        assert!(ioc.say("dbgf X:status").contains(" -2 ") && ioc.say("dbgf X:status.STAT").contains("SOFT"));
        assert!(ioc.say("dbgf X:status.SEVR").contains("MAJOR") && ioc.say("dbgf X:written").contains(" 0 "));
        ioc.say("dbpf X:wanted 0");
        ioc.say("dbpf X:status.PROC 1");
        assert!(ioc.say("dbgf X:written").contains(" 7 "), "{option}");
        // DESC and PRIO as they are at the call.
        for (field, value, expected) in [("DESC", "pump 4", "\"pump 4 2\""), ("PRIO", "MEDIUM", "\"pump 4 1\"")] {
            ioc.say(&format!("dbpf X:described.{field} '{value}'"));
            ioc.say("dbpf X:described.PROC 1");
            assert!(ioc.say("dbgf X:described.VALA").contains(expected), "{option}");
        }
        // PACT set by the function: the call ends when a callback processes the record.
        ioc.say("dbpf X:slow.PROC 1");
        ioc.until("dbgf X:slow.VALA", |said| said.contains(" 1 "));
        ioc.until("dbgf X:slow.PACT", |said| said.contains(" 0 "));
        assert_eq!(ioc.exit(), Some(0));
    }
}

#[test]
fn a_fault_of_a_function_ends_only_its_process_which_starts_again() {
    // A null pointer, abort, exit. The kernel may need seconds to end a process with its core dump.
    let faults = [
        ("1", "function \"fault\" ended its process (signal: 11"),
        ("2", "function \"fault\" ended its process (signal: 6"),
        ("4", "function \"fault\" ended its process (exit status: 3)"),
    ];
    starts_again("120", &faults);
}

#[test]
fn a_function_that_does_not_return_ends_only_its_process_which_starts_again() {
    starts_again("5", &[("3", "function \"fault\" did not return within 5s (signal: 9")]);
}

/// Loads the functions with this limit per call in seconds, raises the faults and waits for their reasons and the next start.
fn starts_again(limit: &str, faults: &[(&str, &str)]) {
    let library = build_site(&format!("faults-{limit}"));
    let script = format!("dlload {} {limit}\ndbLoadRecords t.db\niocInit\n", library.display());
    let mut ioc = Ioc::start(&[("t.db", SITE), ("st.cmd", &script)], &["st.cmd"]);
    ioc.say("dbpf X:count.PROC 1");
    assert!(ioc.say("dbgf X:count").contains(" 101 "));
    for (fault, reason) in faults {
        // A put to A processes the record.
        let printed = RefCell::new(ioc.say(&format!("dbpf X:fault.A {fault}")));
        ioc.until("dbgf X:fault.SEVR", |said| {
            assert!(said.contains("INVALID"), "{said}");
            printed.borrow_mut().push_str(said);
            printed.borrow().contains(reason)
        });
        assert!(printed.borrow().contains("X:fault: "), "{printed:?}");
        // The function in INAM has run again.
        ioc.until("dbpf X:fault.A 9\ndbgf X:fault.SEVR", |said| said.contains("NO_ALARM"));
        assert!(ioc.say("dbgf X:fault").contains(" 9 "));
        ioc.say("dbpf X:count.PROC 1");
        assert!(ioc.say("dbgf X:count").contains(" 101 "));
    }
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
        (
            "none",
            none,
            "found a library without tahti_plugin_version; expected a plug-in: compiled with the headers of `tahti ioc --headers DIR`",
        ),
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
