//! Conversion between a value and one cell of a table.

use crate::Wrong;
use base::{Array, FieldType, Scalar, Str40};
use segment::{Datum, Kind, escaped, unescaped};

/// Formats a value as text: numbers in full precision, bytes in hexadecimal, arrays as `[1, 2]`. In texts a backslash is doubled, and a byte
/// that is not UTF-8 becomes `\xNN`.
#[must_use]
pub fn cell(value: &Datum) -> String {
    match value {
        Datum::Text(bytes) => escaped(bytes),
        Datum::Number(Scalar::String(text)) => escaped(text.bytes()),
        Datum::Array(Array::String(texts)) => {
            let texts: Vec<String> = texts.iter().map(|text| escaped(text.bytes())).collect();
            serde_json::Value::from(texts).to_string()
        }
        other => other.to_string(),
    }
}

/// Parses a cell as a value of the given type.
///
/// # Errors
/// The cell does not hold such a value.
pub fn datum(kind: Kind, cell: &str) -> Result<Datum, Wrong> {
    let wrong = || Wrong::field("value", cell, format!("a value of type {kind}"));
    Ok(match kind {
        Kind::Bool => Datum::Bool(cell.parse().map_err(|_| wrong())?),
        Kind::Number(kind) => Datum::Number(scalar(kind, cell).ok_or_else(wrong)?),
        Kind::Text => Datum::Text(unescaped(cell).ok_or_else(wrong)?),
        Kind::Blob => Datum::Blob(unhexed(cell).ok_or_else(wrong)?),
        Kind::Array(kind) => Datum::Array(array(kind, cell).ok_or_else(wrong)?),
    })
}

/// The type with this name, the inverse of the `Display` output of [`Kind`].
#[must_use]
pub fn kind(word: &str) -> Option<Kind> {
    // Several equivalent types are displayed as `enum`.
    (0..=u8::MAX).filter_map(|code| Kind::from_code(code).ok()).find(|kind| kind.to_string() == word)
}

fn scalar(kind: FieldType, cell: &str) -> Option<Scalar> {
    Some(match kind {
        FieldType::I8 => Scalar::I8(cell.parse().ok()?),
        FieldType::U8 => Scalar::U8(cell.parse().ok()?),
        FieldType::I16 => Scalar::I16(cell.parse().ok()?),
        FieldType::U16 => Scalar::U16(cell.parse().ok()?),
        FieldType::I32 => Scalar::I32(cell.parse().ok()?),
        FieldType::U32 => Scalar::U32(cell.parse().ok()?),
        FieldType::I64 => Scalar::I64(cell.parse().ok()?),
        FieldType::U64 => Scalar::U64(cell.parse().ok()?),
        FieldType::F32 => Scalar::F32(cell.parse().ok()?),
        FieldType::F64 => Scalar::F64(cell.parse().ok()?),
        FieldType::Enum | FieldType::Menu | FieldType::Device => Scalar::Enum(cell.parse().ok()?),
        FieldType::String | FieldType::Link => return None,
    })
}

fn array(kind: FieldType, cell: &str) -> Option<Array> {
    if matches!(kind, FieldType::String | FieldType::Link) {
        let texts: Vec<String> = serde_json::from_str(cell).ok()?;
        let text = |text: &String| Some(Str40::new(&unescaped(text)?));
        return texts.iter().map(text).collect::<Option<_>>().map(Array::String);
    }
    let inside = cell.strip_prefix('[')?.strip_suffix(']')?;
    let cells = || inside.split(',').map(str::trim).filter(|_| !inside.trim().is_empty());
    macro_rules! elements {
        ($variant:ident) => {
            Array::$variant(cells().map(|cell| cell.parse().ok()).collect::<Option<_>>()?)
        };
    }
    Some(match kind {
        FieldType::I8 => elements!(I8),
        FieldType::U8 => elements!(U8),
        FieldType::I16 => elements!(I16),
        FieldType::U16 => elements!(U16),
        FieldType::I32 => elements!(I32),
        FieldType::U32 => elements!(U32),
        FieldType::I64 => elements!(I64),
        FieldType::U64 => elements!(U64),
        FieldType::F32 => elements!(F32),
        FieldType::F64 => elements!(F64),
        _ => elements!(Enum),
    })
}

fn unhexed(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_parsed_from_its_displayed_name() {
        for code in 0..=u8::MAX {
            if let Ok(known) = Kind::from_code(code) {
                assert_eq!(kind(&known.to_string()), Some(known));
            }
        }
        assert_eq!(kind("double"), None);
    }

    #[test]
    fn values_with_special_characters_survive_a_round_trip() {
        let number = |value: f64| Datum::Number(Scalar::F64(value));
        let values = [
            number(-0.0),
            number(0.1 + 0.2),
            number(f64::MIN_POSITIVE / 8.0),
            number(f64::NEG_INFINITY),
            Datum::Number(Scalar::F32(f32::MAX)),
            Datum::Number(Scalar::U64(u64::MAX)),
            Datum::Text(b"a\\x41,\"\n\xff\xfe".to_vec()),
            Datum::Text(Vec::new()),
            Datum::Blob(vec![0, 255]),
            Datum::Array(Array::F64(Vec::new())),
            Datum::Array(Array::I8(vec![-1, 2])),
            Datum::Array(Array::String(vec![Str40::new(b"a, \"b\""), Str40::new(b"\xff\\")])),
        ];
        for value in values {
            let text = cell(&value);
            let back = datum(value.kind(), &text).unwrap();
            assert_eq!(format!("{back:?}"), format!("{value:?}"), "{text}");
        }
        assert!(datum(Kind::Number(FieldType::F64), &cell(&number(f64::NAN))).unwrap().to_f64().unwrap().is_nan());
    }
}
