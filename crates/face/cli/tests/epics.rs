//! Our server and our tools compared with EPICS' own: the same requests must give the same output.
//!
//! `TAHTI_EPICS` names the folder with `usr/bin/softIoc`, `usr/bin/caget`, …; `cargo xtask test epics` sets it up.
//! Everything stays on loopback, each IOC on a separate port.

use harness::archived::{Archived, COUNTER};
use harness::epics::{Monitor, normal, same};
use harness::eventually;
use harness::ioc::Ioc;

const DATABASE: &str = r#"
record(ai, "$(P)ai") { field(VAL, "1.5") field(PREC, "3") field(EGU, "mm") field(HIHI, "10") field(HHSV, "MAJOR")
    field(HOPR, "20") field(LOPR, "-20") field(PINI, "YES") field(DESC, "an input") }
record(ao, "$(P)ao") { field(PREC, "1") field(DRVH, "100") field(DRVL, "-100") field(EGU, "V") }
record(bo, "$(P)bo") { field(ZNAM, "off") field(ONAM, "on") field(OSV, "MINOR") }
record(bi, "$(P)bi") { field(ZNAM, "closed") field(ONAM, "open") field(VAL, "1") field(PINI, "YES") }
record(mbbo, "$(P)mbbo") { field(ZRST, "zero") field(ONST, "one") field(TWST, "two") field(ZRVL, "0")
    field(ONVL, "1") field(TWVL, "2") }
record(longout, "$(P)longout") { field(VAL, "42") field(EGU, "n") field(HOPR, "100") }
record(longin, "$(P)longin") { field(VAL, "-7") field(LOLO, "-5") field(LLSV, "MAJOR") field(PINI, "YES") }
record(stringout, "$(P)stringout") { field(VAL, "hello \"world\"") }
record(calc, "$(P)calc") { field(CALC, "A/3") field(INPA, "1") field(PREC, "5") field(PINI, "YES") }
"#;

const NAMES: &[&str] = &["X:ai", "X:ao", "X:bo", "X:bi", "X:mbbo", "X:longout", "X:longin", "X:stringout", "X:calc"];

#[test]
fn epics_clients_read_the_same_from_both_servers() {
    let (theirs, ours) = (Ioc::serving(false, DATABASE), Ioc::serving(true, DATABASE));
    let fields: Vec<String> = NAMES
        .iter()
        .flat_map(|name| {
            ["DESC", "SCAN", "STAT", "SEVR", "NAME", "FLNK", "PREC", "RTYP"].map(|field| format!("{name}.{field}"))
        })
        .collect();
    for number in (0..=34).chain([37, 38]) {
        let number = number.to_string();
        let textual = ["0", "7", "14", "21", "28", "37", "38"].contains(&&*number);
        let names = NAMES.iter().copied().filter(|name| textual || *name != "X:stringout");
        let args: Vec<&str> = ["-d", &number].into_iter().chain(names).collect();
        same(&format!("caget -d {number}"), &theirs.run(false, "caget", &args), &ours.run(false, "caget", &args));
    }
    for field in fields.iter().filter(|name| !name.ends_with(".PREC")) {
        // If a text is not a number, EPICS' tool prints uninitialised memory.
        let textual = [".DESC", ".NAME", ".FLNK", ".RTYP"].iter().any(|end| field.ends_with(end));
        let types: &[&str] = if textual { &["0"] } else { &["0", "3", "31"] };
        for number in types.iter().copied() {
            let args = ["-d", number, field];
            same(&format!("caget {args:?}"), &theirs.run(false, "caget", &args), &ours.run(false, "caget", &args));
        }
    }
    let args: Vec<&str> = NAMES.to_vec();
    same("cainfo", &theirs.run(false, "cainfo", &args), &ours.run(false, "cainfo", &args));
}

#[test]
fn the_archive_stores_the_same_samples_of_both_servers() {
    let says = format!("sync = \"50ms\"\n[[signal]]\nnames = [\"X:COUNT\", \"{}\"]\n", NAMES.join("\", \""));
    let kept = [false, true].map(|ours| {
        let site = Archived::of(Ioc::serving(ours, &format!("{DATABASE}{COUNTER}")), "kept", &says);
        let logger = site.serve("all 10 variables are connected");
        eventually("ten samples of the counter exist", || site.counts().len() >= 10);
        logger.signal("-TERM");
        logger.hears("samples safe, 0 lost");
        let counts = site.counts();
        assert!(counts.windows(2).all(|two| two[1] == two[0] + 1), "no value is missing or duplicated: {counts:?}");
        let list: serde_json::Value = serde_json::from_str(&site.good("list", &["--json"])).unwrap();
        let about = list.as_array().unwrap().iter().map(|signal| {
            let row = &signal["rows"][0];
            format!("{} {} {} {} {}", signal["name"], row["type"], row["units"], row["precision"], row["labels"])
        });
        let values = NAMES.iter().map(|name| {
            let rows = site.good("get", &[name, "--format", "csv"]);
            // Compares value, severity and status. For a record that was never processed each server sends its own
            // time.
            rows.lines().nth(1).unwrap().splitn(3, ',').nth(2).unwrap().to_owned()
        });
        about.chain(values).collect::<Vec<_>>()
    });
    assert_eq!(kept[0], kept[1]);
}

