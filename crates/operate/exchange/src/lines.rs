//! Export as JSON lines, one per row.

use crate::cell::cell;
use crate::{ExchangeError, Row, Writer};
use segment::{Datum, Kind};
use serde_json::{Value, json};
use std::io::Write;

/// Writer of JSON lines.
pub struct LinesWriter<W: Write>(W);

impl<W: Write> LinesWriter<W> {
    /// Starts the output.
    pub const fn new(out: W) -> Self {
        Self(out)
    }
}

impl<W: Write> Writer for LinesWriter<W> {
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        match row {
            Row::Sample { name, sample } => {
                let name = Value::from(name.as_str());
                let (kind, value) = (sample.datum.kind(), value(&sample.datum));
                let pulse = sample.pulse.map_or(Value::Null, Value::from);
                writeln!(
                    self.0,
                    r#"{{"signal":{name},"time_ns":{},"type":"{kind}","value":{value},"severity":{},"status":{},"pulse":{pulse}}}"#,
                    sample.at, sample.severity, sample.status
                )?;
            }
            Row::Signal { name, since, kind, about } => {
                let row = json!({
                    "signal": name, "since_ns": since, "type": kind.to_string(), "units": about.units,
                    "precision": about.precision, "labels": about.labels,
                });
                writeln!(self.0, "{row}")?;
            }
            Row::Gap { name, at, cause, lost } => {
                let row = json!({ "signal": name, "time_ns": at, "gap": cause.to_string(), "lost": lost });
                writeln!(self.0, "{row}")?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        Ok(self.0.flush()?)
    }
}

/// Formats a value as JSON: numbers as numbers if JSON can represent them, else as text.
fn value(datum: &Datum) -> String {
    let is_plain = match datum {
        Datum::Number(_) => datum.to_f64().is_some_and(f64::is_finite),
        Datum::Bool(_) => true,
        Datum::Array(array) => {
            !matches!(datum.kind(), Kind::Array(base::FieldType::String))
                && (0..array.len())
                    .all(|index| array.get(index).and_then(|one| one.to_f64()).is_some_and(f64::is_finite))
                || matches!(datum.kind(), Kind::Array(base::FieldType::String))
        }
        Datum::Text(_) | Datum::Blob(_) => false,
    };
    let cell = cell(datum);
    if is_plain { cell } else { Value::from(cell).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Array, Scalar};
    use segment::Sample;

    #[test]
    fn each_line_is_json_for_any_value() {
        let values = [
            Datum::Number(Scalar::F64(f64::NAN)),
            Datum::Number(Scalar::F64(1.5)),
            Datum::Array(Array::F64(vec![1.0, f64::INFINITY])),
            Datum::Array(Array::String(vec![base::Str40::new(b"\"")])),
            Datum::Text(b"\"\xff\n".to_vec()),
            Datum::Blob(vec![1]),
        ];
        let mut out = Vec::new();
        let mut writer = LinesWriter::new(&mut out);
        for datum in values {
            let sample = Sample { pulse: Some(u64::MAX), ..Sample::new(1, 0.0) };
            writer.write(&Row::Sample { name: "\"A\"".into(), sample: Sample { datum, ..sample } }).unwrap();
        }
        let lines: Vec<Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let values: Vec<String> = lines.iter().map(|line| line["value"].to_string()).collect();
        assert_eq!(values, [r#""NaN""#, "1.5", r#""[1.0, inf]""#, r#"["\""]"#, r#""\"\\xff\n""#, r#""01""#]);
        assert_eq!((lines[0]["pulse"].as_u64(), lines[0]["signal"].as_str()), (Some(u64::MAX), Some("\"A\"")));
    }
}
