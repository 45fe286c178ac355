//! Line protocols: output, input and errors.

use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use fieldbus::stream::{
    Field, File, Kind, Protocol, RunInputs, RunOutputs, Session, State, Takes, Trouble, Value, Zone,
};
use proptest::prelude::*;
use std::sync::Arc;

fn protocol(text: &str, name: &str, arguments: &[&str]) -> Protocol {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    File::parse(text.as_bytes(), "test.proto").unwrap().protocol(name, &arguments).unwrap()
}

fn number(value: f64) -> RunInputs {
    RunInputs { value: Some(base::Value::from(value)), raw: Some(value as i64), ..RunInputs::default() }
}

/// Runs a protocol against a device whose answers arrive in pieces. Returns the sent bytes, and the values or the
/// error.
fn run(protocol: Protocol, given: RunInputs, answers: &[&[u8]]) -> (Vec<u8>, Result<Vec<Value>, Trouble>) {
    let (sent, session) = run_session(protocol, given, answers);
    let result = session.result().expect("the session ends");
    (sent, result.map(|taken| taken.values.clone()).map_err(Clone::clone))
}

fn run_session(protocol: Protocol, given: RunInputs, answers: &[&[u8]]) -> (Vec<u8>, Session) {
    let mut session = Session::new(Arc::new(protocol), given);
    let (mut sent, mut now) = (Vec::new(), MonoNs(0));
    let mut answers = answers.iter();
    for _ in 0..10_000 {
        session.poll_transmit(now, &mut sent);
        if session.is_over() {
            break;
        }
        match answers.next() {
            Some(bytes) => session.handle_bytes(now, bytes),
            None => {
                now = session.poll_timeout().expect("it waits until a time");
                session.handle_timeout(now);
            }
        }
    }
    (sent, session)
}

/// The values in one line, in this format.
fn read(format: &str, line: &[u8]) -> Option<Vec<Value>> {
    let text = format!("Separator = \",\"; Terminator = LF; p {{ in {format}; }}");
    let array = RunInputs { takes: Takes::Many(10), ..RunInputs::default() };
    protocol(&text, "p", &[]).unasked(line, &array).map(|taken| taken.values)
}

/// A number in this format.
fn write(format: &str, value: f64) -> Vec<u8> {
    run(protocol(&format!("p {{ out {format}; }}"), "p", &[]), number(value), &[]).0
}

const SUPPLY: &str = r#"
    # A power supply.
    Terminator = CR LF;
    ReplyTimeout = 500;
    unit = "A";
    get { out "CURR\$1?"; in "CURR\$1 %f " $unit; }
    set { out "CURR\$1 %.3f"; in "OK"; @mismatch { in "ERR %*d"; out "CLEAR"; } }
    slow { get; ReplyTimeout = 2000; }
    ask { out "?"; wait 100; in "%d"; in "%s"; }
"#;

#[test]
fn a_value_is_requested_and_read_from_pieces() {
    let (sent, values) = run(protocol(SUPPLY, "get", &["2"]), RunInputs::default(), &[b"CURR2 ", b"1.5 A\r", b"\n"]);
    assert_eq!((sent, values), (b"CURR2?\r\n".to_vec(), Ok(vec![Value::Float(1.5)])));
}

#[test]
fn a_value_is_written_and_confirmed() {
    let (sent, values) = run(protocol(SUPPLY, "set", &["1"]), number(2.5), &[b"OK\r\n"]);
    assert_eq!((sent, values), (b"CURR1 2.500\r\n".to_vec(), Ok(vec![])));
}

#[test]
fn a_mismatch_handler_runs_and_the_run_still_fails() {
    let (sent, result) = run(protocol(SUPPLY, "set", &["1"]), number(1.0), &[b"ERR 17\r\n"]);
    assert_eq!(sent, b"CURR1 1.000\r\nCLEAR\r\n");
    assert_eq!(result.unwrap_err().to_string(), "the reply \"ERR 17\" does not fit the protocol");
}

