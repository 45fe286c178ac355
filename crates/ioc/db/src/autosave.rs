//! Values kept over restarts, in autosave's files: what to save (`.req`), what was saved (`.sav`), and putting it back.

use crate::channel::Channel;
use crate::engine::Db;
use crate::error::{FileError, Place};
use crate::lex::unescape;
use crate::macros::{Macros, expand_lines};
use base::{Array, FieldType, Scalar, Str40, Value};
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
        place: Place { line: line as u32 + 1, column: 1 },
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
) -> Result<Vec<String>, FileError> {
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
    all: &mut Vec<String>,
) -> Result<(), FileError> {
    let (expanded, undefined) = expand_lines(text, macros);
    let error = |line: usize, what: String| FileError {
        file: file.to_owned(),
        place: Place { line: line as u32, column: 1 },
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
            all.push(first.to_owned());
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

impl Db {
    /// What a channel holds, in the form that comes back to the same value.
    pub fn saved(&mut self, channel: &Channel) -> SavedValue {
        let (rec, field) = (channel.record.0, channel.field);
        let long = channel.long_string || self.is_long_text(rec, field) || self.def(rec, field).link_field().is_some();
        if long {
            return SavedValue::Text(self.get_long_text(channel));
        }
        match self.get(channel, usize::MAX) {
            Value::Scalar(scalar) => SavedValue::Text(text_of(scalar)),
            Value::Array(array) if array.len() == 1 => SavedValue::Text(array.get(0).map(text_of).unwrap_or_default()),
            Value::Array(array) => {
                SavedValue::Array((0..array.len()).filter_map(|at| array.get(at)).map(text_of).collect())
            }
        }
    }

    /// Puts values back before records are initialised (pass 0): call between loading and [`init`](Db::init). Arrays
    /// wait for pass 1. What cannot be put back is told: channel and reason.
    pub fn restore_first(&mut self, values: &[Saved]) -> Vec<String> {
        let mut failed = Vec::new();
        let mut later = Vec::new();
        for saved in values {
            let result = match (&saved.value, self.find(&saved.name)) {
                (None, _) => Ok(()),
                (Some(_), Err(error)) => Err(error.to_string()),
                (Some(SavedValue::Text(text)), Ok(channel))
                    if !self.is_array(channel.record.0, channel.field)
                        && !self.is_long_text(channel.record.0, channel.field) =>
                {
                    self.load_value(channel.record.0, channel.field, text)
                }
                (Some(_), Ok(_)) => {
                    later.push(saved.clone());
                    Ok(())
                }
            };
            if let Err(what) = result {
                failed.push(format!("{}: {what}", saved.name));
            }
        }
        self.restore_at_init(later);
        failed
    }

    /// Puts values back after records are initialised, before any is processed (pass 1): at the next
    /// [`init`](Db::init). What cannot be put back becomes a notice.
    pub fn restore_at_init(&mut self, values: Vec<Saved>) {
        self.restores.extend(values);
    }

    /// Pass 1, for the records that this part of the database has.
    pub(crate) fn restore_now(&mut self) {
        for saved in std::mem::take(&mut self.restores) {
            let Some(value) = &saved.value else { continue };
            let result = match self.find(&saved.name) {
                Ok(channel) if self.common[channel.record.0 as usize].away => continue,
                Ok(channel) => self.restore(&channel, value).map_err(|error| error.to_string()),
                // Each part knows only some of the records: the housekeeping part speaks.
                Err(_) if self.part.is_some() => continue,
                Err(error) => Err(error.to_string()),
            };
            if let Err(what) = result {
                self.notice(format!("autosave: {}: {what}", saved.name));
            }
        }
    }

    /// Writes a saved value without processing.
    ///
    /// # Errors
    /// As for any write.
    pub fn restore(&mut self, channel: &Channel, value: &SavedValue) -> Result<(), crate::PutError> {
        let (rec, field) = (channel.record.0, channel.field);
        match value {
            SavedValue::Text(text) if self.def(rec, field).link_field().is_some() => {
                self.put_link_field(rec, field, &String::from_utf8_lossy(text))
            }
            SavedValue::Text(text) if channel.long_string || self.is_long_text(rec, field) => {
                self.put_long_text(rec, field, text)
            }
            SavedValue::Text(text) => {
                let counted = matches!(
                    self.element_type(rec, field),
                    FieldType::Enum | FieldType::Menu | FieldType::Device | FieldType::U16
                );
                let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
                match number.filter(|_| counted) {
                    Some(number) => self.put_scalar(rec, field, Scalar::U16(number)),
                    None => self.put_scalar(rec, field, Scalar::String(Str40::new(text))),
                }
            }
            SavedValue::Array(elements) => {
                let array = Array::String(elements.iter().map(|element| Str40::new(element)).collect());
                self.put_array(rec, field, &array)
            }
        }
    }

    /// As [`restore`](Self::restore), and processes a passive record as a client's write does.
    ///
    /// # Errors
    /// As for any write.
    pub fn restore_and_process(
        &mut self,
        channel: &Channel,
        value: &SavedValue,
        now: crate::Now,
    ) -> Result<(), crate::PutError> {
        self.restore(channel, value)?;
        let passive = self.common[channel.record.0 as usize].scan == 0;
        if passive && self.def(channel.record.0, channel.field).process_passive {
            self.process(channel.record, now);
        }
        Ok(())
    }

    /// Channels that the records themselves ask to be saved, by info tags such as `autosaveFields` with the names of
    /// fields in them.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Vec<String> {
        let mut all = Vec::new();
        for record in self.records() {
            for (_, fields) in self.info_tags(record).iter().filter(|(known, _)| known == tag) {
                let name = self.name_of(record);
                all.extend(
                    fields
                        .split([' ', ',', '\t', ';'])
                        .filter(|field| !field.is_empty())
                        .map(|field| format!("{name}.{field}")),
                );
            }
        }
        all
    }
}

/// As autosave writes it.
fn text_of(scalar: Scalar) -> Vec<u8> {
    match scalar {
        Scalar::String(text) => text.bytes().to_vec(),
        Scalar::F64(value) => general(value, 14, |text| text.parse() == Ok(value)),
        Scalar::F32(value) => general(value.into(), 7, |text| text.parse() == Ok(value)),
        Scalar::Enum(value) => value.to_string().into_bytes(),
        other => base::text::scalar(other, 0).bytes().to_vec(),
    }
}

/// So many digits as autosave writes, and more where the value would otherwise not come back.
fn general(value: f64, digits: usize, is_same: impl Fn(&str) -> bool) -> Vec<u8> {
    let text = base::text::general(value, digits);
    let short = is_same(&text) || !value.is_finite();
    (if short { text } else { base::text::general(value, digits + 3) }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DB: &str = r#"
        record(ao, "X:ao") { field(VAL, "1.5") field(PREC, "3") }
        record(mbbo, "X:mbbo") { field(ZRST, "zero") field(ONST, "one") field(TWST, "two") }
        record(stringout, "X:text") {}
        record(lso, "X:long") { field(SIZV, "200") }
        record(waveform, "X:wave") { field(FTVL, "DOUBLE") field(NELM, "4") }
        record(waveform, "X:words") { field(FTVL, "STRING") field(NELM, "4") }
        record(calc, "X:calc") { field(CALC, "A+1") field(INPA, "X:ao") field(PINI, "YES")
            info(autosaveFields, "CALC INPA SCAN") }
    "#;
    const NAMES: [&str; 9] =
        ["X:ao", "X:ao.PREC", "X:mbbo", "X:text", "X:long", "X:wave", "X:words", "X:calc.INPA", "X:calc.SCAN"];

    fn database() -> Db {
        let mut db = Db::new();
        db.load_records(DB, "t.db", &Macros::default(), &mut |_| None).unwrap();
        db
    }

    fn state(db: &mut Db) -> Vec<Saved> {
        let saved = |name: &&str| {
            let channel = db.find(name).unwrap();
            Saved { name: (*name).to_owned(), value: Some(db.saved(&channel)) }
        };
        NAMES.iter().map(saved).collect()
    }

    #[test]
    fn all_kinds_of_values_come_back_in_either_pass() {
        let mut db = database();
        db.init(crate::Now::default());
        for (name, text) in [
            ("X:ao", "0.1"),
            ("X:ao.PREC", "5"),
            ("X:mbbo", "two"),
            ("X:text", "a \"b\"\\ c"),
            ("X:calc.SCAN", "1 second"),
        ] {
            let channel = db.find(name).unwrap();
            db.put_text(&channel, text, crate::Now::default()).unwrap();
        }
        let long = db.find("X:long").unwrap();
        db.put_text(&long, &"long ".repeat(20), crate::Now::default()).unwrap();
        for (name, value) in [("X:wave", vec!["1", "-2.5", "3e10"]), ("X:words", vec!["one two", "}\"", ""])] {
            let channel = db.find(name).unwrap();
            let elements = value.iter().map(|text| text.as_bytes().to_vec()).collect();
            db.restore(&channel, &SavedValue::Array(elements)).unwrap();
        }
        let before = state(&mut db);
        let text = write_sav("test", &before);
        let read = parse_sav(&text, "t.sav").unwrap();
        assert_eq!(read, before, "{text}");
        for pass in [0, 1] {
            let mut db = database();
            if pass == 0 {
                assert_eq!(db.restore_first(&read), [""; 0]);
            } else {
                db.restore_at_init(read.clone());
            }
            db.init(crate::Now::default());
            assert_eq!(state(&mut db), before, "pass {pass}: {:?}", db.take_notices());
            // Records that process at start see what was restored.
            let calc = db.find("X:calc").unwrap();
            assert_eq!(db.get(&calc, 1), Value::from(1.1));
        }
    }

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
        assert_eq!(all, ["X:ao", "X:ao.PREC", "X:m1.VAL", "X:m1.DESC", "X:m2.VAL", "X:m2.DESC"]);
        let own = &mut |_: &str| Some("file own.req".to_owned());
        let error = parse_request("file own.req", "own.req", &Macros::default(), own).unwrap_err();
        assert!(error.to_string().contains("more than 16 deep"), "{error}");
    }

    #[test]
    fn info_tags_name_fields() {
        assert_eq!(database().tagged("autosaveFields"), ["X:calc.CALC", "X:calc.INPA", "X:calc.SCAN"]);
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "([a-z ]{0,4}|@array@|[{}\"\\\\ #!<>\n]|<END>){0,30}") {
            let _ = parse_sav(&text, "t.sav");
            let _ = parse_request(&text, "t.req", &Macros::default(), &mut |_| Some(text.clone()));
        }
    }
}
