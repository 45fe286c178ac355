//! PB format of the Archiver Appliance: one protobuf message per line, in files and over HTTP.
//!
//! A chunk is a header line ([`Info`]) and one line per sample. Timestamps count from the start of the chunk's year. A file is one chunk; over
//! HTTP an empty line ends each chunk. Within a line, the bytes 1B, 0A and 0D are escaped.

use crate::wire::{self, Field};
use base::{Array, FieldType, Scalar, Str40, days_from_civil};
use segment::rows::{About, Cause, Gap, LABELS_MAX, Signal};
use segment::{Datum, Kind, Sample};

/// Years with timestamps that fit into 64 bits of nanoseconds.
const YEARS: std::ops::RangeInclusive<i32> = 1678..=2261;
const SECOND: i64 = 1_000_000_000;
const ESCAPE: u8 = 0x1b;

/// Type of a chunk's values, with the format's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the format's name for the type")]
pub enum Payload {
    ScalarString = 0,
    ScalarShort = 1,
    ScalarFloat = 2,
    ScalarEnum = 3,
    ScalarByte = 4,
    ScalarInt = 5,
    ScalarDouble = 6,
    WaveformString = 7,
    WaveformShort = 8,
    WaveformFloat = 9,
    WaveformEnum = 10,
    WaveformByte = 11,
    WaveformInt = 12,
    WaveformDouble = 13,
    V4GenericBytes = 14,
}

const PAYLOADS: [(Payload, &str); 15] = [
    (Payload::ScalarString, "DBR_SCALAR_STRING"),
    (Payload::ScalarShort, "DBR_SCALAR_SHORT"),
    (Payload::ScalarFloat, "DBR_SCALAR_FLOAT"),
    (Payload::ScalarEnum, "DBR_SCALAR_ENUM"),
    (Payload::ScalarByte, "DBR_SCALAR_BYTE"),
    (Payload::ScalarInt, "DBR_SCALAR_INT"),
    (Payload::ScalarDouble, "DBR_SCALAR_DOUBLE"),
    (Payload::WaveformString, "DBR_WAVEFORM_STRING"),
    (Payload::WaveformShort, "DBR_WAVEFORM_SHORT"),
    (Payload::WaveformFloat, "DBR_WAVEFORM_FLOAT"),
    (Payload::WaveformEnum, "DBR_WAVEFORM_ENUM"),
    (Payload::WaveformByte, "DBR_WAVEFORM_BYTE"),
    (Payload::WaveformInt, "DBR_WAVEFORM_INT"),
    (Payload::WaveformDouble, "DBR_WAVEFORM_DOUBLE"),
    (Payload::V4GenericBytes, "DBR_V4_GENERIC_BYTES"),
];

impl Payload {
    /// Smallest type that can hold all values of a kind. The format has no unsigned types, so they get a wider one. Integers beyond 32 bits
    /// become doubles, which lose the last bits above 2^53.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::ScalarString,
            Kind::Blob => Self::WaveformByte,
            Kind::Bool => Self::ScalarShort,
            Kind::Number(element) => match element {
                FieldType::I8 | FieldType::U8 | FieldType::I16 => Self::ScalarShort,
                FieldType::U16 | FieldType::I32 => Self::ScalarInt,
                FieldType::F32 => Self::ScalarFloat,
                FieldType::Enum | FieldType::Menu | FieldType::Device => Self::ScalarEnum,
                FieldType::String | FieldType::Link => Self::ScalarString,
                FieldType::U32 | FieldType::I64 | FieldType::U64 | FieldType::F64 => Self::ScalarDouble,
            },
            Kind::Array(element) => match element {
                FieldType::I8 | FieldType::U8 => Self::WaveformByte,
                FieldType::I16 => Self::WaveformShort,
                FieldType::U16 | FieldType::I32 => Self::WaveformInt,
                FieldType::F32 => Self::WaveformFloat,
                FieldType::Enum | FieldType::Menu | FieldType::Device => Self::WaveformEnum,
                FieldType::String | FieldType::Link => Self::WaveformString,
                FieldType::U32 | FieldType::I64 | FieldType::U64 | FieldType::F64 => Self::WaveformDouble,
            },
        }
    }

    /// Name of the type (`DBR_SCALAR_DOUBLE`).
    #[must_use]
    pub fn name(self) -> &'static str {
        PAYLOADS[self as usize].1
    }

    /// Values have a single element.
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        (self as u8) < Self::WaveformString as u8
    }
}

