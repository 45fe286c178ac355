//! Reading of tables.

use crate::ColumnsError;
use crate::leaf::{Leaf, Values};
use crate::schema::{self, ABOUT, GAP, SUM};
use crate::sum;
use base::{Array, FieldType, Scalar, Str40};
use exchange::{ExchangeError, Row};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use segment::rows::{About, Cause, LABELS_MAX, NAME_MAX};
use segment::{Datum, Kind, Sample};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rows per read.
const ROWS: usize = 1_024;

/// Reader of a table. Returns the signal descriptions first, then row by row.
///
/// Required are `signal` (text), `time` (a TIMESTAMP of any unit; UTC if it has no time zone) and a column of values, with the names of
/// [`ParquetWriter`](exchange::ParquetWriter). Without a column `type`, values have the type of their column. Other columns are ignored.
pub struct ParquetReader<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    columns: Vec<Column>,
    /// Current row group, and its remaining rows.
    group: usize,
    left: usize,
    readers: Vec<ColumnReader>,
    ready: VecDeque<Result<Row, ExchangeError>>,
    /// Number of rows before the next ones to be read.
    before: u64,
    has_failed: bool,
}

/// A column with a known meaning.
struct Column {
    name: String,
    /// Index among all columns.
    index: usize,
    kind: Kind,
    is_list: bool,
    /// Nanoseconds per unit of `time`.
    unit: i64,
    most_defined: i16,
    most_repeated: i16,
    /// Minimum definition level of an existing list element.
    element: i16,
    leaf: Leaf,
    /// Positions of the next row's levels and values.
    level: usize,
    value: usize,
}

