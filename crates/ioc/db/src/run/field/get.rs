//! Reading fields.

use crate::model::id::RecId;
use crate::model::link::{self, LinkKind};
use crate::model::slot::Slot;
use crate::model::values::{copy_into, copy_ring, slice};
use crate::rec::ArrayView;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use base::{Array, Characters, FieldType, Scalar, Stamp, Str40, Value};

impl Db {
    /// A field's elements converted to another type; `None` if an element cannot be converted.
    pub fn get_as(&mut self, channel: &Channel, kind: FieldType) -> Option<Array> {
        match self.get(channel, usize::MAX) {
            Value::Array(array) => {
                let precision = u16::try_from(self.meta(channel).precision).unwrap_or(0);
                crate::model::values::convert_array(&array, kind, usize::MAX, precision)
            }
            Value::Scalar(_) if kind == FieldType::String => Some(Array::String(vec![self.get_text(channel)])),
            Value::Scalar(scalar) => {
                let mut array = Array::zeros(kind, 1);
                crate::model::values::set_element(&mut array, 0, scalar).then_some(array)
            }
        }
    }

    /// A field's value, at most `max` elements.
    pub fn get(&mut self, channel: &Channel, max: usize) -> Value {
        if channel.filters.is_empty() {
            return self.get_plain(channel, max);
        }
        let value = self.get_plain(channel, usize::MAX);
        let (stamp, _) = self.stamp_of(channel);
        let mut value = self.filtered(channel, value, stamp);
        if let Value::Array(array) = &mut value {
            array.truncate(max);
        }
        value
    }

    /// Applies a channel's filters to its plain value. A text read as characters ends with a zero, as in C, even if a range
    /// excludes its end.
    pub(crate) fn filtered(&self, channel: &Channel, plain: Value, stamp: Stamp) -> Value {
        let mut value = channel.filters.apply(plain, stamp, self.time.local);
        if let (true, Value::Array(Array::I8(bytes))) = (channel.long_string, &mut value) {
            bytes.pop();
            bytes.push(0);
        }
        value
    }

    /// Time stamp and user tag of the value that [`get`](Self::get) returns.
    #[must_use]
    pub fn stamp_of(&self, channel: &Channel) -> (Stamp, u64) {
        let (stamp, utag) = self.stamp(channel.record);
        (if channel.filters.stamps_now() { self.time.now.wall } else { stamp }, utag)
    }

    /// Representation of a channel's value if it is read as characters: a link, a text, or an array.
    #[must_use]
    pub fn characters(&self, channel: &Channel) -> Characters {
        let def = self.records.def(channel.record, channel.field);
        match (channel.long_string, def.link_field()) {
            _ if channel.type_name || !channel.filters.is_empty() => Characters::Array,
            (_, Some(_)) => Characters::Link,
            (true, None) if !self.records.is_long_text(channel.record, channel.field) => {
                Characters::Text(def.size.into())
            }
            _ => Characters::Array,
        }
    }

    /// A field's value before filters, at most `max` elements.
    pub(crate) fn get_plain(&mut self, channel: &Channel, max: usize) -> Value {
        let rec = channel.record;
        if channel.type_name {
            return Value::from(self.records.type_of(rec).name.as_str());
        }
        if channel.long_string {
            let is_array = self.records.is_long_text(rec, channel.field);
            let mut bytes =
                if is_array { self.whole_bytes(rec, channel.field) } else { self.long_text(rec, channel.field) };
            if !is_array {
                bytes.push(0);
            }
            bytes.truncate(max);
            return Value::from(bytes.iter().map(|byte| *byte as i8).collect::<Vec<i8>>());
        }
        if let Some(value) = self.double_val(rec, channel.field) {
            return Value::Scalar(Scalar::F64(value));
        }
        if self.records.is_array(rec, channel.field) {
            let mut array = self.whole_array(rec, channel.field);
            array.truncate(max);
            return Value::Array(array);
        }
        let unwritten = |slot: Slot<'_>| matches!(slot, Slot::Array(array) if array.is_empty());
        if self.records.is_long_text(rec, channel.field)
            && (unwritten(self.records.peek(rec, channel.field)) || self.seen(rec, channel.field) == ArrayView::Nothing)
        {
            // A field that was never written has no element in C.
            return Value::Array(Array::String(Vec::new()));
        }
        Value::Scalar(self.read_scalar(rec, channel.field).unwrap_or(Scalar::String(Str40::EMPTY)))
    }