/// Header line of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Type of the values.
    pub payload: Payload,
    /// Name of the signal.
    pub name: String,
    /// Year (UTC) from whose start the timestamps count.
    pub year: i32,
    /// Number of elements; 1 for scalars.
    pub elements: i32,
    /// Further properties: `EGU`, `PREC`, `ENUM_0`.
    pub headers: Vec<(String, String)>,
}

/// A sample with its fields: fields of the record, times of lost and regained connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The sample.
    pub sample: Sample,
    /// Names and values of the fields.
    pub fields: Vec<(String, String)>,
}

impl From<Sample> for Row {
    fn from(sample: Sample) -> Self {
        Self { sample, fields: Vec::new() }
    }
}

/// Reason why a line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// The line is not a protobuf message.
    #[error("the line is no protobuf message; expected a line of the Archiver Appliance's PB format")]
    Message,
    /// A required field is missing.
    #[error("the line has no {0}")]
    Missing(&'static str),
    /// The type is unknown.
    #[error("the chunk's type is {0}; expected 0 to 14")]
    Type(u64),
    /// The timestamps of this year do not fit.
    #[error("the chunk's year is {0}; expected 1678 to 2261")]
    Year(i64),
    /// The timestamp is beyond a year.
    #[error("the stamp is {secs} s and {nanos} ns into the year; expected at most 366 days, and less than a second")]
    Stamp {
        /// Seconds since the start of the year.
        secs: u64,
        /// Nanoseconds.
        nanos: u64,
    },
}

/// Start of a year, in seconds since 1970.
#[must_use]
pub const fn year_begins(year: i32) -> i64 {
    days_from_civil(year as i64, 1, 1) * 86_400
}

/// Year (UTC) of an instant in nanoseconds since 1970.
#[must_use]
pub const fn year_of(at: i64) -> i32 {
    let secs = at.div_euclid(SECOND);
    // Within these centuries the estimate by the mean length of a year is off by at most one.
    let mut year = 1970 + secs.div_euclid(31_556_952) as i32;
    while year_begins(year) > secs {
        year -= 1;
    }
    while year_begins(year + 1) <= secs {
        year += 1;
    }
    year
}

/// Appends a message as an escaped line.
fn put_line(message: &[u8], out: &mut Vec<u8>) {
    for byte in message {
        match byte {
            &ESCAPE => out.extend_from_slice(&[ESCAPE, 1]),
            b'\n' => out.extend_from_slice(&[ESCAPE, 2]),
            b'\r' => out.extend_from_slice(&[ESCAPE, 3]),
            other => out.push(*other),
        }
    }
    out.push(b'\n');
}

/// Unescapes a line without its end. An unknown escape gives the byte that follows it.
fn message(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        if *byte != ESCAPE {
            out.push(*byte);
            continue;
        }
        match bytes.next() {
            Some(1) => out.push(ESCAPE),
            Some(2) => out.push(b'\n'),
            Some(3) => out.push(b'\r'),
            Some(other) => out.push(*other),
            None => out.push(ESCAPE),
        }
    }
    out
}

