//! Output formats for samples.

use crate::gaps::is_damage;
use crate::pb::{self, Payload, Row, headers};
use crate::{Failed, instant};
use base::csv::quoted;
use base::{Array, Scalar};
use segment::Datum;
use segment::rows::{Cause, Gap, Signal};
use std::fmt::Write as _;
use std::io::Write;

/// Size of the output buffer, in bytes.
const PIECE: usize = 32 << 10;
const SECOND: i64 = 1_000_000_000;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PB format.
    Raw,
    /// JSON with alarm states.
    Json,
    /// JSON with milliseconds, without alarm states.
    Qw,
    /// Table without header: seconds, value, severity, status, nanoseconds.
    Csv,
    /// Human-readable lines.
    Txt,
}

impl Format {
    /// Format for the extension of a path.
    pub(crate) fn of(ending: &str) -> Option<Self> {
        Some(match ending {
            "raw" => Self::Raw,
            "json" => Self::Json,
            "qw" => Self::Qw,
            "csv" => Self::Csv,
            "txt" => Self::Txt,
            _ => return None,
        })
    }

    /// Media type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Raw => "application/x-protobuf",
            Self::Json | Self::Qw => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Txt => "text/plain; charset=utf-8",
        }
    }

    /// The format supports several signals.
    pub(crate) const fn takes_several(self) -> bool {
        !matches!(self, Self::Csv | Self::Txt)
    }
}

/// Signal whose samples are written.
pub(crate) struct Head {
    pub(crate) name: String,
    /// Descriptions of the signal, oldest first; at least one.
    pub(crate) rows: Vec<Signal>,
    /// Use the newest description for all samples.
    pub(crate) latest: bool,
    /// Time whose year an empty chunk refers to.
    pub(crate) from: i64,
}

