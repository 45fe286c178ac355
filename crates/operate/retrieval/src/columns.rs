//! Samples of a signal as columns, for clients that read tables.

use crate::{Open, Opened};
use appliance::{Failed, candidates, parse_instant, put_json};
use segment::{Datum, Sample};
use store::{Span, StoreError};

/// Maximum number of rows.
pub const ROWS_MAX: usize = 100_000;
/// Maximum number of bytes of all texts.
const TEXT_MAX: usize = 64 << 20;
/// Length of the span if no start is requested.
const HOUR: i64 = 3_600_000_000_000;

/// The requested samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Name of the signal, also with a protocol (`pva://X`) or `.VAL`.
    pub name: &'a str,
    /// A post-processor of the Archiver Appliance, such as `mean_60`.
    pub operator: Option<&'a str>,
    /// First instant, in ISO 8601 or in seconds since 1970; by default one hour before the last one.
    pub from: Option<&'a str>,
    /// Last instant; by default the present time.
    pub to: Option<&'a str>,
}

/// Values of a signal.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers and states.
    Numbers(Vec<f64>),
    /// Texts. If at least one value is no number, the others are texts of numbers; arrays are JSON.
    Texts(Vec<String>),
}

/// Samples, one per row, in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// Nanoseconds since 1970, UTC.
    pub at: Vec<i64>,
    /// The values.
    pub values: Values,
    /// EPICS severities.
    pub severity: Vec<i32>,
    /// EPICS statuses.
    pub status: Vec<i32>,
}

/// Reason why samples cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// An instant is invalid.
    #[error("{0}={1:?} is no instant; expected one such as 2026-11-23T14:30:05Z, or seconds since 1970")]
    Instant(&'static str, String),
    /// The span ends before it begins.
    #[error("to is before from; expected the earlier one as from")]
    Order,
    /// No signal has this name.
    #[error("{0:?} is not in the archive; expected the name of an archived signal")]
    Unknown(String),
    /// The answer would be too large.
    #[error(
        "more than {ROWS_MAX} samples or {TEXT_MAX} bytes; expected a shorter span, or pp=mean_60 for the mean of each minute"
    )]
    TooMany,
    /// The post-processor refused or failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The archive cannot be read.
    #[error("the archive cannot be read: {0}")]
    Store(#[from] StoreError),
}

/// Reads samples. Blocks on reading. `now` is the wall clock in nanoseconds since 1970.
///
/// # Errors
/// See [`ColumnsError`].
pub fn columns(open: &Open, wanted: Wanted<'_>, now: i64) -> Result<Columns, ColumnsError> {
    let to = wanted.to.map_or(Ok(now), |text| instant("to", text))?;
    let from = wanted.from.map_or(Ok(to.saturating_sub(HOUR)), |text| instant("from", text))?;
    if to < from {
        return Err(ColumnsError::Order);
    }
    let names = candidates(wanted.name);
    let reader = open(&|known| names.iter().any(|name| name == known))?;
    let mut found = None;
    for name in names {
        if found.is_none() && !reader.rows(&name)?.is_empty() {
            found = Some(name);
        }
    }
    let name = found.ok_or_else(|| ColumnsError::Unknown(wanted.name.to_owned()))?;
    let (source, span, mut rows) = (Opened(reader), Span { from, to }, Rows::default());
    match wanted.operator {
        Some(word) => source.processed(&name, word, span, now, |sample| rows.push(&sample))?,
        None => {
            for sample in source.0.samples(&name, span)? {
                rows.push(&sample?);
                if rows.is_full {
                    break;
                }
            }
        }
    }
    rows.columns()
}

fn instant(key: &'static str, text: &str) -> Result<i64, ColumnsError> {
    let seconds = || text.parse::<f64>().ok().filter(|seconds| seconds.abs() < 9e9);
    let parsed = parse_instant(text).or_else(|| seconds().map(|seconds| (seconds * 1e9) as i64));
    parsed.ok_or_else(|| ColumnsError::Instant(key, text.to_owned()))
}

enum Cell {
    Number(f64),
    Text(String),
}

/// Collected samples.
#[derive(Default)]
struct Rows {
    cells: Vec<Cell>,
    at: Vec<i64>,
    severity: Vec<i32>,
    status: Vec<i32>,
    text_bytes: usize,
    is_full: bool,
}

impl Rows {
    fn push(&mut self, sample: &Sample) {
        self.is_full |= self.cells.len() == ROWS_MAX || self.text_bytes > TEXT_MAX;
        if self.is_full {
            return;
        }
        self.at.push(sample.at);
        self.severity.push(sample.severity.into());
        self.status.push(sample.status.into());
        self.cells.push(match (&sample.datum, sample.datum.to_f64()) {
            (_, Some(number)) => Cell::Number(number),
            (Datum::Text(bytes), None) => Cell::Text(String::from_utf8_lossy(bytes).into_owned()),
            (datum, None) => {
                let mut json = Vec::new();
                put_json(&mut json, datum);
                Cell::Text(String::from_utf8_lossy(&json).into_owned())
            }
        });
        self.text_bytes += if let Some(Cell::Text(text)) = self.cells.last() { text.len() } else { 0 };
    }

    fn columns(self) -> Result<Columns, ColumnsError> {
        if self.is_full {
            return Err(ColumnsError::TooMany);
        }
        let numbers: Option<Vec<f64>> =
            self.cells.iter().map(|cell| if let Cell::Number(number) = cell { Some(*number) } else { None }).collect();
        let text = |cell| match cell {
            Cell::Text(text) => text,
            Cell::Number(number) => number.to_string(),
        };
        let values = match numbers {
            Some(numbers) => Values::Numbers(numbers),
            None => Values::Texts(self.cells.into_iter().map(text).collect()),
        };
        Ok(Columns { at: self.at, values, severity: self.severity, status: self.status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[Sample]) -> Result<Columns, ColumnsError> {
        let mut rows = Rows::default();
        samples.iter().for_each(|sample| rows.push(sample));
        rows.columns()
    }

    #[test]
    fn values_are_numbers_unless_one_of_them_is_a_text() {
        let alarmed = Sample { severity: 2, status: 3, ..Sample::new(5, 1.5) };
        let columns = of(&[Sample::new(4, 7i64), alarmed.clone()]).unwrap();
        assert_eq!((columns.at, columns.values), (vec![4, 5], Values::Numbers(vec![7.0, 1.5])));
        assert_eq!((columns.severity, columns.status), (vec![0, 2], vec![0, 3]));
        let text = Sample::new(6, Datum::Text(b"on".to_vec()));
        assert_eq!(of(&[alarmed, text]).unwrap().values, Values::Texts(vec!["1.5".into(), "on".into()]));
        assert_eq!(of(&[]).unwrap().values, Values::Numbers(vec![]));
    }

    #[test]
    fn more_rows_than_the_limit_are_refused() {
        let samples = vec![Sample::new(0, 1.0); ROWS_MAX];
        assert_eq!(of(&samples).unwrap().at.len(), ROWS_MAX);
        assert!(matches!(of(&vec![Sample::new(0, 1.0); ROWS_MAX + 1]), Err(ColumnsError::TooMany)));
    }

    #[test]
    fn instants_are_dates_or_seconds() {
        assert_eq!(instant("to", "1970-01-01T00:00:01.5Z").unwrap(), 1_500_000_000);
        assert_eq!(instant("to", "1.5").unwrap(), 1_500_000_000);
        for wrong in ["", "now", "1e300", "NaN"] {
            assert!(matches!(instant("to", wrong), Err(ColumnsError::Instant("to", _))), "{wrong}");
        }
    }
}