#[test]
fn the_characters_of_texts_and_links_are_the_same_in_all_types() {
    let database = r#"
        record(ai, "$(P)ai") { field(INP, "X:ao.VAL NPP NMS") field(EGU, "mm") }
        record(stringout, "$(P)text") { field(VAL, "start") }
        record(mbbo, "$(P)mbbo") { field(ZRST, "zero") }
        record(lsi, "$(P)lsi") { field(SIZV, "20") }
        record(printf, "$(P)printf") { field(FMT, "hello") field(SIZV, "20") field(PINI, "YES") }
    "#;
    let iocs = [false, true].map(|ours| Ioc::serving(ours, database));
    let texts =
        ["X:ai.DESC$", "X:ai.EGU$", "X:text.VAL$", "X:text.DESC$", "X:mbbo.ZRST$", "X:lsi.VAL$", "X:printf.VAL$"];
    for number in ["0", "1", "4", "5", "6", "14", "18"] {
        for count in [&[][..], &["-#", "0"], &["-#", "1"], &["-#", "3"]] {
            // If a text is not a number, EPICS' tool prints uninitialised memory.
            let link = ["0", "4", "14", "18"].contains(&number).then_some("X:ai.INP$");
            let args: Vec<&str> = ["-d", number].iter().chain(count).chain(&texts).copied().chain(link).collect();
            let [theirs, ours] = iocs.each_ref().map(|ioc| ioc.run(false, "caget", &args));
            same(&format!("caget {args:?}"), &theirs, &ours);
        }
    }
}

#[test]
fn epics_clients_write_the_same_to_both_servers() {
    let (theirs, ours) = (Ioc::serving(false, DATABASE), Ioc::serving(true, DATABASE));
    for args in [
        &["-c", "X:ao", "3.25"][..],
        &["-c", "X:ao", "1000"],
        &["-c", "X:ao", "volt"],
        &["X:bo", "on"],
        &["-c", "X:bo", "off"],
        &["-n", "X:mbbo", "2"],
        &["X:mbbo", "one"],
        &["-c", "X:longout", "7"],
        &["-c", "X:longout", "1e3"],
        &["X:stringout", "one two"],
        &["X:stringout", "0123456789012345678901234567890123456789abcdef"],
        &["-c", "X:ai.HIHI", "1"],
        &["-c", "X:ai", "1.25"],
        &["-l", "X:ai", "0.5"],
        &["-c", "X:ai.SCAN", "1 second"],
        &["-c", "X:ai.SCAN", "Passive"],
        &["-c", "X:ai.NAME", "other"],
        &["-c", "X:ai.DISP", "1"],
        &["-c", "X:ai", "3"],
        &["-c", "X:ai.DISP", "0"],
        &["-c", "X:calc.A", "6"],
    ] {
        same(&format!("caput {args:?}"), &theirs.run(false, "caput", args), &ours.run(false, "caput", args));
    }
}

