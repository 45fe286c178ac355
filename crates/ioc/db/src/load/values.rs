//! Conversion of field values in database files.

use crate::calc;
use crate::model::id::RecId;
use crate::model::link;
use crate::model::schema::{FieldDef, Special};
use crate::model::slot::{Slot, with_number};
use crate::rec::arrays::ELEMENTS_LIMIT;
use crate::run::engine::Db;
use crate::text::conv::Number;
use base::{FieldType, Str40, nearest};

/// The reason why a text of a file is no value of a field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadValue {
    #[error(transparent)]
    Link(#[from] link::BadLink),
    #[error(transparent)]
    Expression(#[from] calc::CalcError),
    #[error("the text has {bytes} bytes, expected at most {most}")]
    LongText { bytes: usize, most: usize },
    #[error("the name belongs in the head of the record")]
    Name,
    #[error("the field cannot be set in a file")]
    NoValue,
    #[error("these are {0} elements, expected at most {ELEMENTS_LIMIT}")]
    Elements(u32),
    #[error("expected a number that fits {0}")]
    Number(String),
    #[error("the record type has no device supports")]
    NoDevices,
    #[error("expected the number of a state")]
    State,
    #[error("expected one of {words}{hint}")]
    Choice { words: String, hint: String },
    #[error("\"${0}\" begins a macro, which has no name")]
    NamelessMacro(char),
    #[error(
        "macro {name} has no value; give it one ({name}=… after the file's name in dbLoadRecords, or with -m), or a default: ${open}{name}=…{close}"
    )]
    Macro { name: String, open: char, close: char },
}

impl Db {
    /// Writes a field from a file (dbPutString): numbers with C prefixes, menu choices by name.
    pub(crate) fn load_value(&mut self, rec: RecId, field: u16, value: &[u8]) -> Result<(), BadValue> {
        if value.contains(&b'$') {
            no_macro_left(&String::from_utf8_lossy(value))?;
        }
        let kind = self.records[rec].kind() as usize;
        let def = &self.records.schema.types[kind].fields[usize::from(field)];
        // Text that is compared or parsed may contain any bytes.
        let decoded = base::raw::decode(value);
        let text = &*decoded;
        match def.kind {
            Some(FieldType::Link) => {
                let Some(link_field) = def.link_field() else { return Ok(()) };
                link::read(text, link_field)?;
                self.links.pending.add(rec, field, text.as_bytes());
            }
            Some(FieldType::String) => {
                let size = usize::from(def.size);
                if value.len() >= size {
                    return Err(BadValue::LongText { bytes: value.len(), most: size - 1 });
                }
                if def.name == "NAME" {
                    return Err(BadValue::Name);
                }
                let wrong = (def.special == Special::Calc).then(|| calc::compile(value).err()).flatten();
                match self.records.slot(rec, field) {
                    Slot::Str(slot) => *slot = Str40::new(value),
                    Slot::Text(slot) => slot.set(value),
                    _ => {}
                }
                // As in C, an invalid expression is stored anyway.
                if let Some(wrong) = wrong {
                    return Err(wrong.into());
                }
            }
            Some(FieldType::Menu | FieldType::Device | FieldType::Enum) => {
                let index = choice_from_file(self, rec, def, text)?;
                if let Slot::U16(slot) = self.records.slot(rec, field) {
                    *slot = index;
                }
            }
            Some(_) => {
                self.check_count(rec, field, text)?;
                self.load_number(rec, field, text.trim())?;
            }
            None => return Err(BadValue::NoValue),
        }
        if field == self.records.schema.types[kind].val {
            self.records[rec].udf = 0;
        }
        Ok(())
    }

    /// Rejects arrays longer than the limit.
    fn check_count(&self, rec: RecId, field: u16, text: &str) -> Result<(), BadValue> {
        if !self.records.counts_elements(rec, field) {
            return Ok(());
        }
        match <u32 as Number>::from_file(text) {
            Some(count) if count as usize > ELEMENTS_LIMIT => Err(BadValue::Elements(count)),
            _ => Ok(()),
        }
    }

    fn load_number(&mut self, rec: RecId, field: u16, text: &str) -> Result<(), BadValue> {
        with_number!(self.records.slot(rec, field), place => {
            let parsed = if text.is_empty() { Some(0 as _) } else { Number::from_file(text) };
            match parsed {
                Some(number) => *place = number,
                None => return Err(BadValue::Number(self.records.def(rec, field).dbf.clone())),
            }
        }, _ => {});
        Ok(())
    }
}

/// Index of a menu choice in a file: a name or a number. An empty text is 0.
fn choice_from_file(db: &Db, rec: RecId, def: &FieldDef, text: &str) -> Result<u16, BadValue> {
    let number = || if text.is_empty() { Some(0) } else { <u16 as Number>::parse(text) };
    match def.kind {
        Some(FieldType::Menu) => {
            let choices = def.menu_index.map_or(&[][..], |menu| &db.records.schema.menus[usize::from(menu)].choices);
            if let Some(index) = choices.iter().position(|choice| choice == text) {
                return Ok(index as u16);
            }
            // SSCN may be 65535, which is not a menu choice.
            let known = number().filter(|index| usize::from(*index) < choices.len() || *index == u16::MAX);
            known.ok_or_else(|| expected(text, choices.iter().map(String::as_str)))
        }
        Some(FieldType::Device) => {
            let devices = &db.records.type_of(rec).devices;
            if let Some(index) = devices.iter().position(|device| device.name == text.trim()) {
                return Ok(index as u16);
            }
            // For types without device supports, 0 means none.
            let known = number().filter(|index| usize::from(*index) < devices.len().max(1));
            known.ok_or_else(|| match &devices[..] {
                [] => BadValue::NoDevices,
                devices => expected(text, devices.iter().map(|device| device.name.as_str())),
            })
        }
        _ if text.is_empty() => Ok(0),
        _ => <u16 as Number>::from_file(text).ok_or(BadValue::State),
    }
}

/// Lists the valid choices and suggests the nearest one.
fn expected<'a>(text: &str, choices: impl Iterator<Item = &'a str> + Clone) -> BadValue {
    let hint = nearest(text, choices.clone()).map_or(String::new(), |hint| format!("; nearest is \"{hint}\""));
    let words = choices.map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>().join(", ");
    BadValue::Choice { words, hint }
}

/// Fails if the text contains an unexpanded macro. The error names the first one and how to give it a value.
pub(super) fn no_macro_left(text: &str) -> Result<(), BadValue> {
    let Some(at) = text.find("$(").or_else(|| text.find("${")) else { return Ok(()) };
    let (open, close) = if text[at..].starts_with("$(") { ('(', ')') } else { ('{', '}') };
    let rest = &text[at + 2..];
    let name = &rest[..rest.find([close, '=', ',']).unwrap_or(rest.len())];
    if name.is_empty() {
        return Err(BadValue::NamelessMacro(open));
    }
    Err(BadValue::Macro { name: name.to_owned(), open, close })
}
