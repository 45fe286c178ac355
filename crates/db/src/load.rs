//! Reading `.db` files into the database.

mod undo;
mod values;

use crate::engine::Db;
use crate::error::{FileError, FileErrors, Place};
use crate::lex::{Lexer, Token, unescape};
use crate::macros::{Macros, expand_lines};
use crate::record::Kind;
use crate::schema::Schema;
use base::nearest;
use std::borrow::Cow;
use std::sync::Arc;
use undo::Undo;
use values::no_macro_left;

/// So many values that cannot be are told of a file; at the next one reading ends.
const ERRORS_LIMIT: usize = 100;

/// Longest name of a record.
const NAME_LIMIT: usize = 60;

/// A link that is resolved when all records are there.
pub(crate) struct PendingLink {
    pub(crate) rec: u32,
    pub(crate) field: u16,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Gives the text of an included file.
pub(crate) type Include<'a> = dyn FnMut(&str) -> Option<String> + 'a;

impl Db {
    /// Reads a `.dbd`: its menus and breakpoint tables replace the built-in ones.
    ///
    /// # Errors
    /// What is malformed, with its place; a record type that tahti does not have.
    pub fn load_dbd(&mut self, text: &str, file: &str, include: &mut Include<'_>) -> Result<(), FileError> {
        Arc::make_mut(&mut self.schema).load(text, file, include)
    }

