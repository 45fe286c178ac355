//! Reports from text, which may be anybody's.

use crate::Report;
use crate::form::FORM;
use serde_json::{Value, error::Category};

/// Why a text is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It ends in its middle.
    #[error("ends at line {line}, in the middle of a value: the file is not whole; copy it again, or measure again")]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// It is no JSON.
    #[error(
        "line {line}, column {column}: expected JSON as `tahti bench … --json` prints it, found something else ({why})"
    )]
    NotJson {
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
        /// The reader's words.
        why: String,
    },
    /// It is JSON of something else, or of another version.
    #[error(
        "expected a report of the form {FORM:?}, found {found}: measure with `tahti bench … --json` of this version"
    )]
    Foreign {
        /// What stands there.
        found: String,
    },
    /// It says that it is a report, and is none.
    #[error("report {place}: {why}: not as this program writes it")]
    Broken {
        /// Which of the file's reports, from 1.
        place: usize,
        /// What is wrong.
        why: String,
    },
}

/// Reads a report, or a list of them.
///
/// # Errors
/// The text is not whole, no JSON, or no report.
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
    let report = |(place, value): (usize, Value)| match value.get("form").and_then(Value::as_str) {
        Some(FORM) => serde_json::from_value(value)
            .map_err(|error| ReadError::Broken { place: place + 1, why: error.to_string() }),
        Some(other) => Err(ReadError::Foreign { found: format!("the form {:?}", clipped(other)) }),
        None => Err(ReadError::Foreign { found: "JSON without a form".into() }),
    };
    values.into_iter().enumerate().map(report).collect()
}

/// As much of a foreign word as helps.
fn clipped(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, Table};

    #[test]
    fn what_is_no_report_is_said_to_be_none() {
        let report = Report { tables: vec![Table::new("t").row(Row::figure("r", "us", 1.5))], ..Report::default() };
        let whole = crate::json(&report);
        assert_eq!(read(&whole), Ok(vec![report]));
        assert!(matches!(read(&whole[..whole.len() / 2]), Err(ReadError::Truncated { .. })));
        assert!(matches!(read("hello"), Err(ReadError::NotJson { line: 1, .. })));
        assert!(matches!(read("[]"), Err(ReadError::Foreign { .. })));
        assert!(matches!(read("{\"cases\": []}"), Err(ReadError::Foreign { .. })));
        assert!(matches!(read("{\"form\": \"tahti bench 99\"}"), Err(ReadError::Foreign { .. })));
        let broken = whole.replace("1.5", "\"much\"");
        assert!(matches!(read(&broken), Err(ReadError::Broken { place: 1, .. })), "{broken}");
    }

    #[test]
    fn no_cut_of_a_report_makes_a_reader_panic() {
        let report = Report { tables: vec![Table::new("t").row(Row::figure("r", "us", 1.5))], ..Report::default() };
        let whole = crate::json(&report);
        for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            assert!(read(&whole[..end]).is_err());
        }
    }
}