#[test]
fn our_tools_print_the_same_as_the_tools_of_epics() {
    let ioc = Ioc::serving(false, DATABASE);
    let types: Vec<String> = (0..=34).chain([37, 38]).map(|number| format!("-d{number}")).collect();
    let formats = [
        "-a", "-t", "-n", "-s", "-0x", "-0o", "-0b", "-lx", "-lo", "-lb", "-e4", "-f3", "-g10", "-c", "-F,", "-#2",
        "-at",
    ];
    for option in types.iter().map(String::as_str).chain(formats) {
        // If a text is not a number, EPICS' tool prints a zero that the server did not send. Ours reports the error.
        let textual =
            !option.starts_with("-d") || ["-d0", "-d7", "-d14", "-d21", "-d28", "-d37", "-d38"].contains(&option);
        let names = NAMES.iter().copied().filter(|name| textual || *name != "X:stringout");
        let args: Vec<&str> = [option].into_iter().chain(names).collect();
        same(&format!("caget {option}"), &ioc.run(false, "caget", &args), &ioc.run(true, "caget", &args));
    }
    for args in [
        &["-w", "0.2", "nobody"][..],
        &["-w", "10", "nobody", "X:ai"],
        &[],
        &["-q"],
        &["-w"],
        &["-d", "99", "X:ai"],
        &["-d", "CTRL_DOUBLE", "X:ai"],
        &["X:ai.DESC"],
        &["X:ai", "-t"],
        &["X:ai", "-d", "DBR_CTRL_DOUBLE", "X:bo", "-n"],
        &["X:ai", "-5"],
        &["-w", "0.2", "X:ai", "--", "-t"],
        &["-F", "", "X:ai", "X:bo"],
        &["-w", "0", "X:ai"],
        &[""],
        &["-#-1", "X:ai"],
        &["-#2x", "X:ai"],
        &["-# 1", "X:ai"],
        &["-#x", "X:ai"],
        &["-p", "-1", "X:ai"],
        &["-e3x", "X:ai"],
        &["-g", "-1", "X:ai"],
        &["-f", "x", "X:ai"],
        &["-d", "5x", "X:ai"],
        &["-d", "PUT_ACKT", "X:ai"],
    ] {
        same(&format!("caget {args:?}"), &ioc.run(false, "caget", args), &ioc.run(true, "caget", args));
    }
    for args in [NAMES, &["X:ai", "-p", "3"], &["-s", "0", "X:ai"], &["-s", "x", "X:ai"]] {
        same(&format!("cainfo {args:?}"), &ioc.run(false, "cainfo", args), &ioc.run(true, "cainfo", args));
    }
    for args in [
        &["-c", "X:ao", "5.5"][..],
        &["X:bo", "on"],
        &["X:bo", "7"],
        &["X:bo", "nothing"],
        &["-n", "X:bo", "on"],
        &["-s", "X:bo", "1"],
        &["-l", "X:ai", "4"],
        &["-t", "X:longout", "-7"],
        &["X:stringout", "a\\tb"],
        &["X:stringout", "\\"],
        &["-l", "-t", "X:longout", "5"],
        &["-s", "-n", "X:mbbo", "1"],
        &["", "1"],
        &["X:ai"],
    ] {
        // The second put starts from the value of the first, which is the same for both.
        ioc.run(false, "caput", args);
        same(&format!("caput {args:?}"), &ioc.run(false, "caput", args), &ioc.run(true, "caput", args));
    }
}

const WRITTEN: &str = r#"
record(ao, "$(P)ao") { field(PREC, "2") }
record(longout, "$(P)long") {}
record(mbbo, "$(P)mbbo") { field(ZRST, "zero") field(ONST, "one") field(TWST, "two") }
record(bo, "$(P)bo") { field(ZNAM, "off") field(ONAM, "on") }
record(stringout, "$(P)text") {}
record(lso, "$(P)lso") { field(SIZV, "80") }
record(waveform, "$(P)wave") { field(FTVL, "DOUBLE") field(NELM, "5") }
record(waveform, "$(P)longs") { field(FTVL, "LONG") field(NELM, "3") }
record(waveform, "$(P)chars") { field(FTVL, "CHAR") field(NELM, "20") }
record(waveform, "$(P)texts") { field(FTVL, "STRING") field(NELM, "3") }
"#;

const LONG: &str = "0123456789 123456789 123456789 123456789 123456789 123456789 123456789 123456789 123456789";

