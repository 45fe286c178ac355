//! What the interpreter prints, line by line beside C's softIoc.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`; `cargo xtask test epics` sets it up.

mod peer;

use peer::session::{both, same};

const DATABASE: &str = r#"
record(ai, "X:ai") { field(VAL, "1.5") field(PREC, "3") }
record(bo, "X:bo") { field(ZNAM, "off") field(ONAM, "on") }
record(longout, "X:lo") { field(VAL, "7") }
record(int64out, "X:i64") {}
record(lso, "X:lso") { field(SIZV, "100") }
record(printf, "X:printf") {}
record(stringout, "X:so") {}
record(waveform, "X:wf") { field(FTVL, "DOUBLE") field(NELM, "10") }
record(waveform, "X:cw") { field(FTVL, "CHAR") field(NELM, "10") }
"#;

#[test]
fn values_are_printed_as_c_prints_them() {
    let mut iocs = both(&[("test.db", DATABASE)], &["-d", "test.db"]);
    for command in [
        "dbgf X:lso",
        "dbgf X:lso.VAL$",
        "dbgf X:lso.OVAL$",
        "dbgf X:printf",
        "dbgf X:printf.VAL$",
        "dbgf X:so.VAL$",
        "dbpf X:lso hello",
        "dbgf X:lso.VAL$",
        "dbpf X:i64 -9223372036854775808",
        "dbpf X:i64 -1",
        "dbpf X:lo -5",
        "dbpf X:cw A",
        "dbpf X:ai.TPRO 0",
        "dbpf X:ai.DISP 0",
        // Read back in any case.
        "dbpf X:ai volt",
        "dbpf X:bo nope",
        "dbpf X:ai.NAME other",
        "dbpf X:ai",
        "dbgf X:ai",
        "dbpf X:wf \"[1, 2.5]\"",
    ] {
        let said = iocs.each_mut().map(|ioc| ioc.say(command));
        // Ours says on standard error what C says here.
        same(command, said.map(|text| text.replace("Usage: dbpf \"pv name\", \"value\"\n", "")));
    }
    let typed = iocs.each_mut().map(|ioc| {
        ioc.say("dbpf X:wf \"[1, 2]\"");
        let said = ioc.say("dbtgf X:wf");
        said.lines().filter(|line| line.starts_with("DBF_") && !line.contains("(empty)")).collect::<Vec<_>>().join("\n")
    });
    same("dbtgf X:wf", typed);
}

#[test]
fn variables_are_listed_and_set_as_c_does_it() {
    let mut iocs = both(&[("test.db", DATABASE)], &["-d", "test.db"]);
    // Ours alone, and one that counts CPUs.
    let common = |line: &&str| !line.starts_with("stampEachRecord") && !line.starts_with("callbackParallelThreads");
    same("var", iocs.each_mut().map(|ioc| ioc.say("var").lines().filter(common).collect::<Vec<_>>().join("\n")));
    for command in [
        "var as*",
        "var nosuch",
        "var boHIGHlimit 5.5",
        "var dbBptNotMonotonic 0x10",
        "var dbBptNotMonotonic 1.5",
        "var seqDLYlimit ten",
        "var *o*t*",
    ] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
}

#[test]
fn dumps_take_an_empty_first_argument_for_the_database() {
    let mut iocs = both(&[("test.db", DATABASE)], &["-d", "test.db"]);
    for command in [
        "dbDumpMenu \"\" menuPini",
        "dbDumpMenu pdbbase menuPini",
        "dbDumpRecord \"\" stringout",
        "dbDumpRecord \"\" longout",
        "dbDumpLink",
        "dbDumpDriver",
        "dbDumpRegistrar",
    ] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    let field = iocs.each_mut().map(|ioc| ioc.say("dbDumpField \"\" ai EGU").lines().take(2).collect::<String>());
    same("dbDumpField", field);
}

const HARDWARE: &str = r#"
record(stringout, "X:out") { field(DTYP, "stdio") field(OUT, "@stdout") }
record(ai, "X:time") { field(DTYP, "Soft Timestamp") field(INP, "@%s") field(LINR, "LINEAR") field(EGUF, "10") field(EGUL, "-2.5") }
record(bi, "X:state") { field(DTYP, "Db State") field(INP, "@red") }
record(bo, "X:set") { field(DTYP, "Db State") field(OUT, "@a longer name than fits") }
record(ai, "X:none") {}
"#;

#[test]
fn links_to_hardware_are_reported_as_c_does_it() {
    let mut iocs = both(&[("test.db", HARDWARE)], &["-d", "test.db"]);
    for command in ["dbhcr", "dbReportDeviceConfig pdbbase"] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
}

#[test]
fn a_template_loads_what_c_loads_of_a_file_with_bad_instances() {
    let template = "record(ao, \"X:$(N)\") { field(VAL, \"$(V)\") }";
    let rows = "file one.db { pattern { N, V } { a, 1 } { b, 2, 3 } { c, three } { d, 4 } }";
    let script = "on error continue\ndbLoadTemplate t.substitutions\ndbLoadRecords test.db\niocInit\n";
    let files = [("test.db", DATABASE), ("one.db", template), ("t.substitutions", rows), ("st.cmd", script)];
    let mut iocs = both(&files, &["st.cmd"]);
    for name in ["X:a", "X:b", "X:d"] {
        same(name, iocs.each_mut().map(|ioc| ioc.say(&format!("dbgf {name}"))));
    }
}
