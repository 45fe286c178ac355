//! Captures as files: CSV, NumPy and JSON, written and read.
//!
//! The heading of a variable's column is its name and, in brackets, its unit. The trigger is a mark ([`TRIGGER_MARK`]).

use crate::capture::{Capture, Channel, TRIGGER_MARK};
use crate::npy;
use base::csv::quoted;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The columns that are not variables.
pub(crate) const FIXED: [&str; 3] = ["pulse", "time_ns", "marks"];

/// A file that is not a capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {found}; expected {expected}")]
pub struct FileError {
    /// Place in the file.
    pub place: String,
    /// The found text.
    pub found: String,
    /// The expected text.
    pub expected: &'static str,
}

pub(crate) fn wrong(place: impl Into<String>, found: impl Into<String>, expected: &'static str) -> FileError {
    FileError { place: place.into(), found: found.into(), expected }
}

/// A variable's column: name and unit.
pub(crate) fn head(channel: &Channel) -> String {
    if channel.unit.is_empty() { channel.name.clone() } else { format!("{} [{}]", channel.name, channel.unit) }
}

/// The inverse: parses `name [unit]`.
pub(crate) fn channel(head: &str) -> Channel {
    let parts = head.strip_suffix(']').and_then(|head| head.rsplit_once(" ["));
    let (name, unit) = parts.unwrap_or((head, ""));
    Channel { name: name.to_owned(), unit: unit.to_owned(), values: Vec::new() }
}

/// Kinds of files, by the suffix of their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.csv`
    Csv,
    /// `.npy`
    Npy,
    /// `.json`
    Json,
}

impl Kind {
    /// The kind of a file by its name, or by the suffix alone.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name.rsplit('.').next()? {
            "csv" => Self::Csv,
            "npy" => Self::Npy,
            "json" => Self::Json,
            _ => return None,
        })
    }

    /// The suffix.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Npy => "npy",
            Self::Json => "json",
        }
    }
}

impl Capture {
    /// Encodes the capture as a file of this kind.
    #[must_use]
    pub fn to_bytes(&self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Csv => self.to_csv().into_bytes(),
            Kind::Npy => self.to_npy(),
            Kind::Json => self.to_json().into_bytes(),
        }
    }

    /// Reads a file of this kind.
    ///
    /// # Errors
    /// The file is not a capture.
    pub fn from_bytes(kind: Kind, bytes: &[u8]) -> Result<Self, FileError> {
        let text = || {
            std::str::from_utf8(bytes)
                .map_err(|error| wrong(format!("byte {}", error.valid_up_to()), "something else", "text in UTF-8"))
        };
        match kind {
            Kind::Csv => Self::from_csv(text()?),
            Kind::Npy => Self::from_npy(bytes),
            Kind::Json => Self::from_json(text()?),
        }
    }

    /// A table (RFC 4180) with a header line: `pulse,time_ns,marks,NAME [UNIT],…`.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = FIXED.join(",");
        self.channels.iter().for_each(|channel| {
            text.push(',');
            text.push_str(&quoted(&head(channel)));
        });
        text.push('\n');
        for row in 0..self.len() {
            // Writing to a String does not fail.
            let _ = write!(text, "{},{},{}", self.pulses[row], self.times[row], self.marks[row]);
            self.channels.iter().for_each(|channel| _ = write!(text, ",{}", channel.values[row]));
            text.push('\n');
        }
        text
    }

    /// Reads such a table.
    ///
    /// # Errors
    /// The text is not a capture.
    pub fn from_csv(text: &str) -> Result<Self, FileError> {
        let mut lines = text.lines();
        let heads = fields(lines.next().unwrap_or_default());
        if heads.len() <= FIXED.len() || heads.iter().zip(FIXED).any(|(head, fixed)| head != fixed) {
            return Err(wrong("line 1", heads.join(","), "pulse,time_ns,marks and a column for each variable"));
        }
        let channels = heads[FIXED.len()..].iter().map(|head| channel(head)).collect();
        let mut capture = Self { channels, ..Self::default() };
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let place = || format!("line {}", index + 2);
            let words: Vec<&str> = line.split(',').collect();
            if words.len() != heads.len() {
                return Err(wrong(place(), format!("{} fields", words.len()), "as many as in the first line"));
            }
            let whole = |at: usize| words[at].parse::<u64>().map_err(|_| wrong(place(), words[at], "a whole number"));
            capture.pulses.push(whole(0)?);
            capture.times.push(whole(1)?);
            capture.marks.push(whole(2)?);
            for (channel, word) in capture.channels.iter_mut().zip(&words[FIXED.len()..]) {
                channel.values.push(word.parse().map_err(|_| wrong(place(), *word, "a number"))?);
            }
        }
        capture.sound()
    }

    /// A JSON object of columns. Values that are not numbers are `null`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let channels: Vec<Value> = self
            .channels
            .iter()
            .map(|channel| json!({ "name": channel.name, "unit": channel.unit, "values": channel.values }))
            .collect();
        json!({
            "cause": self.cause, "trigger": self.trigger(), "period_s": self.period(), "pulses": self.pulses,
            "times_ns": self.times, "marks": self.marks, "channels": channels,
        })
        .to_string()
    }

    /// Reads such JSON.
    ///
    /// # Errors
    /// The text is not a capture.
    pub fn from_json(text: &str) -> Result<Self, FileError> {
        let whole: Value = serde_json::from_str(text)
            .map_err(|error| wrong(format!("line {}", error.line()), error.to_string(), "JSON of a capture"))?;
        let column = |key: &'static str| {
            let list = whole[key].as_array().into_iter().flatten().map(Value::as_u64).collect::<Option<Vec<u64>>>();
            list.filter(|_| whole[key].is_array())
                .ok_or_else(|| wrong(key, "something else", "a list of whole numbers"))
        };
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let channels =
            whole["channels"].as_array().ok_or_else(|| wrong("channels", "nothing", "a list of variables"))?;
        let channels = channels.iter().map(|channel| {
            let values = channel["values"].as_array().ok_or_else(|| wrong("values", "nothing", "a list of numbers"))?;
            let values = values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect();
            Ok(Channel { name: text_of(&channel["name"]), unit: text_of(&channel["unit"]), values })
        });
        let capture = Self {
            pulses: column("pulses")?,
            times: column("times_ns")?,
            marks: column("marks")?,
            channels: channels.collect::<Result<_, FileError>>()?,
            cause: text_of(&whole["cause"]),
        };
        capture.sound()
    }

    /// A structured array of NumPy (`numpy.load`).
    #[must_use]
    pub fn to_npy(&self) -> Vec<u8> {
        npy::write(self)
    }

    /// Reads such an array, as this program has written it.
    ///
    /// # Errors
    /// The array is not a capture.
    pub fn from_npy(bytes: &[u8]) -> Result<Self, FileError> {
        npy::read(bytes)?.sound()
    }

    /// Checks that all columns have the same length and that pulses increase. Derives the cause of a table from its mark.
    fn sound(mut self) -> Result<Self, FileError> {
        let rows = self.pulses.len();
        let others = [self.times.len(), self.marks.len()];
        let lengths = others.into_iter().chain(self.channels.iter().map(|channel| channel.values.len()));
        if let Some(other) = lengths.into_iter().find(|length| *length != rows) {
            return Err(wrong(
                "columns",
                format!("{rows} rows, but {other} in another column"),
                "columns of one length",
            ));
        }
        if let Some(pair) = self.pulses.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(wrong(format!("pulse {}", pair[1]), format!("behind {}", pair[0]), "pulses in order"));
        }
        if self.cause.is_empty() && self.marks.iter().any(|marks| marks & TRIGGER_MARK != 0) {
            self.cause = "trigger".to_owned();
        }
        Ok(self)
    }
}