/// Arrays, long strings and states, with valid and invalid values.
const PUTS: &[&[&str]] = &[
    &["-a", "X:wave", "3", "1", "2", "3"],
    &["-c", "-a", "X:wave", "5", "1.5", "-2", "3e3", "0x10", "5"],
    &["-a", "X:wave", "2", "1.5"],
    &["-a", "X:wave", "1", "7", "8"],
    &["-a", "X:wave", "7", "1", "2", "3", "4", "5", "6", "7"],
    &["-a", "X:wave", "3", "1", "x", "3"],
    &["-a", "X:wave", "0"],
    &["-a", "X:wave"],
    &["X:wave", "4.5"],
    &["X:wave", "1", "2"],
    &["-t", "-a", "X:wave", "2", "8", "9"],
    &["-l", "-a", "X:wave", "2", "8", "9"],
    &["-F,", "-a", "X:wave", "2", "6", "7"],
    &["-#2", "-a", "X:wave", "3", "6", "7", "8"],
    &["-a", "X:longs", "3", "1", "-2", "0x10"],
    &["-a", "X:longs", "2", "1e2", "99999999999"],
    &["-a", "X:ao", "1", "5"],
    &["-a", "X:ao", "2", "5", "6"],
    &["-a", "X:texts", "2", "one", "two words"],
    &["-a", "X:texts", "2", LONG, "short"],
    &["X:texts", "alone"],
    &["-a", "X:chars", "3", "72", "105", "0"],
    &["X:chars", "65"],
    &["X:chars", "word"],
    &["-S", "X:chars", "hello"],
    &["-S", "X:chars", "two", "words"],
    &["-S", "X:chars", "a\\tb\\x41"],
    &["-S", "X:chars", ""],
    &["-S", "X:chars", LONG],
    &["-S", "X:lso.VAL$", "a long text that does not fit into forty characters at all"],
    &["-S", "X:lso.VAL$", LONG],
    &["X:lso", LONG],
    &["-S", "X:text.VAL$", "fits"],
    &["-S", "X:ao.DESC$", LONG],
    &["-S", "X:text", "as it is"],
    &["-S", "X:ao", "5"],
    &["X:text", LONG],
    &["X:text", ""],
    &["X:mbbo", "two"],
    &["X:mbbo", "1"],
    &["X:mbbo", "7"],
    &["X:mbbo", "99"],
    &["X:mbbo", "three"],
    &["-n", "X:mbbo", "2"],
    &["-n", "X:mbbo", "one"],
    &["-n", "X:mbbo", "-1"],
    &["-s", "X:mbbo", "one"],
    &["-s", "X:mbbo", "2"],
    &["-a", "X:mbbo", "1", "two"],
    &["-c", "X:bo", "on"],
    &["-l", "X:bo", "0"],
    &["X:long", "0x1F"],
    &["X:long", "12 apples"],
    &["-c", "X:ao", "1e400"],
    &["-p", "50", "X:ao", "2.5"],
];

const READS: &[&[&str]] = &[
    &["X:wave", "X:longs", "X:chars", "X:texts", "X:lso", "X:text", "X:mbbo", "X:bo", "X:long", "X:ao"],
    &["-S", "X:wave", "X:longs", "X:chars", "X:texts", "X:lso", "X:text", "X:mbbo", "X:ao"],
    &["-S", "-#3", "X:chars", "X:wave"],
    &["-S", "X:lso.VAL$", "X:text.VAL$", "X:ao.DESC$"],
    &["-S", "-a", "X:chars", "X:lso.VAL$"],
    &["-S", "-t", "X:chars", "X:lso.VAL$"],
    &["-n", "X:mbbo"],
    &["-#2", "X:wave", "X:texts"],
];

#[test]
fn our_put_and_get_treat_arrays_long_strings_and_states_as_epics_do() {
    // Each tool has a separate IOC, so that both start from the same values.
    let (theirs, ours) = (Ioc::serving(false, WRITTEN), Ioc::serving(false, WRITTEN));
    let mut different = String::new();
    let mut compare = |what: String, left: String, right: String| {
        if left != right {
            different += &format!("{what}\nEPICS:\n{left}\ntahti:\n{right}\n");
        }
    };
    for args in PUTS {
        compare(format!("caput {args:?}"), theirs.run(false, "caput", args), ours.run(true, "caput", args));
        let values = |ioc: &Ioc| ioc.run(false, "caget", READS[0]);
        compare(format!("values after caput {args:?}"), values(&theirs), values(&ours));
    }
    for args in READS {
        compare(format!("caget {args:?}"), ours.run(false, "caget", args), ours.run(true, "caget", args));
    }
    assert!(different.is_empty(), "{different}");
}

const WATCHED: &str = r#"
record(ao, "$(P)ao") { field(PREC, "2") field(HIGH, "20") field(HSV, "MINOR") field(ADEL, "5") }
record(bo, "$(P)bo") { field(ZNAM, "off") field(ONAM, "on") field(OSV, "MAJOR") }
record(longout, "$(P)long") { }
record(waveform, "$(P)wave") { field(FTVL, "DOUBLE") field(NELM, "5") field(PREC, "3") }
record(waveform, "$(P)chars") { field(FTVL, "CHAR") field(NELM, "20") }
record(stringout, "$(P)text") { }
"#;

