//! CSV tables as in RFC 4180: a header, then one row per sample.

use crate::cell::{cell, datum, kind};
use crate::{ExchangeError, Row, Writer, Wrong};
use base::csv::quoted;
use segment::rows::{About, Cause};
use segment::{Kind, Sample};
use std::io::{BufRead, Write};

/// Names of the columns.
const COLUMNS: [&str; 7] = ["signal", "time_ns", "type", "value", "severity", "status", "pulse"];
const HEADER: &str = "signal,time_ns,type,value,severity,status,pulse";

/// Maximum size of a row, in bytes.
const ROW_BYTES_MAX: usize = 64 << 20;

/// Values of the column `type` for rows that are not samples.
const ABOUT: &str = "about";
const GAP: &str = "gap";

/// Writer of a CSV table.
pub struct CsvWriter<W: Write> {
    out: W,
    is_begun: bool,
    /// Rows for signal descriptions and gaps are written as well.
    is_whole: bool,
}

impl<W: Write> CsvWriter<W> {
    /// Starts a table. With `is_whole`, rows of type `about` and `gap` hold signal descriptions and gaps. Without it, the table has only
    /// samples.
    pub const fn new(out: W, is_whole: bool) -> Self {
        Self { out, is_begun: false, is_whole }
    }

    fn line(&mut self, fields: [&str; 7]) -> Result<(), ExchangeError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            writeln!(self.out, "{HEADER}")?;
        }
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                self.out.write_all(b",")?;
            }
            self.out.write_all(quoted(field).as_bytes())?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }
}

impl<W: Write> Writer for CsvWriter<W> {
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        match row {
            Row::Sample { name, sample } => {
                let (severity, status) = (sample.severity.to_string(), sample.status.to_string());
                let pulse = sample.pulse.map(|pulse| pulse.to_string()).unwrap_or_default();
                let (kind, value) = (sample.datum.kind().to_string(), cell(&sample.datum));
                self.line([name, &sample.at.to_string(), &kind, &value, &severity, &status, &pulse])
            }
            Row::Signal { name, since, kind, about } if self.is_whole => {
                let value = serde_json::json!({
                    "type": kind.to_string(), "units": about.units, "precision": about.precision, "labels": about.labels,
                });
                self.line([name, &since.to_string(), ABOUT, &value.to_string(), "", "", ""])
            }
            Row::Gap { name, at, cause, lost } if self.is_whole => {
                let value = serde_json::json!({ "cause": cause.to_string(), "lost": lost }).to_string();
                self.line([name.as_deref().unwrap_or_default(), &at.to_string(), GAP, &value, "", "", ""])
            }
            Row::Signal { .. } | Row::Gap { .. } => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        if !self.is_begun {
            writeln!(self.out, "{HEADER}")?;
        }
        Ok(self.out.flush()?)
    }
}

/// Reader of a CSV table. Columns may be in any order; `severity`, `status` and `pulse` are optional.
pub struct CsvReader<R: BufRead> {
    input: R,
    line: u64,
    /// Position of each of [`COLUMNS`].
    places: [Option<usize>; 7],
    fields: usize,
    row: Vec<String>,
}

