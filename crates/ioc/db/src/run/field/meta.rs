//! Units, precision, limits and labels of fields, as C's record types give them: nothing where they give nothing.

use crate::model::id::RecId;
use crate::model::json_link::JsonLink;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::rec::Properties;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use base::{FieldType, Meta, Range, Str40};

/// How many links properties are followed over; C ends where its stack does.
const LINKS_LIMIT: u32 = 16;

/// What a display may expect of a type without limits of its own.
fn type_range(kind: Option<FieldType>) -> Range {
    let (low, high) = match kind {
        Some(FieldType::I8) => (-128.0, 127.0),
        Some(FieldType::U8) => (0.0, 255.0),
        Some(FieldType::I16) => (-32768.0, 32767.0),
        Some(FieldType::U16 | FieldType::Enum) => (0.0, 65535.0),
        Some(FieldType::I32) => (-2_147_483_648.0, 2_147_483_647.0),
        Some(FieldType::U32) => (0.0, 4_294_967_295.0),
        Some(FieldType::I64) => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0),
        Some(FieldType::U64) => (0.0, 18_446_744_073_709_551_615.0),
        Some(FieldType::F32) => (-1e30, 1e30),
        Some(FieldType::F64) => (-1e300, 1e300),
        _ => (0.0, 0.0),
    };
    Range { low, high }
}

/// Digits after the point that numbers of a type have, where so many are given (recGblGetPrec).
fn type_precision(kind: Option<FieldType>, given: i16) -> i16 {
    use FieldType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    match kind {
        Some(F32 | F64) if !(0..=15).contains(&given) => 15,
        Some(I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64) => 0,
        _ => given,
    }
}

impl Db {
    /// Units, precision, limits and labels of a field.
    pub fn meta(&mut self, channel: &Channel) -> Meta {
        if channel.type_name {
            return Meta::default();
        }
        self.meta_over(channel.record, channel.field, LINKS_LIMIT)
    }

    /// As much of [`meta`](Self::meta) as a value's text is made with: digits after the point, names of states. Does not
    /// allocate but for the latter.
    pub fn text_meta(&mut self, channel: &Channel, into: &mut Meta) {
        let (rec, field) = (channel.record, channel.field);
        match self.records.element_type(rec, field) {
            _ if channel.type_name => *into = Meta::default(),
            FieldType::Menu | FieldType::Device | FieldType::Enum => *into = self.meta(channel),
            FieldType::F32 | FieldType::F64 => self.precisions(rec, field, LINKS_LIMIT, into),
            _ => (into.precision, into.text_precision) = (0, None),
        }
    }

    /// Digits after the point in texts that are made from a field's numbers, and from numbers that are written into it.
    /// Takes no memory.
    pub(crate) fn precision_of(&self, rec: RecId, field: u16) -> u16 {
        self.precision(rec, field, LINKS_LIMIT, 6) as u16
    }

    /// The properties of a field, over so many links.
    fn meta_over(&self, rec: RecId, field: u16, links: u32) -> Meta {
        let mut meta = self.labels(rec, field);
        let (own, kind) = (self.properties(rec, field), self.records.def(rec, field).kind);
        (meta.units, meta.alarm) = (own.units, own.alarm);
        meta.display = own.display.unwrap_or_else(|| type_range(kind));
        meta.control = own.control.unwrap_or_else(|| type_range(kind));
        if let Some(linked) = own.link.and_then(|link| self.linked_meta(link, links)) {
            (meta.units, meta.alarm, meta.display) = (linked.units, linked.alarm, linked.display);
        }
        if matches!(self.records.element_type(rec, field), FieldType::F32 | FieldType::F64) {
            self.precisions(rec, field, links, &mut meta);
        }
        meta
    }

    /// Names of the choices of a menu, of a type's devices, or of states.
    fn labels(&self, rec: RecId, field: u16) -> Meta {
        let mut meta = Meta::default();
        match self.records.element_type(rec, field) {
            FieldType::Menu => {
                let menu = self.records.def(rec, field).menu_index;
                let choices = menu.map_or(&[][..], |menu| &self.records.schema.menus[usize::from(menu)].choices);
                meta.labels = choices.iter().map(|choice| Str40::from(choice.as_str())).collect();
            }
            FieldType::Device => {
                let devices = self.records.type_of(rec).devices.iter();
                meta.labels = devices.map(|device| Str40::from(device.name.as_str())).collect();
                // Of types without devices.
                meta.beyond = meta.labels.is_empty().then_some(Str40::EMPTY);
            }
            FieldType::Enum => {
                meta.labels = self.records.states(rec);
                meta.beyond = self.records.beyond_states(rec);
            }
            _ => {}
        }
        meta
    }

    /// What a record says of a field; the link that feeds it without its modifiers.
    fn properties(&self, rec: RecId, field: u16) -> Properties {
        let of = self.records.properties(rec, field);
        let bare = |link: ResolvedLink| if link.kind == LinkKind::Through { self.bare(link) } else { Some(link) };
        Properties { link: of.link.and_then(bare), ..of }
    }

    /// The properties of what a link leads to; none where that has no properties.
    fn linked_meta(&self, link: ResolvedLink, links: u32) -> Option<Meta> {
        match link.kind {
            LinkKind::Db if links > 0 => Some(self.meta_over(link.record(), link.field, links - 1)),
            LinkKind::Json => self.links.json.get(link.target).and_then(JsonLink::calc).map(|calc| Meta {
                units: calc.units,
                precision: calc.precision,
                ..Meta::default()
            }),
            LinkKind::Remote => self.links.remotes.meta(link.target).cloned(),
            _ => None,
        }
    }

    /// Digits after the point: those that are told, and those of texts where they are others.
    fn precisions(&self, rec: RecId, field: u16, links: u32, into: &mut Meta) {
        into.precision = self.precision(rec, field, links, 0);
        let in_texts = self.precision(rec, field, links, 6);
        into.text_precision = (in_texts != into.precision).then_some(in_texts as u16);
    }

    /// Digits after the point that a record gives a field; `unset` where it says nothing of it.
    fn precision(&self, rec: RecId, field: u16, links: u32, unset: i16) -> i16 {
        let own = self.properties(rec, field);
        if let Some(linked) = own.link.and_then(|link| self.linked_precision(link, links)) {
            return linked;
        }
        let given = own.precision.unwrap_or(unset);
        if own.bounded { type_precision(self.records.def(rec, field).kind, given) } else { given }
    }

    /// Digits after the point of what a link leads to.
    fn linked_precision(&self, link: ResolvedLink, links: u32) -> Option<i16> {
        match link.kind {
            LinkKind::Db if links > 0 => {
                let real =
                    matches!(self.records.element_type(link.record(), link.field), FieldType::F32 | FieldType::F64);
                Some(if real { self.precision(link.record(), link.field, links - 1, 0) } else { 0 })
            }
            LinkKind::Json => self.links.json.get(link.target).and_then(JsonLink::calc).map(|calc| calc.precision),
            LinkKind::Remote => self.links.remotes.meta(link.target).map(|meta| meta.precision),
            _ => None,
        }
    }
}