impl<R: ChunkReader + 'static> ParquetReader<R> {
    /// Reads the file's footer.
    ///
    /// # Errors
    /// The file is not a Parquet file, or lacks columns that samples need.
    pub fn new(file: R) -> Result<Self, ExchangeError> {
        let is_summed = sum::check(&file)?;
        let file = guarded(|| Ok(SerializedFileReader::new(file)?))?;
        let known = file.metadata().file_metadata();
        let keys = known.key_value_metadata().map_or(&[][..], Vec::as_slice);
        let is_ours = keys.iter().any(|one| one.key == ABOUT || one.key == SUM)
            || known.created_by().is_some_and(|by| by.starts_with("tahti "));
        if is_ours && !is_summed {
            return Err(short("damaged: its checksum is missing").into());
        }
        let columns = columns(file.metadata().file_metadata().schema_descr())?;
        let about = file.metadata().file_metadata().key_value_metadata();
        let about = about.and_then(|all| all.iter().find(|one| one.key == ABOUT)?.value.clone());
        let ready = match &about {
            Some(text) => abouts(text)?.into_iter().map(Ok).collect(),
            None => VecDeque::new(),
        };
        Ok(Self { file, columns, group: 0, left: 0, readers: Vec::new(), ready, before: 0, has_failed: false })
    }

    /// Reads some rows. Returns false at the end of the table.
    fn fill(&mut self) -> Result<bool, ColumnsError> {
        while self.left == 0 {
            if self.group >= self.file.metadata().num_row_groups() {
                return Ok(false);
            }
            let rows = self.file.metadata().row_group(self.group).num_rows();
            self.left = usize::try_from(rows).map_err(|_| short("a negative number of rows"))?;
            let group = self.file.get_row_group(self.group)?;
            let readers = self.columns.iter().map(|column| group.get_column_reader(column.index));
            self.readers = readers.collect::<Result<_, _>>()?;
            self.group += 1;
        }
        let rows = self.left.min(ROWS);
        for (column, reader) in self.columns.iter_mut().zip(&mut self.readers) {
            column.fill(reader, rows)?;
        }
        for index in 0..rows {
            let row = self.row(self.before + index as u64 + 1);
            self.has_failed = row.is_err();
            self.ready.push_back(row);
            if self.has_failed {
                break;
            }
        }
        self.left -= rows;
        self.before += rows as u64;
        Ok(true)
    }

    /// Converts the next of the rows that have been read.
    fn row(&mut self, number: u64) -> Result<Row, ExchangeError> {
        let (mut name, mut at, mut word, mut gap) = (None, None, None, None);
        let (mut severity, mut status, mut pulse, mut lost) = (0, 0, None, 0);
        let mut values: Vec<(usize, Cell)> = Vec::new();
        let wrong = |column: &str, found: String, expected: &str| {
            let found = found.chars().take(48).collect();
            ColumnsError::Row { row: number, column: column.to_owned(), found, expected: expected.to_owned() }
        };
        for (index, column) in self.columns.iter_mut().enumerate() {
            let Some(cell) = column.next() else { continue };
            let shown = || format!("{cell:?}");
            match column.name.as_str() {
                "signal" => name = Some(cell.text().ok_or_else(|| wrong("signal", shown(), "text"))?),
                "type" => word = Some(cell.text().ok_or_else(|| wrong("type", shown(), "text"))?),
                "gap" => gap = Some(cell.text().ok_or_else(|| wrong("gap", shown(), "text"))?),
                "time" => {
                    let at_ns = cell.whole().and_then(|at| i64::try_from(at).ok()?.checked_mul(column.unit));
                    at = Some(at_ns.ok_or_else(|| wrong("time", shown(), "a time from 1677 to 2262"))?);
                }
                "severity" => severity = cell.within(3).ok_or_else(|| wrong("severity", shown(), "0 to 3"))? as u8,
                "status" => {
                    status = cell.within(u16::MAX.into()).ok_or_else(|| wrong("status", shown(), "0 to 65535"))? as u16
                }
                "pulse" => {
                    pulse = Some(cell.within(u64::MAX).ok_or_else(|| wrong("pulse", shown(), "a whole number"))?)
                }
                "lost" => lost = cell.within(u64::MAX).ok_or_else(|| wrong("lost", shown(), "a whole number"))?,
                _ => values.push((index, cell)),
            }
        }
        let at = at.ok_or_else(|| wrong("time", String::new(), "a time"))?;
        let is_name = |name: &String| !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control);
        if name.as_ref().is_some_and(|name| !is_name(name)) {
            let expected = "1 to 1024 bytes, no control characters";
            return Err(wrong("signal", name.unwrap_or_default(), expected).into());
        }
        if let Some(gap) = gap.filter(|_| word.as_deref().is_none_or(|word| word == GAP)) {
            let cause =
                Cause::named(&gap).ok_or_else(|| wrong("gap", gap, "a cause: disconnected, overflow and such"))?;
            return Ok(Row::Gap { name, at, cause, lost });
        }
        let name = name.ok_or_else(|| wrong("signal", String::new(), "a name"))?;
        let named = word.as_ref().map(|word| {
            exchange::kind(word).ok_or_else(|| wrong("type", word.clone(), "f64, i32, bool, text, f64[] and such"))
        });
        let named = named.transpose()?;
        let column = &self.columns;
        let found = values.iter().find(|(index, _)| named.is_none_or(|kind| column[*index].is_first_for(kind)));
        let found =
            found.or_else(|| values.iter().find(|(index, _)| named.is_none_or(|kind| column[*index].may_be(kind))));
        let Some((index, cell)) = found else {
            let expected = named.map_or_else(|| "a value".to_owned(), |kind| format!("a value of type {kind}"));
            return Err(wrong("value", String::new(), &expected).into());
        };
        let kind = named.unwrap_or(column[*index].kind());
        let datum = cell.datum(kind);
        let datum = datum
            .ok_or_else(|| wrong(&column[*index].name, format!("{cell:?}"), &format!("a value of type {kind}")))?;
        Ok(Row::Sample { name, sample: Sample { at, datum, severity, status, pulse } })
    }
}

impl<R: ChunkReader + 'static> Iterator for ParquetReader<R> {
    type Item = Result<Row, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(row);
            }
            if self.has_failed {
                return None;
            }
            match guarded(|| self.fill()) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

/// Turns a panic of the Parquet library, on damaged pages, into an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ColumnsError>) -> Result<T, ColumnsError> {
    // State that a panic left incomplete is not used again.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(short("damaged: its pages cannot be read")))
}

fn short(what: &str) -> ColumnsError {
    ParquetError::General(what.to_owned()).into()
}

