//! Units, precision, limits and labels of fields, identical to those of the C record types.

use crate::model::id::RecId;
use crate::model::json_link::JsonLink;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::rec::Properties;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use base::{FieldType, Meta, Range, Str40};

/// Maximum number of links followed to find properties. C recurses until its stack overflows.
const LINKS_LIMIT: u32 = 16;

/// Display range of a numeric type without specific limits.
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

/// Precision of a numeric type, given a record's precision (recGblGetPrec).
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

    /// The part of [`meta`](Self::meta) needed to format a value as text: precision and state names. Allocates only for state
    /// names.
    pub fn text_meta(&mut self, channel: &Channel, into: &mut Meta) {
        let (rec, field) = (channel.record, channel.field);
        match self.records.element_type(rec, field) {
            _ if channel.type_name => *into = Meta::default(),
            FieldType::Menu | FieldType::Device | FieldType::Enum => *into = self.meta(channel),
            FieldType::F32 | FieldType::F64 => self.precisions(rec, field, LINKS_LIMIT, into),
            _ => (into.precision, into.text_precision) = (0, None),
        }
    }

    /// Precision of texts formatted from a field's numbers, and of numbers written into it as text. Does not allocate.
    pub(crate) fn precision_of(&self, rec: RecId, field: u16) -> u16 {
        self.precision(rec, field, LINKS_LIMIT, 6) as u16
    }

    /// Properties of a field, following at most `links` links.
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

    /// Names of menu choices, device supports or states.
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
                // The type has no device supports.
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

    /// Properties of a field. Its input link is without modifiers.
    fn properties(&self, rec: RecId, field: u16) -> Properties {
        let of = self.records.properties(rec, field);
        let bare = |link: ResolvedLink| if link.kind == LinkKind::Through { self.bare(link) } else { Some(link) };
        Properties { link: of.link.and_then(bare), ..of }
    }

    /// Properties of a link's target; `None` if it has none.
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

    /// Precision reported to clients, and the precision of texts if it differs.
    fn precisions(&self, rec: RecId, field: u16, links: u32, into: &mut Meta) {
        into.precision = self.precision(rec, field, links, 0);
        let in_texts = self.precision(rec, field, links, 6);
        into.text_precision = (in_texts != into.precision).then_some(in_texts as u16);
    }

    /// Precision of a field; `unset` if the record does not define one.
    fn precision(&self, rec: RecId, field: u16, links: u32, unset: i16) -> i16 {
        let own = self.properties(rec, field);
        if let Some(linked) = own.link.and_then(|link| self.linked_precision(link, links)) {
            return linked;
        }
        let given = own.precision.unwrap_or(unset);
        if own.bounded { type_precision(self.records.def(rec, field).kind, given) } else { given }
    }

    /// Precision of a link's target.
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