    /// Like [`get`](Self::get), into existing memory. Does not allocate if `into` is an array of the field's type with enough
    /// capacity, or a scalar for a scalar field.
    pub fn get_into(&mut self, channel: &Channel, max: usize, into: &mut Value) {
        let rec = channel.record;
        if let Value::Array(into) = &mut *into
            && !channel.type_name
            && !channel.long_string
            && self.records.is_array(rec, channel.field)
        {
            let seen = self.seen(rec, channel.field);
            if let (ArrayView::Stored, Some(range)) = (&seen, channel.filters.only_range())
                && let Slot::Array(found) = self.records.peek(rec, channel.field)
            {
                let len = found.len();
                let (from, step, to) = range.map_or((0, 1, len), |(first, step, last)| {
                    slice(len, first, last).map_or((0, 1, 0), |(from, to)| (from, step as usize, to))
                });
                copy_into(found, from, step, to, max, into);
                return;
            }
            if seen != ArrayView::Stored && (seen == ArrayView::Nothing || channel.filters.is_empty()) {
                self.copy_seen(rec, channel.field, max, into);
                return;
            }
        }
        match (self.get(channel, max), into) {
            // Copies the elements into the existing memory.
            (Value::Array(array), Value::Array(into)) => copy_into(&array, 0, 1, array.len(), max, into),
            (value, into) => *into = value,
        }
    }

    /// A field in EPICS text format: state names, menu choices, PREC digits. An array is represented by its first element.
    pub fn get_text(&mut self, channel: &Channel) -> Str40 {
        if channel.type_name {
            return Str40::from(self.records.type_of(channel.record).name.as_str());
        }
        self.read_text(channel.record, channel.field).unwrap_or_default()
    }

    /// A text field of any length.
    pub fn get_long_text(&mut self, channel: &Channel) -> Vec<u8> {
        self.long_text(channel.record, channel.field)
    }

