//! Reading `.db` files into the database.

use crate::engine::Db;
use crate::error::{FileError, Place};
use crate::lex::{Lexer, Token, unescape};
use crate::link;
use crate::macros::{Macros, expand_lines};
use crate::put::prefix;
use crate::record::Kind;
use crate::schema::{FieldDef, Schema};
use crate::slot::Slot;
use base::{FieldType, Str40, nearest};
use std::borrow::Cow;
use std::sync::Arc;

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

    /// Reads a `.db`. Its records begin to live with the next [`init`](Db::init).
    ///
    /// # Errors
    /// The first thing that is malformed, with file, line and column (of the text after macros are replaced). What stands
    /// before it is loaded, as in C; while the database runs, no new record of the file is.
    pub fn load_records(
        &mut self,
        text: &str,
        file: &str,
        macros: &Macros,
        include: &mut Include<'_>,
    ) -> Result<(), FileError> {
        let (records, links, texts) = (self.common.len(), self.pending.len(), self.pending_text.len());
        let loaded = self.load_text(text, file, macros, include, 0);
        if loaded.is_err() && self.running {
            self.common[records..].iter_mut().for_each(|common| common.removed = true);
            self.pending.truncate(links);
            self.pending_text.truncate(texts);
        }
        loaded
    }

    fn load_text(
        &mut self,
        text: &str,
        file: &str,
        macros: &Macros,
        include: &mut Include<'_>,
        depth: u32,
    ) -> Result<(), FileError> {
        let expanded = self.expand(text, file, macros);
        let mut lexer = Lexer::new(&expanded, file);
        loop {
            let (token, place) = lexer.next()?;
            let word = match token {
                Token::End => return Ok(()),
                Token::Word { text, quoted: false } => text,
                _ => return Err(lexer.error(place, "expected record, grecord, alias or include")),
            };
            match &*word {
                "record" | "grecord" => self.load_record(&mut lexer, place)?,
                "alias" => {
                    lexer.punct(b'(', "after alias")?;
                    let (record, at) = lexer.word("the name of a record")?;
                    lexer.punct(b',', "after the name")?;
                    let (alias, alias_at) = lexer.word("the alias")?;
                    lexer.punct(b')', "after the alias")?;
                    let Some((_, rec)) = self.names.find(record.as_bytes()) else {
                        return Err(lexer.error(at, format!("no record \"{record}\" to give the alias \"{alias}\"")));
                    };
                    self.add_alias(&lexer, alias_at, &alias, rec)?;
                }
                "include" => {
                    let (name, at) = lexer.word("the name of a file")?;
                    if depth >= 16 {
                        return Err(lexer.error(at, "files include each other more than 16 deep"));
                    }
                    let text = include(&name).ok_or_else(|| lexer.error(at, format!("cannot read \"{name}\"")))?;
                    self.load_text(&text, &name, macros, include, depth + 1)?;
                }
                "path" | "addpath" => {
                    lexer.word("a path")?;
                }
                other => {
                    let hint = nearest(other, ["record", "grecord", "alias", "include"]);
                    let hint = hint.map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
                    return Err(lexer
                        .error(place, format!("found \"{other}\", expected record, grecord, alias or include{hint}")));
                }
            }
        }
    }

    /// Replaces macros line by line; undefined ones are noted.
    fn expand<'a>(&mut self, text: &'a str, file: &str, macros: &Macros) -> Cow<'a, str> {
        let (expanded, undefined) = expand_lines(text, macros);
        for (line, name) in undefined {
            self.notice(format!("{file}:{line}: macro {name} is undefined"));
        }
        expanded
    }

    fn add_alias(&mut self, lexer: &Lexer<'_>, place: Place, alias: &str, rec: u32) -> Result<(), FileError> {
        if alias.is_empty() || alias.len() > NAME_LIMIT {
            return Err(
                lexer.error(place, format!("alias \"{alias}\" has {} bytes, expected 1 to {NAME_LIMIT}", alias.len()))
            );
        }
        match self.names.find(alias.as_bytes()) {
            Some((_, known)) if known == rec => Ok(()),
            Some(_) => Err(lexer.error(place, format!("alias \"{alias}\" is taken by another record or alias"))),
            None => {
                self.names.add(alias.as_bytes(), rec);
                Ok(())
            }
        }
    }

    /// `(type, "name") { … }`
    fn load_record(&mut self, lexer: &mut Lexer<'_>, start: Place) -> Result<(), FileError> {
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
                "field" => self.load_field(lexer, rec)?,
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
                    match tags.iter_mut().find(|(known, _)| *known == *tag) {
                        Some(known) => known.1 = value,
                        None => tags.push((tag.into_owned(), value)),
                    }
                }
                "alias" => {
                    lexer.punct(b'(', "after alias")?;
                    let (alias, at) = lexer.word("the alias")?;
                    lexer.punct(b')', "after the alias")?;
                    self.add_alias(lexer, at, &alias, rec)?;
                }
                other => {
                    return Err(lexer.error(place, format!("found \"{other}\", expected field, info, alias or }}")));
                }
            }
        }
        Ok(())
    }

    /// `(NAME, "value")`
    fn load_field(&mut self, lexer: &mut Lexer<'_>, rec: u32) -> Result<(), FileError> {
        lexer.punct(b'(', "after field")?;
        let (name, place) = lexer.word("the name of the field")?;
        lexer.punct(b',', "after the name")?;
        let (value, quoted, value_place) = lexer.value("the value of the field")?;
        lexer.punct(b')', "after the value")?;
        let kind = self.type_of(rec);
        let Some(field) = kind.field(&name) else {
            let hint = kind.nearest_field(&name).map_or(String::new(), |near| format!("; nearest is \"{near}\""));
            return Err(lexer.error(
                place,
                format!("{} record \"{}\" has no field \"{name}\"{hint}", kind.name, self.record_name(rec)),
            ));
        };
        let value = if quoted { unescape(&value) } else { Cow::Borrowed(value.as_bytes()) };
        self.load_value(rec, field, &value).map_err(|what| {
            lexer.error(
                value_place,
                format!("{}.{name} cannot be {:?}: {what}", self.record_name(rec), String::from_utf8_lossy(&value)),
            )
        })
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

    /// Writes a field from a file (dbPutString): numbers with C's prefixes, choices by word.
    pub(crate) fn load_value(&mut self, rec: u32, field: u16, value: &[u8]) -> Result<(), String> {
        let kind = self.common[rec as usize].kind() as usize;
        let def = &self.schema.types[kind].fields[usize::from(field)];
        let text = || std::str::from_utf8(value);
        match def.kind {
            Some(FieldType::Link) => {
                let text = text().map_err(|_| "a link is UTF-8 text".to_owned())?;
                let Some(link_field) = def.link_field() else { return Ok(()) };
                link::parse(text, link_field)?;
                let start = self.pending_text.len() as u32;
                self.pending_text.extend_from_slice(value);
                self.pending.push(PendingLink { rec, field, start, len: value.len() as u32 });
            }
            Some(FieldType::String) => {
                let size = usize::from(def.size);
                if value.len() >= size {
                    return Err(format!("the text has {} bytes, expected at most {}", value.len(), size - 1));
                }
                if def.name == "NAME" {
                    return Err("the name stands in the head of the record".to_owned());
                }
                match self.slot(rec, field) {
                    Slot::Str(slot) => *slot = Str40::new(value),
                    Slot::Text(slot) => slot.set(value),
                    _ => {}
                }
            }
            Some(FieldType::Menu | FieldType::Device | FieldType::Enum) => {
                let text = text().map_err(|_| "expected text".to_owned())?;
                let index = choice_from_file(self, rec, def, text)?;
                if let Slot::U16(slot) = self.slot(rec, field) {
                    *slot = index;
                }
            }
            Some(_) => {
                let text = text().map_err(|_| "expected a number".to_owned())?;
                self.load_number(rec, field, text.trim())?;
            }
            None => return Err("the field cannot be set in a file".to_owned()),
        }
        if field == self.schema.types[kind].val {
            self.common[rec as usize].udf = 0;
        }
        Ok(())
    }

    fn load_number(&mut self, rec: u32, field: u16, text: &str) -> Result<(), String> {
        macro_rules! set {
            ($slot:expr) => {{
                let parsed = if text.is_empty() { Some(0 as _) } else { crate::conv::Number::parse(text) };
                match parsed {
                    Some(number) => *$slot = number,
                    None => return Err(format!("expected a number that fits {}", self.def(rec, field).dbf)),
                }
            }};
        }
        match self.slot(rec, field) {
            Slot::F64(slot) => set!(slot),
            Slot::I8(slot) => set!(slot),
            Slot::U8(slot) => set!(slot),
            Slot::I16(slot) => set!(slot),
            Slot::U16(slot) => set!(slot),
            Slot::I32(slot) => set!(slot),
            Slot::U32(slot) => set!(slot),
            Slot::I64(slot) => set!(slot),
            Slot::U64(slot) => set!(slot),
            _ => {}
        }
        Ok(())
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

/// The number of a choice as files have it: its word, or a number.
fn choice_from_file(db: &Db, rec: u32, def: &FieldDef, text: &str) -> Result<u16, String> {
    let number = || <u16 as crate::conv::Number>::parse(text);
    match def.kind {
        Some(FieldType::Menu) => {
            let choices = def.menu_index.map_or(&[][..], |menu| &db.schema.menus[usize::from(menu)].choices);
            if let Some(index) = choices.iter().position(|choice| choice == text) {
                return Ok(index as u16);
            }
            // SSCN's 65535 is no choice, and allowed all the same.
            let known = number().filter(|index| usize::from(*index) < choices.len() || *index == u16::MAX);
            known.ok_or_else(|| {
                let words = choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>().join(", ");
                let hint = nearest(text, choices.iter().map(String::as_str))
                    .map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
                format!("expected one of {words}{hint}")
            })
        }
        Some(FieldType::Device) => {
            let devices = &db.type_of(rec).devices;
            let found = devices.iter().position(|device| device.name == text.trim());
            found.map(|index| index as u16).ok_or_else(|| {
                let words = devices.iter().map(|device| format!("\"{}\"", device.name)).collect::<Vec<_>>().join(", ");
                if words.is_empty() {
                    "the record type has no device supports".to_owned()
                } else {
                    format!("expected one of {words}")
                }
            })
        }
        _ => {
            let found = if text.is_empty() { Some(0) } else { prefix::<u16>(text, 0) };
            found.ok_or_else(|| "expected the number of a state".to_owned())
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
