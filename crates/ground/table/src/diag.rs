//! Findings in a file, each with its place, the found and the expected text, and a remedy.

use crate::joined::Joined;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use toml::de::DeTable;

/// Longer lines are shown only around the place of the finding.
const SHOWN_CHARS_MAX: usize = 160;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The file can be used, but perhaps not as intended.
    Warning,
    /// The file cannot be used.
    Error,
}

/// One finding in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// The found text and the broken rule, in one line.
    pub message: String,
    /// The expected text; empty if the message contains it.
    pub expected: String,
    /// The remedy; empty if the message is enough.
    pub remedy: String,
    /// The file, unless it is the first one of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Byte range in the file.
    pub span: Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Collects findings while a file is read.
#[derive(Debug)]
pub struct Diagnostics<'a> {
    text: &'a str,
    /// The files of the text, if there are several.
    files: Option<&'a Joined>,
    found: Vec<Diagnostic>,
    /// Parts of the file with a syntax error. Later findings about them are consequences of it.
    broken: Vec<Range<usize>>,
}

impl<'a> Diagnostics<'a> {
    /// Begins with no finding in `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, files: None, found: Vec::new(), broken: Vec::new() }
    }

    /// Begins with no finding in a text of several files.
    #[must_use]
    pub fn of(joined: &'a Joined) -> Self {
        let (_, suspect) = joined.faults();
        Self { text: joined.text(), files: Some(joined), found: Vec::new(), broken: suspect.to_vec() }
    }

    /// Begins with the errors that were found when the files were joined.
    #[must_use]
    pub fn with_faults(joined: &'a Joined) -> Self {
        Self { found: joined.faults().0.to_vec(), ..Self::of(joined) }
    }

    /// Where a range begins, for messages about another place: `line 12`, or `common.toml:12` in another file.
    #[must_use]
    pub fn line_of(&self, span: &Range<usize>) -> String {
        match self.files.map(|files| files.line(span.start)) {
            Some((line, Some(file))) => format!("{file}:{line}"),
            Some((line, None)) => format!("line {line}"),
            None => format!("line {}", place(self.text, span.start).0),
        }
    }

    /// The text with blanks in place of the tables that have a syntax error, so that offsets do not change. Adds the
    /// first error of each table. Further findings about it, and about the file as a whole, are consequences and are
    /// not kept.
    pub fn sound(&mut self, text: &'a str) -> Cow<'a, str> {
        let mut sound = Cow::Borrowed(text);
        // Each round blanks at least a line.
        loop {
            let (_, errors) = DeTable::parse_recoverable(&sound);
            let first = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start));
            let Some(error) = first else { break };
            let span = error.span().unwrap_or(0..0);
            let part = self.table_at(span.start);
            if self.broken.contains(&part) {
                // The table is blank already. Stop instead of blanking it again.
                break;
            }
            let (message, expected, remedy) = syntax(text, span.start, error.message().trim());
            self.error(span, message, expected, remedy);
            let end = part.end.min(text.len());
            let blank: String =
                text[part.start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
            drop(errors);
            sound.to_mut().replace_range(part.start..end, &blank);
            self.broken.push(part);
        }
        sound
    }

    /// Whether the file has a syntax error.
    #[must_use]
    pub fn has_syntax_errors(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Whether a place is in a table with a syntax error.
    #[must_use]
    pub fn is_broken(&self, span: &Range<usize>) -> bool {
        self.broken.iter().any(|part| part.contains(&span.start))
    }

    /// The lines of the table around a place: from its header to the next one.
    fn table_at(&self, at: usize) -> Range<usize> {
        let lines = self.text.split_inclusive('\n').scan(0, |next, line| {
            let start = *next;
            *next += line.len();
            Some((start, line))
        });
        let headers: Vec<usize> = lines.filter(|(_, line)| line.starts_with('[')).map(|(start, _)| start).collect();
        let next = headers.partition_point(|start| *start <= at);
        let start = next.checked_sub(1).map_or(0, |last| headers[last]);
        start..headers.get(next).copied().unwrap_or(self.text.len() + 1)
    }

    /// Adds an error.
    pub fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Error, span, message.into(), expected.into(), remedy.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, span: Range<usize>, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Warning, span, message.into(), String::new(), remedy.into());
    }

    fn add(&mut self, severity: Severity, span: Range<usize>, message: String, expected: String, remedy: String) {
        if self.has_syntax_errors() && (span == (0..0) || self.is_broken(&span)) {
            return;
        }
        let (line, column) = place(self.text, span.start);
        let found = Diagnostic { severity, message, expected, remedy, file: None, span, line, column };
        self.found.push(match self.files {
            Some(files) => {
                let (file, span) = files.place(&found.span);
                files.located(found, file, span)
            }
            None => found,
        });
    }

    /// The findings in the file's order, each once.
    #[must_use]
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by(|a, b| {
            (&a.file, a.span.start, b.severity, &a.message).cmp(&(&b.file, b.span.start, a.severity, &b.message))
        });
        self.found.dedup();
        self.found
    }
}