/// Options of camonitor, and the channels to watch with them.
const MONITORED: &[(&[&str], &str)] = &[
    (&[], "X:ao"),
    (&[], "X:text"),
    (&[], "X:bo"),
    (&["-n"], "X:bo"),
    (&["-s"], "X:bo"),
    (&["-s"], "X:ao"),
    (&["-e3"], "X:ao"),
    (&["-f1"], "X:wave"),
    (&["-g3"], "X:ao"),
    (&["-lx"], "X:ao"),
    (&["-lo"], "X:ao"),
    (&["-lb"], "X:ao"),
    (&["-0x"], "X:long"),
    (&["-0o"], "X:long"),
    (&["-0b"], "X:long"),
    (&["-F,"], "X:wave"),
    (&["-#2"], "X:wave"),
    (&["-S"], "X:chars"),
    (&[], "X:chars"),
    (&["-m", "v"], "X:ao"),
    (&["-m", "a"], "X:ao"),
    (&["-m", "l"], "X:ao"),
    (&["-m", "p"], "X:ao"),
    (&["-m", "vap"], "X:ao"),
    (&["-p", "50"], "X:ao"),
    (&["-tn"], "X:ao"),
    (&["-ts"], "X:ao"),
    (&["-tc"], "X:ao"),
    (&["-tsc"], "X:ao"),
    (&["-tr"], "X:ao"),
    (&["-ti"], "X:ao"),
    (&["-tI"], "X:ao"),
    (&["-tsri"], "X:ao"),
    (&["-w", "0.2"], "X:nobody"),
];

#[test]
fn our_monitor_prints_the_same_as_that_of_epics_with_each_option() {
    let ioc = Ioc::serving(false, WATCHED);
    let put =
        |args: &[&str]| ioc.run(false, "caput", &["-c"].into_iter().chain(args.iter().copied()).collect::<Vec<_>>());
    // Another test covers undefined values.
    let first =
        [&["X:ao", "1"][..], &["X:bo", "off"], &["X:long", "5"], &["-a", "X:wave", "2", "1", "2"], &["X:text", "a"]];
    first.iter().for_each(|args| drop(put(args)));
    put(&["-S", "X:chars", "first"]);
    let both = |(options, pv): &(&[&str], &str)| {
        let args: Vec<&str> = options.iter().copied().chain([*pv]).collect();
        [false, true].map(|ours| Monitor::start(&ioc, ours, &args))
    };
    let monitors: Vec<Monitor> = MONITORED.iter().flat_map(both).collect();
    let mut lines = Monitor::settled(&monitors, &ioc);
    for value in ["2.5", "21", "30", "4", "-1.25"] {
        put(&["X:ao", value]);
    }
    put(&["X:ao.HIGH", "10"]);
    for (switch, long, text) in [("on", "7", "one two"), ("off", "-1", ""), ("on", "1000", "end")] {
        put(&["X:bo", switch]);
        put(&["X:long", long]);
        put(&["X:text", text]);
        put(&["-S", "X:chars", text]);
    }
    put(&["-a", "X:wave", "5", "1.5", "2", "3", "4", "5.25"]);
    put(&["-a", "X:wave", "1", "9"]);
    Monitor::more(&monitors, &ioc, &mut lines);
    // Times taken from the tool's own clock, and differences to them, are replaced.
    let word = |word: &str| match word.trim_matches(['(', ')']) {
        own if own.len() < word.len() && own.contains('.') => "OWN".to_owned(),
        since if since.contains('.') && since.starts_with(['+', '-']) && since.len() > 6 => "SINCE".to_owned(),
        _ => word.to_owned(),
    };
    let shown = |lines: &[String]| -> String {
        let lines = lines.iter().map(|line| line.replace("(2", "( 2"));
        let lines = lines.map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut different = String::new();
    for ((options, pv), both) in MONITORED.iter().zip(lines.chunks(2)) {
        let (theirs, ours) = (shown(&both[0]), shown(&both[1]));
        if theirs != ours {
            different += &format!("camonitor {options:?} {pv}\nEPICS:\n{theirs}\ntahti:\n{ours}\n");
        }
    }
    assert!(different.is_empty(), "{different}");
}

#[test]
fn our_monitor_follows_either_server_as_epics_does() {
    for server in [false, true] {
        let ioc = Ioc::serving(server, DATABASE);
        let lines = |ours: bool| {
            let monitor = [Monitor::start(&ioc, ours, &["X:ao", "X:bo"])];
            let mut lines = Monitor::settled(&monitor, &ioc);
            // The two channels may connect in any order.
            lines[0].sort();
            for value in ["1", "2", "3"] {
                ioc.run(false, "caput", &["-c", "X:ao", value]);
            }
            Monitor::more(&monitor, &ioc, &mut lines);
            lines.concat().iter().map(|line| normal(line, ioc.port)).collect::<Vec<_>>()
        };
        lines(false);
        let theirs = lines(false);
        assert_eq!(theirs.len(), 5, "{theirs:?}");
        assert_eq!(theirs, lines(true), "server {}", if server { "tahti" } else { "softIoc" });
    }
}