    /// The record types, menus and tables.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Reads a `.db`. Its records begin to live with the next [`init`](Db::init). Of a file with an error nothing is loaded.
    ///
    /// # Errors
    /// All fields that are not there or cannot have their value, up to the first thing that is malformed otherwise, each with
    /// file, line and column (of the text after macros are replaced).
    pub fn load_records(
        &mut self,
        text: &str,
        file: &str,
        macros: &Macros,
        include: &mut Include<'_>,
    ) -> Result<(), FileErrors> {
        let mut undo = Undo::begin(self);
        if let Err(error) = self.load_text(text, file, macros, include, 0, &mut undo) {
            undo.errors.push(error);
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
                    let Some((_, rec)) = self.names.find(record.as_bytes()) else {
                        return Err(lexer.error(at, format!("no record \"{record}\" to give the alias \"{alias}\"")));
                    };
                    self.add_alias(lexer, alias_at, &alias, rec, undo)?;
                }
                "include" => {
                    let (name, at) = lexer.word("the name of a file")?;
                    if depth >= 16 {
                        return Err(lexer.error(at, "files include each other more than 16 deep"));
                    }
                    let text = include(&name).ok_or_else(|| lexer.error(at, format!("cannot read \"{name}\"")))?;
                    self.load_text(&text, &name, macros, include, depth + 1, undo)?;
                }
                "path" | "addpath" => {
                    lexer.word("a path")?;
                }
                "menu" => Arc::make_mut(&mut self.schema).menu(lexer)?,
                "breaktable" => Arc::make_mut(&mut self.schema).break_table(lexer)?,
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

    fn add_alias(
        &mut self,
        lexer: &Lexer<'_>,
        place: Place,
        alias: &str,
        rec: u32,
        undo: &mut Undo,
    ) -> Result<(), FileError> {
        if alias.is_empty() || alias.len() > NAME_LIMIT {
            return Err(
                lexer.error(place, format!("alias \"{alias}\" has {} bytes, expected 1 to {NAME_LIMIT}", alias.len()))
            );
        }
        let known = self.names.find(alias.as_bytes());
        match known.filter(|(_, known)| !self.common[*known as usize].removed) {
            Some((_, known)) if known == rec => Ok(()),
            Some(_) => Err(lexer.error(place, format!("alias \"{alias}\" is taken by another record or alias"))),
            None => {
                let name = self.names.add(alias.as_bytes(), rec);
                undo.alias(name);
                Ok(())
            }
        }
    }

    /// `(type, "name") { … }`
    fn load_record(&mut self, lexer: &mut Lexer<'_>, start: Place, undo: &mut Undo) -> Result<(), FileError> {
        lexer.punct(b'(', "after record")?;
        let (type_name, type_place) = lexer.word("a record type or \"*\"").or_else(|error| {
            // A star is no word, but may stand unquoted as the type of a record that is there.
            if error.what.contains("'*'") {
                lexer.skip_star();
                Ok((Cow::Borrowed("*"), start))
            } else {
                Err(error)
            }
        })?;
        lexer.punct(b',', "after the record type")?;
        let (name, place) = lexer.word("the name of the record")?;
        lexer.punct(b')', "after the name")?;
        let known = self.names.find(name.as_bytes()).map(|(_, rec)| rec);
        let known = known.filter(|rec| !self.common[*rec as usize].removed);
        let rec = match (&*type_name, known) {
            (_, Some(rec)) if self.common[rec as usize].away => {
                return Err(lexer.error(
                    place,
                    format!("record \"{name}\" is in a scan group of the running IOC; change it with dbpf, or dbDeleteRecord"),
                ));
            }
            ("#", Some(rec)) => {
                self.common[rec as usize].removed = true;
                undo.removed(rec);
                if lexer.take(b'{') {
                    lexer.punct(b'}', "after the name of a removed record")?;
                }
                return Ok(());
            }
            ("*", Some(rec)) => rec,
            ("*" | "#", None) => {
                return Err(lexer.error(place, format!("no record \"{name}\" is loaded yet, give its type")));
            }
            (_, Some(rec)) => {
                let kind = &self.type_of(rec).name;
                if *kind != *type_name {
                    return Err(lexer.error(
                        type_place,
                        format!("record \"{name}\" is of type \"{kind}\" already, found \"{type_name}\""),
                    ));
                }
                rec
            }
            (_, None) => {
                let Some(kind) = self.schema.type_index(&type_name) else {
                    let hint = nearest(&type_name, self.schema.types.iter().map(|kind| kind.name.as_str()));
                    let hint = hint.map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
                    return Err(lexer.error(type_place, format!("no record type \"{type_name}\"{hint}")));
                };
                check_name(lexer, place, &name)?;
                self.create(Kind::ALL[kind], name.as_bytes())
            }
        };
        if !lexer.take(b'{') {
            return Ok(());
        }
        while !lexer.take(b'}') {
            let (word, place) = lexer.word("field, info, alias or }")?;
            match &*word {
                "field" => self.load_field(lexer, rec, undo)?,
                "info" => {
                    lexer.punct(b'(', "after info")?;
                    let (tag, _) = lexer.word("the name of the tag")?;
                    lexer.punct(b',', "after the name")?;
                    let (value, quoted, _) = lexer.value("the value of the tag")?;
                    lexer.punct(b')', "after the value")?;
                    let value = if quoted {
                        String::from_utf8_lossy(&unescape(&value)).into_owned()
                    } else {
                        value.into_owned()
                    };
                    let tags = self.info.entry(rec).or_default();
                    undo.info(rec, tags);
                    match tags.iter_mut().find(|(known, _)| *known == *tag) {
                        Some(known) => known.1 = value,
                        None => tags.push((tag.into_owned(), value)),
                    }
                }
                "alias" => {
                    lexer.punct(b'(', "after alias")?;
                    let (alias, at) = lexer.word("the alias")?;
                    lexer.punct(b')', "after the alias")?;
                    self.add_alias(lexer, at, &alias, rec, undo)?;
                }
                other => {
                    return Err(lexer.error(place, format!("found \"{other}\", expected field, info, alias or }}")));
                }
            }
        }
        Ok(())
    }

    /// `(NAME, "value")`
    fn load_field(&mut self, lexer: &mut Lexer<'_>, rec: u32, undo: &mut Undo) -> Result<(), FileError> {
        lexer.punct(b'(', "after field")?;
        let (name, place) = lexer.word("the name of the field")?;
        lexer.punct(b',', "after the name")?;
        let (value, quoted, value_place) = lexer.value("the value of the field")?;
        lexer.punct(b')', "after the value")?;
        let kind = self.type_of(rec);
        let wrong = if let Some(field) = kind.field(&name) {
            let value = if quoted { unescape(&value) } else { Cow::Borrowed(value.as_bytes()) };
            undo.field(self, rec, field);
            let loaded = self.load_value(rec, field, &value);
            loaded.err().map(|what| {
                let record = self.record_name(rec);
                let error = format!("{record}.{name} cannot be {:?}: {what}", String::from_utf8_lossy(&value));
                lexer.error(value_place, error)
            })
        } else {
            let hint = kind.nearest_field(&name).map_or(String::new(), |near| format!("; nearest is \"{near}\""));
            let record = self.record_name(rec);
            Some(lexer.error(place, format!("{} record \"{record}\" has no field \"{name}\"{hint}", kind.name)))
        };
        // The next fields of the file are read all the same: whoever mends it wants to know of all.
        match wrong {
            Some(error) if undo.errors.len() >= ERRORS_LIMIT => Err(FileError {
                what: format!(
                    "{}; the rest of the file was not read, for it has had {ERRORS_LIMIT} errors",
                    error.what
                ),
                ..error
            }),
            wrong => {
                undo.errors.extend(wrong);
                Ok(())
            }
        }
    }

    /// A new record of a type.
    pub(crate) fn create(&mut self, kind: Kind, name: &[u8]) -> u32 {
        let rec = self.common.len() as u32;
        let mut common = self.common[kind as usize].clone();
        common.removed = false;
        common.body = self.bodies.push_like_first(kind);
        common.name = self.names.add(name, rec);
        self.common.push(common);
        rec
    }

    /// The first record of each type, from which others are copied: fields at their initial values.
    pub(crate) fn make_firsts(&mut self) {
        for kind in Kind::ALL {
            let rec = self.common.len() as u32;
            let body = self.bodies.push_like_first(*kind);
            let name = self.names.add(b"", rec);
            let common = crate::common::Common {
                kind: crate::common::KindCell(*kind),
                body,
                name,
                removed: true,
                ..Default::default()
            };
            self.common.push(common);
            for field in 0..self.schema.types[*kind as usize].fields.len() as u16 {
                let Some(initial) = self.schema.types[*kind as usize].fields[usize::from(field)].initial.clone() else {
                    continue;
                };
                let done = self.load_value(rec, field, initial.as_bytes());
                debug_assert!(done.is_ok(), "{} {field}: {done:?}", kind.name());
            }
            self.common[rec as usize].udf = 1;
            // What rests in other records is read here, also where nothing may be allocated.
            for field in 0..self.schema.types[*kind as usize].fields.len() as u16 {
                self.slot(rec, field);
            }
        }
    }
}

/// Names may not hold what would end them in a channel name.
fn check_name(lexer: &Lexer<'_>, place: Place, name: &str) -> Result<(), FileError> {
    if name.is_empty() || name.len() > NAME_LIMIT {
        return Err(
            lexer.error(place, format!("record name \"{name}\" has {} bytes, expected 1 to {NAME_LIMIT}", name.len()))
        );
    }
    no_macro_left(name).map_err(|what| lexer.error(place, format!("record name \"{name}\": {what}")))?;
    let ends =
        |byte: &u8| matches!(byte, b'.' | b'$' | b'"' | b'\'') || byte.is_ascii_whitespace() || byte.is_ascii_control();
    if let Some(bad) = name.bytes().find(ends) {
        let bad = char::from(bad);
        return Err(
            lexer.error(place, format!("record name \"{name}\" holds {bad:?}, expected letters, digits and _-+:[]<>;"))
        );
    }
    Ok(())
}
