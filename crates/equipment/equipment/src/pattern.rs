//! Names with captures: `sr_mag_ps_{name}`.

use std::fmt;

/// Maximum number of captures in one pattern.
pub(crate) const CAPTURES_MAX: usize = 8;

/// A pattern is malformed. The text is what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// A brace has no partner.
    #[error("an opening and a closing brace for each capture, such as `sr_mag_ps_{{name}}`")]
    Braces,
    /// The name of a capture.
    #[error("letters, digits and `_` between the braces, such as `{{name}}`")]
    Name,
    /// Two captures without a text between them.
    #[error("a text between two captures, which marks the end of the first")]
    Adjacent,
    /// Too many captures.
    #[error("at most {CAPTURES_MAX} captures")]
    Captures,
}

/// The name of a capture without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{{{0}}}` is not defined")]
pub struct NoValue(pub String);

/// A text with named captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Literal, capture, literal, …: literals have even indices.
    parts: Vec<String>,
}

impl Default for Pattern {
    /// The empty pattern.
    fn default() -> Self {
        Self { parts: vec![String::new()] }
    }
}

/// The captures of a match: name and value.
pub(crate) type Bound = Vec<(String, String)>;

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Its syntax is wrong.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let mut parts = vec![String::new()];
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            parts.last_mut().expect("never empty").push_str(before);
            let Some((name, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
                return Err(BadPattern::Braces);
            };
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(word) {
                return Err(BadPattern::Name);
            }
            if parts.len() > 1 && parts.last().is_some_and(String::is_empty) {
                return Err(BadPattern::Adjacent);
            }
            parts.push(name.to_owned());
            parts.push(String::new());
            rest = after;
        }
        parts.last_mut().expect("never empty").push_str(rest);
        let pattern = Self { parts };
        let names: Vec<&str> = pattern.captures().collect();
        if names.len() > CAPTURES_MAX {
            return Err(BadPattern::Captures);
        }
        Ok(pattern)
    }

    /// The names of the captures.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().skip(1).step_by(2).map(String::as_str)
    }

    /// Matches `text` and returns the captures. Returns `None` if it does not match, or if a capture that occurs twice has two
    /// values. A capture is as short as possible, the last one takes the rest. No capture is empty.
    #[must_use]
    pub fn matches(&self, text: &str) -> Option<Bound> {
        let mut rest = text.strip_prefix(self.parts[0].as_str())?;
        let mut bound = Bound::new();
        let holes = self.parts.len() / 2;
        for (index, pair) in self.parts[1..].chunks_exact(2).enumerate() {
            let (name, literal) = (&pair[0], pair[1].as_str());
            let first = rest.chars().next()?.len_utf8();
            let end = match index + 1 == holes {
                true => rest.strip_suffix(literal).map(str::len).filter(|end| *end >= first)?,
                false => rest[first..].find(literal)? + first,
            };
            let value = &rest[..end];
            match bound.iter().find(|(known, _)| known == name) {
                Some((_, known)) if known != value => return None,
                Some(_) => {}
                None => bound.push((name.clone(), value.to_owned())),
            }
            rest = &rest[end + literal.len()..];
        }
        rest.is_empty().then_some(bound)
    }

    /// Substitutes the captures.
    ///
    /// # Errors
    /// A capture has no value.
    pub fn fill(&self, bound: &[(String, String)]) -> Result<String, NoValue> {
        let mut text = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index % 2 == 0 {
                text.push_str(part);
            } else {
                let (_, value) = bound.iter().find(|(name, _)| name == part).ok_or_else(|| NoValue(part.clone()))?;
                text.push_str(value);
            }
        }
        Ok(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().enumerate().try_for_each(|(index, part)| match index % 2 {
            0 => f.write_str(part),
            _ => write!(f, "{{{part}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(pattern: &str, text: &str) -> Option<String> {
        let found = Pattern::parse(pattern).unwrap().matches(text)?;
        Some(found.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn captures_are_the_texts_in_the_holes() {
        for (pattern, text, expected) in [
            ("sr_mag_ps_{name}", "sr_mag_ps_b", Some("name=b")),
            ("sr_mag_ps_{name}", "sr_mag_ps_", None),
            ("sr_mag_ps_{name}", "sr_bpm_1", None),
            ("{area}_bpm_{n}", "sr_bpm_1_2", Some("area=sr n=1_2")),
            ("a_{n}_b", "a_x_b_b", Some("n=x_b")),
            ("{n}_{n}", "7_7", Some("n=7")),
            ("{n}_{n}", "7_8", None),
            ("plain", "plain", Some("")),
            ("plain", "plainer", None),
        ] {
            assert_eq!(bound(pattern, text).as_deref(), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn ambiguous_and_malformed_patterns_are_refused() {
        for text in ["{a}{b}", "{", "}", "{}", "{a b}", "x{a", "a}b"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn holes_are_filled_with_the_captures() {
        let bound = Pattern::parse("ps_{name}").unwrap().matches("ps_b").unwrap();
        assert_eq!(Pattern::parse("sr_mag_ps_{name}").unwrap().fill(&bound), Ok("sr_mag_ps_b".to_owned()));
        assert_eq!(Pattern::parse("{other}").unwrap().fill(&bound), Err(NoValue("other".to_owned())));
    }
}
