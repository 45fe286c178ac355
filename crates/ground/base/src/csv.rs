//! Fields of comma-separated values (RFC 4180).

use alloc::borrow::Cow;
use alloc::format;

/// A field. It is in quotes if it has a comma, a quote or a line break.
#[must_use]
pub fn quoted(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_need_quotes_have_them() {
        for (text, field) in [("a b", "a b"), ("", ""), ("a,b", "\"a,b\""), ("\"", "\"\"\"\""), ("a\nb", "\"a\nb\"")] {
            assert_eq!(quoted(text), field);
        }
    }
}
