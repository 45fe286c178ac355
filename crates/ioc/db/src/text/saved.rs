//! Autosave files: requests (`.req`) and saved values (`.sav`).

use crate::text::error::{FileError, Position};
use crate::text::lex::unescape;
use crate::text::macros::Macros;
use std::fmt::Write as _;

/// A saved field value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedValue {
    /// One element, or a text.
    Text(Vec<u8>),
    /// Any other number of elements, each as text.
    Array(Vec<Vec<u8>>),
}

/// A channel and its saved value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The channel, as named in the request file.
    pub name: String,
    /// The value; `None` if it could not be read.
    pub value: Option<SavedValue>,
}

/// Last line of a completely written file.
const END: &str = "<END>";
const ARRAY: &str = "@array@";
/// Maximum nesting depth of included request files.
const DEPTH_MAX: u32 = 16;
const CHANNELS_MAX: usize = 1_000_000;

/// A channel named in a request file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The channel.
    pub channel: String,
    /// Name of the file.
    pub file: String,
    /// Position in the file.
    pub place: Position,
}

/// Returns the text of a `.sav` file. `head` is its first line, without the comment sign.
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
/// If the end mark is missing (the file was not written completely) or a line is malformed.
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

/// Channels and errors of a request file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFile {
    /// The channels, in file order.
    pub channels: Vec<Requested>,
    /// Unreadable files, macros without a value, invalid lines. Each error skips only its line.
    pub complaints: Vec<FileError>,
}

/// Parses a request file with the rules of the EPICS module: one channel per line, `file NAME MACROS` to include another
/// file, `#` for comments. The file name may be quoted. Macros are separated by commas or blanks, also from the name, and
/// their double quotes are ignored. An included file sees only these macros.
pub fn parse_request(
    text: &str,
    file: &str,
    macros: &Macros,
    include: &mut dyn FnMut(&str) -> Option<String>,
) -> RequestFile {
    let mut all = RequestFile::default();
    request(text, file, macros, include, 0, &mut all);
    all
}

fn request(
    text: &str,
    file: &str,
    macros: &Macros,
    include: &mut dyn FnMut(&str) -> Option<String>,
    depth: u32,
    all: &mut RequestFile,
) {
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        if start.is_empty() || start.starts_with('#') {
            continue;
        }
        let place = Position { line: number, column: (line.len() - start.len()) as u32 + 1 };
        let mut wrong = |what: String| all.complaints.push(FileError { file: file.to_owned(), place, what });
        let (expanded, undefined) = macros.expand(start);
        if let Some(name) = undefined.first() {
            wrong(format!("macro {name} is undefined; the line is left out"));
            continue;
        }
        let Some((name, definitions)) = included_file(&expanded) else {
            let channel = expanded.split_whitespace().next().unwrap_or_default();
            if !channel.starts_with(|first: char| first.is_ascii_alphanumeric() || "_-+:[]<>;".contains(first)) {
                wrong(format!("found \"{channel}\", expected a channel, file, or # before a comment"));
            } else if all.channels.len() >= CHANNELS_MAX {
                wrong(format!("more than {CHANNELS_MAX} channels; the rest is left out"));
                return;
            } else {
                all.channels.push(Requested { channel: channel.to_owned(), file: file.to_owned(), place });
            }
            continue;
        };
        if depth >= DEPTH_MAX {
            wrong(format!("files include each other more than {DEPTH_MAX} deep"));
            continue;
        }
        match include(name) {
            Some(text) => request(&text, name, &Macros::parse(&definitions), include, depth + 1, all),
            None => wrong(format!("cannot read \"{name}\": give its folder to set_requestfile_path")),
        }
    }
}

/// The file that a line includes, and its macros; `None` for other lines.
fn included_file(line: &str) -> Option<(&str, String)> {
    let rest = line.strip_prefix("file").filter(|rest| rest.starts_with([' ', '\t', '"']))?.trim_start();
    let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start();
    let end = rest.find(|next: char| next.is_whitespace() || matches!(next, '"' | '#')).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let mut macros = String::new();
    let mut before = ' ';
    for next in rest.chars() {
        let divides = before.is_whitespace() || matches!(before, ',' | '"');
        match next {
            '#' if divides => break,
            ',' => push_comma(&mut macros),
            next if next.is_whitespace() => push_comma(&mut macros),
            '"' => {}
            next => macros.push(next),
        }
        before = next;
    }
    Some((name, macros))
}

fn push_comma(macros: &mut String) {
    if !macros.is_empty() && !macros.ends_with(',') {
        macros.push(',');
    }
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
        let RequestFile { channels: all, complaints } =
            parse_request(text, "auto.req", &Macros::parse("P=X:"), include);
        assert_eq!(complaints, []);
        let third = Position { line: 1, column: 1 };
        assert_eq!((&*all[2].file, all[2].place, all[1].place), ("motor.req", third, Position { line: 3, column: 3 }));
        let all: Vec<String> = all.into_iter().map(|one| one.channel).collect();
        assert_eq!(all, ["X:ao", "X:ao.PREC", "X:m1.VAL", "X:m1.DESC", "X:m2.VAL", "X:m2.DESC"]);
        let own = &mut |_: &str| Some("file own.req".to_owned());
        let error = parse_request("file own.req", "own.req", &Macros::default(), own).complaints.remove(0);
        assert!(error.to_string().contains("more than 16 deep"), "{error}");
    }

    #[test]
    fn lines_that_include_files_are_read_as_the_module_reads_them() {
        let text = "\
            file \"sub.req\", P=$(P), R=det1:\n\
            file \"sub.req\"P=a,R=b\n\
            file sub.req \"P=c,R=d\"\n\
            file \"sub.req\",   P=e   R=f,  # P=not\n\
            file\t\" sub.req\" P='g h',R=\"i\"\n\
            filename:x\n";
        let include = &mut |name: &str| (name == "sub.req").then(|| "$(P)$(R)x".to_owned());
        let RequestFile { channels, complaints } = parse_request(text, "auto.req", &Macros::parse("P=X:"), include);
        assert_eq!(complaints, []);
        let channels: Vec<String> = channels.into_iter().map(|one| one.channel).collect();
        assert_eq!(channels, ["X:det1:x", "abx", "cdx", "efx", "g,hix", "filename:x"]);
    }

    #[test]
    fn a_missing_file_or_undefined_macro_skips_its_line_and_not_the_set() {
        let text = "X:a\nfile none.req P=X:\n$(Q)b\n!c\nX:d\nfile sub.req R=1";
        let include = &mut |name: &str| (name == "sub.req").then(|| "$(P)e\nX:f$(R)".to_owned());
        let RequestFile { channels, complaints } = parse_request(text, "auto.req", &Macros::default(), include);
        let channels: Vec<String> = channels.into_iter().map(|one| one.channel).collect();
        assert_eq!(channels, ["X:a", "X:d", "X:f1"]);
        let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(
            complaints,
            [
                "auto.req:2:1: cannot read \"none.req\": give its folder to set_requestfile_path",
                "auto.req:3:1: macro Q is undefined; the line is left out",
                "auto.req:4:1: found \"!c\", expected a channel, file, or # before a comment",
                "sub.req:1:1: macro P is undefined; the line is left out",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "([a-z ]{0,4}|@array@|[{}\"\\\\ #!<>\n]|<END>){0,30}") {
            let _ = parse_sav(&text, "t.sav");
            let _ = parse_request(&text, "t.req", &Macros::default(), &mut |_| Some(text.clone()));
        }
    }
}