impl Info {
    /// Appends the header line.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut line = Vec::new();
        wire::put_number(&mut line, 1, self.payload as u64);
        wire::put_bytes(&mut line, 2, self.name.as_bytes());
        wire::put_number(&mut line, 3, i64::from(self.year) as u64);
        // Written before the number of elements. That is 1 if no sample follows, so the line does not end in white space, which clients would
        // trim.
        put_pairs(&mut line, 15, &self.headers);
        wire::put_number(&mut line, 4, i64::from(self.elements) as u64);
        put_line(&line, out);
    }

    /// Parses a line without its end.
    ///
    /// # Errors
    /// The line is not a header.
    pub fn read(line: &[u8]) -> Result<Self, Bad> {
        let message = message(line);
        let (mut payload, mut name, mut year, mut elements, mut headers) = (None, None, None, 1, Vec::new());
        for field in wire::fields(&message) {
            match field.ok_or(Bad::Message)? {
                (1, Field::Varint(code)) => {
                    let known = usize::try_from(code).ok().and_then(|code| PAYLOADS.get(code));
                    payload = Some(known.ok_or(Bad::Type(code))?.0);
                }
                (2, Field::Bytes(bytes)) => name = Some(text(bytes)),
                (3, Field::Varint(value)) => year = Some(value as i64),
                (4, Field::Varint(value)) => elements = value as i32,
                (15, Field::Bytes(bytes)) => headers.push(pair(bytes)?),
                _ => {}
            }
        }
        let year = year.ok_or(Bad::Missing("year"))?;
        let year = i32::try_from(year).ok().filter(|year| YEARS.contains(year)).ok_or(Bad::Year(year))?;
        let (payload, name) = (payload.ok_or(Bad::Missing("type"))?, name.ok_or(Bad::Missing("name"))?);
        Ok(Self { payload, name, year, elements, headers })
    }
}

impl Row {
    /// Appends the line of a sample. Its timestamp must be in the chunk's year, and its value of the chunk's type, as given by [`Payload::of`].
    pub fn write(&self, info: &Info, out: &mut Vec<u8>) {
        let sample = &self.sample;
        let (secs, nanos) = (sample.at.div_euclid(SECOND), sample.at.rem_euclid(SECOND));
        let mut line = Vec::new();
        wire::put_number(&mut line, 1, (secs - year_begins(info.year)) as u64);
        wire::put_number(&mut line, 2, nanos as u64);
        put_value(&mut line, info.payload, &sample.datum);
        if sample.severity > 0 {
            wire::put_number(&mut line, 4, sample.severity.into());
        }
        if sample.status > 0 {
            wire::put_number(&mut line, 5, sample.status.into());
        }
        put_pairs(&mut line, 7, &self.fields);
        if line.last().is_some_and(|byte| matches!(byte, b'\t' | 0x0b | 0x0c | b' ')) {
            // Clients trim white space at the end of an answer, which would damage a last sample that ends in such a byte. A repeat count of 0,
            // the default value, prevents this.
            wire::put_number(&mut line, 6, 0);
        }
        put_line(&line, out);
    }

    /// Parses a line without its end, in a chunk with the header `info`.
    ///
    /// # Errors
    /// The line is not a sample.
    pub fn read(line: &[u8], info: &Info) -> Result<Self, Bad> {
        let message = message(line);
        let (mut secs, mut nanos, mut severity, mut status, mut fields) = (None, None, 0, 0, Vec::new());
        let mut values = Values::new(info.payload);
        for field in wire::fields(&message) {
            match field.ok_or(Bad::Message)? {
                (1, Field::Varint(value)) => secs = Some(value),
                (2, Field::Varint(value)) => nanos = Some(value),
                (3, value) => values.take(value).ok_or(Bad::Message)?,
                (4, Field::Varint(value)) => severity = value.min(3) as u8,
                (5, Field::Varint(value)) => status = u16::try_from(value).unwrap_or(u16::MAX),
                (7, Field::Bytes(bytes)) => fields.push(pair(bytes)?),
                _ => {}
            }
        }
        let (secs, nanos) = (secs.ok_or(Bad::Missing("seconds"))?, nanos.ok_or(Bad::Missing("nanoseconds"))?);
        if secs > 366 * 86_400 || nanos >= SECOND as u64 {
            return Err(Bad::Stamp { secs, nanos });
        }
        let at = (year_begins(info.year) + secs as i64) * SECOND + nanos as i64;
        let datum = values.end().ok_or(Bad::Missing("value"))?;
        Ok(Self { sample: Sample { at, datum, severity, status, pulse: None }, fields })
    }
}

