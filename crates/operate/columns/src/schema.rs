//! Which columns a table has.

use base::FieldType;
use parquet::basic::{Compression, Encoding, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use segment::Kind;
use std::collections::BTreeSet;

/// The key in a file's end under which stands what its signals are.
pub(crate) const ABOUT: &str = "tahti.signals";

/// The word in the column of types for a row that is no sample.
pub(crate) const GAP: &str = "gap";

/// Bytes of different numbers with a point up to which a number stands for each: beyond it their bytes are sorted by place.
const DICTIONARY_BYTES: usize = 64 << 10;

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Signal,
    Time,
    Type,
    /// Numbers of one type, as they are.
    Value(Kind),
    /// Numbers of several types, as doubles.
    Number,
    /// 64-bit whole numbers whose digits a double does not hold.
    Exact(FieldType),
    /// The state's name.
    Label,
    Text,
    Blob,
    Array(FieldType),
    Severity,
    Status,
    Pulse,
    Gap,
    Lost,
}

/// The columns of a table whose values are of these types.
pub(crate) fn columns(kinds: impl IntoIterator<Item = Kind>) -> Vec<Content> {
    // Types that mean the same have one number.
    let codes: BTreeSet<u8> = kinds.into_iter().map(Kind::code).collect();
    let kinds: Vec<Kind> = codes.into_iter().filter_map(|code| Kind::from_code(code).ok()).collect();
    let numbers: Vec<Kind> = kinds.iter().copied().filter(|kind| !kind.varies()).collect();
    let mut columns = vec![Content::Signal, Content::Time, Content::Type];
    match numbers[..] {
        [] => {}
        [one] => columns.push(Content::Value(one)),
        _ => {
            columns.push(Content::Number);
            let wide = [FieldType::I64, FieldType::U64];
            let wide = wide.into_iter().filter(|kind| numbers.contains(&Kind::Number(*kind)));
            columns.extend(wide.map(Content::Exact));
        }
    }
    if numbers.contains(&Kind::Number(FieldType::Enum)) {
        columns.push(Content::Label);
    }
    if kinds.contains(&Kind::Text) {
        columns.push(Content::Text);
    }
    // A text that is no UTF-8 is kept as bytes.
    if kinds.contains(&Kind::Text) || kinds.contains(&Kind::Blob) {
        columns.push(Content::Blob);
    }
    columns.extend(
        kinds.iter().filter_map(|kind| if let Kind::Array(of) = kind { Some(Content::Array(*of)) } else { None }),
    );
    columns.extend([Content::Severity, Content::Status, Content::Pulse, Content::Gap, Content::Lost]);
    columns
}

impl Content {
    /// The column's name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Signal => "signal".into(),
            Self::Time => "time".into(),
            Self::Type => "type".into(),
            Self::Value(_) | Self::Number => "value".into(),
            Self::Exact(kind) => format!("value_{}", Kind::Number(kind)),
            Self::Label => "label".into(),
            Self::Text => "text".into(),
            Self::Blob => "blob".into(),
            Self::Array(kind) => format!("array_{}", element_name(kind)),
            Self::Severity => "severity".into(),
            Self::Status => "status".into(),
            Self::Pulse => "pulse".into(),
            Self::Gap => "gap".into(),
            Self::Lost => "lost".into(),
        }
    }

    /// The column as a schema has it.
    fn field(self) -> String {
        let name = self.name();
        let plain = |kind: &str, logical: &str| format!("optional {kind} {name} {logical};");
        match self {
            Self::Signal | Self::Type | Self::Label | Self::Text | Self::Gap => plain("binary", "(STRING)"),
            Self::Time => format!("required int64 {name} (TIMESTAMP(NANOS,true));"),
            Self::Value(Kind::Number(kind)) | Self::Exact(kind) => {
                let (physical, logical) = element(kind);
                plain(physical, logical)
            }
            Self::Value(_) => plain("boolean", ""),
            Self::Number => plain("double", ""),
            Self::Blob => plain("binary", ""),
            Self::Array(kind) => {
                let (physical, logical) = element(kind);
                format!(
                    "optional group {name} (LIST) {{ repeated group list {{ required {physical} element {logical}; }} }}"
                )
            }
            Self::Severity => plain("int32", "(INTEGER(8,false))"),
            Self::Status => plain("int32", "(INTEGER(16,false))"),
            Self::Pulse | Self::Lost => plain("int64", "(INTEGER(64,false))"),
        }
    }

    /// Where the column's values are.
    fn path(self) -> ColumnPath {
        let name = self.name();
        ColumnPath::new(match self {
            Self::Array(_) => vec![name, "list".into(), "element".into()],
            _ => vec![name],
        })
    }

    /// How the values are written, where that is not the format's usual way.
    fn encoding(self) -> Option<Encoding> {
        let of = |kind: FieldType| match kind {
            FieldType::F32 | FieldType::F64 => Some(Encoding::BYTE_STREAM_SPLIT),
            FieldType::String | FieldType::Link => None,
            _ => Some(Encoding::DELTA_BINARY_PACKED),
        };
        match self {
            Self::Time | Self::Pulse => Some(Encoding::DELTA_BINARY_PACKED),
            Self::Number => Some(Encoding::BYTE_STREAM_SPLIT),
            Self::Value(Kind::Number(kind)) | Self::Exact(kind) | Self::Array(kind) => of(kind),
            _ => None,
        }
    }
}

/// The name of an element's type: that of a number, or `text`.
fn element_name(kind: FieldType) -> String {
    match kind {
        FieldType::String | FieldType::Link => Kind::Text.to_string(),
        _ => Kind::Number(kind).to_string(),
    }
}

/// The types by which numbers and elements of arrays are written.
const fn element(kind: FieldType) -> (&'static str, &'static str) {
    match kind {
        FieldType::I8 => ("int32", "(INTEGER(8,true))"),
        FieldType::U8 => ("int32", "(INTEGER(8,false))"),
        FieldType::I16 => ("int32", "(INTEGER(16,true))"),
        FieldType::U16 | FieldType::Enum | FieldType::Menu | FieldType::Device => ("int32", "(INTEGER(16,false))"),
        FieldType::I32 => ("int32", "(INTEGER(32,true))"),
        FieldType::U32 => ("int32", "(INTEGER(32,false))"),
        FieldType::I64 => ("int64", "(INTEGER(64,true))"),
        FieldType::U64 => ("int64", "(INTEGER(64,false))"),
        FieldType::F32 => ("float", ""),
        FieldType::F64 => ("double", ""),
        FieldType::String | FieldType::Link => ("binary", "(STRING)"),
    }
}

/// The schema of columns.
pub(crate) fn schema(columns: &[Content]) -> Result<TypePtr, ParquetError> {
    let fields: String = columns.iter().map(|column| column.field()).collect();
    parse_message_type(&format!("message tahti {{ {fields} }}")).map(TypePtr::new)
}

/// How columns are written.
pub(crate) fn properties(columns: &[Content]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("tahti ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in columns {
        let Some(encoding) = column.encoding() else { continue };
        properties = properties.set_column_encoding(column.path(), encoding);
        properties = match encoding {
            Encoding::BYTE_STREAM_SPLIT => {
                properties.set_column_dictionary_page_size_limit(column.path(), DICTIONARY_BYTES)
            }
            _ => properties.set_column_dictionary_enabled(column.path(), false),
        };
    }
    properties.build()
}

/// The type that a column's values have where no word says it; `None` where it can be none of ours.
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
