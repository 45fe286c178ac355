//! Reading and writing through links during processing.

pub(crate) mod here;
pub(crate) mod json;
pub(crate) mod modified;
pub(crate) mod remote;

use crate::model::id::RecId;
use crate::model::json_link::JsonLinks;
use crate::model::link::{LinkField, LinkKind, MS, MS_BITS, MSI, MSS, PendingLink, ResolvedLink};
use crate::model::slot::Slot;
use crate::rec::message::Message;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::link::modified::ModifiedLinks;
use crate::run::link::remote::Remotes;
use crate::text::conv::{self, Number};
use base::{Array, FieldType, Scalar, Stamp, Status, Str40, Value};

/// Targets of links other than plain fields of this database.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) remotes: Remotes,
    pub(crate) modified: ModifiedLinks,
    pub(crate) json: JsonLinks,
    /// Links to be resolved after all records are loaded.
    pub(crate) pending: Pending,
}

/// Links to be resolved after all records are loaded, and their texts.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) links: Vec<PendingLink>,
    pub(crate) text: Vec<u8>,
}

impl Pending {
    /// Stores a link text until all records are loaded.
    pub(crate) fn add(&mut self, rec: RecId, field: u16, text: &[u8]) {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        self.links.push(PendingLink { rec, field, start, len: text.len() as u32 });
    }

