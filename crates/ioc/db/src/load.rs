//! Reading `.db` files into the database.

mod undo;
mod values;

use crate::model::id::RecId;
use crate::model::schema::Schema;
use crate::rec::Kind;
use crate::run::engine::Db;
use crate::text::error::{FileError, FileErrors, Position};
use crate::text::lex::{Lexer, Token, unescape};
use crate::text::macros::{Macros, expand_lines};
use base::nearest;
use std::borrow::Cow;
use std::sync::Arc;
use undo::Undo;
use values::no_macro_left;

/// Longest name of a record.
const NAME_LIMIT: usize = 60;
/// Longest alias.
const ALIAS_LIMIT: usize = 255;

/// Gives the text of an included file.
pub(crate) type Include<'a> = dyn FnMut(&str) -> Option<String> + 'a;

impl Db {
    /// Reads a `.dbd`: its menus and breakpoint tables replace the built-in ones.
    ///
    /// # Errors
    /// What is malformed, with its place; a record type that tahti does not have.
    pub fn load_dbd(&mut self, text: &str, file: &str, include: &mut Include<'_>) -> Result<(), FileError> {
        Arc::make_mut(&mut self.records.schema).load(text, file, include)
    }

    /// The record types, menus and tables.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.records.schema
    }

    /// Whether a file with an error is refused whole; else, as in C, all of it is loaded that can be.
    pub const fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Whether a record may be defined once only; more fields are then added to it under the type `"*"`.
    pub const fn set_once_only(&mut self, once_only: bool) {
        self.once_only = once_only;
    }

    /// Reads a `.db`. Its records begin to live with the next [`init`](Db::init).
    ///
    /// # Errors
    /// All records, fields and aliases that cannot be as the file has them (the first 100), up to the first place where the
    /// file cannot be read on, each with file, line and column (of the text after macros are replaced). The rest of the
    /// file is loaded all the same, unless the database is [strict](Self::set_strict).
    pub fn load_records(
        &mut self,
        text: &str,
        file: &str,
        macros: &Macros,
        include: &mut Include<'_>,
    ) -> Result<(), FileErrors> {
        let mut undo = Undo::begin(self);
        if let Err(error) = self.load_text(text, file, macros, include, 0, &mut undo) {
            undo.wrong(error);
        }
        undo.end(self)
    }

    fn load_text(
        &mut self,
        text: &str,
        file: &str,
        macros: &Macros,
        include: &mut Include<'_>,
        depth: u32,
        undo: &mut Undo,
    ) -> Result<(), FileError> {
        let (expanded, undefined) = expand_lines(text, macros);
        let loaded = self.load_items(&mut Lexer::new(&expanded, file), macros, include, depth, undo);
        for (line, name) in undefined {
            let told = |error: &FileError| error.place.line as usize == line && error.file == file;
            if !loaded.as_ref().err().into_iter().chain(&undo.errors).any(told) {
                self.notice(format!("{file}:{line}: macro {name} is undefined"));
            }
        }
        loaded
    }

    /// The items of one file, whose macros are expanded.
    fn load_items(
        &mut self,
        lexer: &mut Lexer<'_>,
        macros: &Macros,
        include: &mut Include<'_>,
        depth: u32,
        undo: &mut Undo,
    ) -> Result<(), FileError> {
        loop {
            let (token, place) = lexer.next()?;
            let word = match token {
                Token::End => return Ok(()),
                Token::Word { text, quoted: false } => text,
                _ => return Err(lexer.error(place, "expected record, grecord, alias, include, menu or breaktable")),
            };
            match &*word {
                "record" | "grecord" => self.load_record(lexer, place, undo)?,
                "alias" => {
                    lexer.punct(b'(', "after alias")?;
                    let (record, at) = lexer.word("the name of a record")?;
                    lexer.punct(b',', "after the name")?;
                    let (alias, alias_at) = lexer.word("the alias")?;
                    lexer.punct(b')', "after the alias")?;
                    match self.records.names.find(record.as_bytes()) {
                        Some((_, rec)) => self.add_alias(lexer, alias_at, &alias, rec, undo),
                        None => {
                            undo.wrong(lexer.error(at, format!("no record \"{record}\" to give the alias \"{alias}\"")))
                        }
                    }
                }
                "include" => {
                    let (name, at) = lexer.word("the name of a file")?;
                    if depth >= 16 {
                        return Err(lexer.error(at, "files include each other more than 16 deep"));
                    }
                    match include(&name) {
                        Some(text) => self.load_text(&text, &name, macros, include, depth + 1, undo)?,
                        None => undo.wrong(lexer.error(at, format!("cannot read \"{name}\""))),
                    }
                }
                "path" | "addpath" => {
                    lexer.word("a path")?;
                }
                "menu" => Arc::make_mut(&mut self.records.schema).menu(lexer)?,
                "breaktable" => Arc::make_mut(&mut self.records.schema).break_table(lexer)?,
                other => {
                    let hint = nearest(other, ["record", "grecord", "alias", "include", "menu", "breaktable"]);
                    let hint = hint.map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
                    return Err(lexer.error(
                        place,
                        format!(
                            "found \"{other}\", expected record, grecord, alias, include, menu or breaktable{hint}"
                        ),
                    ));
                }
            }
        }
    }

    fn add_alias(&mut self, lexer: &Lexer<'_>, place: Position, alias: &str, rec: RecId, undo: &mut Undo) {
        let wrong = match self.records.names.find(alias.as_bytes()) {
            Some((_, known)) if self.records[known].removed => None,
            Some((_, known)) if known == rec => return,
            Some(_) => Some(lexer.error(place, format!("alias \"{alias}\" is taken by another record or alias"))),
            None => None,
        };
        match wrong.map_or_else(|| check_name(lexer, place, "alias", alias, ALIAS_LIMIT), Err) {
            Ok(()) => undo.alias(self.records.names.add(alias.as_bytes(), rec)),
            Err(error) => undo.wrong(error),
        }
    }

    /// `(type, "name") { … }`
    fn load_record(&mut self, lexer: &mut Lexer<'_>, start: Position, undo: &mut Undo) -> Result<(), FileError> {
        lexer.punct(b'(', "after record")?;
        let kind = lexer.word("a record type or \"*\"").or_else(|error| {
            // A star is no word, but may stand unquoted as the type of a record that is there.
            if error.what.contains("'*'") {
                lexer.skip_star();
                Ok((Cow::Borrowed("*"), start))
            } else {
                Err(error)
            }
        })?;
        lexer.punct(b',', "after the record type")?;
        let name = lexer.word("the name of the record")?;
        lexer.punct(b')', "after the name")?;
        let rec = self.record_of(lexer, (&kind.0, kind.1), (&name.0, name.1), undo).unwrap_or_else(|error| {
            undo.wrong(error);
            None
        });
        if !lexer.take(b'{') {
            return Ok(());
        }
        while !lexer.take(b'}') {
            let (word, place) = lexer.word("field, info, alias or }")?;
            match &*word {
                "field" => self.load_field(lexer, rec, undo)?,
                "info" => self.load_info(lexer, rec, undo)?,
                "alias" => {
                    lexer.punct(b'(', "after alias")?;
                    let (alias, at) = lexer.word("the alias")?;
                    lexer.punct(b')', "after the alias")?;
                    if let Some(rec) = rec {
                        self.add_alias(lexer, at, &alias, rec, undo);
                    }
                }
                other => {
                    return Err(lexer.error(place, format!("found \"{other}\", expected field, info, alias or }}")));
                }
            }
        }
        Ok(())
    }

    /// The record that a file's record stands for: a new one, or one that is there; none where it is removed.
    fn record_of(
        &mut self,
        lexer: &Lexer<'_>,
        (type_name, type_place): (&str, Position),
        (name, place): (&str, Position),
        undo: &mut Undo,
    ) -> Result<Option<RecId>, FileError> {
        let known = self.records.names.find(name.as_bytes()).map(|(_, rec)| rec);
        let known = known.filter(|rec| !self.records[*rec].removed);
        match (type_name, known) {
            (_, Some(rec)) if self.records[rec].is_remote => Err(lexer.error(
                place,
                format!(
                    "record \"{name}\" is in a scan group of the running IOC; change it with dbpf, or dbDeleteRecord"
                ),
            )),
            ("#", Some(rec)) => {
                self.records[rec].removed = true;
                undo.removed(rec);
                Ok(None)
            }
            ("*", Some(rec)) => Ok(Some(rec)),
            ("*" | "#", None) => Err(lexer.error(place, format!("no record \"{name}\" is loaded yet, give its type"))),
            (kind, Some(rec)) if self.once_only && kind == self.records.type_of(rec).name => Err(lexer.error(
                place,
                format!(
                    "record \"{name}\" is defined already, and dbRecordsOnceOnly is set; give the type \"*\" to add to it"
                ),
            )),
            (_, Some(rec)) => match &self.records.type_of(rec).name {
                kind if *kind == type_name => Ok(Some(rec)),
                kind => Err(lexer.error(
                    type_place,
                    format!("record \"{name}\" is of type \"{kind}\" already, found \"{type_name}\""),
                )),
            },
            (_, None) => {
                let Some(kind) = self.records.schema.type_index(type_name) else {
                    let hint = nearest(type_name, self.records.schema.types.iter().map(|kind| kind.name.as_str()));
                    let hint = hint.map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
                    return Err(lexer.error(type_place, format!("no record type \"{type_name}\"{hint}")));
                };
                check_name(lexer, place, "record name", name, NAME_LIMIT)?;
                Ok(Some(self.records.create(Kind::ALL[kind], name.as_bytes())))
            }
        }
    }

    /// `(TAG, "value")`
    fn load_info(&mut self, lexer: &mut Lexer<'_>, rec: Option<RecId>, undo: &mut Undo) -> Result<(), FileError> {
        lexer.punct(b'(', "after info")?;
        let (tag, _) = lexer.word("the name of the tag")?;
        lexer.punct(b',', "after the name")?;
        let (value, quoted, _) = lexer.value("the value of the tag")?;
        lexer.punct(b')', "after the value")?;
        let Some(rec) = rec else { return Ok(()) };
        let value = if quoted { base::raw::decode(&unescape(&value)).into_owned() } else { value.into_owned() };
        let tags = self.records.info.entry(rec).or_default();
        undo.info(rec, tags);
        match tags.iter_mut().find(|(known, _)| *known == *tag) {
            Some(known) => known.1 = value,
            None => tags.push((tag.into_owned(), value)),
        }
        Ok(())
    }

    /// `(NAME, "value")`
    fn load_field(&mut self, lexer: &mut Lexer<'_>, rec: Option<RecId>, undo: &mut Undo) -> Result<(), FileError> {
        lexer.punct(b'(', "after field")?;
        let (name, place) = lexer.word("the name of the field")?;
        lexer.punct(b',', "after the name")?;
        let (value, quoted, value_place) = lexer.value("the value of the field")?;
        lexer.punct(b')', "after the value")?;
        let Some(rec) = rec else { return Ok(()) };
        let kind = self.records.type_of(rec);
        let wrong = if let Some(field) = kind.field(&name) {
            let value = if quoted { unescape(&value) } else { base::raw::encode(&value) };
            undo.field(self, rec, field);
            let loaded = self.load_value(rec, field, &value);
            loaded.err().map(|what| {
                let record = self.records.name(rec);
                let error = format!("{record}.{name} cannot be {:?}: {what}", base::raw::readable(&value));
                lexer.error(value_place, error)
            })
        } else {
            let hint = kind.nearest_field(&name).map_or(String::new(), |near| format!("; nearest is \"{near}\""));
            let record = self.records.name(rec);
            Some(lexer.error(place, format!("{} record \"{record}\" has no field \"{name}\"{hint}", kind.name)))
        };
        wrong.into_iter().for_each(|error| undo.wrong(error));
        Ok(())
    }

    /// The first record of each type, from which others are copied: fields at their initial values.
    pub(crate) fn make_firsts(&mut self) {
        for kind in Kind::ALL {
            let rec = self.records.create_first(*kind);
            for field in 0..self.records.schema.types[*kind as usize].fields.len() as u16 {
                let Some(initial) =
                    self.records.schema.types[*kind as usize].fields[usize::from(field)].initial.clone()
                else {
                    continue;
                };
                let done = self.load_value(rec, field, initial.as_bytes());
                debug_assert!(done.is_ok(), "{} {field}: {done:?}", kind.name());
            }
            self.records[rec].udf = 1;
            // What rests in other records is read here, also where nothing may be allocated.
            for field in 0..self.records.schema.types[*kind as usize].fields.len() as u16 {
                self.records.slot(rec, field);
            }
        }
    }
}

/// Names may not hold what would end them in a channel name.
fn check_name(lexer: &Lexer<'_>, place: Position, what: &str, name: &str, limit: usize) -> Result<(), FileError> {
    if name.is_empty() || name.len() > limit {
        return Err(lexer.error(place, format!("{what} \"{name}\" has {} bytes, expected 1 to {limit}", name.len())));
    }
    no_macro_left(name).map_err(|why| lexer.error(place, format!("{what} \"{name}\": {why}")))?;
    let ends =
        |byte: &u8| matches!(byte, b'.' | b'$' | b'"' | b'\'') || byte.is_ascii_whitespace() || byte.is_ascii_control();
    if let Some(bad) = name.bytes().find(ends) {
        let bad = char::from(bad);
        return Err(
            lexer.error(place, format!("{what} \"{name}\" holds {bad:?}, expected letters, digits and _-+:[]<>;"))
        );
    }
    Ok(())
}
