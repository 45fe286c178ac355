//! Files from outside: no text makes a reader panic, and the positions of errors are inside the text.

use db::{Db, Macros, Schema};
use proptest::prelude::*;

/// Parts of `.db` and `.dbd` files, in any order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("record(ai, \"a\") {".to_owned()),
        Just("record(calc, \"$(P)b\") { field(CALC, \"A+".to_owned()),
        Just("field(INP, {calc:{expr:'A',args:[1,".to_owned()),
        Just("field(HIHI, \"1".to_owned()),
        Just("info(x, [1,{a:'".to_owned()),
        Just("recordtype(ai) {".to_owned()),
        Just("menu(menuScan) { choice(a, \"b".to_owned()),
        Just("breaktable(t) { 1 2 ".to_owned()),
        Just("device(ai, INST_IO, x, \"y".to_owned()),
        Just("\")".to_owned()),
        Just("}".to_owned()),
        Just("\n".to_owned()),
        "[(){},\"'\\\\#$\\[\\]a-z0-9 ]{0,6}",
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic_and_errors_have_lines_within_the_text(text in text()) {
        let lines = text.lines().count().max(1) as u32 + 1;
        let mut db = Db::new();
        let _ = db.load_records(&text, "t.db", &Macros::default(), &mut |_| Some("record(ai, \"i\") {}".into()));
        let mut db = Db::new();
        db.set_strict(true);
        if let Err(errors) = db.load_records(&text, "t.db", &Macros::parse("P=X:"), &mut |_| None) {
            prop_assert!(errors.0.iter().all(|error| error.place.line <= lines), "{errors}");
            prop_assert_eq!(db.records().count(), 0);
        }
        db.init(db::Now::default());
        if let Err(error) = Schema::from_dbd(&text, "t.dbd", &mut |_| None) {
            prop_assert!(error.place.line <= lines, "{error}");
        }
    }
}

/// The errors of a file that is rejected as a whole.
fn refused(db: &mut Db, text: &str, macros: &str) -> Vec<String> {
    db.set_strict(true);
    told(db, text, macros)
}

/// The errors of a file.
fn told(db: &mut Db, text: &str, macros: &str) -> Vec<String> {
    let errors = db.load_records(text, "t.db", &Macros::parse(macros), &mut |_| None).unwrap_err();
    errors.0.iter().map(ToString::to_string).collect()
}

/// A field's value as text.
fn shown(db: &mut Db, name: &str) -> String {
    let channel = db.find(name).unwrap();
    String::from_utf8_lossy(db.get_text(&channel).bytes()).into_owned()
}

#[test]
fn a_macro_without_a_value_is_reported_with_its_place_name_and_remedy() {
    let mut db = Db::new();
    let text = "record(ai, \"a\") { field(DESC, \"$(TYPO)\") field(EGU, \"$(A)\") }\nrecord(ai, \"b\") { field(INP, \"${X}s PP\") }\nrecord(ai, \"$(N)c\") {}";
    let expected = [("1:31: a.DESC cannot be", "TYPO", "$(TYPO)", ""), ("2:30: b.INP cannot be", "X", "${X}", "s PP")];
    let mut expected: Vec<String> = expected
        .iter()
        .map(|(start, name, sign, rest)| {
            let default = sign.replace(name, &format!("{name}=…"));
            format!("t.db:{start} \"{sign}{rest}\": macro {name} has no value; give it one ({name}=… after the file's name in dbLoadRecords, or with -m), or a default: {default}")
        })
        .collect();
    expected.push("t.db:3:12: record name \"$(N)c\": macro N has no value; give it one (N=… after the file's name in dbLoadRecords, or with -m), or a default: $(N=…)".to_owned());
    assert_eq!(refused(&mut db, text, "A=mm"), expected);
    assert_eq!(db.records().count(), 0);
    assert!(db.take_notices().is_empty(), "a reported error is not repeated as a notice");
    db.load_records(text, "t.db", &Macros::parse("A=mm,TYPO=now,X=b,N=n"), &mut |_| None).unwrap();
    assert_eq!(db.records().count(), 3);
    // Outside fields, an undefined macro is reported and stays in the text, as in C.
    db.load_records("record(ai, \"d\") { info(x, \"$(Y)\") }", "u.db", &Macros::default(), &mut |_| None).unwrap();
    assert_eq!(db.take_notices().len(), 1);
}