#[test]
fn an_overridden_handler_needs_no_arguments() {
    let text = "Terminator = LF; @mismatch { out \"BAD\\$1\"; }
        @readtimeout { out \"LATE\\$2\"; }
        quiet { out \"?\"; in \"%d\"; @mismatch {} @readtimeout { out \"\\$3\"; } @readtimeout {} }
        loud { out \"?\"; in \"%d\"; @readtimeout {} }";
    let (sent, result) = run(protocol(text, "quiet", &[]), RunInputs::default(), &[b"x\n"]);
    assert_eq!((sent, result), (b"?\n".to_vec(), Err(Trouble::Mismatch(b"x".to_vec()))));
    assert_eq!(run(protocol(text, "loud", &["7"]), RunInputs::default(), &[b"x\n"]).0, b"?\nBAD7\n");
    let missing = File::parse(text.as_bytes(), "test.proto").unwrap().protocol("loud", &[]);
    assert!(missing.is_err(), "the file's handler applies here");
}

#[test]
fn silence_and_half_a_line_are_distinguished() {
    let asked = |answers: &[&[u8]]| run(protocol(SUPPLY, "slow", &["1"]), RunInputs::default(), answers).1;
    assert_eq!(asked(&[]), Err(Trouble::NoReply(DurNs::from_secs(2))));
    assert_eq!(asked(&[b"CURR1 1."]), Err(Trouble::Unfinished(b"CURR1 1.".to_vec())));
    // Without a terminator, the line ends when no further byte arrives.
    let bare = "p { in \"%d\"; ReadTimeout = 20; }";
    assert_eq!(run(protocol(bare, "p", &[]), RunInputs::default(), &[b"1", b"2"]).1, Ok(vec![Value::Int(12)]));
    let bounded = "p { in \"%d\"; MaxInput = 2; in \"%s\"; }";
    let expected = vec![Value::Int(12), Value::Text(b"34".to_vec())];
    assert_eq!(run(protocol(bounded, "p", &[]), RunInputs::default(), &[b"1234"]).1, Ok(expected));
}

#[test]
fn lines_that_arrive_during_a_wait_are_kept() {
    let (_, values) = run(protocol(SUPPLY, "ask", &[]), RunInputs::default(), &[b"42\r\nready\r\n"]);
    assert_eq!(values, Ok(vec![Value::Int(42), Value::Text(b"ready".to_vec())]));
}

#[test]
fn numbers_are_read_by_their_conversions() {
    let int = |value| Some(vec![Value::Int(value)]);
    assert_eq!(read("\"%d\"", b" -17"), int(-17));
    assert_eq!(read("\"%x\"", b"0xFF"), int(255));
    assert_eq!(read("\"%i\"", b"017"), int(15));
    assert_eq!(read("\"%2d%*d\"", b"1234"), int(12));
    assert_eq!(read("\"%b\"", b"1010"), int(10));
    assert_eq!(read("\"%2r\"", &[0xff, 0xfe]), int(-2));
    assert_eq!(read("\"%02r\"", &[0xff, 0xfe]), int(0xfffe));
    assert_eq!(read("\"%#2r\"", &[1, 2]), int(0x201));
    assert_eq!(read("\"%f\"", b"-1.5e3"), Some(vec![Value::Float(-1500.0)]));
    assert_eq!(read("\"%?d\"", b""), int(0));
    assert_eq!(
        (read("\"%d\"", b"x"), read("\"%d\"", b"5x"), read("\"%d\"", b"99999999999999999999")),
        (None, None, None)
    );
    assert_eq!(read("\"%d\"; ExtraInput = Ignore", b"5x"), int(5));
}

#[test]
fn texts_sets_states_and_wild_cards_are_read() {
    let text = |text: &str| Some(vec![Value::Text(text.into())]);
    assert_eq!(read("\"%s on\"", b"beam on"), text("beam"));
    assert_eq!(read("\"%4c\"", b"a b "), text("a b "));
    assert_eq!(read("\"<%[^>]>\"", b"<a b>"), text("a b"));
    assert_eq!(read("\"%[A-F0-9]\"", b"BEEF1"), text("BEEF1"));
    assert_eq!(read("\"%{OFF|ON}\"", b"ON"), Some(vec![Value::Enum(1)]));
    assert_eq!(read("\"%#{idle=-1|busy=4|done}\"", b"done"), Some(vec![Value::Enum(5)]));
    assert_eq!(read("STX \"\\_x\\?\" ? ETX", b"\x02  \tx12\x03"), Some(vec![]));
    assert_eq!(read("\"%d\"", b"1,2,3"), Some([1, 2, 3].map(Value::Int).to_vec()));
}

#[test]
fn texts_may_be_shorter_than_their_width_and_empty() {
    let text = |text: &str| Some(vec![Value::Text(text.into())]);
    assert_eq!(read("\"%39c\"", b"ACME PS-100"), text("ACME PS-100"));
    assert_eq!(read("\"<%s>\"; ExtraInput = Ignore", b"<"), None);
    assert_eq!(read("\"%*d %s\"", b"0"), None);
    assert_eq!(read("\"%*d\\_%s\"", b"0"), text(""));
    assert_eq!(read("\"%#s\"", b" no error "), text("no error "));
    assert_eq!(read("\"<%[^>]>\"", b"<>"), text(""));
}

#[test]
fn elements_of_an_array_need_no_separator_and_a_single_value_uses_none() {
    let array = RunInputs { takes: Takes::Many(3), ..RunInputs::default() };
    let taken = |given: &RunInputs, text: &str, line: &[u8]| {
        protocol(text, "p", &[]).unasked(line, given).map(|taken| taken.values)
    };
    let ints = |values: &[i64]| Some(values.iter().copied().map(Value::Int).collect::<Vec<_>>());
    assert_eq!(taken(&array, "p { in \"%2x\"; }", b"0aff10"), ints(&[10, 255, 16]));
    assert_eq!(taken(&array, "p { in \"%d\"; }", b"1 2 3 4"), None, "no space for the fourth value");
    assert_eq!(taken(&array, "Separator = \" \"; p { in \"%d\"; }", b"1\t 2"), ints(&[1, 2]));
    let single = "Separator = \",\"; p { in \"%d,%*d\"; }";
    assert_eq!(taken(&RunInputs::default(), single, b"1,2"), ints(&[1]));
    let characters = RunInputs { takes: Takes::Characters(10), ..RunInputs::default() };
    let text = Some(vec![Value::Text(b"a,b".to_vec())]);
    assert_eq!(taken(&characters, "Separator = \",\"; p { in \"%s\"; }", b"a,b"), text);
}

#[test]
fn raw_floats_packed_digits_and_bits_are_read_and_written() {
    assert_eq!(
        read("\"%R%#R\"", &[0x3f, 0xc0, 0, 0, 0, 0, 0x20, 0xc0]),
        Some(vec![Value::Float(1.5), Value::Float(-2.5)])
    );
    assert_eq!(read("\"%8R\"", &1.1f64.to_be_bytes()), Some(vec![Value::Float(1.1)]));
    assert_eq!(read("\"%2D\"", &[0x12, 0x34]), Some(vec![Value::Int(1234)]));
    assert_eq!(read("\"%#2D\"", &[0x12, 0x34]), Some(vec![Value::Int(3412)]));
    assert_eq!(read("\"%+2D\"", &[0xf2, 0x34]), Some(vec![Value::Int(-234)]));
    assert_eq!(read("\"%B.!\"", b"!.!!"), Some(vec![Value::Int(11)]));
    assert_eq!(read("\"%#b\"", b"0011"), Some(vec![Value::Int(12)]));
    assert_eq!(write("\"%8R\"", -2.5), (-2.5f64).to_be_bytes());
    assert_eq!(write("\"%.4D\"", 1234.0), [0x12, 0x34]);
    assert_eq!(write("\"%+#.3D\"", -234.0), [0x34, 0xf2]);
    assert_eq!(write("\"%.4B.!|%06b|%#.3b\"", 5.0), b".!.!|000101|101");
    assert_eq!(write("\"%04X\"", 74565.0), b"2345", "as many digits as fit");
    assert_eq!(write("\"%#{idle=-1|fast=10|else=?}\"", 7.0), b"else");
}

#[test]
fn names_ignore_case_and_the_last_semicolon_is_optional() {
    let text =
        "TERMINATOR = lf; Unit = 'mA'; Get { Out \"I\" $UNIT \"?\"; IN \"%f\" $unit; @MisMatch { OUT 'reset' } }";
    assert_eq!(run(protocol(text, "get", &[]), RunInputs::default(), &[b"1.5mA\n"]).0, b"ImA?\n");
    assert_eq!(run(protocol(text, "GET", &[]), RunInputs::default(), &[b"1.5A\n"]).0, b"ImA?\nreset\n");
}

#[test]
fn settings_outside_of_protocols_apply_to_the_following_protocols() {
    let text = "Terminator = LF; a { out 'a'; } Terminator = CR; @mismatch { out 'm'; } b { a; in 'x'; }
        c { Terminator = ';'; @mismatch { } out 'c'; } d { c; in 'x'; }";
    let sent = |name: &str, answer: &[u8]| run(protocol(text, name, &[]), RunInputs::default(), &[answer]).0;
    assert_eq!(sent("a", b""), b"a\n");
    assert_eq!(sent("b", b"y\r"), b"a\rm\r", "only the commands of a referenced protocol apply");
    assert_eq!(sent("c", b""), b"c;");
    assert_eq!(sent("d", b"y\r"), b"c\rm\r");
}

#[test]
fn an_echo_is_compared_with_the_written_value() {
    let text = "Terminator = LF; p { out \"SET %.2f\"; in \"SET %=.2f\"; }";
    let run = |answer: &[u8]| run(protocol(text, "p", &[]), number(1.5), &[answer]).1;
    assert_eq!(run(b"SET 1.50\n"), Ok(vec![]));
    assert_eq!(run(b"SET 1.5\n"), Err(Trouble::Mismatch(b"SET 1.5".to_vec())));
}

#[test]
fn states_are_converted_by_number_and_by_name() {
    let state = |name: Option<&str>| RunInputs {
        value: Some(base::Value::Scalar(base::Scalar::U16(1))),
        raw: Some(8),
        state: Some(State { number: 1, name: name.map(|name| name.into()) }),
        ..RunInputs::default()
    };
    let states = || protocol("p { out \"%s %{off|on} %d\"; }", "p", &[]);
    assert_eq!(run(states(), state(Some("running")), &[]).0, b"running on 8");
    assert_eq!(run(states(), state(None), &[]).1, Err(Trouble::Output));
}

#[test]
fn values_are_read_from_and_written_to_the_fields_named_in_a_protocol() {
    let text = "Terminator = LF; Separator = \",\";
        p { out \"%(\\$1:LIMIT)d %(EGU)s %f\"; in \"%f;%(\\$1:B.VAL)f;%(\\$1:W)d\"; @mismatch { in \"ERR %(MSG)s\"; } }";
    let asked = protocol(text, "p", &["X"]);
    let names = [
        ("X:LIMIT", Kind::Int),
        ("EGU", Kind::Text),
        ("X:B.VAL", Kind::Float),
        ("X:W", Kind::Int),
        ("MSG", Kind::Text),
    ];
    assert_eq!(asked.fields(), names);
    assert!(asked.says_own_value() && asked.takes_own_value());
    let field = |(name, kind): (&str, Kind)| Field {
        name: name.to_owned(),
        kind,
        value: match name {
            "X:LIMIT" => Some(base::Value::Scalar(base::Scalar::I64(7))),
            "EGU" => Some(base::Value::from("mm")),
            _ => None,
        },
        takes: if name == "X:W" { Takes::Many(9) } else { Takes::One },
    };
    let given = RunInputs { fields: names.map(field).to_vec(), ..number(1.0) };
    let (sent, session) = run_session(asked.clone(), given.clone(), &[b"1.5;2.5;1,2,3\n"]);
    assert_eq!(sent, b"7 mm 1.000000\n");
    let fields =
        vec![("X:B.VAL".to_owned(), vec![Value::Float(2.5)]), ("X:W".to_owned(), [1, 2, 3].map(Value::Int).to_vec())];
    assert_eq!(session.result(), Some(Ok(&RunOutputs { values: vec![Value::Float(1.5)], fields })));
    let (_, session) = run_session(asked, given, &[b"ERR 5\n"]);
    assert!(matches!(session.result(), Some(Err(Trouble::Mismatch(_)))));
    assert_eq!(session.fields(), [("MSG".to_owned(), vec![Value::Text(b"5".to_vec())])]);
}

#[test]
fn values_are_written_as_printf_does_it() {
    assert_eq!(write("\"%08.3f|%d|%04X\" CR", 26.0), b"0026.000|26|001A\r");
    assert_eq!(write("\"%{OFF|ON} 100%%\"", 1.0), b"ON 100%");
    assert_eq!(write("\"%2r%#2r\"", 258.0), [0, 2, 2, 0]);
    assert_eq!(write("\"%.2r\"", 258.0), [1, 2]);
    assert_eq!(write("\"%.4b\"", 5.0), b"0101");
    let wave = RunInputs { value: Some(base::Value::Array(base::Array::I16(vec![1, -2, 3]))), ..RunInputs::default() };
    let waves = protocol("Separator = \", \"; p { out \"W %d;\"; }", "p", &[]);
    assert_eq!(run(waves, wave, &[]).0, b"W 1, -2, 3;");
    let none = protocol("p { out \"%{OFF|ON}\"; }", "p", &[]);
    assert_eq!(run(none, number(7.0), &[]).1, Err(Trouble::Output));
}

#[test]
fn checksums_are_written_and_checked() {
    assert_eq!(write("\"1234%0<sum>\"", 0.0), b"1234CA");
    assert_eq!(write("STX \"12\" ETX \"%1<xor>\"", 0.0), b"\x0212\x03\x00");
    assert_eq!(write("\"123456789%<crc16r>%*d\"", 0.0), b"123456789\xbb\x3d");
    assert_eq!(read("\"%d;%0<sum>\"", b"1;6C"), Some(vec![Value::Int(1)]));
    assert_eq!(read("\"%d;%0<sum>\"", b"1;6D"), None);
}

#[test]
fn mistakes_in_a_protocol_file_are_reported_with_their_line() {
    let error = |text: &str| match File::parse(text.as_bytes(), "x.proto") {
        Err(error) => error.to_string(),
        Ok(file) => file.protocol("p", &[]).unwrap_err().to_string(),
    };
    assert_eq!(error("p {\n out \"%y\";\n}"), "x.proto:2:2: unknown conversion %y");
    assert_eq!(error("p { out \"x }"), "x.proto:1:9: a quote \" that is not closed");
    assert_eq!(error("p { out \"\\$1\"; }"), "x.proto:1:9: argument $1 is used, but was not given");
    assert_eq!(error("p { out $x; }"), "x.proto:1:9: variable $x is used, but not set");
    assert_eq!(error("\np { q; }"), "x.proto:2:5: no protocol or command \"q\"; protocols are p");
    assert_eq!(error("p { p; }"), "x.proto:1:5: protocols refer to each other more than 16 deep");
    assert_eq!(error("q {}"), "x.proto:1:1: no protocol or command \"p\"; protocols are q");
    assert_eq!(error("p { in FOO; }").split(';').next(), Some("x.proto:1:8: \"foo\""));
    assert_eq!(error("ReplyTimeout = soon; p {}"), "x.proto:1:16: ReplyTimeout = soon; expected a whole number");
    assert!(error("p { event(5) 100; }").starts_with("x.proto:1:5: command event: "));
    assert_eq!(error("p { out \"%(A.B\"; }"), "x.proto:1:5: %( that is not closed");
    assert_eq!(error("p { out \"%()d\"; }"), "x.proto:1:5: %() without a name; expected a field or a record");
    assert_eq!(error("p { @x {} }").split(';').next(), Some("x.proto:1:5: @x"));
    assert!(error("p { out \"%<sha>\"; }").contains("expected one of sum "));
}

/// The output of a protocol with these arguments for the number 1.
fn sent(text: &str, arguments: &[&str]) -> Vec<u8> {
    run(protocol(text, "p", arguments), number(1.0), &[]).0
}

#[test]
fn arguments_outside_of_quotes_are_bytes_or_their_names() {
    assert_eq!(sent("p { out 0x02 0x00 $1; }", &["0x41"]), [2, 0, 0x41]);
    assert_eq!(sent("p { out 0x8$1; }", &["1"]), [0x81]);
    assert_eq!(sent("p { out $1; }", &["ACK"]), [6]);
    assert_eq!(sent("p { out $1 $2, \"\\$1\"; }", &["65", "'x' CR"]), b"Ax\r65");
    assert_eq!(sent("p { out $12 \"\\$12\"; }", &["65"]), b"A\x02652", "an argument's number has one digit");
    assert_eq!(sent("x = $1 'b'; p { out $x; }", &["0x41"]), b"Ab");
    assert_eq!(sent("p { out 010 -1 +5 0x0a; }", &[]), [8, 255, 5, 10]);
    let file = File::parse(b"p { out $1; }", "x").unwrap();
    assert_eq!(
        file.protocol("p", &["T1".to_owned()]).unwrap_err().to_string(),
        "x:1:9: $1 is \"t1\"; expected a quoted text, a number from -128 to 255, or a name such as CR; \
         write \"\\$1\" for \"T1\" as a text"
    );
}

#[test]
fn variables_apply_to_a_whole_protocol_and_keep_their_quotes_within_quotes() {
    assert_eq!(sent("p { x = 'A'; out $x; x = 'B'; out $x; }", &[]), b"BB");
    assert_eq!(sent("x = \"A\" cr; p { out $x \"\\$x\"; }", &[]), b"A\r\"A\" cr");
    assert_eq!(sent("a = 'x'; b = $a '1'; a = 'y'; p { out $b $a; }", &[]), b"x1y");
    assert_eq!(
        sent("q { out $x; x = '1'; }; p { x = '2'; q; };", &[]),
        b"2",
        "only the commands of a referenced protocol apply"
    );
    assert_eq!(sent("on = true; p { out '%{off|\\${on}}'; }", &[]), b"true");
}

#[test]
fn escapes_work_within_conversions() {
    let text = |text: &str| Some(vec![Value::Text(text.into())]);
    assert_eq!(read("\"%[^\\r\\n]\"", b"abrn"), text("abrn"));
    assert_eq!(read("\"%[a-c\\x41\\]]\"", b"abA]"), text("abA]"));
    assert_eq!(read("\"%{a\\x41|b\\||c}\"", b"b|"), Some(vec![Value::Enum(1)]));
    assert_eq!(read("\"%{a\\?c|b}\"", b"axc"), Some(vec![Value::Enum(0)]));
    assert_eq!(write("\"%#{A=1|B\\|x|C\\=3|D}\"", 3.0), b"C=3");
    assert_eq!(write("\"\\x41\\0101\\65%%\\%\"", 0.0), b"AAA%%");
    let text = "p { out \"\\400\"; }";
    assert!(File::parse(text.as_bytes(), "x").unwrap().protocol("p", &[]).unwrap_err().to_string().contains("\\400"));
}

#[test]
fn bytes_that_are_not_utf_8_are_kept() {
    let file = File::parse(b"# 20 \xb0C\np { out '\xb5A' ; }", "x").unwrap();
    let protocol = file.protocol("p", &[]).unwrap();
    assert_eq!(run(protocol, number(1.0), &[]).0, b"\xb5A");
}

/// The expected values were measured with StreamDevice on its own test device.
#[test]
fn numbers_are_read_as_streamdevice_reads_them() {
    let cases: &[(&str, &[u8], Option<Value>)] = &[
        ("%f", b"- 1.5", None),
        ("%#f", b"- 1.5", Some(Value::Float(-1.5))),
        ("%f", b"0x1F", Some(Value::Float(31.0))),
        ("%f", b".5", Some(Value::Float(0.5))),
        ("%5f%*f", b"  1.23456", Some(Value::Float(1.234))),
        ("%u", b"-7", None),
        ("%x", b"-7", None),
        ("%-x", b"-7", Some(Value::Int(-7))),
        ("%i", b"-017", Some(Value::Int(-15))),
        ("%4d%*d", b"  12345678", Some(Value::Int(1234))),
        ("% 4d%*d", b"  12345678", Some(Value::Int(12))),
        ("%m", b"+00011-01", Some(Value::Float(1.1))),
        ("%m", b"123", None),
        ("%4b%*b", b"10110101", Some(Value::Int(11))),
        ("%10r", b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0b", Some(Value::Int(0x0304_0506_0708_090b))),
        ("% s", b"  abc", Some(Value::Text(b"  abc".to_vec()))),
        ("%*s %f", b"V 7", Some(Value::Float(7.0))),
    ];
    for (format, line, expected) in cases {
        let found = read(&format!("\"{format}\""), line);
        assert_eq!(found, expected.clone().map(|value| vec![value]), "{format} {}", line.escape_ascii());
    }
}

#[test]
fn values_are_written_as_streamdevice_writes_them() {
    let cases: &[(&str, f64, &[u8])] = &[
        ("%b", -5.0, b"11111111111111111111111111111011"),
        ("%#08b", 5.0, b"     101"),
        ("%-#08b", 5.0, b"10100000"),
        ("%.4D", -5.0, b"\x72\x91"),
        ("%m", 123.456, b"123456-03"),
        ("%+.4m", 123.456, b"+1235-01"),
        ("%x", -2.0, b"fffffffe"),
        ("%5c|", 65.0, b"    A|"),
    ];
    for (format, value, expected) in cases {
        let found = write(&format!("\"{format}\""), *value);
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{format} {value}");
    }
    let text = |format: &str| {
        let given = RunInputs { value: Some("hello".into()), ..RunInputs::default() };
        run(protocol(&format!("p {{ out \"{format}\"; }}"), "p", &[]), given, &[]).0
    };
    assert_eq!(text("%010s|%-10s|%08.2s"), b"\0\0\0\0\0hello|hello     |\0\0\0\0\0\0he");
}

#[test]
fn checksums_have_streamdevices_names_and_forms() {
    let cases: &[(&str, &[u8])] = &[
        ("%<~sum>", b"\x22"),
        ("%0<notsum>", b"22"),
        ("%0<nsum>", b"23"),
        ("%0<-sum16>", b"FE23"),
        ("%0<negsum1>", b"FE23"),
        ("%#0<crc16>", b"E8FE"),
        ("%0<ccitt8>", b"A1"),
        ("%0<ccitt16a>", b"E5CC"),
        ("%0<jamcrc>", b"340BC6D9"),
        ("%0<hexsum8>", b"2D"),
        ("%<cpi>", b"\x7e"),
        ("%0<leybold>", b"22"),
        ("%0<brksCryo>", b"4A"),
        ("%0<LRC>", b"23"),
        ("%0<hexlrc>", b"A7"),
        ("%0<bitsum16>", b"0021"),
        ("%0<hv_mps>", b"63"),
        ("%0<xor8ff>", b"CE"),
        ("%-<notsum>", b"22"),
        ("%-<nsum>", b"23"),
        ("%+<sum>", b"221"),
        ("%+<sum16>", b"00477"),
    ];
    for (format, expected) in cases {
        let message = [b"123456789", *expected].concat();
        let found = write(&format!("\"123456789{format}\""), 0.0);
        assert_eq!(found.escape_ascii().to_string(), message.escape_ascii().to_string(), "{format}");
        assert_eq!(read(&format!("\"123456789{format}\""), &message), Some(vec![]), "{format} is recognised");
    }
}

#[test]
fn expressions_find_and_replace() {
    let text = |text: &str| Some(vec![Value::Text(text.into())]);
    let found = |format: &str, line: &[u8]| read(&format!("\"{format}\"; ExtraInput = Ignore"), line);
    assert_eq!(found("%/[a-c]+/", b"xxabcxx"), text("abc"));
    assert_eq!(found("%.1/<t>(.*)<\\/t>/", b"xx<t>foo</t>yy"), text("foo"));
    assert_eq!(found("%/(?i)ok\\b/", b"not OK"), None, "\\b is a byte, as everywhere in quotes");
    assert_eq!(read("\"%*/.*: /%d\"", b"volts: 5"), Some(vec![Value::Int(5)]));
    assert_eq!(read("\"%#/b/X/%s\"", b"abcabc"), text("aXcaXc"));
    assert_eq!(read("\"%#+.2/b/X/%s\"", b"bab"), text("XaX"));
    assert_eq!(read("\"%#.2/b/X/%s\"", b"babb"), text("baXb"));
    assert_eq!(read("\"%#/(a)(b)/\\2\\1/%s\"", b"abab"), text("baba"));
    assert_eq!(read("\"%#/.../\\u0/%s\"", b"abcdef"), text("AbcDef"));
    assert_eq!(read("\"%#/b/XX/%s;%0<sum>\"; ExtraInput = Ignore", b"ab;FE"), None);
    assert_eq!(read("\"%#/b/XX/%[a-zX];%0<sum>\"", b"ab;FE"), text("aXX"), "a checksum covers the received bytes");
    let said = |format: &str, value: &str| {
        let given = RunInputs { value: Some(value.into()), ..RunInputs::default() };
        run(protocol(&format!("p {{ out \"{format}\"; }}"), "p", &[]), given, &[]).0
    };
    assert_eq!(said("%s%#/[aeiou]/<&>/", "hello world"), b"h<e>ll<o> w<o>rld");
    assert_eq!(said("%s%#-2/.*/\\U0/", "hello"), b"helLO");
    let wrong = File::parse(b"p { in \"%.3/(a)/\"; }", "x").unwrap().protocol("p", &[]);
    assert_eq!(wrong.unwrap_err().to_string(), "x:1:5: %.3/(a)/; the expression has 1 pairs of brackets");
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in "([a-z]{1,4}|[ {};=\"%$@\\\\#?0-9.<>\\[\\]|*()-]|in |out |\"%[0-9.#*]{0,3}[a-zA-Z\\[{<]){0,60}") {
        if let Ok(file) = File::parse(text.as_bytes(), "x") {
            for name in ["p", "in", "a"] {
                let _ = file.protocol(name, &[]);
            }
        }
    }

    #[test]
    fn no_bytes_panic_a_session(bytes in prop::collection::vec(any::<u8>(), 0..300), which in 0usize..6) {
        let formats = ["\"%d %f %s\"", "\"%[^;];%{a|b|}%b\"", "\"%3c%2r%#4r\"", "\"%x%1.1<sum16>%0<crc32>\"", "\"%i\\_%o\"; Separator = \"\\_\"", "\"%?f%!4d%*5s\""];
        let text = format!("Terminator = LF; p {{ out \"x\"; in {}; in \"%s\"; @mismatch {{ in \"%*c\"; }} }}", formats[which]);
        let (_, _) = run(protocol(&text, "p", &[]), RunInputs::default(), &[&bytes]);
    }

    #[test]
    fn numbers_survive_a_round_trip(value in -1e9f64..1e9) {
        let text = String::from_utf8(write("\"%.9g\"", value)).unwrap();
        let Some(read) = read("\"%f\"", text.as_bytes()) else { panic!("{text}") };
        let [Value::Float(read)] = read[..] else { panic!("{read:?}") };
        prop_assert!((read - value).abs() <= value.abs() * 1e-8);
    }
}

#[test]
fn times_are_written_and_read_by_formats_of_strftime() {
    // `date` prints 2010-09-03 13:45:59 UTC for it.
    let secs = 1_283_521_559.25;
    for (format, line) in [
        (r#""%T(%Y-%m-%d %H:%M:%.3S)""#, "2010-09-03 13:45:59.250"),
        (r#""%T(%e %b %Y %H:%M:%.2S %z)""#, " 3 Sep 2010 13:45:59.25 +0000"),
        (r#""%T(%A %d %B %y %I:%M:%S %p %3f)""#, "Friday 03 September 10 01:45:59 PM 250"),
        (r#""%T(%F %+0200 %H:%M:%S.%N)""#, "2010-09-03  15:45:59.250000000"),
        (r#""%T(%s.%02f)""#, "1283521559.25"),
        (r#""at %T(%c %f), %%""#, "at Fri Sep  3 13:45:59 2010 250000, %"),
    ] {
        assert_eq!(String::from_utf8_lossy(&write(format, secs)), line, "{format}");
        assert_eq!(read(format, line.as_bytes()), Some(vec![Value::Float(secs)]), "{format}");
    }
    // Forms that are only accepted on input, and errors.
    for (line, expected) in [
        ("3 sep 2010 15:45:59.25 +02:00", Some(secs)),
        ("3 September 2010 13:45:59 Z", Some(secs.trunc())),
        ("3 Sep 2010 13:45:59.2 -0100", Some(secs.trunc() + 3600.2)),
        ("3 Sep 2010 24:45:59 Z", None),
        ("3 Nonsense 2010 13:45:59 Z", None),
        ("3 Sep 2010 13:45:59", None),
    ] {
        let read = read(r#""%T(%d %b %Y %H:%M:%.3S %z)""#, line.as_bytes());
        assert_eq!(read, expected.map(|secs| vec![Value::Float(secs)]), "{line}");
    }
    assert_eq!(write(r#""%T(%j)""#, secs), b"246");
    // The last digit is rounded, which may carry into the seconds.
    assert_eq!(write(r#""%T(%S %.1S)""#, 59.96), b"00 00.0");
    assert_eq!(write(r#""%T(%S)""#, 59.96), b"59");
    // The caller gives the offset of local time.
    let local = RunInputs { zone: Zone(|_| -5400), ..number(7200.0) };
    assert_eq!(run(protocol(r#"p { out "%T(%H:%M %z)"; }"#, "p", &[]), local, &[]).0, b"00:30 -0130");
}

#[test]
fn a_time_that_cannot_be_written_fails_the_run() {
    for secs in [-1.0, f64::NAN, 1e300] {
        let out = protocol(r#"p { out "%T(%Y)"; }"#, "p", &[]);
        assert_eq!(run(out, number(secs), &[]).1, Err(Trouble::Output), "{secs}");
    }
}

#[test]
fn unsupported_commands_and_formats_are_refused_with_the_reason() {
    for (body, says) in [
        ("event(1) 100;", "TCP and serial lines have no events"),
        ("exec \"system reboot\";", "would run as a command of the IOC's user"),
        ("in \"%T(%H:%M)\";", "without a date"),
        ("in \"%T(%F %j)\";", "expected a month and a day"),
        ("out \"%T\";", "%T without a format"),
        ("out \"%T(%Q)\";", "%Q in %T(…)"),
        ("out \"%T(%5Y)\";", "expected digits in %.3S"),
        ("out \"%T(%+1)\";", "a time zone such as %+0100"),
        ("out \"%T(%)\";", "a % at the end"),
    ] {
        let text = format!("p {{ {body} }}");
        let error = File::parse(text.as_bytes(), "test.proto").unwrap().protocol("p", &[]).unwrap_err().to_string();
        assert!(error.contains(says), "{body}: {error}");
    }
}
