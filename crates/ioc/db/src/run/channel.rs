//! Channels: resolved names and the properties of their fields.

use crate::model::id::RecId;
use crate::model::schema::{FieldDef, Special, TypeDef};
use crate::run::engine::Db;
use crate::run::filter::Filters;
use crate::text::error::FindError;
use base::{Alarm, Annotation, FieldType, Stamp, Str40};

/// Field number of VAL in most record types: the first field after the common ones. A test checks it against the field table.
pub(crate) const VAL_FIELD: usize = 48;
/// Field number of PROC.
pub(crate) const PROC_FIELD: usize = 17;
/// Field number of DISP.
pub(crate) const DISP_FIELD: usize = 16;

/// A field of a record, resolved from a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The record.
    pub record: RecId,
    /// Number of the field in its type.
    pub field: u16,
    /// Access a text as an array of characters (`$`).
    pub long_string: bool,
    /// Access the record type (RTYP) instead of a field.
    pub type_name: bool,
    /// Filters of its values and events (`[1:2:9]`, `{"dbnd":{"abs":1}}`).
    pub filters: Filters,
    /// Processing by a write through it.
    pub processing: Processing,
}

/// Whether a write processes the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processing {
    /// If the field asks for it and the record is passive, or if the field is PROC.
    #[default]
    Passive,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Properties of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Element type as stored: menus are [`FieldType::Menu`], links [`FieldType::Link`].
    pub kind: FieldType,
    /// Maximum number of elements; 1 for a scalar.
    pub elements_max: u32,
    /// Whether it can be written.
    pub writable: bool,
    /// Access security level, 0 or 1.
    pub level: u8,
    /// Whether it holds a variable number of elements.
    pub array: bool,
    /// Size of a text in bytes, including its NUL.
    pub text_size: u16,
}

/// A name that could not be resolved.
struct Absent<'db, 'a> {
    record: &'a str,
    field: &'a str,
    /// Type of the record, if the record exists.
    kind: Option<&'db TypeDef>,
}

impl Absent<'_, '_> {
    fn error(self) -> FindError {
        let record = self.record.to_owned();
        match self.kind {
            None => FindError::NoRecord { name: record },
            Some(kind) => {
                FindError::NoField { record, field: self.field.to_owned(), nearest: kind.nearest_field(self.field) }
            }
        }
    }
}

impl Db {
    /// Resolves `RECORD` or `RECORD.FIELD`. Aliases are allowed, and `$`, `[first:step:last]` or JSON filters after the
    /// field.
    ///
    /// # Errors
    /// If the record or field does not exist, or the modifier is invalid.
    pub fn find(&self, name: &str) -> Result<Channel, FindError> {
        let (mut channel, modifier) = self.find_field(name).map_err(Absent::error)?;
        self.modifiers(&mut channel, modifier)?;
        Ok(channel)
    }

    /// Whether the record and field of a name exist. Modifiers are not checked, as in C, which answers searches this way.
    /// Does not allocate, because most searched names belong to other IOCs.
    #[must_use]
    pub fn has_field(&self, name: &str) -> bool {
        self.find_field(name).is_ok()
    }