#[test]
fn a_strict_database_reports_all_wrong_fields_of_a_file_and_loads_nothing_of_it() {
    let mut db = Db::new();
    let before = "record(ai, \"old\") { field(DESC, \"as it was\") field(PREC, 2) field(INP, \"1\") info(tag, \"kept\") alias(\"other\") }";
    db.load_records(before, "old.db", &Macros::default(), &mut |_| None).unwrap();
    let text = "record(ai, \"old\") { field(DESC, \"new\") field(PREC, 5) field(INP, \"2\") info(tag, \"new\") alias(\"more\") }
record(calc, \"c\") { field(CALC, \"A+\") field(SCAN, \"1 second\") }
record(calcout, \"o\") { field(CALC, \"A\") field(OCAL, \"foo(\") field(NOPE, \"1\") }
record(ai, \"n\") { field(PREC, \"x\") }
breaktable(mine) { 0 0 1 1 }
record(\"#\", \"old\") {}
record(bo, \"old\") {}";
    assert_eq!(
        refused(&mut db, text, ""),
        [
            "t.db:2:33: c.CALC cannot be \"A+\": Incomplete expression, operand missing",
            "t.db:3:53: o.OCAL cannot be \"foo(\": Syntax error, unknown operator/operand",
            "t.db:3:67: calcout record \"o\" has no field \"NOPE\"",
            "t.db:4:31: n.PREC cannot be \"x\": expected a number that fits SHORT",
        ]
    );
    assert!(db.schema().tables.iter().all(|table| table.name != "mine"));
    db.init(db::Now::default());
    assert_eq!(db.records().count(), 1);
    for (name, value) in [("other.DESC", "as it was"), ("old.PREC", "2"), ("old.INP", "1"), ("old.RTYP", "ai")] {
        assert_eq!(shown(&mut db, name), value, "{name}");
    }
    assert!(db.find("more").is_err() && db.find("c").is_err());
    // The rejected file's names are free.
    db.load_records("record(ao, \"c\") { alias(\"more\") }", "t.db", &Macros::default(), &mut |_| None).unwrap();
}

#[test]
fn wrong_parts_of_a_file_are_reported_and_skipped_and_the_rest_is_loaded() {
    let mut db = Db::new();
    let text = "record(ai, \"a\") { field(EGU, \"mm\") field(NOPE, \"1\") field(PREC, \"x\") field(DESC, \"$(M)\") field(HIHI, \"5\") }
record(nonsuch, \"n\") { field(VAL, \"1\") info(a, \"b\") alias(\"nn\") }
record(ai, \"b b\") { field(VAL, \"1\") }
alias(\"nobody\", \"x\")
record(\"*\", \"nobody\") { field(VAL, \"1\") }
record(bo, \"a\") { field(ZNAM, \"off\") }
include \"nowhere.db\"
record(calc, \"c\") { field(CALC, \"A+\") alias(\"a\") field(DESC, \"last\") }";
    let mut lines: Vec<String> = told(&mut db, text, "");
    lines
        .iter_mut()
        .for_each(|line| line.truncate(line.char_indices().map(|(at, _)| at).nth(34).unwrap_or(line.len())));
    assert_eq!(
        lines,
        [
            "t.db:1:42: ai record \"a\" has no fi",
            "t.db:1:65: a.PREC cannot be \"x\": e",
            "t.db:1:82: a.DESC cannot be \"$(M)\"",
            "t.db:2:8: no record type \"nonsuch\"",
            "t.db:3:12: record name \"b b\" holds",
            "t.db:4:7: no record \"nobody\" to gi",
            "t.db:5:13: no record \"nobody\" is l",
            "t.db:6:8: record \"a\" is of type \"a",
            "t.db:7:9: cannot read \"nowhere.db\"",
            "t.db:8:33: c.CALC cannot be \"A+\": ",
            "t.db:8:45: alias \"a\" is taken by a",
        ]
    );
    db.init(db::Now::default());
    assert_eq!(db.records().count(), 2);
    let values =
        [("a.EGU", "mm"), ("a.PREC", "0"), ("a.HIHI", "5"), ("a.DESC", ""), ("c.CALC", "A+"), ("c.DESC", "last")];
    values.iter().for_each(|(name, value)| assert_eq!(shown(&mut db, name), *value, "{name}"));
    // After a syntax error the rest is skipped. The part before it is loaded.
    let mut db = Db::new();
    assert_eq!(
        told(&mut db, "record(ai, \"a\") { field(PREC, \"2\") field(EGU \"x\") }\nrecord(ai, \"b\") {}", "").len(),
        1
    );
    db.init(db::Now::default());
    assert_eq!((shown(&mut db, "a.PREC"), db.find("b").is_err()), ("2".to_owned(), true));
}

#[test]
fn the_first_hundred_errors_are_reported_and_the_others_counted() {
    let mut db = Db::new();
    let text = "record(ai, \"a\") { field(PREC, \"x\") }\n".repeat(150) + "record(ai, \"b\") {}";
    let lines = told(&mut db, &text, "");
    assert_eq!((lines.len(), db.records().count()), (100, 2));
    assert!(lines[99].ends_with("; the file has 50 more errors"), "{}", lines[99]);
}

#[test]
fn values_of_files_are_read_as_c_reads_them() {
    let mut db = Db::new();
    let alias = "long".repeat(20);
    let text = format!(
        "record(longin, \"l\") {{ field(VAL, \"0xffffffff\") field(HIHI, \"99999999999\") field(PHAS, \"40000\") }}
record(mbbo, \"m\") {{ field(ZRVL, \"0x1ffffffff\") field(NOBT, \"70000\") field(TPRO, \"300\") }}
record(bo, \"b\") {{ field(ZSV, \"\") field(SCAN, \"\") field(DTYP, \"\") field(OUT, \"#C0x1 S0x2 @p\") }}
record(waveform, \"w\") {{ field(FTVL, \"\") field(NELM, \"\") alias(\"{alias}\") }}"
    );
    db.load_records(&text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(db::Now::default());
    let values = [
        ("l.VAL", "-1"),
        ("l.HIHI", "1215752191"),
        ("l.PHAS", "-25536"),
        ("m.ZRVL", "4294967295"),
        ("m.NOBT", "4464"),
        ("m.TPRO", "44"),
        ("b.ZSV", "NO_ALARM"),
        ("b.SCAN", "Passive"),
        ("w.FTVL", "STRING"),
        (alias.as_str(), ""),
    ];
    values.iter().for_each(|(name, value)| assert_eq!(shown(&mut db, name), *value, "{name}"));
}

#[test]
fn a_link_that_does_not_fit_dtyp_is_reported_and_left_empty() {
    let mut db = Db::new();
    let text = "record(ai, \"t\") { field(DTYP, \"Soft Timestamp\") field(PINI, \"YES\") }
record(ai, \"n\") { field(DTYP, \"Soft Timestamp\") field(INP, \"5\") field(PINI, \"YES\") }
record(ai, \"s\") { field(INP, \"@here\") field(PINI, \"YES\") field(TSE, \"1\") }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(db::Now { wall: base::Stamp { secs: 5, nanos: 0 }, ..db::Now::default() });
    let told: Vec<String> = db.take_notices().into_iter().map(|notice| notice.0).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().any(|told| told.starts_with("s.TSE = 1: nothing gives the time of this event")), "{told:?}");
    let links = told.iter().filter(|told| told.contains("does not fit DTYP"));
    assert_eq!(links.map(|told| &told[..1]).collect::<Vec<_>>(), ["n", "s"]);
    let values = [("t.VAL", "5"), ("n.VAL", "5"), ("t.INP", "@"), ("n.PACT", "0"), ("s.PACT", "0"), ("s.INP", "")];
    values.iter().for_each(|(name, value)| assert_eq!(shown(&mut db, name), *value, "{name}"));
    let stamp = |db: &Db, name: &str| db.stamp(db.find(name).unwrap().record).0.secs;
    assert_eq!((stamp(&db, "t"), stamp(&db, "s")), (5, 0));
}

#[test]
fn menus_and_breakpoint_tables_may_be_between_records() {
    let mut db = Db::new();
    let text = "breaktable(mine) { 0 0, 10 100 } menu(menuConvert) { choice(menuConvertNO, \"NO\") choice(mineMine, \"mine\") }
        record(ai, \"a\") { field(LINR, \"mine\") }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    assert!(db.schema().tables.iter().any(|table| table.name == "mine" && table.points == [(0.0, 0.0), (10.0, 100.0)]));
    db.init(db::Now::default());
    assert_eq!(shown(&mut db, "a.LINR"), "mine");
}

#[test]
fn impossible_arrays_are_refused_and_memory_of_the_others_is_not_touched() {
    for (kind, field, count) in [
        ("waveform", "NELM", "4000000000"),
        ("waveform", "NELM", "-1"),
        ("aai", "NELM", "100000001"),
        ("aao", "NELM", "100000001"),
        ("subArray", "MALM", "100000001"),
        ("compress", "NSAM", "100000001"),
        ("aSub", "NOVU", "100000001"),
    ] {
        let number = if count == "-1" { "4294967295" } else { count };
        assert_eq!(
            refused(&mut Db::new(), &format!("record({kind}, \"a\") {{ field({field}, \"{count}\") }}"), ""),
            [format!(
                "t.db:1:{}: a.{field} cannot be \"{count}\": these are {number} elements, expected at most 100000000",
                kind.len() + 29
            )]
        );
    }
    let mut db = Db::new();
    let large =
        |name: &str| format!("record(waveform, \"{name}\") {{ field(NELM, \"100000000\") field(FTVL, \"STRING\") }}\n");
    let text: String = (0..8).map(|number| large(&format!("w{number}"))).collect();
    db.load_records(&text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(db::Now::default());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 4_000_000, "8 arrays of 4 GB exist, with {kib} KiB of memory");
}