/// Finds the columns with a known meaning.
fn columns(schema: &SchemaDescriptor) -> Result<Vec<Column>, ColumnsError> {
    let mut columns = Vec::new();
    for (index, leaf) in schema.columns().iter().enumerate() {
        let Some(name) = leaf.path().parts().first().cloned() else { continue };
        let is_value = name == "value"
            || name == "text"
            || name == "blob"
            || name.starts_with("value_")
            || name.starts_with("array_");
        let is_text = matches!(name.as_str(), "signal" | "type" | "gap");
        let is_whole = matches!(name.as_str(), "time" | "severity" | "status" | "pulse" | "lost");
        if !is_value && !is_text && !is_whole {
            continue;
        }
        let wrong = |expected| {
            let found =
                format!("{} {:?}, {} levels", leaf.physical_type(), leaf.logical_type_ref(), leaf.path().parts().len());
            ColumnsError::Column { column: name.clone(), found, expected }
        };
        let logical = leaf.logical_type_ref();
        let unit = match logical {
            Some(LogicalType::Timestamp(time)) => match time.unit {
                TimeUnit::NANOS => 1,
                TimeUnit::MICROS => 1_000,
                TimeUnit::MILLIS => 1_000_000,
            },
            _ => 0,
        };
        let kind = if name == "time" {
            Some(Kind::Number(FieldType::I64))
        } else {
            schema::natural(leaf.physical_type(), logical)
        };
        let values = Values::new(leaf.physical_type());
        let (Some(kind), Some(values)) = (kind, values) else {
            return Err(wrong("numbers, booleans, texts, bytes, or lists of these"));
        };
        let is_list = leaf.max_rep_level() > 0;
        let is_plain = leaf.path().parts().len() == 1 && !is_list;
        let is_right = match name.as_str() {
            "time" => is_plain && unit != 0,
            _ if is_text => is_plain && kind == Kind::Text,
            _ if is_whole => {
                is_plain && matches!(kind, Kind::Number(of) if !matches!(of, FieldType::F32 | FieldType::F64))
            }
            _ => is_plain || (leaf.max_rep_level() == 1 && matches!(kind, Kind::Number(_) | Kind::Text)),
        };
        if !is_right {
            return Err(wrong(match name.as_str() {
                "time" => "TIMESTAMP",
                _ if is_text => "text",
                _ if is_whole => "whole numbers",
                _ => "numbers, booleans, texts, bytes, or lists of these",
            }));
        }
        let element = leaf.max_def_level() - i16::from(is_list && leaf.self_type().is_optional());
        let (most_defined, most_repeated) = (leaf.max_def_level(), leaf.max_rep_level());
        let (leaf, level, value) = (Leaf::new(values), 0, 0);
        columns.push(Column {
            name,
            index,
            kind,
            is_list,
            unit,
            most_defined,
            most_repeated,
            element,
            leaf,
            level,
            value,
        });
    }
    let has = |name: &str| columns.iter().any(|column: &Column| column.name == name);
    let values = columns.iter().any(|column| column.is_value());
    let missing = [
        ("signal", has("signal"), "text"),
        ("time", has("time"), "TIMESTAMP"),
        ("value", values || has("gap"), "numbers"),
    ];
    match missing.into_iter().find(|(_, there, _)| !there) {
        Some((column, _, expected)) => {
            Err(ColumnsError::Column { column: column.into(), found: "missing".into(), expected })
        }
        None => Ok(columns),
    }
}

/// Value of a column in one row.
enum Cell {
    Bool(bool),
    Whole(i128),
    Float(f64),
    Bytes(Vec<u8>),
    List(Vec<Self>),
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Whole(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(&bytes[..bytes.len().min(200)])),
            Self::List(some) => write!(f, "a list of {}", some.len()),
        }
    }
}

impl Cell {
    fn text(&self) -> Option<String> {
        let Self::Bytes(bytes) = self else { return None };
        String::from_utf8(bytes.clone()).ok()
    }

    const fn whole(&self) -> Option<i128> {
        if let Self::Whole(value) = self { Some(*value) } else { None }
    }