    /// Text of a pending link.
    pub(crate) fn text_of(&self, link: &PendingLink) -> &str {
        let bytes = &self.text[link.start as usize..(link.start + link.len) as usize];
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Links {
    /// Releases the resources of a removed link.
    pub(crate) fn release(&mut self, link: ResolvedLink) -> Option<Box<Channel>> {
        match link.kind {
            LinkKind::Remote => return self.remotes.remove(link.target),
            LinkKind::Through => self.modified.remove(link.target),
            LinkKind::Json => self.json.remove(link.target),
            LinkKind::Constant | LinkKind::Db | LinkKind::Hardware => {}
        }
        None
    }
}

/// A read or write through a link failed. The holder has its LINK alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkError;

/// Value read through a link; `None` from a constant, which changes nothing.
pub(crate) type LinkResult<T> = Result<Option<T>, LinkError>;

impl Db {
    /// Propagates the severity of a link's source to the holder, as the link specifies (recGblInheritSevr).
    #[inline]
    pub(crate) fn inherit(&mut self, rec: RecId, flags: u8, status: u16, severity: u16) {
        let status = match flags & MS_BITS {
            MSI if severity < 3 => return,
            MS | MSI => Status::Link,
            MSS => Status::from_index(status).unwrap_or_default(),
            _ => return,
        };
        self.records[rec].raise(status, severity);
    }

    /// Raises the LINK alarm for a failed read.
    #[cold]
    pub(crate) fn link_alarm(&mut self, rec: RecId, link: ResolvedLink) -> LinkError {
        self.alarm_of_link(rec, link, LinkField::In)
    }

    /// Raises the LINK alarm for a failed write.
    #[cold]
    pub(crate) fn put_link_alarm(&mut self, rec: RecId, link: ResolvedLink) -> LinkError {
        self.alarm_of_link(rec, link, LinkField::Out)
    }

    fn alarm_of_link(&mut self, rec: RecId, link: ResolvedLink, way: LinkField) -> LinkError {
        self.remote_time(rec, link);
        if self.records[rec].nsev < 3 {
            let message = match self.link_message(rec, link, way) {
                field if way == LinkField::In && self.is_lost_pva(link) => field.disconnected(),
                field => field,
            };
            self.records[rec].raise_with(Status::Link, 3, message);
        }
        LinkError
    }

    /// The message `field NAME` for the field that holds the link. Several fields may hold the same link text.
    fn link_message(&mut self, rec: RecId, link: ResolvedLink, way: LinkField) -> Message {
        for field in 0..self.records.type_of(rec).fields.len() as u16 {
            if self.records.def(rec, field).link_field() == Some(way)
                && let Slot::Link(found) = self.records.peek(rec, field)
                && found.brief() == link
            {
                return Message::of_field(&self.records.def(rec, field).name);
            }
        }
        Message::NONE
    }

    /// Reads one number through an input link (dbGetLink).
    // Inlined: this is most of a record's work. A call, and returning the value through memory, would add a tenth to it.
    #[inline(always)]
    pub(crate) fn get_link<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> LinkResult<T> {
        match link.kind {
            LinkKind::Constant => Ok(None),
            LinkKind::Db => {
                let value = self.get_db::<T>(rec, link);
                value.map_or_else(|| Err(self.link_alarm(rec, link)), |value| Ok(Some(value)))
            }
            _ => self.get_elsewhere(rec, link),
        }
    }

    /// Like [`get_link`](Self::get_link), without an alarm on failure (dbTryGetLink).
    pub(crate) fn try_link<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> LinkResult<T> {
        match link.kind {
            LinkKind::Constant => Ok(None),
            LinkKind::Db => self.get_db::<T>(rec, link).map(Some).ok_or(LinkError),
            LinkKind::Remote => self.remote_number(rec, link).map(Some).ok_or(LinkError),
            LinkKind::Json => self.json_get(rec, link).and_then(|value| conv::number(value).ok_or(LinkError)).map(Some),
            LinkKind::Through => self.through_number(rec, link).map(Some).ok_or(LinkError),
            LinkKind::Hardware => Err(LinkError),
        }
    }

    #[inline(always)]
    fn get_db<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> Option<T> {
        if Self::is_pp(link.flags) && self.process_passive(rec, link.record()) {
            return None;
        }
        let value = self.read_number::<T>(link.record(), link.field)?;
        if link.flags & MS_BITS != 0 && rec != link.record() {
            let source = &self.records[link.record()];
            let (status, severity) = (source.stat, source.sevr);
            self.inherit(rec, link.flags, status, severity);
        }
        Some(value)
    }

    #[cold]
    fn get_elsewhere<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> LinkResult<T> {
        match link.kind {
            LinkKind::Remote => match self.remote_number(rec, link) {
                Some(value) => Ok(Some(value)),
                None => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Through => match self.through_number(rec, link) {
                Some(value) => Ok(Some(value)),
                None => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Json => match self.json_get(rec, link).ok().and_then(conv::number) {
                Some(value) => Ok(Some(value)),
                None => Err(self.link_alarm(rec, link)),
            },
            // EPICS returns -1 without an alarm for a link without support.
            _ => Err(LinkError),
        }
    }

    /// Value of a field as a number.
    #[inline]
    pub(crate) fn read_number<T: Number>(&mut self, rec: RecId, field: u16) -> Option<T> {
        match self.double_val(rec, field) {
            Some(value) => Some(T::from_f64(value)),
            None => self.read_other(rec, field),
        }
    }

    #[inline(never)]
    fn read_other<T: Number>(&mut self, rec: RecId, field: u16) -> Option<T> {
        self.link_scalar(rec, field).and_then(conv::number)
    }

    /// Fast path: VAL of the most common records, which is a double.
    #[inline]
    pub(crate) fn double_val(&self, rec: RecId, field: u16) -> Option<f64> {
        if usize::from(field) != crate::run::channel::VAL_FIELD {
            return None;
        }
        self.records.double_val(rec)
    }

    /// Reads a text through an input link (DBR_STRING).
    pub(crate) fn get_link_text(&mut self, rec: RecId, link: ResolvedLink) -> LinkResult<Str40> {
        match link.kind {
            LinkKind::Constant => Ok(None),
            LinkKind::Db => {
                if Self::is_pp(link.flags) && self.process_passive(rec, link.record()) {
                    return Err(self.link_alarm(rec, link));
                }
                let Some(scalar) = self.link_scalar(link.record(), link.field) else {
                    return Err(self.link_alarm(rec, link));
                };
                self.inherit_from(rec, link);
                Ok(Some(self.text_of(link.record(), link.field, scalar)))
            }
            LinkKind::Remote => match self.remote_text(rec, link) {
                Some(text) => Ok(Some(text)),
                None => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Through => match self.through_array(rec, link, FieldType::String, 1) {
                Some(Array::String(texts)) if !texts.is_empty() => Ok(texts.first().copied()),
                _ => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Json => match self.json_get(rec, link) {
                Ok(value) => Ok(Some(base::text::scalar(value, 6))),
                Err(_) => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Hardware => Err(LinkError),
        }
    }

    pub(crate) fn inherit_from(&mut self, rec: RecId, link: ResolvedLink) {
        if link.flags & MS_BITS != 0 && rec != link.record() {
            let source = &self.records[link.record()];
            let (status, severity) = (source.stat, source.sevr);
            self.inherit(rec, link.flags, status, severity);
        }
    }

    /// Reads up to `max` elements through an input link, as elements of `kind`.
    pub(crate) fn get_link_array(
        &mut self,
        rec: RecId,
        link: ResolvedLink,
        kind: FieldType,
        max: usize,
    ) -> LinkResult<Array> {
        match link.kind {
            LinkKind::Constant => Ok(None),
            LinkKind::Db => {
                if Self::is_pp(link.flags) && self.process_passive(rec, link.record()) {
                    return Err(self.link_alarm(rec, link));
                }
                let Some(array) = self.read_array(link.record(), link.field, kind, max) else {
                    return Err(self.link_alarm(rec, link));
                };
                self.inherit_from(rec, link);
                Ok(Some(array))
            }
            LinkKind::Remote => match self.remote_array(rec, link, kind, max) {
                Some(array) => Ok(Some(array)),
                None => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Through => match self.through_array(rec, link, kind, max) {
                Some(array) => Ok(Some(array)),
                None => Err(self.link_alarm(rec, link)),
            },
            LinkKind::Json => {
                let mut one = Array::zeros(kind, max.min(1));
                let value = self.json_get(rec, link);
                match value.is_ok_and(|value| max == 0 || crate::model::values::set_element(&mut one, 0, value)) {
                    true => Ok(Some(one)),
                    false => Err(self.link_alarm(rec, link)),
                }
            }
            LinkKind::Hardware => Err(LinkError),
        }
    }

    /// Writes one element through an output link (dbPutLink).
    #[inline]
    pub(crate) fn put_link(&mut self, rec: RecId, link: ResolvedLink, value: Scalar) -> Result<(), LinkError> {
        match link.kind {
            LinkKind::Constant => Ok(()),
            LinkKind::Db => {
                let done = self.put_scalar(link.record(), link.field, value);
                self.after_put(rec, link, done.is_ok())
            }
            LinkKind::Remote => self.remote_put(rec, link, Value::Scalar(value)),
            LinkKind::Through => self.through_put(rec, link, &Value::Scalar(value)),
            LinkKind::Json => self.json_put(rec, link, value).map_err(|LinkError| self.put_link_alarm(rec, link)),
            LinkKind::Hardware => Err(LinkError),
        }
    }

    /// Writes an array through an output link.
    pub(crate) fn put_link_array(&mut self, rec: RecId, link: ResolvedLink, values: &Array) -> Result<(), LinkError> {
        match link.kind {
            LinkKind::Constant => Ok(()),
            LinkKind::Db => {
                let done = self.put_array(link.record(), link.field, values);
                self.after_put(rec, link, done.is_ok())
            }
            LinkKind::Remote => self.remote_put(rec, link, Value::Array(values.clone())),
            LinkKind::Through => self.through_put(rec, link, &Value::Array(values.clone())),
            LinkKind::Json => match values.get(0) {
                Some(first) => self.put_link(rec, link, first),
                None => Ok(()),
            },
            LinkKind::Hardware => Err(LinkError),
        }
    }

    /// Writes a text of any length through an output link (dbPutLinkLS).
    pub(crate) fn put_link_long(&mut self, rec: RecId, link: ResolvedLink, value: &Array) -> Result<(), LinkError> {
        if matches!(self.link_type(link), Some(FieldType::I8 | FieldType::U8)) {
            return self.put_link_array(rec, link, value);
        }
        let bytes = match value {
            Array::U8(bytes) => crate::model::values::text(bytes),
            _ => b"",
        };
        if link.kind == LinkKind::Db && self.records.is_long_text(link.record(), link.field) {
            let done = self.put_long_text(link.record(), link.field, bytes);
            return self.after_put(rec, link, done.is_ok());
        }
        self.put_link(rec, link, Scalar::String(Str40::new(bytes)))
    }

    /// Propagates severity and processes the target after a write.
    pub(crate) fn after_put(&mut self, rec: RecId, link: ResolvedLink, done: bool) -> Result<(), LinkError> {
        if link.flags & MS_BITS != 0 {
            let (status, severity) = (self.records[rec].nsta, self.records[rec].nsev);
            self.inherit(link.record(), link.flags, status, severity);
        }
        if !done {
            return Err(self.put_link_alarm(rec, link));
        }
        let proc = usize::from(link.field) == crate::run::channel::PROC_FIELD;
        let passive = Self::is_pp(link.flags) && self.records[link.record()].scan == 0;
        if (proc || passive) && self.process_target(rec, link.record()) {
            return Err(self.put_link_alarm(rec, link));
        }
        Ok(())
    }

    /// Time stamp of a link's source.
    pub(crate) fn link_stamp(&self, link: ResolvedLink) -> Option<Stamp> {
        match link.kind {
            LinkKind::Db => Some(self.records[link.record()].time),
            LinkKind::Through => self.links.modified.get(link.target).map(|channel| self.stamp_of(channel).0),
            LinkKind::Remote => self.links.remotes.stamp(link.target),
            _ => None,
        }
    }

    /// Type of a link's source; `None` if it is not connected.
    pub(crate) fn link_type(&mut self, link: ResolvedLink) -> Option<FieldType> {
        match link.kind {
            LinkKind::Db => Some(self.records.element_type(link.record(), link.field)),
            LinkKind::Remote => match (self.links.remotes.value(link.target), self.links.remotes.source(link.target)) {
                (Some(value), _) => Some(value.kind()),
                (None, Some(source)) => Some(self.info(source).kind),
                (None, None) => None,
            },
            LinkKind::Through => self.links.modified.get(link.target).map(|channel| self.info(channel).kind),
            LinkKind::Json => match self.links.json.get(link.target)?.calc() {
                Some(_) => Some(FieldType::F64),
                None => Some(FieldType::I16),
            },
            LinkKind::Constant | LinkKind::Hardware => None,
        }
    }

    /// Whether the source of a link is reachable.
    pub(crate) fn is_connected(&self, link: ResolvedLink) -> bool {
        match link.kind {
            LinkKind::Db | LinkKind::Constant | LinkKind::Json | LinkKind::Through => true,
            LinkKind::Remote => self.links.remotes.is_connected(link.target),
            _ => false,
        }
    }
}
