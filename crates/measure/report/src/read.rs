//! Reads reports from untrusted text.

use crate::Report;
use crate::format::FORMAT;
use serde_json::{Value, error::Category};

/// Why a text is not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is truncated.
    #[error("ends at line {line}, in the middle of a value: the file is incomplete; copy it again or measure again")]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// It is not JSON.
    #[error("line {line}, column {column}: expected JSON from `tahti bench … --json`, found something else ({why})")]
    NotJson {
        /// The position, from 1.
        line: usize,
        /// The position, from 1.
        column: usize,
        /// The parser's message.
        why: String,
    },
    /// It is JSON of something else, or of another version.
    #[error(
        "expected a report in format {FORMAT:?}, found {found}: measure again with `tahti bench … --json` of this version"
    )]
    Foreign {
        /// The found content.
        found: String,
    },
    /// It has the format's name but not its structure.
    #[error("report {place}: {why}: expected the output of `tahti bench … --json`")]
    Broken {
        /// Which of the file's reports, from 1.
        place: usize,
        /// The error.
        why: String,
    },
}

/// Reads a report, or a list of them.
///
/// # Errors
/// The text is truncated, not JSON, or not a report.
pub fn read(text: &str) -> Result<Vec<Report>, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Eof => ReadError::Truncated { line: error.line() },
        _ => ReadError::NotJson { line: error.line(), column: error.column(), why: error.to_string() },
    })?;
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err(ReadError::Foreign { found: "an empty list".into() });
    }
    let report = |(place, value): (usize, Value)| match value.get("format").and_then(Value::as_str) {
        Some(FORMAT) => serde_json::from_value(value)
            .map_err(|error| ReadError::Broken { place: place + 1, why: error.to_string() }),
        Some(other) => Err(ReadError::Foreign { found: format!("format {:?}", clipped(other)) }),
        None => Err(ReadError::Foreign { found: "JSON without a format".into() }),
    };
    values.into_iter().enumerate().map(report).collect()
}

/// The first 40 characters.
fn clipped(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, Table};

    #[test]
    fn invalid_reports_are_refused_with_the_reason() {
        let report = Report { tables: vec![Table::new("t").row(Row::figure("r", "us", 1.5))], ..Report::default() };
        let whole = crate::json(&report);
        assert_eq!(read(&whole), Ok(vec![report]));
        assert!(matches!(read(&whole[..whole.len() / 2]), Err(ReadError::Truncated { .. })));
        assert!(matches!(read("hello"), Err(ReadError::NotJson { line: 1, .. })));
        assert!(matches!(read("[]"), Err(ReadError::Foreign { .. })));
        assert!(matches!(read("{\"cases\": []}"), Err(ReadError::Foreign { .. })));
        assert!(matches!(read("{\"format\": \"tahti bench 99\"}"), Err(ReadError::Foreign { .. })));
        let broken = whole.replace("1.5", "\"much\"");
        assert!(matches!(read(&broken), Err(ReadError::Broken { place: 1, .. })), "{broken}");
    }

    #[test]
    fn no_truncated_report_makes_the_reader_panic() {
        let report = Report { tables: vec![Table::new("t").row(Row::figure("r", "us", 1.5))], ..Report::default() };
        let whole = crate::json(&report);
        for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            assert!(read(&whole[..end]).is_err());
        }
    }
}
