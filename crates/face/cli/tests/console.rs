//! Output of the interpreter, compared line by line with C's softIoc.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`; `cargo xtask test epics` sets it up.

use harness::eventually;
use harness::ioc::{both, same};

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
        // Values are read back after each write, also after a rejected one.
        "dbpf X:ai volt",
        "dbpf X:bo nope",
        "dbpf X:ai.NAME other",
        "dbpf X:ai",
        "dbgf X:ai",
        "dbpf X:wf \"[1, 2.5]\"",
    ] {
        let said = iocs.each_mut().map(|ioc| ioc.say(command));
        // Ours prints this usage line on standard error.
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
    // Excludes a variable that only ours has, and one that depends on the number of CPUs.
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
fn a_template_with_bad_instances_loads_the_same_records_as_c() {
    let template = "record(ao, \"X:$(N)\") { field(VAL, \"$(V)\") }";
    let rows = "file one.db { pattern { N, V } { a, 1 } { b, 2, 3 } { c, three } { d, 4 } }";
    let script = "on error continue\ndbLoadTemplate t.substitutions\ndbLoadRecords test.db\niocInit\n";
    let files = [("test.db", DATABASE), ("one.db", template), ("t.substitutions", rows), ("st.cmd", script)];
    let mut iocs = both(&files, &["st.cmd"]);
    for name in ["X:a", "X:b", "X:d"] {
        same(name, iocs.each_mut().map(|ioc| ioc.say(&format!("dbgf {name}"))));
    }
}

const TYPED: &str = r#"
record(ai, "X:ai") { field(VAL, "1.5") field(PREC, "3") field(EGU, "mm") field(HOPR, "10") field(LOPR, "-5") field(HIHI, "9") field(HHSV, "MAJOR") }
record(bo, "X:bo") { field(ZNAM, "off") field(ONAM, "on") }
record(mbbi, "X:mbbi") { field(ZRST, "zero") field(ONST, "one") }
record(stringout, "X:so") { field(VAL, "hey") }
record(longout, "X:lo") { field(VAL, "-3") field(EGU, "steps") }
record(waveform, "X:wf") { field(FTVL, "DOUBLE") field(NELM, "20") field(INP, [1, 2.5, 3]) }
record(waveform, "X:sw") { field(FTVL, "STRING") field(NELM, "7") field(INP, ["a", "b", "c"]) }
record(waveform, "X:cw") { field(FTVL, "CHAR") field(NELM, "12") }
"#;

#[test]
fn fields_are_read_and_written_in_all_types_of_channel_access_as_c_does_it() {
    let mut iocs = both(&[("test.db", TYPED)], &["-d", "test.db"]);
    // C prints memory addresses, and times differ.
    let plain = |text: String| {
        let lines = text.lines().filter(|line| !line.contains(" Address: "));
        let timeless = lines.map(|line| match line.split_once("TimeStamp: 20") {
            Some((head, rest)) => format!("{head}TimeStamp: {}", rest.split_once('\t').map_or("", |(_, value)| value)),
            None => line.to_owned(),
        });
        timeless.fold(String::new(), |all, line| all + &line + "\n")
    };
    for name in
        ["ai", "bo", "mbbi", "so", "lo", "wf", "sw", "cw", "ai.DESC", "ai.SCAN", "ai.HIHI", "ai.INP", "ai.DESC$"]
    {
        let command = format!("gft X:{name}");
        same(&command, iocs.each_mut().map(|ioc| plain(ioc.say(&command))));
    }
    for command in [
        "pft X:ai 5.25",
        "pft X:ai 7",
        "pft X:ai volt",
        "pft X:bo 1",
        "pft X:bo nonsense",
        "pft X:so text",
        "pft X:lo -7",
        "pft X:wf 3",
        "pft X:cw 65",
        "pft X:ai.HIHI 1e3",
        "gft X:ai",
        "gft X:lo",
        "gft X:cw",
        "gft absent",
        "pft absent 1",
        "tpn absent 1",
        "dbtpn absent 1",
    ] {
        same(command, iocs.each_mut().map(|ioc| plain(ioc.say(command))));
    }
    // Both print the result on completion, from another thread.
    for (command, wanted) in
        [("tpn X:ai 3", "tpnCallback 'X:ai': Success"), ("dbtpn X:ai.VAL 4", "dbtpnCallback: success record=X:ai")]
    {
        for ioc in &mut iocs {
            let mut said = ioc.say(command);
            eventually(wanted, || {
                said.push_str(&ioc.say("pwd"));
                said.contains(wanted)
            });
        }
    }
    same("dbgf X:ai", iocs.each_mut().map(|ioc| ioc.say("dbgf X:ai")));
}

const JSON: &str = r#"
record(ai, "X:a") { field(INP, {const:5}) }
record(ai, "X:calc") { field(INP, {calc:{expr:"A+B", args:[{const:3.5}, {const:4}], prec:3, units:"V", major:"A>10", minor:"B"}}) field(PINI, "YES") }
record(ai, "X:list") { field(INP, {const:[1, 2, 3]}) field(SIOL, {state:"s"}) field(PINI, "YES") }
record(ai, "X:text") { field(INP, {const:"text"}) field(SIOL, {debug:{state:"!s"}}) }
record(waveform, "X:reals") { field(FTVL, "DOUBLE") field(NELM, "3") field(INP, {const:[1.5, 2]}) }
record(waveform, "X:texts") { field(FTVL, "STRING") field(NELM, "3") field(INP, {const:["a"]}) }
record(bi, "X:state") { field(INP, {state:"s"}) field(PINI, "YES") }
record(ai, "X:nested") { field(INP, {calc:{expr:"A+B*2", time:"A", args:[2, {state:"s"}, {const:[1.5, 2]}]}}) field(TSE, "-2") field(PINI, "YES") }
record(ao, "X:out") { field(OUT, {calc:{expr:"A*2", out:{state:"t"}}}) }
"#;

#[test]
fn json_links_are_reported_with_their_values_as_c_does_it() {
    let mut iocs = both(&[("test.db", JSON)], &["-d", "test.db"]);
    for command in [
        "dbjlr",
        "dbjlr * 1",
        "dbjlr X:calc 1",
        "dbjlr X:nested 2",
        "dbjlr X:list 2",
        "dbjlr X:reals 2",
        "dbjlr X:texts 2",
        "dbjlr X:out 3",
        "dbjlr absent",
        "dbStateSet s",
        "dbpf X:state.PROC 1",
        "dbpf X:nested.PROC 1",
        "dbpf X:out 3",
        "dbjlr \"\" 3",
    ] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
}

const LINKED: &str = r#"
record(ai, "X:ai") {}
record(waveform, "X:wf") { field(FTVL, "DOUBLE") field(NELM, "2") }
record(ai, "X:r") { field(INP, "X:ai CA") }
record(ao, "X:r2") { field(OUT, "X:absent CA") field(DOL, "X:wf CP MS") }
record(calc, "X:calc") { field(INPA, "X:ai NPP") field(INPB, "X:wf.NORD CPP") }
"#;

const GUARD: &str = r#"
ASG(DEFAULT) { RULE(1,READ) RULE(1,WRITE) }
ASG(locked) { INPA("X:ai") INPB("X:none") RULE(1,WRITE) { CALC("A=0") } }
"#;

#[test]
fn links_over_channel_access_are_reported_with_hosts_and_rights_as_c_does_it() {
    let files = [("test.db", LINKED), ("rules.acf", GUARD)];
    let mut iocs = both(&files, &["-a", "rules.acf", "-d", "test.db"]);
    // C's threads connect the links one after the other.
    for ioc in &mut iocs {
        eventually("links", || ioc.say("dbcar").contains("3 connected, 1 not"));
        eventually("inputs", || ioc.say("ascar").contains("2 channels 1 not"));
    }
    for command in
        ["dbcar", "dbcar \"\" 1", "dbcar \"\" 2", "dbcar X:r 2", "dbcar X:ai 2", "ascar", "ascar 1", "ascar 2"]
    {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
    for command in ["dbpr X:r 1", "dbpr X:r2 1"] {
        same(command, iocs.each_mut().map(|ioc| ioc.say(command)));
    }
}

const STOPPING: &str = r#"
record(ai, "X:first") { field(INP, "X:source PP") field(FLNK, "X:second") }
record(calc, "X:source") { field(CALC, "VAL+1") }
record(ai, "X:second") { field(INP, "X:source") field(FLNK, "X:third") }
record(longout, "X:third") { field(VAL, "3") field(SDIS, "X:disable") }
record(longout, "X:disable") {}
record(ao, "X:other") {}
record(ai, "X:other2") { field(INP, "X:other") }
"#;

#[test]
fn processing_stops_at_breakpoints_and_continues_as_in_c() {
    let mut iocs = both(&[("test.db", STOPPING)], &["-d", "test.db"]);
    // Ignores lock set numbers, thread addresses, and the seconds since an entry point was called.
    let plain = |text: String| {
        let mut out = String::new();
        for line in text.lines() {
            let line = line.split("  T: 0x").next().unwrap_or(line);
            let line = line.split("  C/S:").next().unwrap_or(line);
            let number = |line: &str, before: &str| match line.split_once(before) {
                Some((head, rest)) => {
                    format!("{head}{before}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
                }
                None => line.to_owned(),
            };
            let line = number(&number(line, "LSet: "), "of lockset ");
            // The prompt comes before or after the thread's output.
            let line = line.trim_start_matches("-> ").trim_start_matches("epics> ").trim_end();
            if !line.is_empty() && line != "->" && !line.starts_with("TIME: ") {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    };
    let timeless = |text: String| {
        text.lines().filter(|line| !line.contains("TIME: 20")).map(|l| l.to_owned() + "\n").collect::<String>()
    };
    // A command, and the text to wait for before the next command: for a record, its last field.
    for (command, wanted) in [
        ("dbs", ""),
        ("dbc X:first", ""),
        ("dbp absent", ""),
        ("dbd X:first", ""),
        ("dbb absent", ""),
        ("dbb X:second", ""),
        ("dbb X:second", ""),
        ("dbap X:third", ""),
        ("dbstat", ""),
        ("dbpf X:first.PROC 1", "Stopped at:  X:second  within Entrypoint:  X:first"),
        ("dbgf X:first", ""),
        ("dbgf X:source", ""),
        ("dbgf X:second.PACT", ""),
        ("dbgf X:first.PACT", ""),
        ("dbstat", ""),
        // Records of other lock sets are processed; those of the same lock set wait.
        ("dbpf X:other 7", ""),
        ("dbpf X:other2.PROC 1", ""),
        ("dbgf X:other2", ""),
        ("dbpf X:source.PROC 1", ""),
        ("dbgf X:source", ""),
        ("dbpf X:disable 1", ""),
        ("dbgf X:disable", ""),
        ("dbb X:source", ""),
        ("dbs", "Stopped at:  X:source  within Entrypoint:  X:source"),
        ("dbgf X:third", ""),
        ("dbgf X:second", ""),
        ("dbs X:second", ""),
        ("dbgf X:source", ""),
        ("dbstat", ""),
        ("dbpf X:disable 0", ""),
        ("dbpf X:second.PROC 1", "Stopped at:  X:second  within Entrypoint:  X:second"),
        ("dbs", "Stopped at:  X:third  within Entrypoint:  X:second"),
        ("dbp X:third 1", ""),
        ("dbc", "VAL : 3"),
        ("dbpf X:third 4", "VAL : 4"),
        ("dbd X:source", ""),
        ("dbd X:second", "End debug of lockset"),
        ("dbstat", ""),
        ("dbpf X:first.PROC 1", ""),
        ("dbgf X:second", ""),
    ] {
        let said = iocs.each_mut().map(|ioc| {
            let mut text = ioc.say(command);
            eventually(&format!("{command}: {wanted}\n"), || {
                // C prints this from another thread, at any time.
                if !text.contains(wanted) {
                    text.push_str(&ioc.say("# later"));
                }
                text.contains(wanted)
            });
            let mut lines: Vec<String> = plain(timeless(text)).lines().map(str::to_owned).collect();
            lines.sort();
            lines.join("\n")
        });
        same(command, said);
    }
}