impl<R: BufRead> CsvReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The header is not as expected.
    pub fn new(input: R) -> Result<Self, ExchangeError> {
        let mut reader = Self { input, line: 0, places: [None; 7], fields: 0, row: Vec::new() };
        reader.fields()?;
        let found = std::mem::take(&mut reader.row);
        reader.fields = found.len();
        reader.places =
            COLUMNS.map(|column| found.iter().position(|name| name.trim_start_matches('\u{feff}') == column));
        let is_known = found.iter().all(|name| COLUMNS.contains(&name.trim_start_matches('\u{feff}')));
        if !is_known || reader.places[..4].iter().any(Option::is_none) {
            let found = found.join(",").chars().take(96).collect();
            return Err(ExchangeError::Line { line: 1, wrong: Wrong::Header { found, expected: HEADER } });
        }
        Ok(reader)
    }

    /// Reads the fields of one row. Returns false at the end of the table.
    fn fields(&mut self) -> Result<bool, ExchangeError> {
        self.row.clear();
        let (mut text, mut is_open) = (Vec::new(), false);
        let begun = self.line + 1;
        let wrong = |wrong| ExchangeError::Line { line: begun, wrong };
        loop {
            let before = text.len();
            let limit = (ROW_BYTES_MAX - before.min(ROW_BYTES_MAX)) as u64 + 1;
            let read = std::io::Read::take(&mut self.input, limit).read_until(b'\n', &mut text)?;
            if text.len() > ROW_BYTES_MAX {
                return Err(wrong(Wrong::Long(ROW_BYTES_MAX)));
            }
            if read == 0 {
                if is_open {
                    return Err(wrong(Wrong::Quote));
                }
                return Ok(false);
            }
            self.line += 1;
            // A newline ends a row unless it is within quotes, that is, after an odd number of quotes.
            is_open ^= text[before..].iter().filter(|byte| **byte == b'"').count() % 2 == 1;
            if !is_open {
                if text.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                    text.clear();
                    continue;
                }
                break;
            }
        }
        // Values may have zero bytes, the header has none.
        let decode = if begun == 1 { ::table::utf8 } else { ::table::utf8_part };
        let text = decode(text).map_err(|error| ExchangeError::Encoding(error.after(begun as usize - 1)))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        split(text.strip_suffix('\r').unwrap_or(text), &mut self.row).map_err(wrong)?;
        Ok(true)
    }

    fn parse(&self) -> Result<Row, Wrong> {
        if self.row.len() != self.fields {
            return Err(Wrong::Fields { found: self.row.len(), expected: self.fields });
        }
        let [name, at, word, value, severity, status, pulse] =
            self.places.map(|place| place.and_then(|place| self.row.get(place)).map_or("", String::as_str));
        let at = at.parse().map_err(|_| Wrong::field("time_ns", at, "nanoseconds since 1970"))?;
        let number = |column, text: &str, max: u64| match text {
            "" => Ok(0),
            _ => text
                .parse()
                .ok()
                .filter(|number| *number <= max)
                .ok_or_else(|| Wrong::field(column, text, format!("a number from 0 to {max}, or nothing"))),
        };
        let name = name.to_owned();
        let is_all = name.is_empty() && word == GAP;
        if !is_all && (name.is_empty() || name.len() > segment::rows::NAME_MAX || name.chars().any(char::is_control)) {
            let expected = format!("1 to {} bytes, no control characters", segment::rows::NAME_MAX);
            return Err(Wrong::field("signal", &name, expected));
        }
        match word {
            ABOUT => {
                let (kind, about) = about(value)?;
                Ok(Row::Signal { name, since: at, kind, about })
            }
            GAP => {
                let (cause, lost) = gap(value)?;
                Ok(Row::Gap { name: (!is_all).then_some(name), at, cause, lost })
            }
            _ => {
                let kind =
                    kind(word).ok_or_else(|| Wrong::field("type", word, "f64, i32, bool, text, f64[] and such"))?;
                let sample = Sample {
                    at,
                    datum: datum(kind, value)?,
                    severity: number("severity", severity, 3)? as u8,
                    status: number("status", status, u16::MAX.into())? as u16,
                    pulse: if pulse.is_empty() { None } else { Some(number("pulse", pulse, u64::MAX)?) },
                };
                Ok(Row::Sample { name, sample })
            }
        }
    }
}

impl<R: BufRead> Iterator for CsvReader<R> {
    type Item = Result<Row, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let begun = self.line + 1;
        match self.fields() {
            Ok(true) => Some(self.parse().map_err(|wrong| ExchangeError::Line { line: begun, wrong })),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Splits a row into fields.
fn split(text: &str, fields: &mut Vec<String>) -> Result<(), Wrong> {
    let mut rest = text;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (field, more) = match rest.split_once(',') {
                Some((field, more)) => (field, Some(more)),
                None => (rest, None),
            };
            fields.push(field.to_owned());
            match more {
                Some(more) => rest = more,
                None => return Ok(()),
            }
            continue;
        };
        let (mut field, mut at) = (String::new(), quoted);
        loop {
            let (before, after) = at.split_once('"').ok_or(Wrong::Quote)?;
            field.push_str(before);
            match after.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    at = more;
                }
                None => {
                    at = after;
                    break;
                }
            }
        }
        fields.push(field);
        match at.strip_prefix(',') {
            Some(more) => rest = more,
            None if at.is_empty() => return Ok(()),
            None => return Err(Wrong::Quote),
        }
    }
}

fn about(text: &str) -> Result<(Kind, About), Wrong> {
    let wrong = || Wrong::field("value", text, r#"{"type":"f64","units":"A","precision":2,"labels":[]}"#);
    let value: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let kind = value["type"].as_str().and_then(kind).ok_or_else(wrong)?;
    let labels = value["labels"].as_array().map_or(&[][..], Vec::as_slice);
    let labels: Option<Vec<String>> = labels.iter().map(|label| label.as_str().map(str::to_owned)).collect();
    let labels = labels.filter(|labels| labels.len() <= segment::rows::LABELS_MAX).ok_or_else(wrong)?;
    let precision = value["precision"].as_u64().and_then(|digits| u16::try_from(digits).ok());
    Ok((kind, About { units: value["units"].as_str().unwrap_or_default().to_owned(), precision, labels }))
}

fn gap(text: &str) -> Result<(Cause, u64), Wrong> {
    let wrong = || Wrong::field("value", text, r#"{"cause":"disconnected","lost":0}"#);
    let value: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let cause = value["cause"].as_str().and_then(Cause::named).ok_or_else(wrong)?;
    Ok((cause, value["lost"].as_u64().unwrap_or(0)))
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