/// Message, expected text and remedy of a syntax error at a place.
fn syntax(text: &str, at: usize, message: &str) -> (String, String, String) {
    if let Some(word) = unquoted(text, at) {
        if ["true", "false"].iter().any(|flag| word.eq_ignore_ascii_case(flag)) {
            let remedy = format!("write {}", word.to_ascii_lowercase());
            return (format!("the value {word} has capital letters"), "true or false".to_owned(), remedy);
        }
        let message = format!("the value {} is no number, and neither `true` nor `false`", crate::clipped(word));
        return (message, "a text in quotes".to_owned(), format!("write \"{}\"", crate::clipped(word)));
    }
    let (message, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let remedy = "in TOML a text is in quotes, a list in [ ], a table in { }, and each `key = value` is in a line";
    (message.to_owned(), expected.to_owned(), remedy.to_owned())
}

/// The word without quotes at a place, if it is in the position of a value.
fn unquoted(text: &str, at: usize) -> Option<&str> {
    let at = floor_boundary(text, at);
    let is_end = |c: char| c.is_whitespace() || matches!(c, '=' | ',' | '[' | ']' | '{' | '}' | '#' | '"' | '\'');
    let before = text[..at].char_indices().rev().find(|(_, c)| is_end(*c));
    let start = before.map_or(0, |(place, c)| place + c.len_utf8());
    let end = text[at..].find(is_end).map_or(text.len(), |after| at + after);
    let line = text[..start].rfind('\n').map_or(0, |before| before + 1);
    let before = text[line..start].trim_end();
    let is_value = before.ends_with(['=', ',']) || (before.ends_with('[') && before.contains('='));
    let is_key = text[end..].trim_start_matches([' ', '\t']).starts_with('=');
    let word = &text[start..end];
    let is_word = word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '_' | '-' | '+'));
    (is_value && is_word && !is_key).then_some(word)
}

