//! Behaviour of C's IOC that users rely on: order of monitors and links, SCAN at start, single records.

use base::{MonoNs, Scalar, Stamp, Str40, Value};
use db::{Db, Macros, Now};

const NOW: Now = Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, mono: MonoNs(0) };

fn database(text: &str) -> Db {
    let mut db = Db::new();
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db.init(NOW);
    db.advance(NOW, 1_000);
    db
}

fn put(db: &mut Db, name: &str, text: &str) {
    let channel = db.find(name).unwrap();
    db.put_text(&channel, text, NOW).unwrap();
    db.advance(NOW, 1_000);
}

fn text(db: &mut Db, name: &str) -> String {
    let channel = db.find(name).unwrap();
    db.get_text(&channel).to_string()
}

#[test]
fn records_with_cp_links_to_one_field_are_processed_in_the_order_of_their_links() {
    for (modifier, out) in [("CP", "PP"), ("CPP", "PP"), ("CP", "CA"), ("CPP", "CA")] {
        let calcout = |nth: u32| {
            format!(
                "record(calcout, \"c{nth}\") {{ field(CALC, \"A+{nth}\") field(INPA, \"src {modifier}\")
                    field(OUT, \"tgt {out}\") }}\n"
            )
        };
        let links: String = (1..=3).map(calcout).collect();
        let mut db = database(&format!("record(ao, \"src\") {{}}\nrecord(ao, \"tgt\") {{}}\n{links}"));
        put(&mut db, "src", "50");
        assert_eq!(text(&mut db, "tgt"), "53", "{modifier}, {out}");
    }
}

#[test]
fn monitors_of_a_record_are_updated_in_the_order_of_their_creation_also_after_some_ended() {
    let mut db = database("record(ao, \"a\") {}");
    let queue = db.open_queue(16);
    let channel = db.find("a").unwrap();
    let subs: Vec<_> = (0..5).map(|token| db.subscribe(queue, &channel, base::EventMask::VALUE, token)).collect();
    let heard = |db: &mut Db, value: &str| {
        put(db, "a", value);
        let mut tokens = Vec::new();
        db.drain(queue, 16, |_, event| tokens.push(event.token));
        tokens
    };
    assert_eq!(heard(&mut db, "1"), [0, 1, 2, 3, 4]);
    db.unsubscribe(subs[4]);
    db.unsubscribe(subs[2]);
    db.unsubscribe(subs[0]);
    db.subscribe(queue, &channel, base::EventMask::VALUE, 9);
    assert_eq!(heard(&mut db, "2"), [1, 3, 9]);
    db.close_queue(queue);
    put(&mut db, "a", "3");
}

#[test]
fn io_intr_without_interrupt_support_is_passive_before_records_are_processed_at_start() {
    let mut db = database(
        "record(longout, \"first\") { field(PINI, YES) field(VAL, 7) field(OUT, \"ii PP\") }
         record(longin, \"ii\") { field(SCAN, \"I/O Intr\") }",
    );
    assert_eq!(["ii.SCAN", "ii", "ii.STAT"].map(|name| text(&mut db, name)), ["Passive", "7", "NO_ALARM"]);
    let told = db.take_notices().into_iter().filter(|notice| notice.0.contains("I/O Intr")).count();
    assert_eq!(told, 1, "reported once");
}

#[test]
fn arrays_of_different_lengths_are_averaged_by_element_and_the_last_one_s_length_counts() {
    for link in ["w", "w CA"] {
        let mut db = database(&format!(
            "record(waveform, \"w\") {{ field(FTVL, DOUBLE) field(NELM, 5) }}
             record(compress, \"c\") {{ field(ALG, \"Average\") field(N, 2) field(NSAM, 5) field(INP, \"{link}\") }}"
        ));
        let averaged = |db: &mut Db, arrays: [&str; 2]| {
            for array in arrays {
                put(db, "w", array);
                put(db, "c.PROC", "1");
            }
            let channel = db.find("c").unwrap();
            let value = db.get(&channel, usize::MAX);
            let used = text(db, "c.NUSE").parse::<usize>().unwrap();
            put(db, "c.RES", "1");
            (0..used).map(|at| value.get(at).unwrap().to_f64().unwrap()).collect::<Vec<f64>>()
        };
        assert_eq!(averaged(&mut db, ["[2, 4, 6]", "[4, 4, 4, 8, 10]"]), [3.0, 4.0, 5.0, 4.0, 5.0], "{link}");
        assert_eq!(averaged(&mut db, ["[2, 4, 6, 8]", "[4, 4]"]), [3.0, 4.0], "{link}");
    }
}

#[test]
fn the_previous_value_of_calcout_stays_zero_when_the_result_is_minus_zero() {
    let mut db = database("record(calcout, \"c\") { field(CALC, \"A\") }");
    put(&mut db, "c.A", "-0.0");
    put(&mut db, "c.PROC", "1");
    let povl = db.find("c.POVL").unwrap();
    let povl = db.get(&povl, 1).get(0).unwrap().to_f64().unwrap();
    assert!(povl == 0.0 && povl.is_sign_positive(), "{povl:?}");
}

#[test]
fn soft_timestamp_without_a_format_keeps_its_text() {
    let mut db = database("record(stringin, \"t\") { field(DTYP, \"Soft Timestamp\") field(VAL, \"before\") }");
    put(&mut db, "t.PROC", "1");
    assert_eq!(["t", "t.UDF"].map(|name| text(&mut db, name)), ["before", "0"]);
}

#[test]
fn bytes_that_are_not_utf_8_are_kept_in_fields_as_in_the_file() {
    let file = base::raw::decode(
        b"record(ai, \"t\") { field(EGU, \"m\xb2/s\") field(DESC, \"01234567890123456789012345678901234567\xb0\xb0\") info(note, \"\xb5\") }
          record(stringin, \"s\") { field(INP, {const: \"\xb0C\"}) }
          record(bi, \"b\") { field(ZNAM, \"z\xfc\") }
          record(lsi, \"l\") { field(INP, [\"\xe4\"]) }
          record(waveform, \"w\") { field(FTVL, CHAR) field(NELM, 9) field(INP, [\"\xe4\"]) }
          record(stringout, \"o\") { field(OUT, \"\xe4 PP\") }",
    )
    .into_owned();
    let mut db = database(&file);
    let mut bytes = |name: &str| {
        let channel = db.find(name).unwrap();
        db.get_long_text(&channel)
    };
    assert_eq!(bytes("t.EGU"), b"m\xb2/s");
    assert_eq!(bytes("t.DESC").len(), 40, "as many bytes as the file has");
    assert_eq!([bytes("s"), bytes("b.ZNAM"), bytes("l")], [b"\xb0C".to_vec(), b"z\xfc".to_vec(), b"\xe4".to_vec()]);
    assert_eq!(bytes("o.OUT")[..4], *b"\xe4 PP");
    put(&mut db, "s", &base::raw::decode(b"5 \xb5m"));
    let s = db.find("s").unwrap();
    assert_eq!(db.get_text(&s).bytes(), b"5 \xb5m");
    let units = db.meta(&db.find("t").unwrap()).units;
    assert_eq!((units.bytes(), &*units.readable(), units.to_string().as_str()), (&b"m\xb2/s"[..], "m²/s", "m²/s"));
}

#[test]
fn a_second_definition_of_a_record_is_refused_only_with_db_records_once_only() {
    let mut db = database("record(ao, \"a\") { field(PREC, 1) }");
    let load = |db: &mut Db, text: &str| db.load_records(text, "more.db", &Macros::default(), &mut |_| None);
    load(&mut db, "record(ao, \"a\") { field(PREC, 2) }").unwrap();
    db.set_once_only(true);
    let refused = load(&mut db, "record(ao, \"a\") { field(PREC, 3) }").unwrap_err().to_string();
    assert!(refused.contains("record \"a\" is defined already, and dbRecordsOnceOnly is set"), "{refused}");
    assert_eq!(text(&mut db, "a.PREC"), "2");
    load(&mut db, "record(\"*\", \"a\") { field(PREC, 4) } record(ao, \"b\") {}").unwrap();
    assert_eq!(text(&mut db, "a.PREC"), "4");
}

#[test]
fn a_list_with_a_text_or_a_truth_value_is_refused_by_an_array_of_numbers() {
    let mut db = database(
        "record(waveform, \"n\") { field(FTVL, LONG) field(NELM, 3) }
         record(waveform, \"s\") { field(FTVL, STRING) field(NELM, 3) }
         record(ao, \"a\") {}",
    );
    let mut takes = |name: &str, list: &str| {
        let channel = db.find(name).unwrap();
        db.put_text(&channel, list, NOW).is_ok()
    };
    assert!(takes("n", "[1, 2]") && takes("n", "[1.5]") && takes("s", "[1, \"2\"]"));
    for (name, list) in
        [("n", "[1, \"2\"]"), ("n", "[1, true]"), ("n", "[1, 2, 3, \"4\"]"), ("s", "[true]"), ("a", "[1, \"2\"]")]
    {
        assert!(!takes(name, list), "{name} {list}");
    }
}

#[test]
fn elements_written_to_a_text_accessed_as_characters_are_characters() {
    let mut db = database(
        "record(stringout, \"so\") {} record(lso, \"lso\") { field(SIZV, 100) }
         record(ao, \"ao\") { field(DESC, \"d\") field(OUT, \"so.VAL\") }",
    );
    let string = |text: &str| Value::Scalar(Scalar::String(Str40::new(text.as_bytes())));
    let cases = [
        ("so.VAL$", string("66"), "B"),
        ("so.VAL$", string("12 volts"), "12 volts"),
        ("so.VAL$", Value::from(vec![67.6, 68.0, 69.0]), "CDE"),
        ("lso.VAL$", Value::Scalar(Scalar::I8(0)), ""),
        ("lso.VAL$", Value::Scalar(Scalar::U8(67)), "C"),
        ("ao.DESC$", Value::from(vec![72i8, 105, 0]), "Hi"),
        ("ao.DESC$", Value::Scalar(Scalar::I8(0)), ""),
        ("ao.OUT$", Value::Scalar(Scalar::I8(0)), ""),
        // Not accessed as characters.
        ("lso.VAL", Value::Scalar(Scalar::U8(0)), "0"),
        ("lso.VAL", string("66"), "66"),
    ];
    for (name, value, expected) in cases {
        let channel = db.find(name).unwrap();
        db.put(&channel, &value, NOW).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(text(&mut db, name.trim_end_matches('$')), expected, "{name}, {value:?}");
    }
}
