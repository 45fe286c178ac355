//! Writing a table.

use crate::ColumnsError;
use crate::leaf::{Leaf, Values};
use crate::schema::{self, ABOUT, Content, GAP};
use crate::sum::{self, SUM, Summed};
use base::{Array, Scalar};
use exchange::{ExchangeError, Row, Writer};
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use segment::rows::About;
use segment::{Datum, Kind};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;

/// Most rows of a group.
const ROWS_MAX: usize = 128 << 10;
/// Rows from which on a group ends where a signal does: then readers pass over the others.
const ROWS_ENOUGH: usize = 16 << 10;
/// Bytes of texts, blobs and arrays from which on a group ends.
const BYTES_ENOUGH: usize = 32 << 20;

/// Writes a table of any number of signals; those of one belong together.
///
/// | column | type | |
/// |---|---|---|
/// | `signal` | text | missing in a gap of all signals |
/// | `time` | TIMESTAMP(NANOS, UTC) | |
/// | `type` | text | `f64`, `bool`, `enum`, `f64[]`, …; `gap` for a row that is no sample |
/// | `value` | as it is | numbers, where all of the table have one type; `DOUBLE` where they have several |
/// | `value_i64`, `value_u64` | INT64 | all digits, where `value` is `DOUBLE` |
/// | `label` | text | of an `enum`, the state's name |
/// | `text`, `blob` | text, bytes | a text that is no UTF-8 is in `blob` |
/// | `array_f64`, … | LIST | texts in it double a backslash, and a byte that is no UTF-8 is `\xNN` |
/// | `severity`, `status`, `pulse` | whole numbers | `pulse` is missing where there is none |
/// | `gap`, `lost` | text, whole number | why there are no samples from `time` on, and how many were lost |
///
/// Of the columns for values those are there whose types are. What signals are (units, precision, names of states) stands as
/// JSON in the file's end, under `tahti.signals`; a checksum over the whole file under `tahti.crc32c`.
///
/// Memory: a group of rows, 131,072 or 32 MiB of texts and arrays with one more of them.
pub struct ParquetWriter<W: Write + Send> {
    out: SerializedFileWriter<Summed<W>>,
    columns: Vec<(Content, Leaf)>,
    rows: usize,
    bytes: usize,
    name: String,
    signal: ByteArray,
    /// What the signal has been.
    known: Vec<(i64, About)>,
    abouts: Vec<serde_json::Value>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a table for values of these types.
    ///
    /// # Errors
    /// The file's.
    pub fn new(out: W, kinds: impl IntoIterator<Item = Kind>) -> Result<Self, ExchangeError> {
        let contents = schema::columns(kinds);
        let properties = Arc::new(schema::properties(&contents));
        let out = schema::schema(&contents)
            .and_then(|schema| SerializedFileWriter::new(Summed::new(out), schema, properties));
        let out = out.map_err(ColumnsError::from)?;
        let types = out.schema_descr().columns().iter().map(|column| column.physical_type());
        let leaves = contents.iter().zip(types).filter_map(|(one, kind)| Some((*one, Leaf::new(Values::new(kind)?))));
        let columns = leaves.collect();
        let (name, signal) = (String::new(), ByteArray::default());
        Ok(Self { out, columns, rows: 0, bytes: 0, name, signal, known: Vec::new(), abouts: Vec::new() })
    }

    fn go_on_with(&mut self, name: &str) -> Result<(), ExchangeError> {
        if self.name != name {
            if self.rows >= ROWS_ENOUGH {
                self.group()?;
            }
            name.clone_into(&mut self.name);
            self.signal = name.into();
            self.known.clear();
        }
        Ok(())
    }

    fn row(&mut self, row: &Row) -> Result<(), ExchangeError> {
        if let Row::Sample { sample, .. } = row {
            let kind = sample.datum.kind();
            if !self.columns.iter().any(|(column, _)| column.holds(kind)) {
                return Err(ColumnsError::Kind(kind).into());
            }
            self.bytes += match &sample.datum {
                Datum::Text(bytes) | Datum::Blob(bytes) => bytes.len(),
                Datum::Array(array) => array.len() * 8,
                Datum::Bool(_) | Datum::Number(_) => 0,
            };
        }
        for (column, leaf) in &mut self.columns {
            match (*column, row) {
                (Content::Signal, Row::Gap { name: None, .. }) => leaf.defined.push(0),
                (Content::Signal, _) => leaf.bytes(self.signal.clone()),
                (_, Row::Sample { sample, .. }) => put(leaf, *column, sample, &self.known),
                (Content::Time, Row::Gap { at, .. }) => {
                    if let Values::I64(some) = &mut leaf.values {
                        some.push(*at);
                    }
                }
                (Content::Type, Row::Gap { .. }) => leaf.bytes(GAP.into()),
                (Content::Gap, Row::Gap { cause, .. }) => leaf.bytes(cause.to_string().as_str().into()),
                (Content::Lost, Row::Gap { lost, .. }) => leaf.i64(*lost as i64),
                _ => leaf.nothing(*column),
            }
        }
        self.rows += 1;
        if self.rows >= ROWS_MAX || self.bytes >= BYTES_ENOUGH { self.group() } else { Ok(()) }
    }