/// The fields of a header line.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut inside, mut letters) = (vec![String::new()], false, line.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if inside && letters.next_if_eq(&'"').is_some() => {
                fields.last_mut().map(|field| field.push('"')).unwrap_or(())
            }
            '"' => inside = !inside,
            ',' if !inside => fields.push(String::new()),
            _ => fields.last_mut().map(|field| field.push(letter)).unwrap_or(()),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn capture() -> Capture {
        let channel =
            |name: &str, unit: &str, values: Vec<f64>| Channel { name: name.into(), unit: unit.into(), values };
        Capture {
            pulses: vec![5, 6, 9],
            times: vec![1_000, 2_000, 5_000],
            marks: vec![1, TRIGGER_MARK, 2 | 2 << 32],
            channels: vec![channel("a, \"b\"", "MV", vec![0.1, -1e300, 3.0]), channel("n", "", vec![1.0, 2.0, 3.0])],
            cause: "trigger".into(),
        }
    }

    #[test]
    fn a_capture_survives_a_round_trip_through_each_kind_of_file() {
        let capture = capture();
        assert!(capture.to_csv().starts_with("pulse,time_ns,marks,\"a, \"\"b\"\" [MV]\",n\n5,1000,1,0.1,1\n"));
        for kind in [Kind::Csv, Kind::Npy, Kind::Json] {
            assert_eq!(Capture::from_bytes(kind, &capture.to_bytes(kind)).unwrap(), capture);
            assert_eq!(
                (Kind::of_name(&format!("a.b.{}", kind.word())), Kind::of_name(kind.word())),
                (Some(kind), Some(kind))
            );
        }
        assert!(Capture::from_bytes(Kind::Csv, b"\xff").is_err() && Kind::of_name("a.txt").is_none());
    }

    #[test]
    fn nan_survives_each_kind_of_file() {
        let mut capture = capture();
        capture.channels[1].values[0] = f64::NAN;
        for back in [
            Capture::from_csv(&capture.to_csv()).unwrap(),
            Capture::from_json(&capture.to_json()).unwrap(),
            Capture::from_npy(&capture.to_npy()).unwrap(),
        ] {
            assert!(back.channels[1].values[0].is_nan());
        }
    }

    #[test]
    fn malformed_files_are_refused_with_the_place() {
        let said = |text: &str| Capture::from_csv(text).unwrap_err().to_string();
        assert!(said("a,b\n").starts_with("line 1: a,b; expected pulse"));
        assert!(said("pulse,time_ns,marks,v\n1,2,0,x\n").starts_with("line 2: x; expected a number"));
        assert!(said("pulse,time_ns,marks,v\n1,2\n").contains("2 fields"));
        assert!(said("pulse,time_ns,marks,v\n2,2,0,1\n1,2,0,1\n").contains("pulses in order"));
        let why = Capture::from_json("{\"pulses\":[1],\"times_ns\":[],\"marks\":[],\"channels\":[]}").unwrap_err();
        assert!(why.to_string().contains("columns of one length"), "{why}");
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(cut in 0usize..400, at in 0usize..400, byte in any::<u8>(), text in ".{0,80}") {
            let mut bytes = capture().to_npy();
            if let Some(found) = bytes.get_mut(at) { *found = byte; }
            bytes.truncate(cut);
            let _ = Capture::from_npy(&bytes);
            let _ = (Capture::from_csv(&text), Capture::from_json(&text));
        }
    }
}
