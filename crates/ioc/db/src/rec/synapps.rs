//! Code shared by the synApps types scalcout, transform, sseq and acalcout: states of links, and values that are texts or
//! numbers as their target needs.

use super::inputs::name_of;
use super::{Body, RecordType};
use crate::calc::synapps::escaped;
use crate::model::id::RecId;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::model::slot::Slot;
use crate::run::engine::Db;
use crate::run::link::{LinkError, LinkResult};
use base::{Array, EventMask, FieldType, Scalar, Str40, Value};

/// Longest text of the types, with its NUL.
const TEXT: usize = 40;

/// Value of a field that displays the state of a link.
pub(crate) fn state_of(db: &Db, link: ResolvedLink) -> u16 {
    const NOT_CONNECTED: u16 = 0;
    const ELSEWHERE: u16 = 1;
    const LOCAL: u16 = 2;
    const CONSTANT: u16 = 3;
    match link.kind {
        LinkKind::Constant => CONSTANT,
        LinkKind::Remote if !db.is_connected(link) => NOT_CONNECTED,
        LinkKind::Remote if db.links.remotes.source(link.target).is_none() => ELSEWHERE,
        _ => LOCAL,
    }
}

/// Updates the states of a row of links, and posts those that changed. `links` and `states` are the first fields of the rows.
pub(crate) fn post_states<T: RecordType>(
    db: &mut Db,
    rec: RecId,
    body: Body<T>,
    (links, states): (u16, u16),
    count: usize,
) {
    for index in 0..count {
        let Slot::Link(link) = db.records[body].slot(usize::from(links) + index) else { continue };
        let link = link.brief();
        let state = state_of(db, link);
        let Slot::U16(place) = db.records[body].slot(usize::from(states) + index) else { continue };
        if *place != state {
            *place = state;
            db.post_named(rec, name_of::<T>(states, index), EventMask::VALUE);
        }
    }
}

/// Kind of value that the target of a link accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Texts: also states and menu choices by name, and links.
    Text,
    /// An array of characters, of this size.
    Characters(usize),
    Number,
    /// Its type is not known.
    Unknown,
}

/// Kind of value that the target of a link accepts, or that its source has.
pub(crate) fn takes(db: &mut Db, link: ResolvedLink) -> Takes {
    match db.link_type(link) {
        None => Takes::Unknown,
        Some(FieldType::String | FieldType::Enum | FieldType::Menu | FieldType::Device | FieldType::Link) => {
            Takes::Text
        }
        Some(FieldType::I8 | FieldType::U8) => match elements(db, link) {
            count @ 2.. => Takes::Characters(count.min(TEXT)),
            _ => Takes::Number,
        },
        Some(_) => Takes::Number,
    }
}

/// Number of elements that the target of a link has; 1 if it is not known.
pub(crate) fn elements(db: &Db, link: ResolvedLink) -> usize {
    match link.kind {
        LinkKind::Db => db.element_count(link.record(), link.field),
        LinkKind::Remote => match db.links.remotes.source(link.target) {
            Some(source) => db.info(source).elements_max as usize,
            None => db.channel_elements(link.target).unwrap_or(1),
        },
        LinkKind::Through => {
            db.links.modified.get(link.target).map_or(1, |channel| db.info(channel).elements_max as usize)
        }
        LinkKind::Constant | LinkKind::Json | LinkKind::Hardware => 1,
    }
}

/// Reads the text at the start of an array of characters.
pub(crate) fn get_characters(db: &mut Db, rec: RecId, link: ResolvedLink, max: usize) -> LinkResult<Str40> {
    Ok(db.get_link_array(rec, link, FieldType::U8, max)?.map(|array| match array {
        Array::U8(bytes) => Str40::new(crate::model::values::text(&bytes)),
        _ => Str40::EMPTY,
    }))
}

/// Reads a text. Characters that do not print become escapes.
pub(crate) fn get_text(db: &mut Db, rec: RecId, link: ResolvedLink) -> LinkResult<Str40> {
    match takes(db, link) {
        Takes::Characters(max) => {
            Ok(get_characters(db, rec, link, max.min(TEXT - 1))?.map(|text| escaped(text.bytes())))
        }
        _ => db.get_link_text(rec, link),
    }
}

/// Writes a number or its text, as the target takes it. With `waits`, a link over a channel reports completion by resuming the
/// record; returns whether it will.
pub(crate) fn put(
    db: &mut Db,
    rec: RecId,
    link: ResolvedLink,
    (number, text): (f64, Str40),
    waits: bool,
) -> Result<bool, LinkError> {
    let is_number = || base::text::parse_double(text.bytes()).is_some_and(|(_, len)| len == text.bytes().len());
    let value = match takes(db, link) {
        Takes::Text => Value::Scalar(Scalar::String(text)),
        // The server of the target converts the text.
        Takes::Unknown if !text.bytes().is_empty() && !is_number() => Value::Scalar(Scalar::String(text)),
        Takes::Characters(count) => Value::Array(Array::U8(text.padded()[..count].to_vec())),
        Takes::Number | Takes::Unknown => Value::Scalar(Scalar::F64(number)),
    };
    if waits && link.kind == LinkKind::Remote {
        return db.put_and_wait(rec, link, value);
    }
    match value {
        Value::Scalar(scalar) => db.put_link(rec, link, scalar)?,
        Value::Array(array) => db.put_link_array(rec, link, &array)?,
    }
    Ok(false)
}