    /// Writes a group of rows.
    fn group(&mut self) -> Result<(), ExchangeError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.out.next_row_group().map_err(ColumnsError::from)?;
        for (_, leaf) in &mut self.columns {
            let column = group.next_column().map_err(ColumnsError::from)?;
            if let Some(mut column) = column {
                leaf.put(column.untyped()).and_then(|()| column.close()).map_err(ColumnsError::from)?;
            }
            leaf.clear();
        }
        group.close().map_err(ColumnsError::from)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl<W: Write + Send> Writer for ParquetWriter<W> {
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        match row {
            Row::Signal { name, since, kind, about } => {
                self.go_on_with(name)?;
                self.known.push((*since, about.clone()));
                self.abouts.push(json!({
                    "signal": name, "since_ns": since, "type": kind.to_string(), "units": about.units,
                    "precision": about.precision, "labels": about.labels,
                }));
                Ok(())
            }
            Row::Sample { name, .. } | Row::Gap { name: Some(name), .. } => {
                self.go_on_with(name)?;
                self.row(row)
            }
            Row::Gap { name: None, .. } => self.row(row),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        self.group()?;
        let about = serde_json::Value::from(std::mem::take(&mut self.abouts)).to_string();
        self.out.append_key_value_metadata(KeyValue::new(ABOUT.to_owned(), about));
        self.out.append_key_value_metadata(KeyValue::new(SUM.to_owned(), sum::placeholder()));
        let mut out = self.out;
        out.flush()?;
        out.inner_mut().hold();
        out.finish().map_err(ColumnsError::from)?;
        Ok(out.inner_mut().release()?)
    }
}

impl Content {
    /// Whether values of a type have their place here.
    fn holds(self, kind: Kind) -> bool {
        match self {
            Self::Value(one) => one.code() == kind.code(),
            Self::Number => !kind.varies(),
            Self::Text => kind == Kind::Text,
            Self::Blob => kind == Kind::Blob,
            Self::Array(of) => Kind::Array(of).code() == kind.code(),
            _ => false,
        }
    }
}

/// Appends what a sample has for a column.
fn put(leaf: &mut Leaf, column: Content, sample: &segment::Sample, known: &[(i64, About)]) {
    let datum = &sample.datum;
    match (column, datum) {
        (Content::Time, _) => {
            if let Values::I64(some) = &mut leaf.values {
                some.push(sample.at);
            }
        }
        (Content::Type, _) => leaf.bytes(datum.kind().to_string().as_str().into()),
        (Content::Severity, _) => leaf.i32(sample.severity.into()),
        (Content::Status, _) => leaf.i32(sample.status.into()),
        (Content::Pulse, _) => match sample.pulse {
            Some(pulse) => leaf.i64(pulse as i64),
            None => leaf.nothing(column),
        },
        (Content::Number, _) => match datum.to_f64() {
            Some(number) => leaf.f64(number),
            None => leaf.nothing(column),
        },
        (Content::Exact(of), Datum::Number(number)) if number.kind() == of => scalar(leaf, number),
        (Content::Value(_), Datum::Number(Scalar::String(_))) => leaf.nothing(column),
        (Content::Value(_), Datum::Number(number)) => scalar(leaf, number),
        (Content::Value(_), Datum::Bool(value)) => {
            if let Values::Bool(some) = &mut leaf.values {
                some.push(*value);
                leaf.defined.push(1);
            }
        }
        (Content::Label, Datum::Number(Scalar::Enum(state))) => match label(known, sample.at, *state) {
            Some(label) => leaf.bytes(label.into()),
            None => leaf.nothing(column),
        },
        (Content::Text, Datum::Number(Scalar::String(text))) => {
            text_or_nothing(leaf, text.bytes(), str::from_utf8(text.bytes()).is_ok());
        }
        (Content::Text, Datum::Text(text)) => text_or_nothing(leaf, text, str::from_utf8(text).is_ok()),
        (Content::Blob, Datum::Number(Scalar::String(text))) => {
            text_or_nothing(leaf, text.bytes(), str::from_utf8(text.bytes()).is_err());
        }
        (Content::Blob, Datum::Text(text)) => text_or_nothing(leaf, text, str::from_utf8(text).is_err()),
        (Content::Blob, Datum::Blob(bytes)) => text_or_nothing(leaf, bytes, true),
        (Content::Array(of), Datum::Array(array)) if array.kind() == of => elements(leaf, array),
        _ => leaf.nothing(column),
    }
}

fn text_or_nothing(leaf: &mut Leaf, bytes: &[u8], is_here: bool) {
    if is_here {
        leaf.bytes(bytes.to_vec().into());
    } else {
        leaf.defined.push(0);
    }
}

/// The name of a state as it was at an instant.
fn label(known: &[(i64, About)], at: i64, state: u16) -> Option<&str> {
    let (_, about) = known.iter().rev().find(|(since, _)| *since <= at).or(known.first())?;
    about.labels.get(usize::from(state)).map(String::as_str)
}

fn scalar(leaf: &mut Leaf, number: &Scalar) {
    match *number {
        Scalar::I8(v) => leaf.i32(v.into()),
        Scalar::U8(v) => leaf.i32(v.into()),
        Scalar::I16(v) => leaf.i32(v.into()),
        Scalar::U16(v) | Scalar::Enum(v) => leaf.i32(v.into()),
        Scalar::I32(v) => leaf.i32(v),
        Scalar::U32(v) => leaf.i32(v as i32),
        Scalar::I64(v) => leaf.i64(v),
        Scalar::U64(v) => leaf.i64(v as i64),
        Scalar::F32(v) => {
            if let Values::F32(some) = &mut leaf.values {
                some.push(v);
                leaf.defined.push(1);
            }
        }
        Scalar::F64(v) => leaf.f64(v),
        Scalar::String(_) => leaf.defined.push(0),
    }
}

/// Levels: 0 no array, 1 one without elements, 2 an element.
fn elements(leaf: &mut Leaf, array: &Array) {
    if array.is_empty() {
        leaf.defined.push(1);
        leaf.repeated.push(0);
        return;
    }
    leaf.defined.extend(std::iter::repeat_n(2, array.len()));
    leaf.repeated.extend((0..array.len()).map(|index| i16::from(index > 0)));
    match (&mut leaf.values, array) {
        (Values::I32(out), Array::I8(some)) => out.extend(some.iter().map(|v| i32::from(*v))),
        (Values::I32(out), Array::U8(some)) => out.extend(some.iter().map(|v| i32::from(*v))),
        (Values::I32(out), Array::I16(some)) => out.extend(some.iter().map(|v| i32::from(*v))),
        (Values::I32(out), Array::U16(some) | Array::Enum(some)) => out.extend(some.iter().map(|v| i32::from(*v))),
        (Values::I32(out), Array::U32(some)) => out.extend(some.iter().map(|v| *v as i32)),
        (Values::I32(out), Array::I32(some)) => out.extend_from_slice(some),
        (Values::I64(out), Array::I64(some)) => out.extend_from_slice(some),
        (Values::I64(out), Array::U64(some)) => out.extend(some.iter().map(|v| *v as i64)),
        (Values::F32(out), Array::F32(some)) => out.extend_from_slice(some),
        (Values::F64(out), Array::F64(some)) => out.extend_from_slice(some),
        (Values::Bytes(out), Array::String(some)) => {
            out.extend(some.iter().map(|text| ByteArray::from(exchange::escaped(text.bytes()).as_str())));
        }
        // A column of a type has arrays of that type alone.
        _ => {}
    }
}

impl Leaf {
    fn bytes(&mut self, value: ByteArray) {
        if let Values::Bytes(some) = &mut self.values {
            some.push(value);
            self.defined.push(1);
        }
    }

    fn i32(&mut self, value: i32) {
        if let Values::I32(some) = &mut self.values {
            some.push(value);
            self.defined.push(1);
        }
    }

    fn i64(&mut self, value: i64) {
        if let Values::I64(some) = &mut self.values {
            some.push(value);
            self.defined.push(1);
        }
    }

    fn f64(&mut self, value: f64) {
        if let Values::F64(some) = &mut self.values {
            some.push(value);
            self.defined.push(1);
        }
    }

    fn nothing(&mut self, column: Content) {
        self.defined.push(0);
        if matches!(column, Content::Array(_)) {
            self.repeated.push(0);
        }
    }
}