/// Writer of an answer.
pub(crate) struct Writer<'a> {
    format: Format,
    out: &'a mut dyn Write,
    piece: Vec<u8>,
    /// Number of signals started, and samples of the current one.
    signals: usize,
    samples: u64,
    lines: pb::Lines,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(format: Format, out: &'a mut dyn Write) -> Self {
        Self { format, out, piece: Vec::new(), signals: 0, samples: 0, lines: pb::Lines::default() }
    }

    /// Starts a signal.
    pub(crate) fn signal(&mut self, head: &Head) {
        let is_first = self.signals == 0;
        (self.signals, self.samples) = (self.signals + 1, 0);
        match self.format {
            Format::Raw => self.lines.signal(&head.name),
            Format::Json | Format::Qw => {
                self.piece.extend_from_slice(if is_first {
                    b"[ \n{ \"meta\": { \"name\": "
                } else {
                    b",\n{ \"meta\": { \"name\": "
                });
                put_text(&mut self.piece, &head.name);
                let now = head.rows.last();
                if self.format == Format::Qw {
                    let is_array = now.is_some_and(|row| !Payload::of(row.kind).is_scalar());
                    self.piece.extend_from_slice(format!(" , \"waveform\": {is_array}").as_bytes());
                }
                for (name, value) in now.map(|row| headers(&row.about)).unwrap_or_default() {
                    self.piece.extend_from_slice(b" , ");
                    put_text(&mut self.piece, &name);
                    self.piece.extend_from_slice(b": ");
                    put_text(&mut self.piece, &value);
                }
                self.piece.extend_from_slice(b" },\n\"data\": [ ");
            }
            Format::Csv => {}
            Format::Txt => self.piece.extend_from_slice(format!("Beginning data for {}\n", head.name).as_bytes()),
        }
    }

    /// Writes a sample.
    pub(crate) fn row(&mut self, head: &Head, row: &Row) -> Result<(), Failed> {
        let sample = &row.sample;
        let (secs, nanos) = (sample.at.div_euclid(SECOND), sample.at.rem_euclid(SECOND));
        let (severity, status) = (sample.severity, sample.status);
        match self.format {
            Format::Raw => self.lines.row(&head.rows, head.latest, row, &mut self.piece),
            Format::Json => {
                self.comma();
                self.piece.extend_from_slice(format!("{{ \"secs\": {secs}, \"val\": ").as_bytes());
                put_json(&mut self.piece, &sample.datum);
                let rest = format!(", \"nanos\": {nanos}, \"severity\":{severity}, \"status\":{status}");
                self.piece.extend_from_slice(rest.as_bytes());
                put_fields(&mut self.piece, &row.fields);
                self.piece.extend_from_slice(b" }");
            }
            Format::Qw => {
                self.comma();
                self.piece.extend_from_slice(
                    format!("{{ \"millis\": {}, \"val\": ", sample.at.div_euclid(1_000_000)).as_bytes(),
                );
                put_json(&mut self.piece, &sample.datum);
                self.piece.extend_from_slice(b" }");
            }
            Format::Csv => {
                if is_damage(&row.fields) {
                    self.piece.extend_from_slice(b"# no data before the next: damaged\n");
                }
                let value = sample.datum.to_string();
                let value = quoted(&value);
                self.piece.extend_from_slice(format!("{secs},{value},{severity},{status},{nanos}\n").as_bytes());
            }
            Format::Txt => {
                for (_, cause) in row.fields.iter().filter(|(name, _)| name == "gap") {
                    self.piece.extend_from_slice(format!("# no data before the next: {cause}\n").as_bytes());
                }
                let value = sample.datum.to_string().replace(['\t', '\n', '\r'], " ");
                let at = instant::show(sample.at);
                self.piece.extend_from_slice(format!("{at}\t{value}\t{severity}\t{status}\t{nanos}\n").as_bytes());
            }
        }
        self.samples += 1;
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends a signal. `gaps` lists all gaps; `damage` lists the damage that no sample has reported.
    pub(crate) fn signal_ends(&mut self, head: &Head, gaps: &[Gap], damage: &[Gap]) {
        match self.format {
            Format::Raw if !damage.is_empty() => self.lines.damage(&head.rows, damage, &mut self.piece),
            // Without a chunk header, clients could not distinguish an empty answer from a failure.
            Format::Raw if self.samples == 0 => self.lines.no_rows(&head.rows, head.from, &mut self.piece),
            Format::Raw => {}
            Format::Json => {
                self.piece.extend_from_slice(b"\n]");
                self.gaps(gaps);
                self.piece.extend_from_slice(b" }");
            }
            Format::Qw => {
                self.piece.extend_from_slice(b"\n]");
                // The Appliance reports no gaps in this format. Damage is reported nevertheless.
                let damage: Vec<Gap> = gaps.iter().filter(|gap| gap.cause == Cause::Damaged).copied().collect();
                self.gaps(&damage);
                self.piece.extend_from_slice(b" }");
            }
            Format::Csv => {
                self.damage(damage);
                self.piece.push(b'\n');
            }
            Format::Txt => {
                self.damage(damage);
                for gap in gaps.iter().rev().take(1) {
                    let line = format!("# last gap: {}, {}\n", instant::show(gap.at), gap.cause);
                    self.piece.extend_from_slice(line.as_bytes());
                }
            }
        }
    }

    /// Writes a line for each damaged place without a later sample.
    fn damage(&mut self, damage: &[Gap]) {
        for gap in damage {
            let line = format!("# damaged from {}: {} samples are missing\n", instant::show(gap.at), gap.lost);
            self.piece.extend_from_slice(line.as_bytes());
        }
    }

    /// Writes the list of gaps in JSON, if there are any.
    fn gaps(&mut self, gaps: &[Gap]) {
        if gaps.is_empty() {
            return;
        }
        self.piece.extend_from_slice(b",\n\"gaps\": [ ");
        for (index, gap) in gaps.iter().enumerate() {
            let (secs, nanos) = (gap.at.div_euclid(SECOND), gap.at.rem_euclid(SECOND));
            let comma = if index > 0 { "," } else { "" };
            let lost = gap.lost;
            let text = format!("{comma}\n{{ \"secs\": {secs}, \"nanos\": {nanos}, \"lost\": {lost}, \"cause\": ");
            self.piece.extend_from_slice(text.as_bytes());
            put_text(&mut self.piece, &gap.cause.to_string());
            self.piece.extend_from_slice(b" }");
        }
        self.piece.extend_from_slice(b"\n]");
    }

    /// Ends the answer and flushes the buffer.
    pub(crate) fn end(mut self) -> Result<(), Failed> {
        if matches!(self.format, Format::Json | Format::Qw) {
            self.piece.extend_from_slice(if self.signals == 0 { b"[ ]\n" } else { b"\n]\n" });
        }
        self.flush()
    }

    fn comma(&mut self) {
        self.piece.extend_from_slice(if self.samples > 0 { b",\n" } else { b"\n" });
    }

    fn flush(&mut self) -> Result<(), Failed> {
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

/// Appends a JSON string.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

fn put_fields(out: &mut Vec<u8>, fields: &[(String, String)]) {
    if fields.is_empty() {
        return;
    }
    out.extend_from_slice(b", \"fields\": { ");
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        put_text(out, name);
        out.extend_from_slice(b": ");
        put_text(out, value);
    }
    out.extend_from_slice(b" }");
}

/// Appends a value as JSON: numbers and arrays of numbers in full precision, enumerations as their index, blobs as arrays of bytes. Non-finite
/// numbers become `null`.
pub fn put_json(out: &mut Vec<u8>, datum: &Datum) {
    match datum {
        Datum::Bool(value) => out.push(b'0' + u8::from(*value)),
        Datum::Number(scalar) => put_scalar(out, scalar),
        Datum::Text(bytes) => put_text(out, &String::from_utf8_lossy(bytes)),
        Datum::Blob(bytes) => put_elements(out, &Array::U8(bytes.clone())),
        Datum::Array(array) => put_elements(out, array),
    }
}

fn put_elements(out: &mut Vec<u8>, array: &Array) {
    out.push(b'[');
    for (index, scalar) in (0..array.len()).filter_map(|index| Some((index, array.get(index)?))) {
        if index > 0 {
            out.push(b',');
        }
        put_scalar(out, &scalar);
    }
    out.push(b']');
}

fn put_scalar(out: &mut Vec<u8>, scalar: &Scalar) {
    let mut text = String::new();
    let written = match scalar {
        Scalar::String(words) => return put_text(out, &String::from_utf8_lossy(words.bytes())),
        Scalar::F64(value) if !value.is_finite() => write!(text, "null"),
        Scalar::F32(value) if !value.is_finite() => write!(text, "null"),
        Scalar::F64(value) => write!(text, "{value:?}"),
        Scalar::F32(value) => write!(text, "{value:?}"),
        other => write!(text, "{}", Datum::Number(*other)),
    };
    // Formatting into a string cannot fail.
    let _ = written;
    out.extend_from_slice(text.as_bytes());
}