/// Writer of samples as lines. Starts a new chunk if the signal, the type, the year or the description changes.
#[derive(Debug, Default)]
pub struct Lines {
    name: String,
    /// Header of the current chunk, and index of the description that it was made from.
    chunk: Option<(Info, usize)>,
    /// No line has been written for the signal.
    is_signal_new: bool,
    has_begun: bool,
}

impl Lines {
    /// Starts a signal.
    pub fn signal(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.is_signal_new = true;
    }

    /// Appends a sample. `rows` are the descriptions of the signal, oldest first. With `latest` the newest applies to all samples.
    pub fn row(&mut self, rows: &[Signal], latest: bool, row: &Row, out: &mut Vec<u8>) {
        let (payload, year) = (Payload::of(row.sample.datum.kind()), year_of(row.sample.at));
        let since = rows.partition_point(|known| known.since <= row.sample.at).saturating_sub(1);
        let index = if latest { rows.len().saturating_sub(1) } else { since };
        let fits = |(info, of): &(Info, usize)| (info.payload, info.year, *of) == (payload, year, index);
        if self.is_signal_new || !self.chunk.as_ref().is_some_and(fits) {
            let elements = match &row.sample.datum {
                Datum::Array(array) => i32::try_from(array.len()).unwrap_or(i32::MAX),
                _ => 1,
            };
            self.begin(rows, (payload, year, elements, index), out);
        }
        if let Some((info, _)) = &self.chunk {
            row.write(info, out);
        }
    }

    /// Appends the header of an empty chunk, for the year of an instant.
    pub fn no_rows(&mut self, rows: &[Signal], at: i64, out: &mut Vec<u8>) {
        let kind = rows.last().map_or(Kind::Number(FieldType::F64), |row| row.kind);
        self.begin(rows, (Payload::of(kind), year_of(at), 1, rows.len().saturating_sub(1)), out);
    }

    /// Appends the header of an empty chunk that reports damage: the cause as `gap`, its start in seconds since 1970, and the number of missing
    /// samples.
    pub fn damage(&mut self, rows: &[Signal], damage: &[Gap], out: &mut Vec<u8>) {
        let Some(first) = damage.first() else { return };
        let kind = rows.last().map_or(Kind::Number(FieldType::F64), |row| row.kind);
        let index = rows.len().saturating_sub(1);
        let lost: u64 = damage.iter().map(|gap| gap.lost).fold(0, u64::saturating_add);
        let more = [
            ("gap", first.cause.to_string()),
            ("gapepsecs", first.at.div_euclid(SECOND).to_string()),
            ("lost", lost.to_string()),
        ];
        let more = more.map(|(name, value)| (name.to_owned(), value));
        self.begin_with(rows, (Payload::of(kind), year_of(first.at), 1, index), more.into(), out);
    }

    fn begin(&mut self, rows: &[Signal], what: (Payload, i32, i32, usize), out: &mut Vec<u8>) {
        self.begin_with(rows, what, Vec::new(), out);
    }

    fn begin_with(
        &mut self,
        rows: &[Signal],
        what: (Payload, i32, i32, usize),
        more: Vec<(String, String)>,
        out: &mut Vec<u8>,
    ) {
        if self.has_begun {
            out.push(b'\n');
        }
        let (payload, year, elements, index) = what;
        let mut headers = rows.get(index).map(|row| headers(&row.about)).unwrap_or_default();
        headers.extend(more);
        let info = Info { payload, name: self.name.clone(), year, elements, headers };
        info.write(out);
        self.chunk = Some((info, index));
        (self.is_signal_new, self.has_begun) = (false, true);
    }
}