    fn long_text(&mut self, rec: RecId, field: u16) -> Vec<u8> {
        if self.records.def(rec, field).link_field().is_some() {
            return base::raw::encode(&self.link_text(rec, field)).into_owned();
        }
        if self.records.is_long_text(rec, field) {
            return crate::model::values::text(&self.whole_bytes(rec, field)).to_vec();
        }
        if self.records.def(rec, field).name == "NAME" {
            return self.records.name(rec).as_bytes().to_vec();
        }
        match self.records.peek(rec, field) {
            Slot::Text(text) => text.bytes().to_vec(),
            Slot::Str(text) => text.bytes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Bytes of VAL or OVAL of lsi, lso or printf.
    pub(crate) fn whole_bytes(&mut self, rec: RecId, field: u16) -> Vec<u8> {
        match self.records.peek(rec, field) {
            Slot::Array(Array::U8(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    /// The only or first element of a field; `None` if it has no element.
    pub(crate) fn read_scalar(&mut self, rec: RecId, field: u16) -> Option<Scalar> {
        let kind = self.records.def(rec, field).kind;
        if kind.is_none() {
            match self.records.seen(rec) {
                ArrayView::Stored => {}
                ArrayView::Nothing => return None,
                ArrayView::Ring { .. } => {
                    let mut first = Array::zeros(self.records.element_type(rec, field), 0);
                    self.copy_seen(rec, field, 1, &mut first);
                    return first.get(0);
                }
            }
        }
        let enumerated = matches!(kind, Some(FieldType::Enum | FieldType::Menu | FieldType::Device))
            && !(kind == Some(FieldType::Enum) && self.records.is_plain_number(rec));
        match self.records.peek(rec, field) {
            Slot::U16(v) if enumerated => Some(Scalar::Enum(*v)),
            Slot::Text(text) => Some(Scalar::String(Str40::new(text.bytes()))),
            Slot::Link(_) => Some(Scalar::String(Str40::from(self.link_text(rec, field).as_str()))),
            Slot::Array(Array::U8(bytes)) if matches!(bytes.last(), Some(0)) && kind.is_none() => {
                let bytes = Str40::new(bytes);
                if self.records.is_long_text(rec, field) {
                    Some(Scalar::String(bytes))
                } else {
                    self.whole_array(rec, field).get(0)
                }
            }
            Slot::Array(array) => {
                let first = array.get(0);
                if self.records.is_long_text(rec, field) {
                    // A text that was never set cannot be read, as it does not even have a NUL.
                    first.map(|_| Scalar::String(Str40::new(&self.whole_bytes(rec, field))))
                } else {
                    first
                }
            }
            Slot::None => self.special_scalar(rec, field),
            slot => slot.scalar(),
        }
    }

    /// Value of a field that is not stored: the name.
    fn special_scalar(&self, rec: RecId, field: u16) -> Option<Scalar> {
        match self.records.def(rec, field).name.as_str() {
            "NAME" => Some(Scalar::String(Str40::from(self.records.name(rec)))),
            _ => None,
        }
    }

    /// Value that a link reading one element gets.
    pub(crate) fn link_scalar(&mut self, rec: RecId, field: u16) -> Option<Scalar> {
        self.records.in_memory(rec, field).or_else(|| self.read_scalar(rec, field))
    }

    /// First element of a field in EPICS text format.
    pub(crate) fn read_text(&mut self, rec: RecId, field: u16) -> Option<Str40> {
        let scalar = self.read_scalar(rec, field)?;
        Some(self.text_of(rec, field, scalar))
    }

    /// An element of a field in EPICS text format.
    pub(crate) fn text_of(&mut self, rec: RecId, field: u16, scalar: Scalar) -> Str40 {
        match scalar {
            Scalar::Enum(index) => self.enum_text(rec, field, index),
            Scalar::F64(_) | Scalar::F32(_) => base::text::scalar(scalar, self.precision_of(rec, field)),
            _ => base::text::scalar(scalar, 0),
        }
    }

    /// Text of a menu choice, device or state number.
    fn enum_text(&self, rec: RecId, field: u16, index: u16) -> Str40 {
        let def = self.records.def(rec, field);
        match def.kind {
            Some(FieldType::Menu) => {
                let menu = def.menu_index.map(|menu| &self.records.schema.menus[usize::from(menu)]);
                menu.and_then(|menu| menu.choices.get(usize::from(index)))
                    .map_or_else(|| base::text::scalar(Scalar::U16(index), 0), |choice| Str40::from(choice.as_str()))
            }
            Some(FieldType::Device) => {
                let devices = &self.records.type_of(rec).devices;
                devices.get(usize::from(index)).map_or(Str40::EMPTY, |device| Str40::from(device.name.as_str()))
            }
            _ => self.records.state_text(rec, index),
        }
    }

    /// Visible part of an array field; all of other fields.
    fn seen(&self, rec: RecId, field: u16) -> ArrayView {
        if self.records.def(rec, field).kind.is_none() { self.records.seen(rec) } else { ArrayView::Stored }
    }

    /// All visible elements of an array field, in order.
    pub(crate) fn whole_array(&mut self, rec: RecId, field: u16) -> Array {
        let mut into = Array::zeros(self.records.element_type(rec, field), 0);
        self.copy_seen(rec, field, usize::MAX, &mut into);
        into
    }

    /// Copies up to `max` visible elements of an array field, in order, into existing memory.
    fn copy_seen(&mut self, rec: RecId, field: u16, max: usize, into: &mut Array) {
        let seen = self.seen(rec, field);
        let Slot::Array(array) = self.records.peek(rec, field) else { return };
        match seen {
            ArrayView::Nothing => into.truncate(0),
            ArrayView::Stored => copy_into(array, 0, 1, array.len(), max, into),
            ArrayView::Ring { first, used } => copy_ring(array, first, used.min(max), into),
        }
    }

    /// Maximum number of elements of a field; 1 for a scalar.
    pub(crate) fn element_count(&self, rec: RecId, field: u16) -> usize {
        if self.records.is_array(rec, field) { self.records.capacity(rec, field) as usize } else { 1 }
    }

    /// Up to `max` elements of a field converted to `kind`; `None` if an element cannot be converted.
    pub(crate) fn read_array(&mut self, rec: RecId, field: u16, kind: FieldType, max: usize) -> Option<Array> {
        if self.records.is_array(rec, field) && !(max == 1 && self.records.in_memory(rec, field).is_some()) {
            let precision = self.precision_of(rec, field);
            let stored = self.seen(rec, field) == ArrayView::Stored;
            let mut into = self.lend_array(kind);
            let fits = match self.records.peek(rec, field) {
                Slot::Array(array) if stored => crate::model::values::convert_into(array, max, precision, &mut into),
                _ => crate::model::values::convert_into(&self.whole_array(rec, field), max, precision, &mut into),
            };
            if fits {
                return Some(into);
            }
            self.recycle_array(into);
            return None;
        }
        if max != 1 && self.records.is_long_text(rec, field) && self.read_scalar(rec, field).is_none() {
            return Some(self.lend_array(kind));
        }
        let scalar = self.link_scalar(rec, field)?;
        if matches!(kind, FieldType::String) {
            let text = self.text_of(rec, field, scalar);
            let mut into = self.lend_array(kind);
            if let Array::String(texts) = &mut into {
                texts.push(text);
            }
            return Some(into);
        }
        let mut into = self.lend_array(kind);
        crate::model::values::resize(&mut into, 1);
        crate::model::values::set_element(&mut into, 0, scalar).then_some(into)
    }

    /// A link in EPICS text format.
    pub(crate) fn link_text(&mut self, rec: RecId, field: u16) -> String {
        let Some(link_field) = self.records.def(rec, field).link_field() else { return String::new() };
        let Slot::Link(found) = self.records.peek(rec, field) else { return String::new() };
        let brief = found.brief();
        let mut text = found.text().to_owned();
        // NPP and PP have no meaning for an input that is read asynchronously.
        let by_notify = link_field == link::LinkField::In
            && self.device(rec) == crate::run::device::Device::SoftAsync
            && self.records.def(rec, field).name == "INP";
        match brief.kind {
            LinkKind::Constant | LinkKind::Hardware | LinkKind::Json => {}
            LinkKind::Db => {
                if text.is_empty() {
                    text.push_str(self.records.name(brief.record()));
                    if brief.field != self.records.type_of(brief.record()).val {
                        text.push('.');
                        text.push_str(&self.records.def(brief.record(), brief.field).name);
                    }
                }
                let flags = if by_notify { brief.flags & link::MS_BITS | link::NO_PP } else { brief.flags };
                link::write_modifiers(&mut text, flags, link_field);
            }
            LinkKind::Remote if text.starts_with('{') => {}
            LinkKind::Remote | LinkKind::Through => link::write_modifiers(&mut text, brief.flags, link_field),
        }
        text
    }
}
