//! Meaning of a table's columns.

use base::FieldType;
use parquet::basic::{LogicalType, Type as Physical};
use segment::Kind;

/// Keys in the file's footer for the signal descriptions and the checksum.
pub(crate) const ABOUT: &str = "tahti.signals";
pub(crate) const SUM: &str = "tahti.crc32c";

/// Value of the column `type` for a gap.
pub(crate) const GAP: &str = "gap";

/// Default type of a column's values. `None` if the type is not supported.
pub(crate) const fn natural(physical: Physical, logical: Option<&LogicalType>) -> Option<Kind> {
    Some(match (physical, logical) {
        (Physical::BOOLEAN, _) => Kind::Bool,
        (Physical::FLOAT, _) => Kind::Number(FieldType::F32),
        (Physical::DOUBLE, _) => Kind::Number(FieldType::F64),
        (Physical::INT32 | Physical::INT64, Some(LogicalType::Integer(whole))) => {
            Kind::Number(match (whole.bit_width, whole.is_signed) {
                (8, true) => FieldType::I8,
                (8, false) => FieldType::U8,
                (16, true) => FieldType::I16,
                (16, false) => FieldType::U16,
                (32, true) => FieldType::I32,
                (32, false) => FieldType::U32,
                (64, true) => FieldType::I64,
                (64, false) => FieldType::U64,
                _ => return None,
            })
        }
        (Physical::INT32, None) => Kind::Number(FieldType::I32),
        (Physical::INT64, None) => Kind::Number(FieldType::I64),
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => Kind::Text,
        (Physical::BYTE_ARRAY, None) => Kind::Blob,
        _ => return None,
    })
}