    /// Record and field of a name, and the text after them. The error has the names of both, and the record's type if only
    /// the field is missing.
    fn find_field<'a>(&self, name: &'a str) -> Result<(Channel, &'a str), Absent<'_, 'a>> {
        let (record, rest) = name.split_once('.').unwrap_or((name, ""));
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (field, modifier) = rest.split_at(end);
        let known = self.records.names.find(record.as_bytes());
        let known = known.filter(|(_, rec)| !self.records[*rec].removed && self.is_started(*rec));
        let (_, rec) = known.ok_or(Absent { record, field, kind: None })?;
        let kind = self.records.type_of(rec);
        let mut channel = Channel {
            record: rec,
            field: kind.val,
            long_string: false,
            type_name: false,
            filters: Filters::default(),
            processing: Processing::Passive,
        };
        if !field.is_empty() {
            match kind.field(field) {
                Some(found) => channel.field = found,
                None if field == "RTYP" => channel.type_name = true,
                None => return Err(Absent { record, field, kind: Some(kind) }),
            }
        }
        Ok((channel, modifier))
    }

    /// Whether a record can be found. Records loaded at run time become visible with the next init.
    fn is_started(&self, rec: RecId) -> bool {
        !self.start.running || rec < self.start.first_new
    }

    fn modifiers(&self, channel: &mut Channel, modifier: &str) -> Result<(), FindError> {
        let bad = || FindError::BadModifier { text: modifier.to_owned(), what: String::new() };
        let mut rest = modifier;
        if let Some(after) = rest.strip_prefix('$') {
            let def = self.records.def(channel.record, channel.field);
            let text = matches!(def.kind, Some(FieldType::String | FieldType::Link))
                || self.records.is_long_text(channel.record, channel.field);
            if !text {
                return Err(bad());
            }
            channel.long_string = true;
            rest = after;
        }
        if let Some(body) = rest.strip_prefix('[') {
            let (body, after) = body.split_once(']').ok_or_else(bad)?;
            let parts: Vec<&str> = body.split(':').map(str::trim).collect();
            let number = |text: &str, default: i32| if text.is_empty() { Some(default) } else { text.parse().ok() };
            let (first, step, last) = match parts[..] {
                [one] => {
                    let at = number(one, 0).filter(|_| !one.is_empty()).ok_or_else(bad)?;
                    (at, 1, at)
                }
                [first, last] => (number(first, 0).ok_or_else(bad)?, 1, number(last, -1).ok_or_else(bad)?),
                [first, step, last] => {
                    let step = number(step, 1).filter(|step| *step > 0).ok_or_else(bad)?;
                    (number(first, 0).ok_or_else(bad)?, step as u32, number(last, -1).ok_or_else(bad)?)
                }
                _ => return Err(bad()),
            };
            channel.filters.add_range(first, step, last);
            rest = after;
        }
        if rest.starts_with('{') {
            let wrong = |what| FindError::BadModifier { text: modifier.to_owned(), what };
            let json = base::json::parse(rest).map_err(|error| wrong(error.to_string()))?;
            channel.filters.add_json(&json, &self.states).map_err(|error| wrong(error.to_string()))?;
            rest = "";
        }
        if rest.is_empty() { Ok(()) } else { Err(bad()) }
    }

    /// Whether a field has a readable value. Fields that C declares without a type have none.
    #[must_use]
    pub fn has_value(&self, channel: &Channel) -> bool {
        let (rec, field) = (channel.record, channel.field);
        channel.type_name
            || self.records.def(rec, field).kind.is_some()
            || self.records.is_array(rec, field)
            || self.records.is_long_text(rec, field)
    }

    /// Properties of a field.
    #[must_use]
    pub fn info(&self, channel: &Channel) -> FieldInfo {
        if channel.type_name {
            return FieldInfo {
                kind: FieldType::String,
                elements_max: 1,
                // C also reports it as writable and rejects each write.
                writable: true,
                level: 1,
                array: false,
                text_size: 40,
            };
        }
        let rec = channel.record;
        let def = self.records.def(rec, channel.field);
        let array = self.records.is_array(rec, channel.field);
        let size = if self.records.is_long_text(rec, channel.field) {
            self.records.capacity(rec, channel.field) as u16
        } else {
            def.size
        };
        let mut info = FieldInfo {
            kind: self.records.element_type(rec, channel.field),
            elements_max: if array { self.records.capacity(rec, channel.field) } else { 1 },
            writable: def.special != Special::NoMod && self.records.is_writable(rec, channel.field),
            level: def.level,
            array,
            text_size: size,
        };
        if channel.long_string {
            let size = if info.kind == FieldType::Link { 1024 } else { u32::from(size) };
            info.kind = FieldType::I8;
            info.array = true;
            info.elements_max = size;
        }
        (info.kind, info.elements_max, info.array) = channel.filters.shape(info.kind, info.elements_max, info.array);
        info
    }

    /// Name of a channel's record.
    #[must_use]
    pub fn name_of(&self, record: RecId) -> &str {
        self.records.name(record)
    }

    /// Full name of a channel: the record name, plus the field unless it is the value field.
    #[must_use]
    pub fn channel_name(&self, channel: &Channel) -> String {
        let (record, kind) = (self.name_of(channel.record), self.records.type_of(channel.record));
        if channel.type_name {
            format!("{record}.RTYP")
        } else if channel.field == kind.val {
            record.to_owned()
        } else {
            format!("{record}.{}", kind.fields[usize::from(channel.field)].name)
        }
    }

    /// Type name of a record.
    #[must_use]
    pub fn type_name(&self, record: RecId) -> &str {
        &self.records.type_of(record).name
    }

    /// The description of a record (DESC).
    #[must_use]
    pub fn description(&self, record: RecId) -> Str40 {
        Str40::new(self.records[record].desc.bytes())
    }

    /// Fields of a record's type.
    #[must_use]
    pub fn fields(&self, record: RecId) -> &[FieldDef] {
        &self.records.type_of(record).fields
    }

    /// All records in loading order.
    pub fn records(&self) -> impl Iterator<Item = RecId> + '_ {
        self.records.common.iter().filter(|(_, common)| !common.removed).map(|(rec, _)| rec)
    }

    /// Aliases and their records.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, RecId)> + '_ {
        self.records
            .names
            .iter()
            .filter(|(number, rec)| self.records[*rec].name != *number)
            .map(|(number, rec)| (self.records.names.text(number), rec))
    }

    /// All names of records and aliases, in order of definition.
    pub fn all_names(&self) -> impl Iterator<Item = (&str, RecId)> {
        let live = self.records.names.iter().filter(|(_, rec)| !self.records[*rec].removed);
        live.map(|(number, rec)| (self.records.names.text(number), rec))
    }

    /// Info tags of a record.
    #[must_use]
    pub fn info_tags(&self, record: RecId) -> &[(String, String)] {
        self.records.info.get(&record).map_or(&[], Vec::as_slice)
    }

    /// The committed alarm of a record.
    #[must_use]
    pub fn alarm(&self, record: RecId) -> Alarm {
        self.records[record].alarm()
    }

    /// Acknowledgement state: ACKT (transient alarms must be acknowledged) and ACKS (highest unacknowledged severity).
    #[must_use]
    pub fn acknowledge_state(&self, record: RecId) -> (u16, u16) {
        let common = &self.records[record];
        (common.ackt, common.acks)
    }

    /// User tag and alarm message of a record.
    #[must_use]
    pub fn annotation(&self, record: RecId) -> Annotation {
        let common = &self.records[record];
        Annotation { user_tag: common.utag, message: common.amsg.text() }
    }

    /// Time stamp and user tag of a record.
    #[must_use]
    pub fn stamp(&self, record: RecId) -> (Stamp, u64) {
        let common = &self.records[record];
        (common.time, common.utag)
    }

    /// The access security group of a record.
    #[must_use]
    pub fn access_group(&self, record: RecId) -> &str {
        std::str::from_utf8(self.records[record].rare.asg.bytes()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_field_numbers_are_those_of_the_table() {
        let db = Db::new();
        for kind in &db.records.schema.types {
            let number = |name: &str| kind.field(name).map(usize::from);
            assert_eq!((number("PROC"), number("DISP")), (Some(PROC_FIELD), Some(DISP_FIELD)), "{}", kind.name);
            if ["ai", "ao", "calc"].contains(&kind.name.as_str()) {
                assert_eq!(number("VAL"), Some(VAL_FIELD), "{}", kind.name);
            }
        }
    }
}