/// Properties of a signal, with EPICS field names.
#[must_use]
pub fn headers(about: &About) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if !about.units.is_empty() {
        headers.push(("EGU".into(), about.units.clone()));
    }
    if let Some(digits) = about.precision {
        headers.push(("PREC".into(), digits.to_string()));
    }
    headers.extend(about.labels.iter().enumerate().map(|(state, label)| (format!("ENUM_{state}"), label.clone())));
    headers
}

/// The inverse of [`headers`]. Unknown names are ignored.
#[must_use]
pub fn about(headers: &[(String, String)]) -> About {
    let mut about = About::default();
    for (name, value) in headers {
        match name.as_str() {
            "EGU" => value.clone_into(&mut about.units),
            // The Appliance writes the precision as a double.
            "PREC" => {
                about.precision =
                    value.parse().ok().filter(|digits| (0.0..100.0).contains(digits)).map(|digits: f64| digits as u16)
            }
            _ => {
                let state = name.strip_prefix("ENUM_").and_then(|state| state.parse::<usize>().ok());
                let Some(state) = state.filter(|state| *state < LABELS_MAX) else { continue };
                if about.labels.len() <= state {
                    about.labels.resize(state + 1, String::new());
                }
                value.clone_into(&mut about.labels[state]);
            }
        }
    }
    about
}

/// Gaps before a sample, from the fields of the Appliance: start and cause. `before` is the timestamp of the previous sample.
#[must_use]
pub fn gaps(row: &Row, before: Option<i64>) -> Vec<(i64, Cause)> {
    let at = row.sample.at;
    let field = |wanted: &str| row.fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let mut gaps = Vec::new();
    let lost =
        field("cnxlostepsecs").and_then(|secs| secs.parse::<i64>().ok()).and_then(|secs| secs.checked_mul(SECOND));
    gaps.extend(lost.filter(|lost| (1..=at).contains(lost)).map(|lost| (lost, Cause::Disconnected)));
    if field("startup") == Some("true") {
        gaps.push((at, Cause::Started));
    }
    if field("resume") == Some("true") {
        gaps.push((before.map_or(at, |before| before.saturating_add(1).min(at)), Cause::Paused));
    }
    gaps
}

/// Parser of lines, chunk after chunk: a file, or an answer over HTTP.
#[derive(Debug, Default)]
pub struct Chunks {
    info: Option<Info>,
}

impl Chunks {
    /// Header of the current chunk.
    #[must_use]
    pub const fn info(&self) -> Option<&Info> {
        self.info.as_ref()
    }

    /// Parses the next line, without its end. Returns a sample with its header, or `None` for a line without a sample.
    ///
    /// # Errors
    /// The line is invalid. Parsing can continue with the next line.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<(&Info, Row)>, Bad> {
        if line.is_empty() {
            self.info = None;
            return Ok(None);
        }
        match &mut self.info {
            Some(info) => Row::read(line, info).map(|row| Some((&*info, row))),
            none => {
                *none = Some(Info::read(line)?);
                Ok(None)
            }
        }
    }
}

fn put_pairs(line: &mut Vec<u8>, field: u64, pairs: &[(String, String)]) {
    for (name, value) in pairs {
        let mut pair = Vec::new();
        wire::put_bytes(&mut pair, 1, name.as_bytes());
        wire::put_bytes(&mut pair, 2, value.as_bytes());
        wire::put_bytes(line, field, &pair);
    }
}

fn pair(bytes: &[u8]) -> Result<(String, String), Bad> {
    let (mut name, mut value) = (String::new(), String::new());
    for field in wire::fields(bytes) {
        match field.ok_or(Bad::Message)? {
            (1, Field::Bytes(bytes)) => name = text(bytes),
            (2, Field::Bytes(bytes)) => value = text(bytes),
            _ => {}
        }
    }
    Ok((name, value))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Elements of a value; one for a scalar.
fn elements(datum: &Datum) -> impl Iterator<Item = Scalar> + '_ {
    let (one, array) = match datum {
        Datum::Bool(value) => (Some(Scalar::U8((*value).into())), None),
        Datum::Number(scalar) => (Some(*scalar), None),
        Datum::Array(array) => (None, Some(array)),
        Datum::Text(_) | Datum::Blob(_) => (None, None),
    };
    let len = array.map_or(0, Array::len);
    one.into_iter().chain((0..len).filter_map(move |index| array?.get(index)))
}

