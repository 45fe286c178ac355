//! Autosave's files: what to save (`.req`), and what was saved (`.sav`).

use crate::text::error::{FileError, Position};
use crate::text::lex::unescape;
use crate::text::macros::{Macros, expand_lines};
use std::fmt::Write as _;

/// What a field held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedValue {
    /// One element, or a text.
    Text(Vec<u8>),
    /// Any other number of elements, each as text.
    Array(Vec<Vec<u8>>),
}

/// A field and what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The channel, as the request file named it.
    pub name: String,
    /// What it held; `None` where it could not be read.
    pub value: Option<SavedValue>,
}

/// The last line of a file that was written to its end.
const END: &str = "<END>";
const ARRAY: &str = "@array@";
/// How deep request files may include others, and how many channels they may name.
const DEPTH_MAX: u32 = 16;
const CHANNELS_MAX: usize = 1_000_000;

/// A channel that a request file names, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The channel.
    pub channel: String,
    /// The file as it was named.
    pub file: String,
    /// Where in it.
    pub place: Position,
}

/// A `.sav` file's text; `head` is its first line, without the sign of a comment.
#[must_use]
pub fn write_sav(head: &str, values: &[Saved]) -> String {
    let mut out = format!("# {head}\n");
    let missing = values.iter().filter(|saved| saved.value.is_none()).count();
    if missing > 0 {
        let _ = writeln!(out, "! {missing} channel(s) not connected - or not all gets were successful");
    }
    for saved in values {
        match &saved.value {
            None => drop(writeln!(out, "#{} ", saved.name)),
            Some(SavedValue::Text(text)) => drop(writeln!(out, "{} {}", saved.name, text.escape_ascii())),
            Some(SavedValue::Array(elements)) => {
                let _ = write!(out, "{} {ARRAY} {{ ", saved.name);
                for element in elements {
                    let _ = write!(out, "\"{}\" ", element.escape_ascii());
                }
                out.push_str("}\n");
            }
        }
    }
    out.push_str(END);
    out.push('\n');
    out
}

/// Reads a `.sav` file.
///
/// # Errors
/// When its end is missing (it was being written when something failed), or a line is malformed.
pub fn parse_sav(text: &str, file: &str) -> Result<Vec<Saved>, FileError> {
    let error = |line: usize, what: String| FileError {
        file: file.to_owned(),
        place: Position { line: line as u32 + 1, column: 1 },
        what,
    };
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.starts_with(END) {
            return Ok(all);
        }
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (name, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let value = match value.trim_start().strip_prefix(ARRAY) {
            None => SavedValue::Text(unescape(value).into_owned()),
            Some(body) => SavedValue::Array(
                elements(body).ok_or_else(|| error(number, format!("{name}: expected {{ \"…\" \"…\" }}")))?,
            ),
        };
        all.push(Saved { name: name.to_owned(), value: Some(value) });
    }
    let last = text.lines().count().saturating_sub(1);
    Err(error(last, format!("found the end of the file, expected {END}: it was not written to its end")))
}

/// `{ "a" "b" }`
fn elements(body: &str) -> Option<Vec<Vec<u8>>> {
    let mut rest = body.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut all = Vec::new();
    while let Some(after) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = after.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        all.push(unescape(&after[..end]).into_owned());
        rest = after[end + 1..].trim_start();
    }
    rest.is_empty().then_some(all)
}

/// Reads a request file: a channel a line, `file NAME MACROS` for those of another file, `#` before comments.
///
/// # Errors
/// A file that cannot be read (with the line that names it), or one that includes itself.
pub fn parse_request(
    text: &str,
    file: &str,
    macros: &Macros,
    include: &mut dyn FnMut(&str) -> Option<String>,
) -> Result<Vec<Requested>, FileError> {
    let mut all = Vec::new();
    request(text, file, macros, include, 0, &mut all)?;
    Ok(all)
}

fn request(
    text: &str,
    file: &str,
    macros: &Macros,
    include: &mut dyn FnMut(&str) -> Option<String>,
    depth: u32,
    all: &mut Vec<Requested>,
) -> Result<(), FileError> {
    let (expanded, undefined) = expand_lines(text, macros);
    let error = |line: usize, what: String| FileError {
        file: file.to_owned(),
        place: Position { line: line as u32, column: 1 },
        what,
    };
    if let Some((line, name)) = undefined.first() {
        return Err(error(*line, format!("macro {name} is undefined")));
    }
    for (number, line) in expanded.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        if first != "file" {
            if all.len() >= CHANNELS_MAX {
                return Err(error(number + 1, format!("more than {CHANNELS_MAX} channels")));
            }
            let column = line.find(first).unwrap_or(0) as u32 + 1;
            let place = Position { line: number as u32 + 1, column };
            all.push(Requested { channel: first.to_owned(), file: file.to_owned(), place });
            continue;
        }
        let name = words.next().unwrap_or_default().trim_matches('"');
        if depth >= DEPTH_MAX {
            return Err(error(number + 1, format!("files include each other more than {DEPTH_MAX} deep")));
        }
        let text = include(name).ok_or_else(|| {
            error(number + 1, format!("cannot read \"{name}\": give its folder to set_requestfile_path"))
        })?;
        let definitions = words.collect::<Vec<_>>().join(" ");
        let definitions = definitions.trim_matches('"');
        // An included file sees its own macros only, as autosave has it.
        request(&text, name, &Macros::parse(definitions), include, depth + 1, all)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_without_its_end_is_refused() {
        let error = parse_sav("# head\nX:ao 1\nX:mb", "t.sav").unwrap_err().to_string();
        assert_eq!(error, "t.sav:3:1: found the end of the file, expected <END>: it was not written to its end");
    }

    #[test]
    fn request_files_include_others_with_macros() {
        let text = "# all\n$(P)ao\n  $(P)ao.PREC # with comment\nfile motor.req P=$(P),M=m1\nfile \"motor.req\" \"P=$(P), M=m2\"\n";
        let include = &mut |name: &str| (name == "motor.req").then(|| "$(P)$(M).VAL\n$(P)$(M).DESC".to_owned());
        let all = parse_request(text, "auto.req", &Macros::parse("P=X:"), include).unwrap();
        let third = Position { line: 1, column: 1 };
        assert_eq!((&*all[2].file, all[2].place, all[1].place), ("motor.req", third, Position { line: 3, column: 3 }));
        let all: Vec<String> = all.into_iter().map(|one| one.channel).collect();
        assert_eq!(all, ["X:ao", "X:ao.PREC", "X:m1.VAL", "X:m1.DESC", "X:m2.VAL", "X:m2.DESC"]);
        let own = &mut |_: &str| Some("file own.req".to_owned());
        let error = parse_request("file own.req", "own.req", &Macros::default(), own).unwrap_err();
        assert!(error.to_string().contains("more than 16 deep"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "([a-z ]{0,4}|@array@|[{}\"\\\\ #!<>\n]|<END>){0,30}") {
            let _ = parse_sav(&text, "t.sav");
            let _ = parse_request(&text, "t.req", &Macros::default(), &mut |_| Some(text.clone()));
        }
    }
}
