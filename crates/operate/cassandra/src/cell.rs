//! Mapping of a sample's value to the columns of a table, each readable with `cqlsh`.

use base::{FieldType, Scalar};
use segment::{Bad, Datum, Kind};

/// Columns of a value. `kind` gives its type and thereby the column that holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    /// [`Kind::code`].
    pub(crate) kind: i8,
    /// Floating-point numbers.
    pub(crate) value: Option<f64>,
    /// Integers, states, booleans.
    pub(crate) whole: Option<i64>,
    /// Texts.
    pub(crate) words: Option<String>,
    /// Texts that are not UTF-8, blobs, and arrays (elements little-endian).
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Cell {
    pub(crate) fn of(datum: &Datum) -> Self {
        let kind = datum.kind();
        let mut cell = Self { kind: kind.code() as i8, value: None, whole: None, words: None, bytes: None };
        match kind {
            Kind::Number(FieldType::F32 | FieldType::F64) => cell.value = datum.to_f64(),
            Kind::Number(_) | Kind::Bool => cell.whole = datum.bits().map(|bits| bits as i64),
            _ => {
                let mut bytes = Vec::new();
                datum.put_bytes(&mut bytes);
                if kind != Kind::Text {
                    cell.bytes = Some(bytes);
                    return cell;
                }
                match String::from_utf8(bytes) {
                    Ok(words) => cell.words = Some(words),
                    Err(error) => cell.bytes = Some(error.into_bytes()),
                }
            }
        }
        cell
    }

    /// Converts the columns to a value.
    ///
    /// # Errors
    /// The columns do not fit together, because another program wrote them.
    pub(crate) fn datum(self) -> Result<Datum, Bad> {
        let code = self.kind as u8;
        let kind = Kind::from_code(code)?;
        let missing = Bad::Kind(code);
        match kind {
            Kind::Number(FieldType::F64) => Ok(self.value.ok_or(missing)?.into()),
            Kind::Number(FieldType::F32) => Ok(Datum::Number(Scalar::F32(self.value.ok_or(missing)? as f32))),
            Kind::Number(kind) => Ok(Datum::from_bits(kind, self.whole.ok_or(missing)? as u64)),
            Kind::Bool => Ok(Datum::Bool(self.whole.ok_or(missing)? != 0)),
            Kind::Text if self.words.is_some() => Ok(Datum::Text(self.words.unwrap_or_default().into_bytes())),
            // Some drivers return an empty column as null.
            _ => Datum::from_bytes(kind, &self.bytes.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Array;

    #[test]
    fn every_type_survives_a_round_trip_through_its_columns() {
        let numbers = [
            Scalar::I8(-1),
            Scalar::U8(255),
            Scalar::I16(-300),
            Scalar::U16(65_535),
            Scalar::I32(i32::MIN),
            Scalar::U32(u32::MAX),
            Scalar::I64(i64::MIN),
            Scalar::U64(u64::MAX),
            Scalar::F32(0.1),
            Scalar::F64(-0.0),
            Scalar::Enum(3),
        ];
        let others = [
            Datum::Bool(true),
            Datum::from("grün"),
            Datum::from(""),
            Datum::Text(vec![0xff, 0]),
            Datum::Blob(vec![1, 2, 3]),
            Datum::Array(Array::F64(vec![1.5, -2.5])),
            Datum::Array(Array::U16(vec![])),
        ];
        for datum in numbers.into_iter().map(Datum::Number).chain(others) {
            assert_eq!(Cell::of(&datum).datum(), Ok(datum.clone()), "{datum:?}");
        }
    }

    #[test]
    fn inconsistent_columns_are_refused() {
        let cell = |kind: i8| Cell { kind, value: None, whole: None, words: None, bytes: Some(vec![1, 2, 3]) };
        for kind in [0, 5, 9, 10, 0x40 | 10, 99, -1] {
            assert!(cell(kind).datum().is_err(), "{kind}");
        }
    }
}
