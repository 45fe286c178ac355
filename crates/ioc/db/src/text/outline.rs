//! Outline of a database file: its records, found without a database.

use crate::text::error::{FileError, Position};
use crate::text::lex::Lexer;
use crate::text::macros::{Macros, expand_lines};

/// A record as a file defines it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The record type, or `*` for a definition that adds to an existing record.
    pub record_type: String,
    /// DTYP; empty if the file does not set it.
    pub dtyp: String,
    /// Text of INP or OUT; empty if the file sets neither.
    pub link: String,
    /// Whether it names a C function in SNAM or INAM.
    pub has_function: bool,
}

/// The records of a `.db` file in file order, up to the first position where the parser cannot continue. Included files are
/// not read.
///
/// # Errors
/// The first malformed item, returned together with the records.
#[must_use]
pub fn outline(text: &str, file: &str, macros: &Macros) -> (Vec<Outline>, Option<FileError>) {
    let (expanded, _) = expand_lines(text, macros);
    let mut lexer = Lexer::new(&expanded, file);
    let mut found = Vec::new();
    loop {
        match item(&mut lexer, &mut found) {
            Ok(true) => {}
            Ok(false) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// Names of macros that a text uses without defining them.
#[must_use]
pub fn undefined_macros(text: &str) -> Vec<String> {
    let (_, missing) = expand_lines(text, &Macros::default());
    let mut names: Vec<String> = missing.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Reads one item. Returns false at the end of the file.
fn item(lexer: &mut Lexer<'_>, found: &mut Vec<Outline>) -> Result<bool, FileError> {
    use crate::text::lex::Token;
    let (token, place) = lexer.next()?;
    let word = match token {
        Token::End => return Ok(false),
        Token::Word { text, quoted: false } => text,
        _ => return Err(lexer.error(place, "expected record, grecord, alias, include, menu or breaktable")),
    };
    match &*word {
        "record" | "grecord" => found.push(record(lexer, place)?),
        "alias" => {
            pair(lexer)?;
        }
        "include" | "path" | "addpath" => {
            lexer.word("the name of a file")?;
        }
        // A menu or a breakpoint table: skip its brackets.
        _ => {
            lexer.punct(b'(', "behind the word")?;
            while !lexer.take(b')') {
                lexer.next()?;
            }
            lexer.punct(b'{', "behind the name")?;
            while !lexer.take(b'}') {
                if matches!(lexer.next()?.0, Token::End) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// `(a, b)`
fn pair(lexer: &mut Lexer<'_>) -> Result<(String, String), FileError> {
    lexer.punct(b'(', "before the name")?;
    let name = lexer.word("a name")?.0.into_owned();
    lexer.punct(b',', "after the name")?;
    let value = lexer.value("a value")?.0.into_owned();
    lexer.punct(b')', "after the value")?;
    Ok((name, value))
}

/// `(type, "name") { … }`
fn record(lexer: &mut Lexer<'_>, start: Position) -> Result<Outline, FileError> {
    lexer.punct(b'(', "after record")?;
    let record_type = lexer.record_type(start)?.0.into_owned();
    lexer.punct(b',', "after the record type")?;
    lexer.word("the name of the record")?;
    lexer.punct(b')', "after the name")?;
    let mut outline = Outline { record_type, ..Outline::default() };
    if !lexer.take(b'{') {
        return Ok(outline);
    }
    while !lexer.take(b'}') {
        let (word, place) = lexer.word("field, info, alias or }")?;
        match &*word {
            "field" | "info" => {
                let (name, value) = pair(lexer)?;
                match name.as_str() {
                    "DTYP" if word == "field" => outline.dtyp = value,
                    "INP" | "OUT" if word == "field" => outline.link = value,
                    "SNAM" | "INAM" if word == "field" => outline.has_function |= !value.is_empty(),
                    _ => {}
                }
            }
            "alias" => {
                lexer.punct(b'(', "after alias")?;
                lexer.word("the alias")?;
                lexer.punct(b')', "after the alias")?;
            }
            other => return Err(lexer.error(place, format!("found \"{other}\", expected field, info, alias or }}"))),
        }
    }
    Ok(outline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_of_a_file_is_listed_with_its_type_and_device() {
        let text = "menu(m) { choice(a, \"b\") }\nrecord(ai, \"$(P)a\") { field(DTYP, \"asynInt32\") field(INP, \"@p\") info(x, {a: 1}) }\n\
                    record(sub, b) { field(SNAM, \"f\") alias(c) }\nrecord(*, b) { field(DESC, \"d\") }\nrecord(bo, d)\nalias(b, e)";
        let (found, error) = outline(text, "x.db", &Macros::parse("P=X:"));
        assert_eq!(error, None);
        assert_eq!(found[0].link, "@p");
        let found: Vec<_> = found.iter().map(|one| (&*one.record_type, &*one.dtyp, one.has_function)).collect();
        assert_eq!(found, [("ai", "asynInt32", false), ("sub", "", true), ("*", "", false), ("bo", "", false)]);
        assert_eq!(undefined_macros("$(P)$(R=1)$(P)\n$(Q)"), ["P", "Q"]);
    }

    #[test]
    fn records_before_a_syntax_error_are_listed() {
        let (found, error) = outline("record(ai, a) {}\nrecord(ai b)", "x.db", &Macros::default());
        assert_eq!((found.len(), error.map(|error| error.place.line)), (1, Some(2)));
    }
}
