//! Reading typed values out of a parsed table, with a finding for each that does not fit.

use crate::diag::Diagnostics;
use crate::keys::Table;
use base::{CpuSet, DurNs};
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One table of the file while it is read.
#[derive(Clone, Copy, Debug)]
pub struct Section<'t> {
    table: &'t DeTable<'t>,
    /// Byte range of the table's header, for missing keys.
    span: (usize, usize),
    shape: &'static Table,
    /// Its name in messages: `process "loop"`.
    called: &'t str,
}

/// A value with its place.
pub type Placed<T> = (T, Range<usize>);

/// Words that only a shell understands.
const OF_SHELLS: [&str; 9] = ["|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1"];

impl<'t> Section<'t> {
    /// Begins to read `table`: keys that `shape` does not have are findings.
    pub fn open(
        table: &'t DeTable<'t>,
        span: Range<usize>,
        shape: &'static Table,
        called: &'t str,
        found: &mut Diagnostics<'_>,
    ) -> Self {
        for (key, _) in table {
            let word: &str = key.get_ref();
            if shape.keys.iter().all(|known| known.name != word) {
                let names = shape.keys.iter().map(|known| known.name);
                let remedy = match base::nearest(word, names.clone()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "remove it".to_owned(),
                };
                let known = names.collect::<Vec<_>>().join(", ");
                found.error(key.span(), format!("unknown key `{}` in {called}", clipped(word)), known, remedy);
            }
        }
        Self { table, span: (span.start, span.end), shape, called }
    }

    /// The value of a key, if the file has it.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        debug_assert!(self.shape.keys.iter().any(|key| key.name == name), "{name} is missing in the table of keys");
        self.table.iter().find(|(key, _)| *key.get_ref() == name).map(|(_, value)| value)
    }

    /// Bytes of the table's header.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.span.0..self.span.1
    }

    /// The example that the table of keys has for a key.
    fn example(&self, name: &str) -> &'static str {
        self.shape.keys.iter().find(|key| key.name == name).map_or("", |key| key.example)
    }

    /// Reports a missing key.
    pub fn missing(&self, name: &str, found: &mut Diagnostics<'_>) {
        let remedy = format!("add a line such as `{name} = {}`", self.example(name));
        found.error(self.range(), format!("`{name}` is missing in {}", self.called), "", remedy);
    }

    /// Reports a value of the wrong type.
    pub fn wrong(&self, name: &str, value: &Spanned<DeValue<'_>>, expected: &str, found: &mut Diagnostics<'_>) {
        let kind = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let message = format!("`{name}` in {} cannot be {kind}", self.called);
        found.error(value.span(), message, expected, format!("for example `{name} = {}`", self.example(name)));
    }

    /// A text.
    pub fn text(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<&'t str>> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::String(text) => Some((text.as_ref(), value.span())),
            _ => {
                self.wrong(name, value, "a text in quotes", found);
                None
            }
        }
    }

    /// A text that is not empty, has no NUL, and has a bounded length.
    pub fn words(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<&'t str>> {
        let (text, span) = self.text(name, found)?;
        if text.is_empty() || text.len() > 4096 || text.contains('\0') {
            let expected = "1 to 4096 bytes without NUL";
            found.error(span, format!("`{name}` in {} is empty or cannot be used", self.called), expected, "");
            return None;
        }
        Some((text, span))
    }

    /// A text in the form of `T`, such as a class or a time.
    pub fn parsed<T: FromStr<Err: ToString>>(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<T>> {
        let (text, span) = self.text(name, found)?;
        match text.parse() {
            Ok(value) => Some((value, span)),
            Err(why) => {
                let message = format!("`{name}` in {} cannot be {:?}", self.called, clipped(text));
                let why = why.to_string();
                let expected = why.strip_prefix("expected ").unwrap_or(&why);
                found.error(span, message, expected, format!("for example `{name} = {}`", self.example(name)));
                None
            }
        }
    }

    /// A time between two limits.
    pub fn time(&self, name: &str, least: DurNs, most: DurNs, found: &mut Diagnostics<'_>) -> Option<Placed<DurNs>> {
        let (time, span) = self.parsed::<DurNs>(name, found)?;
        if time < least || time > most {
            let message = format!("`{name}` in {} cannot be {time}", self.called);
            found.error(span, message, format!("{least} to {most}"), "");
            return None;
        }
        Some((time, span))
    }

    /// A whole number between two limits.
    pub fn number(&self, name: &str, least: u64, most: u64, found: &mut Diagnostics<'_>) -> Option<Placed<u64>> {
        let value = self.value(name)?;
        let expected = format!("a whole number from {least} to {most}");
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong(name, value, &expected, found);
            return None;
        };
        match integer(number) {
            Some(number) if (least..=most).contains(&number) => Some((number, value.span())),
            _ => {
                let message = format!("`{name}` in {} cannot be {}", self.called, clipped(number.as_str()));
                found.error(value.span(), message, expected, "");
                None
            }
        }
    }

    /// True or false.
    pub fn flag(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<bool> {
        let value = self.value(name)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        self.wrong(name, value, "true or false", found);
        None
    }

    /// A list of texts.
    pub fn texts(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Vec<Placed<&'t str>>> {
        let value = self.value(name)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong(name, value, "a list of texts", found);
            return None;
        };
        let mut texts = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => texts.push((text.as_ref(), item.span())),
                _ => self.wrong(name, item, "a text in quotes", found),
            }
        }
        Some(texts)
    }

    /// A CPU list as text (`"2-3,6"`), number or list of numbers.
    pub fn cpu_list(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<CpuSet>> {
        let value = self.value(name)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if integer(number).is_some() => number.as_str().to_owned(),
            DeValue::Array(items) if items.iter().all(|item| item.get_ref().is_integer()) => {
                let numbers = items.iter().filter_map(|item| item.get_ref().as_integer()).map(|n| n.as_str());
                numbers.collect::<Vec<_>>().join(",")
            }
            _ => {
                self.wrong(name, value, "a CPU list such as \"2-3,6\"", found);
                return None;
            }
        };
        match text.parse::<CpuSet>() {
            Ok(cpus) if !cpus.is_empty() => Some((cpus, value.span())),
            Ok(_) => {
                let message = format!("`{name}` in {} holds no CPU", self.called);
                found.error(value.span(), message, "at least one CPU, such as \"2-3\"", "");
                None
            }
            Err(why) => {
                let message = format!("`{name}` in {} cannot be {:?}", self.called, clipped(&text));
                let why = why.to_string();
                found.error(value.span(), message, why.strip_prefix("expected ").unwrap_or(&why), "");
                None
            }
        }
    }

    /// A table below this one.
    pub fn section(
        &self,
        name: &str,
        shape: &'static Table,
        called: &'t str,
        found: &mut Diagnostics<'_>,
    ) -> Option<Self> {
        let value = self.value(name)?;
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Section::open(table, value.span(), shape, called, found));
        }
        self.wrong(name, value, "a table", found);
        None
    }

    /// Program and arguments: a list of texts, or one text split at blanks.
    pub fn command(&self, name: &str, found: &mut Diagnostics<'_>) -> Option<Placed<Vec<String>>> {
        let value = self.value(name)?;
        let words = match value.get_ref() {
            DeValue::String(text) => match split_words(text) {
                Ok(words) => {
                    // In quotes it would not be a word of its own.
                    if let Some(word) = text.split_whitespace().find(|word| OF_SHELLS.contains(word)) {
                        let message = format!("`{name}` in {} passes {word:?} to its program as text", self.called);
                        found.warning(value.span(), message, "only a shell understands it: [\"sh\", \"-c\", \"…\"]");
                    }
                    words
                }
                Err(expected) => {
                    let message = format!("`{name}` in {} cannot be read", self.called);
                    found.error(value.span(), message, expected.to_string(), "");
                    return None;
                }
            },
            DeValue::Array(_) => self.texts(name, found)?.into_iter().map(|(word, _)| word.to_owned()).collect(),
            _ => {
                self.wrong(name, value, "a list of texts, or one text", found);
                return None;
            }
        };
        if words.first().is_none_or(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
            let message = format!("`{name}` in {} names no program", self.called);
            found.error(value.span(), message, "a program and its arguments, without NUL", "");
            return None;
        }
        Some((words, value.span()))
    }
}