fn put_value(line: &mut Vec<u8>, payload: Payload, datum: &Datum) {
    let float = |scalar: Scalar| scalar.to_f64().unwrap_or(f64::NAN);
    let whole = |scalar: Scalar| float(scalar) as i32;
    match payload {
        Payload::ScalarString | Payload::V4GenericBytes => wire::put_bytes(line, 3, &bytes(datum)),
        Payload::ScalarShort | Payload::ScalarEnum => {
            elements(datum).for_each(|one| wire::put_number(line, 3, wire::zigzag(whole(one))));
        }
        Payload::ScalarInt => elements(datum).for_each(|one| wire::put_fixed32(line, 3, whole(one).to_le_bytes())),
        Payload::ScalarFloat => {
            elements(datum).for_each(|one| wire::put_fixed32(line, 3, (float(one) as f32).to_le_bytes()));
        }
        Payload::ScalarDouble => elements(datum).for_each(|one| wire::put_fixed64(line, 3, float(one).to_le_bytes())),
        Payload::ScalarByte | Payload::WaveformByte => {
            let few: Vec<u8> = match datum {
                Datum::Text(bytes) | Datum::Blob(bytes) => bytes.clone(),
                other => elements(other).map(|one| whole(one) as u8).collect(),
            };
            wire::put_bytes(line, 3, &few);
        }
        Payload::WaveformString => {
            for one in elements(datum) {
                let Scalar::String(text) = one else { continue };
                wire::put_bytes(line, 3, text.bytes());
            }
        }
        Payload::WaveformShort | Payload::WaveformEnum => {
            let mut packed = Vec::new();
            elements(datum).for_each(|one| wire::put_varint(&mut packed, wire::zigzag(whole(one))));
            wire::put_bytes(line, 3, &packed);
        }
        Payload::WaveformInt => {
            wire::put_bytes(line, 3, &elements(datum).flat_map(|one| whole(one).to_le_bytes()).collect::<Vec<_>>());
        }
        Payload::WaveformFloat => {
            let packed: Vec<u8> = elements(datum).flat_map(|one| (float(one) as f32).to_le_bytes()).collect();
            wire::put_bytes(line, 3, &packed);
        }
        Payload::WaveformDouble => {
            wire::put_bytes(line, 3, &elements(datum).flat_map(|one| float(one).to_le_bytes()).collect::<Vec<_>>());
        }
    }
}

/// Text or bytes of a value.
fn bytes(datum: &Datum) -> Vec<u8> {
    match datum {
        Datum::Text(bytes) | Datum::Blob(bytes) => bytes.clone(),
        Datum::Number(Scalar::String(text)) => text.bytes().to_vec(),
        other => other.to_string().into_bytes(),
    }
}

/// A value under construction.
struct Values {
    payload: Payload,
    scalar: Option<Datum>,
    array: Option<Array>,
}

impl Values {
    fn new(payload: Payload) -> Self {
        // An empty array is not written at all.
        let array = match payload {
            Payload::WaveformString => Some(Array::String(Vec::new())),
            Payload::WaveformShort => Some(Array::I16(Vec::new())),
            Payload::WaveformFloat => Some(Array::F32(Vec::new())),
            Payload::WaveformEnum => Some(Array::Enum(Vec::new())),
            Payload::WaveformByte => Some(Array::U8(Vec::new())),
            Payload::WaveformInt => Some(Array::I32(Vec::new())),
            Payload::WaveformDouble => Some(Array::F64(Vec::new())),
            _ => None,
        };
        Self { payload, scalar: None, array }
    }

