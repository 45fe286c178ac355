//! Writing fields.

use crate::model::id::RecId;
use crate::model::schema::Special;
use crate::model::slot::{Slot, with_number};
use crate::model::values::{convert_into, set_element};
use crate::run::channel::{Channel, DISP_FIELD, PROC_FIELD, Processing};
use crate::run::engine::{Db, Now};
use crate::text::conv::{self, prefix};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Scalar, Status, Str40, Value};

impl Db {
    /// Writes a field on behalf of a client (dbPutField): respects DISP, resolves new links, processes passive records.
    ///
    /// # Errors
    /// If the field cannot be written or the value does not fit. The record is then unchanged.
    pub fn put(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.put_with_outcome(channel, value, now).map(|_| ())
    }

    /// Like [`put`](Self::put). Returns whether the processing that it triggered succeeded. If it failed, the value remains
    /// written, and servers in C report a failed write to the client.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_with_outcome(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<bool, PutError> {
        self.time.now = now;
        self.check_put(channel)?;
        let (rec, field) = (channel.record, channel.field);
        if self.records.def(rec, field).link_field().is_some() {
            let text = match value {
                Value::Scalar(Scalar::String(text)) => text.bytes().to_vec(),
                Value::Array(Array::I8(bytes)) => {
                    bytes.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect()
                }
                Value::Array(Array::U8(bytes)) => bytes.iter().copied().take_while(|byte| *byte != 0).collect(),
                // An array of one character, such as the end of an empty text.
                Value::Scalar(Scalar::I8(0) | Scalar::U8(0)) => Vec::new(),
                Value::Scalar(Scalar::I8(byte)) => vec![*byte as u8],
                Value::Scalar(Scalar::U8(byte)) => vec![*byte],
                _ => return Err(PutError::BadValue { what: "a link is written as text".into() }),
            };
            return self.put_link_field(rec, field, &base::raw::decode(&text)).map(|()| true);
        }
        self.put_value(channel, value)?;
        let def = self.records.def(rec, field);
        let pp = def.process_passive;
        let common = &mut self.records[rec];
        let processes = match channel.processing {
            Processing::Passive => usize::from(field) == PROC_FIELD || (pp && common.scan == 0),
            Processing::Always => true,
            Processing::Never => false,
        };
        if processes {
            if common.pact != 0 {
                common.rpro = 1;
            } else {
                common.putf = 1;
                return Ok(!self.run(rec));
            }
        }
        Ok(true)
    }

    /// Writes a text of any length into a field, like [`put`](Self::put). As in C's `dbpf`, an array of characters takes the
    /// text itself. Other arrays take a list, `[1, 2]`, or one element.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_text(&mut self, channel: &Channel, text: &str, now: Now) -> Result<(), PutError> {
        let long = self.records.def(channel.record, channel.field).link_field().is_some()
            || channel.long_string
            || self.records.is_long_text(channel.record, channel.field);
        if long {
            let mut bytes: Vec<i8> = base::raw::encode(text).iter().map(|byte| *byte as i8).collect();
            bytes.push(0);
            let long = Channel { long_string: true, ..channel.clone() };
            return self.put(&long, &Value::from(bytes), now);
        }
        let info = self.info(channel);
        let is_list = text.trim_start().starts_with('[');
        let value = match info.kind {
            FieldType::I8 | FieldType::U8 if info.array && info.elements_max > 1 => {
                let raw = base::raw::encode(text);
                Value::from(raw.iter().copied().chain([0]).take(info.elements_max as usize).collect::<Vec<u8>>())
            }
            kind if info.array && (info.elements_max > 1 || is_list) => {
                match crate::model::constant::typed_list(text, kind, info.elements_max as usize) {
                    Ok(list) => Value::Array(list),
                    Err(error) if is_list => return Err(PutError::BadValue { what: error.to_string() }),
                    Err(_) => Value::from(text),
                }
            }
            _ => Value::from(text),
        };
        self.put(channel, &value, now)
    }

    pub(crate) fn check_put(&self, channel: &Channel) -> Result<(), PutError> {
        if channel.type_name {
            return Err(PutError::NoModify);
        }
        if self.records[channel.record].disp != 0 && usize::from(channel.field) != DISP_FIELD {
            return Err(PutError::Disabled);
        }
        Ok(())
    }

    /// Writes without processing (dbPut).
    pub(crate) fn put_value(&mut self, channel: &Channel, value: &Value) -> Result<(), PutError> {
        let (rec, field) = (channel.record, channel.field);
        if channel.long_string {
            let bytes: Vec<u8> = match value {
                Value::Array(Array::I8(bytes)) => bytes.iter().map(|byte| *byte as u8).collect(),
                Value::Array(Array::U8(bytes)) => bytes.clone(),
                Value::Scalar(scalar) => characters(*scalar),
                Value::Array(array) => (0..array.len()).filter_map(|at| array.get(at)).flat_map(characters).collect(),
            };
            return self.put_long_text(rec, field, &bytes);
        }
        if self.records.is_long_text(rec, field) {
            let bytes = match value {
                Value::Array(Array::I8(bytes)) => bytes.iter().map(|byte| *byte as u8).collect(),
                Value::Array(Array::U8(bytes)) => bytes.clone(),
                Value::Scalar(scalar) => base::text::scalar(*scalar, 6).bytes().to_vec(),
                Value::Array(array) => {
                    array.get(0).map(|scalar| base::text::scalar(scalar, 6).bytes().to_vec()).unwrap_or_default()
                }
            };
            return self.put_long_text(rec, field, &bytes);
        }
        match value {
            Value::Array(array) if self.records.is_array(rec, field) => self.put_array(rec, field, array),
            Value::Array(array) => match array.get(0) {
                Some(scalar) => self.put_scalar(rec, field, scalar),
                None => self.put_nothing(rec, field),
            },
            Value::Scalar(scalar) => self.put_scalar(rec, field, *scalar),
        }
    }

    /// Writes one element (dbPut).
    pub(crate) fn put_scalar(&mut self, rec: RecId, field: u16, value: Scalar) -> Result<(), PutError> {
        // A field with a type is neither an array nor a long text.
        if self.records.def(rec, field).kind.is_none() {
            if self.records.is_array(rec, field) {
                let mut one = Array::zeros(value.kind(), 1);
                set_element(&mut one, 0, value);
                return self.put_array(rec, field, &one);
            }
            if self.records.is_long_text(rec, field) {
                let text = base::text::scalar(value, 6);
                return self.put_long_text(rec, field, text.bytes());
            }
        }
        let special = self.before(rec, field)?;
        let stored = self.store(rec, field, value);
        self.after(rec, field, special, stored)
    }

    /// Writes a text into lsi, lso, or a text field accessed as characters.
    pub(crate) fn put_long_text(&mut self, rec: RecId, field: u16, bytes: &[u8]) -> Result<(), PutError> {
        let special = self.before(rec, field)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let limit = if self.records.is_long_text(rec, field) {
            self.records.capacity(rec, field) as usize
        } else {
            usize::from(self.records.def(rec, field).size)
        };
        let text = &bytes[..end.min(limit.saturating_sub(1))];
        match self.records.slot(rec, field) {
            Slot::Text(slot) => slot.set(text),
            Slot::Str(slot) => *slot = Str40::new(text),
            Slot::Array(Array::U8(stored)) => {
                stored.clear();
                stored.extend_from_slice(text);
                stored.push(0);
                self.records.long_text_written(rec);
            }
            _ => return Err(PutError::BadValue { what: "the field is no text".into() }),
        }
        self.after(rec, field, special, Ok(()))
    }

    /// Writes an array (dbPut).
    pub(crate) fn put_array(&mut self, rec: RecId, field: u16, values: &Array) -> Result<(), PutError> {
        if !self.records.is_array(rec, field) {
            return match values.get(0) {
                Some(scalar) if !self.records.is_long_text(rec, field) => self.put_scalar(rec, field, scalar),
                Some(_) => match values {
                    Array::U8(bytes) => self.put_long_text(rec, field, bytes),
                    Array::I8(bytes) => {
                        let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
                        self.put_long_text(rec, field, &bytes)
                    }
                    _ => self.put_long_text(
                        rec,
                        field,
                        base::text::scalar(values.get(0).unwrap_or(Scalar::U8(0)), 6).bytes(),
                    ),
                },
                None => self.put_nothing(rec, field),
            };
        }
        let kind = self.records.element_type(rec, field);
        if let (FieldType::Enum, Array::String(texts)) = (kind, values) {
            // Such a record has no states.
            let given = texts.first().map_or_else(String::new, |text| text.to_str().to_owned());
            return Err(PutError::BadChoice { given });
        }
        let special = self.before(rec, field)?;
        let max = self.records.capacity(rec, field) as usize;
        let precision = self.precision_of(rec, field);
        let mut converted = self.lend_array(kind);
        // An empty text converts to zero in a scalar, but is not a number in an array.
        let empty = kind != FieldType::String
            && matches!(values, Array::String(texts) if texts.iter().take(max).any(|text| text.bytes().is_empty()));
        if empty || !convert_into(values, max, precision, &mut converted) {
            let what = Self::unfit(values, max, precision, &mut converted);
            self.recycle_array(converted);
            return self.after(rec, field, special, Err(PutError::BadValue { what }));
        }
        let stored = crate::rec::store_array(self, rec, field, converted);
        self.after(rec, field, special, stored)
    }

    /// The first of the elements that has no value of the type of `into`, for a message.
    fn unfit(values: &Array, max: usize, precision: u16, into: &mut Array) -> String {
        let kind = into.kind();
        let expected = crate::model::constant::expected_element(kind);
        let Array::String(texts) = values else { return format!("found {:?}; expected {expected}", values.kind()) };
        let mut is_unfit = |text: &&Str40| {
            let is_empty = kind != FieldType::String && text.bytes().is_empty();
            is_empty || !convert_into(&Array::String(vec![**text]), 1, precision, into)
        };
        let found = texts.iter().take(max).enumerate().find(|(_, text)| is_unfit(text));
        let (at, text) = found.map_or((0, Str40::default()), |(at, text)| (at, *text));
        format!("element {} is {:?}; expected {expected}", at + 1, text.readable())
    }

    /// Writes an empty array into a scalar field. The value does not change, and the record gets a LINK alarm.
    fn put_nothing(&mut self, rec: RecId, field: u16) -> Result<(), PutError> {
        if self.records.is_long_text(rec, field) {
            // A long text does not change either, but its length is set again.
            let text = self.whole_bytes(rec, field);
            return self.put_long_text(rec, field, &text);
        }
        let special = self.before(rec, field)?;
        // C treats a field whose address comes from the record (DBADDR) as an array.
        if special != Special::DbAddr {
            self.records[rec].raise(Status::Link, 3);
        }
        self.after(rec, field, special, Ok(()))
    }

    /// Actions before a write: checks, scan lists, record support.
    fn before(&mut self, rec: RecId, field: u16) -> Result<Special, PutError> {
        let special = self.records.def(rec, field).special;
        match special {
            Special::None | Special::DbAddr => {}
            Special::NoMod | Special::Attribute => return Err(PutError::NoModify),
            Special::Scan => self.scan_delete(rec),
            _ => crate::rec::special(self, rec, field, false)?,
        }
        Ok(special)
    }

    /// Actions after a write: record support, UDF, events.
    fn after(
        &mut self,
        rec: RecId,
        field: u16,
        special: Special,
        stored: Result<(), PutError>,
    ) -> Result<(), PutError> {
        match special {
            Special::None | Special::DbAddr => {}
            Special::As => drop(self.outbox.regrouped.insert(rec)),
            Special::Scan => self.scan_add(rec),
            _ => {
                crate::rec::special(self, rec, field, true)?;
            }
        }
        stored?;
        let kind = self.records.type_of(rec);
        let def = &kind.fields[usize::from(field)];
        let (value_field, pp, property) = (kind.val == field, def.process_passive, def.property);
        if value_field {
            self.records[rec].udf = 0;
        }
        if !(value_field && pp) {
            self.post(rec, field, EventMask::VALUE | EventMask::LOG);
        }
        if property {
            self.post_all(rec, EventMask::PROPERTY);
        }
        Ok(())
    }

    /// Converts and stores a value, without further actions.
    pub(crate) fn store(&mut self, rec: RecId, field: u16, value: Scalar) -> Result<(), PutError> {
        let def = self.records.def(rec, field);
        let (mut kind, size) = (def.kind, usize::from(def.size));
        if kind == Some(FieldType::Enum) && self.records.is_plain_number(rec) {
            kind = Some(FieldType::U16);
        }
        match kind {
            Some(FieldType::Enum | FieldType::Menu | FieldType::Device) => {
                let index = self.choice(rec, field, value)?;
                if let Slot::U16(slot) = self.records.slot(rec, field) {
                    *slot = index;
                }
                return Ok(());
            }
            Some(FieldType::String) => {
                let precision =
                    if matches!(value, Scalar::F64(_) | Scalar::F32(_)) { self.precision_of(rec, field) } else { 0 };
                let text = base::text::scalar(value, precision);
                let bytes = text.bytes();
                let bytes = &bytes[..bytes.len().min(size.max(1) - 1)];
                match self.records.slot(rec, field) {
                    Slot::Str(slot) => *slot = Str40::new(bytes),
                    Slot::Text(slot) => slot.set(bytes),
                    _ => {}
                }
                return Ok(());
            }
            _ => {}
        }
        with_number!(self.records.slot(rec, field), place => *place = conv::number(value).ok_or_else(|| bad_number(value))?,
            Slot::Str(slot) => *slot = base::text::scalar(value, 6),
            Slot::Text(slot) => slot.set(base::text::scalar(value, 6).bytes()),
            Slot::None | Slot::Link(_) | Slot::Array(_) => return Err(PutError::NoModify),
        );
        Ok(())
    }

    /// Number of a state, menu choice or device.
    pub(crate) fn choice(&self, rec: RecId, field: u16, value: Scalar) -> Result<u16, PutError> {
        let Scalar::String(text) = value else {
            return conv::number::<u16>(value).ok_or_else(|| bad_number(value));
        };
        let text = text.to_str();
        let def = self.records.def(rec, field);
        let bad = || PutError::BadChoice { given: text.to_owned() };
        let (found, count) = match def.kind {
            Some(FieldType::Menu) => {
                let choices =
                    def.menu_index.map_or(&[][..], |menu| &self.records.schema.menus[usize::from(menu)].choices);
                (choices.iter().position(|choice| choice == text), choices.len())
            }
            Some(FieldType::Device) => {
                let devices = &self.records.type_of(rec).devices;
                (devices.iter().position(|device| device.name == text), devices.len())
            }
            _ => return self.records.state_number(rec, text).ok_or_else(bad),
        };
        match found {
            Some(index) => Ok(index as u16),
            None => prefix::<u16>(text, 10)
                .filter(|index| usize::from(*index) < count && whole_number(text))
                .ok_or_else(bad),
        }
    }

    /// Writes ACKT: whether transient alarms must be acknowledged.
    pub fn put_ackt(&mut self, channel: &Channel, transient: bool) {
        let rec = channel.record;
        let common = &mut self.records[rec];
        if common.ackt == u16::from(transient) {
            return;
        }
        common.ackt = u16::from(transient);
        let lower = !transient && common.acks > common.sevr;
        if lower {
            common.acks = common.sevr;
        }
        self.post_common(rec, "ACKT", EventMask::VALUE | EventMask::ALARM);
        if lower {
            self.post_common(rec, "ACKS", EventMask::VALUE | EventMask::ALARM);
        }
        self.post_all(rec, EventMask::ALARM);
    }

    /// Acknowledges an alarm of at most `severity`.
    pub fn put_acks(&mut self, channel: &Channel, severity: u16) {
        let rec = channel.record;
        let common = &mut self.records[rec];
        if severity >= common.acks {
            common.acks = 0;
            self.post_common(rec, "ACKS", EventMask::VALUE | EventMask::ALARM);
            self.post_all(rec, EventMask::ALARM);
        }
    }

    /// Processes a record like a write to its PROC field.
    pub fn process(&mut self, record: RecId, now: Now) {
        self.time.now = now;
        let common = &mut self.records[record];
        if common.pact != 0 {
            common.rpro = 1;
        } else {
            common.putf = 1;
            self.run(record);
        }
    }
}

impl Db {
    /// Processes a record if it is passive (dbScanPassive).
    pub fn process_if_passive(&mut self, record: RecId, now: Now) {
        self.time.now = now;
        if self.records[record].scan == 0 {
            self.run(record);
        }
    }
}

pub(crate) fn bad_number(value: Scalar) -> PutError {
    let given = base::text::scalar(value, 6);
    PutError::BadValue { what: format!("found \"{}\", expected a number that fits the field", given.to_str()) }
}

fn whole_number(text: &str) -> bool {
    text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'+')
}

/// An element that is written to a text accessed as an array of characters (`$`): the character with this number, as in C. A
/// text that is no number is written as it is.
fn characters(element: Scalar) -> Vec<u8> {
    let number = match element {
        Scalar::String(text) => text.to_str().trim().parse().ok().filter(|number| (-128..=255).contains(number)),
        other => conv::number::<i64>(other),
    };
    match (number, element) {
        (Some(number), _) => vec![number as u8],
        (None, Scalar::String(text)) => text.bytes().to_vec(),
        (None, _) => Vec::new(),
    }
}