    fn within(&self, max: u64) -> Option<u64> {
        self.whole().and_then(|value| u64::try_from(value).ok()).filter(|value| *value <= max)
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Whole(value) => Some(*value as f64).filter(|float| *float as i128 == *value),
            _ => None,
        }
    }

    /// The value as an integer, also if it is stored as a float.
    fn round(&self) -> Option<i128> {
        match self {
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => Some(*value as i128),
            _ => self.whole(),
        }
    }

    fn datum(&self, kind: Kind) -> Option<Datum> {
        Some(match (kind, self) {
            (Kind::Bool, Self::Bool(value)) => Datum::Bool(*value),
            (Kind::Bool, _) => Datum::Bool(match self.round()? {
                0 => false,
                1 => true,
                _ => return None,
            }),
            (Kind::Number(of), _) => Datum::Number(self.scalar(of)?),
            (Kind::Text, Self::Bytes(bytes)) => Datum::Text(bytes.clone()),
            (Kind::Blob, Self::Bytes(bytes)) => Datum::Blob(bytes.clone()),
            (Kind::Array(of), Self::List(some)) => Datum::Array(array(of, some)?),
            _ => return None,
        })
    }

    fn scalar(&self, of: FieldType) -> Option<Scalar> {
        macro_rules! whole {
            ($variant:ident) => {
                Scalar::$variant(self.round()?.try_into().ok()?)
            };
        }
        Some(match of {
            FieldType::I8 => whole!(I8),
            FieldType::U8 => whole!(U8),
            FieldType::I16 => whole!(I16),
            FieldType::U16 => whole!(U16),
            FieldType::I32 => whole!(I32),
            FieldType::U32 => whole!(U32),
            FieldType::I64 => whole!(I64),
            FieldType::U64 => whole!(U64),
            FieldType::F32 => {
                let wide = self.float()?;
                let narrow = wide as f32;
                Scalar::F32(Some(narrow).filter(|narrow| wide.is_nan() || f64::from(*narrow) == wide)?)
            }
            FieldType::F64 => Scalar::F64(self.float()?),
            FieldType::Enum | FieldType::Menu | FieldType::Device => whole!(Enum),
            FieldType::String | FieldType::Link => return None,
        })
    }
}

fn array(of: FieldType, cells: &[Cell]) -> Option<Array> {
    if matches!(of, FieldType::String | FieldType::Link) {
        let text = |cell: &Cell| {
            let text = cell.text()?;
            // Texts of other programs may have backslashes that are not escapes.
            Some(Str40::new(&exchange::unescaped(&text).unwrap_or_else(|| text.into_bytes())))
        };
        return cells.iter().map(text).collect::<Option<_>>().map(Array::String);
    }
    macro_rules! elements {
        ($($variant:ident),+) => {
            match of {
                $(FieldType::$variant => Array::$variant(
                    cells.iter().map(|cell| match cell.scalar(of)? {
                        Scalar::$variant(value) => Some(value),
                        _ => None,
                    }).collect::<Option<_>>()?,
                ),)+
                _ => return None,
            }
        };
    }
    Some(elements!(I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, Enum))
}

impl Column {
    fn is_value(&self) -> bool {
        matches!(self.name.as_str(), "value" | "text" | "blob")
            || self.name.starts_with("value_")
            || self.name.starts_with("array_")
    }

    /// Type of the values, unless the row specifies one.
    const fn kind(&self) -> Kind {
        match self.kind {
            Kind::Number(of) if self.is_list => Kind::Array(of),
            Kind::Text if self.is_list => Kind::Array(FieldType::String),
            kind => kind,
        }
    }

    /// This column is the first choice for values of a type.
    fn is_first_for(&self, kind: Kind) -> bool {
        match kind {
            Kind::Number(FieldType::I64 | FieldType::U64) => self.name == format!("value_{kind}"),
            Kind::Text => self.name == "text",
            Kind::Blob => self.name == "blob",
            Kind::Array(_) => self.name == format!("array_{}", kind.to_string().trim_end_matches("[]")),
            Kind::Bool | Kind::Number(_) => self.name == "value",
        }
    }

    /// This column may hold values of a type.
    fn may_be(&self, kind: Kind) -> bool {
        match self.name.as_str() {
            "value" => true,
            "blob" => kind == Kind::Text,
            // A pack has one array column for all floats and one for all integers.
            "array_f64" | "array_i64" => matches!(kind, Kind::Array(_)),
            _ => false,
        }
    }

