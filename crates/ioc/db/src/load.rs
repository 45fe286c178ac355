//! Loader of `.db` files.

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
use std::sync::Arc;
use undo::Undo;
use values::no_macro_left;

/// Maximum length of a record name in bytes.
const NAME_LIMIT: usize = 60;
/// Maximum length of an alias in bytes.
const ALIAS_LIMIT: usize = 255;

/// Returns the text of an included file.
pub(crate) type Include<'a> = dyn FnMut(&str) -> Option<String> + 'a;

impl Db {
    /// Reads a `.dbd`: its menus and breakpoint tables replace the built-in ones.
    ///
    /// # Errors
    /// Malformed input, with its position, or a record type that tahti does not have.
    pub fn load_dbd(&mut self, text: &str, file: &str, include: &mut Include<'_>) -> Result<(), FileError> {
        Arc::make_mut(&mut self.records.schema).load(text, file, include)
    }

    /// Record types, menus and breakpoint tables.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.records.schema
    }

    /// If set, a file with an error is rejected as a whole. Otherwise everything valid in it is loaded, as in C.
    pub const fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// If set, a record can be defined only once. Later definitions may add fields under the type `"*"`.
    pub const fn set_once_only(&mut self, once_only: bool) {
        self.once_only = once_only;
    }

    /// Loads a `.db`. Its records become active with the next [`init`](Db::init).
    ///
    /// # Errors
    /// The first 100 invalid records, fields and aliases, up to the first position where the parser cannot continue. Each has
    /// file, line and column (in the text after macro expansion). The rest of the file is still loaded, unless the database
    /// is [strict](Self::set_strict).
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

    /// Loads the items of one file after macro expansion.
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
        let kind = lexer.record_type(start)?;
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

    /// Returns the record for a definition: a new one or an existing one. `None` if the definition removes it.
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

    /// Creates the prototype record of each type, with all fields at their initial values. Other records are copied from it.
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
            // Allocates the lazy fields of the prototype: reads from it must not allocate later.
            for field in 0..self.records.schema.types[*kind as usize].fields.len() as u16 {
                self.records.slot(rec, field);
            }
        }
    }
}

/// Refuses characters that would end a name within a channel name.
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