    /// Adds a field. `None` if it has the wrong type.
    fn take(&mut self, field: Field<'_>) -> Option<()> {
        match (&mut self.array, field) {
            (Some(array), field) => extend(array, field)?,
            (None, field) => self.scalar = Some(scalar(self.payload, field)?),
        }
        Some(())
    }

    fn end(self) -> Option<Datum> {
        self.array.map(Datum::Array).or(self.scalar)
    }
}

fn scalar(payload: Payload, field: Field<'_>) -> Option<Datum> {
    let number = Datum::Number;
    Some(match (payload, field) {
        (Payload::ScalarString, Field::Bytes(bytes)) => Datum::Text(bytes.to_vec()),
        (Payload::V4GenericBytes, Field::Bytes(bytes)) => Datum::Blob(bytes.to_vec()),
        (Payload::ScalarByte, Field::Bytes(bytes)) => number(Scalar::I8(*bytes.first()? as i8)),
        (Payload::ScalarShort, Field::Varint(value)) => number(Scalar::I16(short(value)?)),
        (Payload::ScalarEnum, Field::Varint(value)) => number(Scalar::Enum(state(value)?)),
        (Payload::ScalarInt, Field::Fixed32(bytes)) => number(Scalar::I32(i32::from_le_bytes(bytes))),
        (Payload::ScalarFloat, Field::Fixed32(bytes)) => number(Scalar::F32(f32::from_le_bytes(bytes))),
        (Payload::ScalarDouble, Field::Fixed64(bytes)) => number(Scalar::F64(f64::from_le_bytes(bytes))),
        _ => return None,
    })
}

fn short(value: u64) -> Option<i16> {
    i16::try_from(wire::unzigzag(value)).ok()
}

fn state(value: u64) -> Option<u16> {
    u16::try_from(wire::unzigzag(value)).ok()
}

/// Appends elements, packed or single.
fn extend(array: &mut Array, field: Field<'_>) -> Option<()> {
    match (array, field) {
        // A string that is too long for EPICS is refused rather than truncated.
        (Array::String(texts), Field::Bytes(bytes)) if bytes.len() < 40 => texts.push(Str40::new(bytes)),
        (Array::U8(values), Field::Bytes(bytes)) => values.extend_from_slice(bytes),
        (Array::I16(values), Field::Varint(value)) => values.push(short(value)?),
        (Array::Enum(values), Field::Varint(value)) => values.push(state(value)?),
        (Array::I16(values), Field::Bytes(mut bytes)) => {
            while !bytes.is_empty() {
                values.push(short(wire::varint(&mut bytes)?)?);
            }
        }
        (Array::Enum(values), Field::Bytes(mut bytes)) => {
            while !bytes.is_empty() {
                values.push(state(wire::varint(&mut bytes)?)?);
            }
        }
        (Array::I32(values), Field::Fixed32(bytes)) => values.push(i32::from_le_bytes(bytes)),
        (Array::F32(values), Field::Fixed32(bytes)) => values.push(f32::from_le_bytes(bytes)),
        (Array::F64(values), Field::Fixed64(bytes)) => values.push(f64::from_le_bytes(bytes)),
        (Array::I32(values), Field::Bytes(bytes)) => {
            values.extend(words(bytes)?.iter().map(|word| i32::from_le_bytes(*word)));
        }
        (Array::F32(values), Field::Bytes(bytes)) => {
            values.extend(words(bytes)?.iter().map(|word| f32::from_le_bytes(*word)));
        }
        (Array::F64(values), Field::Bytes(bytes)) => {
            values.extend(words(bytes)?.iter().map(|word| f64::from_le_bytes(*word)));
        }
        _ => return None,
    }
    Some(())
}

fn words<const N: usize>(bytes: &[u8]) -> Option<&[[u8; N]]> {
    let (words, rest) = bytes.as_chunks();
    rest.is_empty().then_some(words)
}
