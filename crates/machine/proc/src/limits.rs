//! `/proc/PID/limits`.

use crate::FormatError;

/// A soft and a hard limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The maximum to which the process may raise it.
    pub hard: Option<u64>,
}

/// The limit on the line that begins with `name`, such as `Max locked memory`.
///
/// # Errors
/// The line is missing, or does not have two limits.
pub fn limit(text: &str, name: &str) -> Result<Limit, FormatError> {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| FormatError::NoLine(name.to_owned()))?;
    let mut columns = line.split_whitespace();
    let mut column = || match columns.next() {
        Some("unlimited") => Ok(None),
        Some(number) => number.parse().map(Some).map_err(|_| FormatError::value(name, "a limit", number)),
        None => Err(FormatError::value(name, "a soft and a hard limit", line)),
    };
    Ok(Limit { soft: column()?, hard: column()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_read_by_their_name() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max locked memory         8388608              unlimited            bytes     \n\
                    Max realtime priority     0                    0                    \n";
        assert_eq!(limit(text, "Max locked memory"), Ok(Limit { soft: Some(8_388_608), hard: None }));
        assert_eq!(limit(text, "Max realtime priority"), Ok(Limit { soft: Some(0), hard: Some(0) }));
        assert!(limit(text, "Max nice priority").is_err());
        assert!(limit("Max locked memory x", "Max locked memory").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = limit(&format!("Max{text}"), "Max");
        }
    }
}