/// A top-level table: one, or a list of them where `many`.
pub fn tables<'t>(
    root: &'t DeTable<'t>,
    name: &str,
    many: bool,
    found: &mut Diagnostics<'_>,
) -> Vec<(&'t DeTable<'t>, Range<usize>)> {
    let Some((key, value)) = root.iter().find(|(key, _)| *key.get_ref() == name) else { return Vec::new() };
    let header = if many { format!("[[{name}]]") } else { format!("[{name}]") };
    let one = |value: &'t Spanned<DeValue<'t>>| match value.get_ref() {
        DeValue::Table(table) => Some((table, value.span())),
        _ => None,
    };
    let read = match (value.get_ref(), many) {
        (DeValue::Table(_), false) => one(value).map(|table| vec![table]),
        (DeValue::Array(items), true) => items.iter().map(one).collect(),
        _ => None,
    };
    read.unwrap_or_else(|| {
        found.error(key.span(), format!("`{name}` is no {header} table"), header.clone(), format!("write {header}"));
        Vec::new()
    })
}

/// An integer that is not negative.
#[must_use]
pub fn integer(number: &toml::de::DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// The first characters of a text that may be long.
#[must_use]
pub fn clipped(text: &str) -> String {
    const SHOWN: usize = 48;
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The end of a command line is missing. Its text is what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The last character is a backslash.
    #[error("a character after the backslash")]
    Escape,
    /// A quote is open.
    #[error("a closing quote")]
    Quote,
}

/// Splits at blanks; single and double quotes hold words together, a backslash takes the next character
/// as it is (not within single quotes). Nothing is expanded.
///
/// # Errors
/// A quote or an escape is not complete.
pub fn split_words(text: &str) -> Result<Vec<String>, Unfinished> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => {
                let next = chars.next().ok_or(Unfinished::Escape)?;
                word.get_or_insert_default().push(next);
            }
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Unfinished::Quote);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_splits_as_a_shell_would_without_expanding() {
        let check = |text: &str, expected: &[&str]| assert_eq!(split_words(text).unwrap(), expected, "{text}");
        check("tahti demo llrf", &["tahti", "demo", "llrf"]);
        check("  a  'b c'  \"d e\"f g\\ h ", &["a", "b c", "d ef", "g h"]);
        check("a '' $HOME", &["a", "", "$HOME"]);
        check("", &[]);
        assert!(split_words("a 'b").is_err());
        assert!(split_words("a \\").is_err());
    }
}
