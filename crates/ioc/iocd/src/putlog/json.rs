//! Log lines in the JSON format of caPutLog, with the same keys in the same order.

use super::burst::LogLine;
use super::{Entry, Logged, Metadata};
use base::{FieldType, Scalar};
use std::fmt::Write as _;

/// Maximum number of bytes logged of an array's elements.
const BYTES_MAX: usize = 400;

/// Maximum number of elements logged, for an element type.
pub(super) const fn elements_max(kind: FieldType) -> usize {
    BYTES_MAX
        / match kind {
            FieldType::I8 | FieldType::U8 => 1,
            FieldType::I16 | FieldType::U16 | FieldType::Enum => 2,
            FieldType::I32 | FieldType::U32 | FieldType::F32 => 4,
            FieldType::I64 | FieldType::U64 | FieldType::F64 => 8,
            _ => 40,
        }
}

/// Formats one line; times are local.
pub(super) fn text(line: &LogLine, metadata: &Metadata) -> String {
    let Entry { when, host, user, channel, new, old, joins: _ } = &line.entry;
    let local = |format: &str| db::stamp_text(*when, format, sys::clock::local_text);
    let mut out = String::from("{");
    let mut pair = |key: &str, value: &str| {
        let comma = if out.len() > 1 { "," } else { "" };
        let _ = write!(out, "{comma}{}:{value}", quoted(key));
    };
    for (key, text) in [("date", &local("%Y-%m-%d")), ("time", &local("%H:%M:%S.%03f")), ("host", host), ("user", user)]
    {
        pair(key, &quoted(text));
    }
    if let Ok(metadata) = metadata.lock() {
        metadata.iter().for_each(|(key, text)| pair(key, &quoted(text)));
    }
    pair("pv", &quoted(channel));
    for (key, size, logged) in [("new", "new-size", new), ("old", "old-size", old)] {
        let Some(Logged { elements, len, array }) = logged else { continue };
        let text = values(elements);
        pair(key, &if *array { format!("[{text}]") } else { text });
        if *array {
            pair(size, &len.to_string());
        }
    }
    let array = new.as_ref().is_some_and(|new| new.array);
    if let Some((least, greatest)) = line.range.filter(|_| !array) {
        pair("min", &value(least));
        pair("max", &value(greatest));
        pair("burst", &line.further.to_string());
    }
    out.push_str("}\n");
    out
}

/// Characters are logged as one text up to the NUL.
fn values(elements: &[Scalar]) -> String {
    let byte = |scalar: &Scalar| match scalar {
        Scalar::I8(byte) => Some(*byte as u8),
        _ => None,
    };
    if let Some(bytes) = elements.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty()) {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        return quoted(&base::raw::readable(&bytes[..len]));
    }
    elements.iter().map(|scalar| value(*scalar)).collect::<Vec<_>>().join(",")
}

/// Floating-point numbers always have a fraction: `1.0`.
fn value(scalar: Scalar) -> String {
    match scalar {
        Scalar::String(text) => quoted(&text.readable()),
        Scalar::F64(value) => real(value, 17),
        Scalar::F32(value) => real(value.into(), 8),
        other => base::text::scalar(other, 0).to_string(),
    }
}

fn real(value: f64, digits: usize) -> String {
    let text = match value {
        value if value.is_nan() => return "\"Nan\"".into(),
        value if value.is_infinite() => return if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" }.into(),
        value => base::text::general(value, digits),
    };
    let whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if whole { text + ".0" } else { text }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            char if char < ' ' => drop(write!(out, "\\u{:04X}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::super::tests::entry;
    use super::*;
    use base::{Array, Value};

    fn line(old: Value, new: Value) -> LogLine {
        let form = Form::Json(Metadata::default());
        let entry = Entry {
            old: Some(Logged::new(&old, &form)),
            new: Some(Logged::new(&new, &form)),
            ..entry("X:a", 0.0, 0.0)
        };
        LogLine { entry, range: None, further: 0 }
    }

    /// Part of a line after the channel name.
    fn tail(line: &LogLine) -> String {
        let text = text(line, &Metadata::default());
        text.split_once("\"pv\":\"X:a\",").unwrap().1.trim_end().to_owned()
    }

    #[test]
    fn a_line_has_caputlogs_keys_in_their_order() {
        let metadata = Metadata::default();
        metadata.lock().unwrap().insert("site".into(), "ring \"1\"".into());
        let mut line = line(Value::from(0.5), Value::from(2.0));
        line.range = Some((Scalar::F64(-1e300), Scalar::F64(7.0)));
        line.further = 3;
        let text = text(&line, &metadata);
        let keys = "\",\"host\":\"desk\\n\",\"user\":\"anna\",\"site\":\"ring \\\"1\\\"\",\"pv\":\"X:a\",\
                    \"new\":2.0,\"old\":0.5,\"min\":-1.0000000000000001e+300,\"max\":7.0,\"burst\":3}\n";
        assert!(
            text.starts_with("{\"date\":\"2027-01-1") && text.contains("\",\"time\":\"") && text.ends_with(keys),
            "{text}"
        );
        assert!(text.contains(":00.500\","), "{text}");
    }

    #[test]
    fn arrays_texts_and_special_numbers_are_written_as_by_caputlog() {
        let reals = |values: &[f64]| Value::Array(Array::F64(values.to_vec()));
        let long = line(reals(&[]), reals(&[1.0; 70]));
        let expected = format!("\"new\":[{}],\"new-size\":70,\"old\":[],\"old-size\":0}}", ["1.0"; 50].join(","));
        assert_eq!(tail(&long), expected);
        let special = line(reals(&[f64::NAN]), reals(&[f64::INFINITY, f64::NEG_INFINITY]));
        let expected = "\"new\":[\"Infinity\",\"-Infinity\"],\"new-size\":2,\"old\":[\"Nan\"],\"old-size\":1}";
        assert_eq!(tail(&special), expected);
        let bytes = |text: &[u8]| Value::Array(Array::I8(text.iter().map(|byte| *byte as i8).collect()));
        let expected = "\"new\":[\"a\\u0001\\\\\"],\"new-size\":5,\"old\":[\"\"],\"old-size\":1}";
        assert_eq!(tail(&line(bytes(b"\0"), bytes(b"a\x01\\\0b"))), expected);
        assert_eq!(tail(&line(Value::from("old"), Value::from("ä\t"))), "\"new\":\"ä\\t\",\"old\":\"old\"}");
        assert_eq!(tail(&line(Value::from(1i32), Value::Scalar(Scalar::Enum(3)))), "\"new\":3,\"old\":1}");
    }
}