/// Line and column (in characters), both from 1, of a byte offset; offsets inside a character or beyond
/// the end count as the character's start and the end.
pub(crate) fn place(text: &str, offset: usize) -> (usize, usize) {
    let offset = floor_boundary(text, offset);
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

impl Diagnostic {
    /// Shows the finding with its line of the file and a caret below the place.
    #[must_use]
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut out = String::new();
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let start = floor_boundary(text, self.span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let before = text[line_start..start].chars().count();
        let end = floor_boundary(text, self.span.end.max(start)).min(line_start + line.len()).max(start);
        let under = text[start..end].chars().count().clamp(1, SHOWN_CHARS_MAX);
        let skipped = before.saturating_sub(SHOWN_CHARS_MAX / 2);
        let shown: String = line.chars().skip(skipped).take(SHOWN_CHARS_MAX).map(plain).collect();
        let margin = " ".repeat(self.line.to_string().len());
        let indent = " ".repeat(before - skipped);
        let under = under.min(SHOWN_CHARS_MAX.saturating_sub(before - skipped).max(1));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{word}: {}", self.message);
        let _ = writeln!(out, "{margin}--> {file}:{}:{}", self.line, self.column);
        let _ = writeln!(out, "{margin} |");
        let _ = writeln!(out, "{} | {shown}", self.line);
        let _ = writeln!(out, "{margin} | {indent}{}", "^".repeat(under));
        if !self.expected.is_empty() {
            let _ = writeln!(out, "{margin} = expected: {}", self.expected);
        }
        if !self.remedy.is_empty() {
            let _ = writeln!(out, "{margin} = help: {}", self.remedy);
        }
        out
    }
}

/// One cell on the screen for each character, and no control sequences from the file.
fn plain(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Shows all findings, and a last line that counts them.
#[must_use]
pub fn render_all(found: &[Diagnostic], file: &str, text: &str) -> String {
    let out: String = found.iter().map(|one| one.render(file, text) + "\n").collect();
    out + &summary(found, file)
}

/// A line that counts findings.
pub(crate) fn summary(found: &[Diagnostic], file: &str) -> String {
    let errors = found.iter().filter(|one| one.severity == Severity::Error).count();
    let warnings = found.len() - errors;
    let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    match (errors, warnings) {
        (0, 0) => format!("{file}: no error\n"),
        (0, w) => format!("{file}: no error, {}\n", count(w, "warning")),
        (e, 0) => format!("{file}: {}\n", count(e, "error")),
        (e, w) => format!("{file}: {}, {}\n", count(e, "error"), count(w, "warning")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_place_even_after_wide_text() {
        let text = "name = \"ä\"\nx = \"ö\" oops";
        let at = text.find("oops").unwrap();
        let mut found = Diagnostics::new(text);
        found.error(at..at + 4, "odd word", "nothing", "");
        let found = found.finish();
        assert_eq!((found[0].line, found[0].column), (2, 9));
        let shown = found[0].render("p.toml", text);
        assert_eq!(
            shown,
            "error: odd word\n --> p.toml:2:9\n  |\n2 | x = \"ö\" oops\n  |         ^^^^\n  = expected: nothing\n"
        );
    }

    /// The diagnostics of a text with these syntax errors.
    fn said(text: &str) -> Vec<String> {
        let mut found = Diagnostics::new(text);
        let sound = found.sound(text);
        assert_eq!((sound.len(), DeTable::parse_recoverable(&sound).1.len()), (text.len(), 0), "{sound}");
        found.error(0..0, "the file is empty", "", "");
        for (at, _) in text.match_indices("bad") {
            found.error(at..at + 3, "bad", "", "");
        }
        found.finish().iter().map(|one| format!("{}: {}", one.line, one.message)).collect()
    }

    #[test]
    fn a_syntax_error_in_a_table_is_reported_without_consequential_errors() {
        let one = |text: &str| {
            let said = said(text);
            assert_eq!(said.len(), 2, "{text}: {said:?}");
            assert!(said[0].starts_with("1: ") && said[1].ends_with(": bad"), "{text}: {said:?}");
        };
        one("[plant\nname = \"bad\"\n\n[[process]]\nname = \"bad\"\n");
        one("[plant]]\nname = \"bad\"\n\n[[process]]\nname = \"bad\"\n");
        one("name = \n\n[[process]]\nname = \"bad\"\n");
        one("name = \"x\n\n[[process]]\nname = \"bad\"\n");
        one("name  \"x\"\n[[process]]\nname = \"bad\"\n");
        assert_eq!(said("a = 1\nb = \"bad\""), ["1: the file is empty", "2: bad"]);
    }

    #[test]
    fn a_value_without_quotes_is_named_with_its_quotes_and_other_errors_have_what_is_expected() {
        let first = |text: &str| {
            let mut found = Diagnostics::new(text);
            found.sound(text);
            let first = found.finish().remove(0);
            (first.message, first.expected, first.remedy)
        };
        for (text, word) in [
            ("heartbeat = { within = 10s }\n", "10s"),
            ("within = 5min\n", "5min"),
            ("class = fifo:80 # fast\n", "fifo:80"),
            ("after = [loop, \"b\"]\n", "loop"),
            ("after = [\"b\", loop]\n", "loop"),
            ("dir = /opt/rf\n", "/opt/rf"),
            ("folder = ../rf\n", "../rf"),
        ] {
            let (message, expected, remedy) = first(text);
            assert_eq!(message, format!("the value {word} is no number, and neither `true` nor `false`"), "{text}");
            assert_eq!((expected, remedy), ("a text in quotes".to_owned(), format!("write \"{word}\"")), "{text}");
        }
        assert_eq!(first("mlock = True\n").2, "write true");
        assert!(first("a = \u{a0}\u{2003}5min\n").0.len() > 3, "any blank may precede it");
        for text in ["name = \n", "[plant\nname = 1\n", "name = = 1\n", "name 1\n", "name = \"x\n", "a = { b 1 }\n"] {
            let (message, expected, remedy) = first(text);
            assert!(!message.contains("expected") && expected != "TOML", "{text}: {message}; {expected}");
            assert!(!message.contains("neither") && remedy.starts_with("in TOML "), "{text}: {message}; {remedy}");
        }
    }

    #[test]
    fn two_tables_with_syntax_errors_have_one_finding_each() {
        let said = said("[plant\nname = \"x\"\n[[process]]\nname = = \"x\"\ncommand = \n");
        assert_eq!(said.iter().map(|line| &line[..2]).collect::<Vec<_>>(), ["1:", "4:"], "{said:?}");
    }

    #[test]
    fn a_place_beyond_the_end_is_reported_at_the_end() {
        let mut found = Diagnostics::new("ab");
        found.error(7..9, "missing", "", "");
        assert_eq!(found.finish()[0].column, 3);
    }
}