    /// Reads the next rows.
    fn fill(&mut self, reader: &mut ColumnReader, rows: usize) -> Result<(), ColumnsError> {
        let found = self.leaf.get(reader, rows)?;
        (self.level, self.value) = (0, 0);
        if found != rows {
            return Err(short(&format!("column {} has fewer rows than the table", self.name)));
        }
        // The levels are validated here. Later code relies on them.
        let leaf = &self.leaf;
        let values = match &leaf.values {
            Values::Bool(some) => some.len(),
            Values::I32(some) => some.len(),
            Values::I64(some) => some.len(),
            Values::F32(some) => some.len(),
            Values::F64(some) => some.len(),
            Values::Bytes(some) => some.len(),
        };
        let defined = leaf.defined.iter().filter(|level| **level == self.most_defined).count();
        let begun = leaf.repeated.iter().filter(|level| **level == 0).count();
        let expected = if self.most_defined == 0 { rows } else { defined };
        let is_whole = values == expected
            && (self.most_repeated == 0 || (begun == rows && leaf.repeated.len() == leaf.defined.len()))
            && (self.most_defined == 0 || self.most_repeated > 0 || leaf.defined.len() == rows);
        if is_whole {
            Ok(())
        } else {
            Err(short(&format!("column {} has values that contradict its levels", self.name)))
        }
    }

    /// Value of the next row; `None` for a null.
    fn next(&mut self) -> Option<Cell> {
        if !self.is_list {
            let is_here = self.most_defined == 0 || self.leaf.defined.get(self.level) == Some(&self.most_defined);
            self.level += 1;
            return if is_here { self.take() } else { None };
        }
        let mut cells = Vec::new();
        let mut is_array = true;
        loop {
            let level = self.leaf.defined.get(self.level).copied().unwrap_or(0);
            if level == self.most_defined {
                cells.extend(self.take());
            } else if level >= self.element {
                // A missing element becomes NaN, which is invalid for all other types.
                cells.push(Cell::Float(f64::NAN));
            } else {
                is_array = level + 1 == self.element;
            }
            self.level += 1;
            if self.leaf.repeated.get(self.level).is_none_or(|level| *level == 0) {
                return is_array.then_some(Cell::List(cells));
            }
        }
    }

    fn take(&mut self) -> Option<Cell> {
        let at = self.value;
        self.value += 1;
        let unsigned =
            matches!(self.kind, Kind::Number(FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64));
        Some(match &self.leaf.values {
            Values::Bool(some) => Cell::Bool(*some.get(at)?),
            Values::I32(some) if unsigned => Cell::Whole((*some.get(at)? as u32).into()),
            Values::I32(some) => Cell::Whole((*some.get(at)?).into()),
            Values::I64(some) if unsigned => Cell::Whole((*some.get(at)? as u64).into()),
            Values::I64(some) => Cell::Whole((*some.get(at)?).into()),
            Values::F32(some) => Cell::Float((*some.get(at)?).into()),
            Values::F64(some) => Cell::Float(*some.get(at)?),
            Values::Bytes(some) => Cell::Bytes(some.get(at)?.data().to_vec()),
        })
    }
}

/// Parses the signal descriptions of a file.
fn abouts(text: &str) -> Result<Vec<Row>, ColumnsError> {
    let wrong = || ColumnsError::About { key: ABOUT, found: text.chars().take(48).collect() };
    let all: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let one = |value: &serde_json::Value| {
        let labels = value["labels"].as_array()?.iter().map(|label| label.as_str().map(str::to_owned));
        let labels: Vec<String> = labels.collect::<Option<_>>()?;
        let precision = value["precision"].as_u64().and_then(|digits| u16::try_from(digits).ok());
        let about = About { units: value["units"].as_str()?.to_owned(), precision, labels };
        let (name, since) = (value["signal"].as_str()?.to_owned(), value["since_ns"].as_i64()?);
        let kind = exchange::kind(value["type"].as_str()?)?;
        (about.labels.len() <= LABELS_MAX && !name.is_empty() && name.len() <= NAME_MAX).then_some(Row::Signal {
            name,
            since,
            kind,
            about,
        })
    };
    all.as_array().ok_or_else(wrong)?.iter().map(|value| one(value).ok_or_else(wrong)).collect()
}
