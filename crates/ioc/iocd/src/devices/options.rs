//! Address syntax of tahti's device supports: words, then `key=value`.

use base::DurNs;
use db::AttachError;
use std::fmt::Display;
use std::str::FromStr;

/// A parsed address. Parts that were not used are an error at the end, so that a mistyped word is always reported.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    words: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
    known: Vec<&'static str>,
    next: usize,
}

impl<'a> Options<'a> {
    /// Parses an address.
    #[must_use]
    pub fn parse(address: &'a str) -> Self {
        let (mut words, mut pairs) = (Vec::new(), Vec::new());
        for word in address.split_whitespace() {
            match word.split_once('=') {
                Some(pair) => pairs.push(pair),
                None => words.push(word),
            }
        }
        Self { words, pairs, known: Vec::new(), next: 0 }
    }

    /// The next word.
    pub fn word(&mut self) -> Option<&'a str> {
        self.next += 1;
        self.words.get(self.next - 1).copied()
    }

    /// The next word, which is required.
    ///
    /// # Errors
    /// If it is missing; `expected` describes it.
    pub fn needed(&mut self, expected: &str) -> Result<&'a str, AttachError> {
        self.word().ok_or_else(|| AttachError::Ends { expected: expected.to_owned() })
    }

    /// The value of a key.
    pub fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// The value of a key, or the default.
    ///
    /// # Errors
    /// If the value does not parse.
    pub fn value<T: FromStr<Err: Display>>(&mut self, key: &'static str, default: T) -> Result<T, AttachError> {
        self.text(key).map_or(Ok(default), |text| {
            let wrong =
                |error: T::Err| AttachError::Unreadable { found: format!("{key}={text}"), why: error.to_string() };
            text.parse().map_err(wrong)
        })
    }

    /// The value of a key that is a time of at least 1 ms, or the default.
    ///
    /// # Errors
    /// If the value is not a time, or too short.
    pub fn time(&mut self, key: &'static str, default: DurNs) -> Result<DurNs, AttachError> {
        let time = self.value(key, default)?;
        if time < DurNs::from_ms(1) {
            let found = format!("{key}={}", self.text(key).unwrap_or_default());
            return Err(AttachError::Unexpected { found, expected: "at least 1ms".to_owned() });
        }
        Ok(time)
    }

    /// Checks that the whole address was used.
    ///
    /// # Errors
    /// Lists the unused words and keys.
    pub fn finish(self) -> Result<(), AttachError> {
        if let Some(word) = self.words.get(self.next..).and_then(<[&str]>::first) {
            return Err(AttachError::TooMuch { found: (*word).to_owned() });
        }
        let Some((key, _)) = self.pairs.iter().find(|(key, _)| !self.known.contains(key)) else { return Ok(()) };
        let expected = self.known.iter().map(|key| format!("{key}=")).collect::<Vec<_>>().join(", ");
        Err(AttachError::Unexpected { found: format!("unknown key \"{key}=\""), expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_options_are_an_error() {
        let mut options = Options::parse("plc holding 7 poll=50ms uni=3");
        assert_eq!((options.word(), options.needed("a table")), (Some("plc"), Ok("holding")));
        assert_eq!((options.value("unit", 1u8), options.time("poll", DurNs::ZERO)), (Ok(1), Ok(DurNs::from_ms(50))));
        let said = |error: AttachError| error.to_string();
        assert_eq!(options.clone().finish().map_err(said), Err("\"7\" is too much".into()));
        assert_eq!(options.needed("an address"), Ok("7"));
        assert_eq!(options.finish().map_err(said), Err("unknown key \"uni=\"; expected unit=, poll=".into()));
        let mut bad = Options::parse("poll=1us unit=x");
        assert_eq!(bad.time("poll", DurNs::ZERO).map_err(said), Err("poll=1us; expected at least 1ms".into()));
        assert!(bad.value("unit", 1u8).unwrap_err().to_string().starts_with("unit=x: "));
        assert_eq!(bad.needed("a port").map_err(said), Err("the address ends; expected a port".into()));
    }
}
