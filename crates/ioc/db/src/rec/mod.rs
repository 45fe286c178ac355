//! The record types: a file each, with its fields in the `.dbd` beside it, and a line below.
//!
//! What all records have is in [`common`], what several types share in [`steps`], [`sim`], [`mod@states`], [`arrays`], [`binary`], [`bits`], [`inputs`], [`texts`], [`whole`], and
//! what they say of their fields to displays in [`properties`].

pub(crate) mod arrays;
mod binary;
mod bits;
mod breaks;
pub(crate) mod common;
mod inputs;
pub(crate) mod message;
pub(crate) mod properties;
mod records;
mod sim;
mod states;
mod steps;
mod table;
mod texts;
mod whole;

pub(crate) use properties::{Properties, number_properties};
pub(crate) use records::Records;
pub(crate) use sim::{Mode, Sim, init_sim, mode, output_mode, read_simulated, simulation, stamp_input, stamp_output};
pub(crate) use states::{STATES, States, any_state, device_mask, mask_of, state_written};
pub(crate) use steps::{
    Drive, Read, cannot_read, changed, check_limits, check_limits_filtered, deadbands, device_state, drive,
    drive_output, drive_stamped, environment, no_device, no_state, post_raw, post_text, read_input, read_soft,
    stamp_by_device, take_stamp,
};

pub(crate) use crate::model::id::RecId;
use crate::model::schema::{At, FieldDef, Schema};
use crate::model::slot::{Layout, Lazy, Slot};
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{Array, FieldType, Scalar};
use common::Common;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::sync::{Arc, OnceLock};

// Sorted by the name in files: that is the order of EPICS' types, and PINI follows it.
table::record_types! {
    ($)
    a_sub ASub "aSub";
    aai Aai "aai";
    aao Aao "aao";
    ai Ai "ai";
    ao Ao "ao";
    bi Bi "bi";
    bo Bo "bo";
    busy Busy "busy";
    calc Calc "calc";
    calcout CalcOut "calcout";
    compress Compress "compress";
    dfanout DFanout "dfanout";
    event Event "event";
    fanout Fanout "fanout";
    histogram Histogram "histogram";
    int64in Int64In "int64in";
    int64out Int64Out "int64out";
    longin LongIn "longin";
    longout LongOut "longout";
    lsi Lsi "lsi";
    lso Lso "lso";
    mbbi Mbbi "mbbi";
    mbbi_direct MbbiDirect "mbbiDirect";
    mbbo Mbbo "mbbo";
    mbbo_direct MbboDirect "mbboDirect";
    permissive Permissive "permissive";
    printf Printf "printf";
    sel Sel "sel";
    seq Seq "seq";
    state State "state";
    stringin StringIn "stringin";
    stringout StringOut "stringout";
    sub Sub "sub";
    sub_array SubArray "subArray";
    swait Swait "swait";
    waveform Waveform "waveform";
}

/// A record type: how it starts and processes; all else is as most types have it where the type says nothing.
///
/// Fields are numbered as `record!` declares them: `Ai::SMOO`.
pub(crate) trait RecordType: Layout + Stored {
    /// Fields that hold texts longer than EPICS' strings.
    const LONG_TEXTS: &'static [u16] = &[];
    /// What records of the type may ask General Time for.
    const GENERAL_TIMES: &'static [&'static str] = &["BESTTCP", "TOPTCP", "BESTTEP"];
    /// Whether whoever processes it through a link is not told that its write failed: so some of C's supports for soft
    /// channels have it, others tell.
    const HIDES_FAILED_WRITE: bool = false;
    /// Whether what follows the number of a state in a text is ignored.
    const LOOSE_STATES: bool = false;

    /// The fields of simulation mode, where it has one.
    fn sim(&mut self) -> Option<&mut Lazy<Sim>> {
        None
    }

    /// At start, after all links are resolved.
    fn init(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Reads, computes, checks, tells, writes; `resumed` when a callback continues it.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult;

    /// Before (`after` false) and after a field with `special` was written.
    fn special(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16, _after: bool) -> Result<(), PutError> {
        Ok(())
    }

    /// A callback of the type's own.
    fn own_callback(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// After a client wrote a link.
    fn link_put(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16) {}

    /// After a link was set.
    fn links_changed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// After a link over a channel was connected or lost.
    fn connection_changed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Whether a new value of a link over a channel, by number, processes the record where its SCAN is `I/O Intr`.
    fn processes_for(&self, _link: u32) -> bool {
        false
    }

    /// The record is removed: what it holds besides its link fields ends.
    fn removed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// An output starts with what its device has: the value that this means; `None` where it is the given one.
    fn from_device(_: &mut Db, _rec: RecId, _body: Body<Self>, _: &DeviceSample) -> Option<Scalar> {
        None
    }

    /// The whole number that an output's device has goes into RVAL and RBV.
    fn read_back(&mut self, _raw: i32) {}

    /// VAL is what the device has, and the rest follows.
    fn begin(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// How many elements an array field can hold (bytes, for a long text), and their type.
    fn shape(&self, _field: u16) -> (u32, FieldType) {
        (0, FieldType::F64)
    }

    /// Units, digits after the point and limits of a field ([`properties::COMMON`]: one that all records have), which by its
    /// definition is of this type.
    fn properties(&self, _field: u16, _kind: Option<FieldType>) -> Properties {
        Properties::NONE
    }

    /// Whether clients may write a field whose definition says nothing of it.
    fn is_writable(&self, _field: u16) -> bool {
        true
    }

    /// Whether a field says how many elements an array has memory for.
    fn counts_elements(_field: u16) -> bool {
        false
    }

    /// Stores an array that is converted already.
    fn store_array(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16, _: Array) -> Result<(), PutError> {
        Err(PutError::NoModify)
    }

    /// After a client wrote the long text in VAL: LEN counts its NUL.
    fn long_text_written(&mut self) {}

    /// What is seen of the array in VAL.
    fn seen(&self, _: &Common) -> Seen {
        Seen::Stored
    }

    /// What a link that asks for one element of such a field reads, where that is not what clients read: C's links look at
    /// the field's memory.
    fn in_memory(&self, _field: u16) -> Option<Scalar> {
        None
    }

    /// VAL, where it is a double that links read without detours.
    #[inline]
    fn double_val(&self) -> Option<f64> {
        None
    }

    /// The names of its states.
    fn states(&self) -> States<'_> {
        States::None
    }

    /// Whether VAL, an enumeration by its type, is a plain number.
    fn is_plain_number(&self) -> bool {
        false
    }

    /// Whether a put that asked for completion and has processed the record does not complete yet.
    fn holds_puts(&self) -> bool {
        false
    }

    /// The function call that is to end later; 0 where there is none.
    fn waiting(&mut self) -> Option<&mut u64> {
        None
    }
}

/// What is seen of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its elements as they are stored.
    Stored,
    /// None of them.
    Nothing,
    /// So many from here on, round the end of the memory.
    Ring { first: usize, used: usize },
}

/// A record's own part in the block of its type.
pub(crate) struct Body<T>(u32, PhantomData<T>);

impl<T> Clone for Body<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Body<T> {}

/// A type that has its block among the [`Bodies`].
pub(crate) trait Stored: Clone + Default {
    fn block(bodies: &Bodies) -> &Vec<Self>;
    fn block_mut(bodies: &mut Bodies) -> &mut Vec<Self>;
}

impl<T: Stored> Index<Body<T>> for Bodies {
    type Output = T;
    #[inline]
    fn index(&self, body: Body<T>) -> &T {
        &T::block(self)[body.0 as usize]
    }
}

impl<T: Stored> IndexMut<Body<T>> for Bodies {
    #[inline]
    fn index_mut(&mut self, body: Body<T>) -> &mut T {
        &mut T::block_mut(self)[body.0 as usize]
    }
}

const fn at<T>(body: u32) -> Body<T> {
    Body(body, PhantomData)
}

impl Bodies {
    /// One field of a record's own part.
    pub(crate) fn slot(&mut self, kind: Kind, body: u32, slot: u16) -> Slot<'_> {
        of_type!(kind, T => self[at::<T>(body)].slot(usize::from(slot)))
    }

    /// Whether a field of a record's own part rests at its starting value.
    pub(crate) fn rests(&self, kind: Kind, body: u32, slot: u16) -> bool {
        of_type!(kind, T => self[at::<T>(body)].rests(usize::from(slot)))
    }

    /// Adds a copy of a type's first record; its number.
    pub(crate) fn push_like_first(&mut self, kind: Kind) -> u32 {
        of_type!(kind, T => {
            let block = T::block_mut(self);
            block.push(block.first().cloned().unwrap_or_default());
            block.len() as u32 - 1
        })
    }

    /// Exchanges a record's own part with another database's of the same type.
    pub(crate) fn swap(&mut self, kind: Kind, body: u32, other: &mut Self, there: u32) {
        of_type!(kind, T => std::mem::swap(&mut self[at::<T>(body)], &mut other[at::<T>(there)]));
    }

    /// Copies a record's own part from another database.
    pub(crate) fn copy(&mut self, kind: Kind, body: u32, from: &Self, there: u32) {
        of_type!(kind, T => self[at::<T>(body)] = from[at::<T>(there)].clone());
    }

    /// Bytes of a record's own part.
    #[cfg(test)]
    pub(crate) const fn size(kind: Kind) -> usize {
        of_type!(kind, T => size_of::<T>())
    }
}

/// Notes where each field of a type is stored.
fn place(kind: Kind, fields: &mut [FieldDef]) {
    let own = of_type!(kind, T => <T as Layout>::NAMES);
    for field in fields {
        let find = |names: &[&str]| names.iter().position(|name| *name == field.name).map(|slot| slot as u16);
        field.at = match (find(Common::NAMES), find(own)) {
            (Some(slot), _) => At::Common(slot),
            (None, Some(slot)) => At::Body(slot),
            (None, None) => At::Nowhere,
        };
    }
}

/// The record types, menus and tables of EPICS 7, read once for all databases of the process.
pub(crate) fn builtin() -> Arc<Schema> {
    static BUILTIN: OnceLock<Arc<Schema>> = OnceLock::new();
    let read = || {
        let menus: &[(&str, &str)] =
            &[("menus.dbd", include_str!("menus.dbd")), ("dbCommon.dbd", include_str!("common.dbd"))];
        let text = |wanted: &str| menus.iter().chain(TEXTS).find(|(name, _)| *name == wanted);
        let mut include = |wanted: &str| text(wanted).map(|(_, text)| (*text).to_owned());
        let names = menus[..1].iter().chain(TEXTS);
        let all: String = names.map(|(name, _)| format!("include \"{name}\"\n")).collect();
        // The texts are part of this program, and a test reads them.
        let read = Schema::from_dbd(&all, "built-in record types", &mut include);
        let mut schema = read.unwrap_or_else(|error| unreachable!("{error}"));
        for (kind, definition) in Kind::ALL.iter().zip(&mut schema.types) {
            place(*kind, &mut definition.fields);
        }
        Arc::new(schema)
    };
    BUILTIN.get_or_init(read).clone()
}

/// What the engine has a record do that its type says how.
macro_rules! dispatched {
    ($($(#[$about:meta])* $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        $($(#[$about])*
        pub(crate) fn $name(db: &mut Db, rec: RecId, $($arg: $type),*) $(-> $out)? {
            let (kind, body) = db.records.type_and_body(rec);
            of_type!(kind, T => T::$name(db, rec, at(body), $($arg),*))
        })*
    };
}
dispatched! {
    /// Processes a record, or goes on with it.
    #[inline]
    process(resumed: bool) -> ProcessResult;
    /// At start, after all links are resolved.
    init();
    /// After a link of the record was set.
    links_changed();
    /// After a link of the record over a channel was connected or lost.
    connection_changed();
    /// The record is removed: what it holds besides its link fields ends.
    removed();
    /// A callback of the record type's own.
    own_callback();
    /// The value that an output starts with where its device has this one.
    from_device(sample: &DeviceSample) -> Option<Scalar>;
    /// VAL is what the device has, and the rest follows.
    begin();
}

/// After a client wrote a link of the record.
pub(crate) fn link_put(db: &mut Db, rec: RecId, field: u16) {
    let (kind, body) = db.records.type_and_body(rec);
    if let At::Body(slot) = db.records.def(rec, field).at {
        of_type!(kind, T => T::link_put(db, rec, at(body), slot));
    }
}

/// Before (`after` false) and after a field with `special` was written.
pub(crate) fn special(db: &mut Db, rec: RecId, field: u16, after: bool) -> Result<(), PutError> {
    let (kind, body) = db.records.type_and_body(rec);
    let At::Body(slot) = db.records.def(rec, field).at else { return Ok(()) };
    of_type!(kind, T => {
        if <T as Layout>::NAMES[usize::from(slot)] == "SIMM" {
            sim::simm_written::<T>(db, rec, at(body), after);
            return Ok(());
        }
        T::special(db, rec, at(body), slot, after)
    })
}

/// Stores an array that is converted already.
pub(crate) fn store_array(db: &mut Db, rec: RecId, field: u16, values: Array) -> Result<(), PutError> {
    let (kind, body) = db.records.type_and_body(rec);
    let At::Body(slot) = db.records.def(rec, field).at else { return Err(PutError::NoModify) };
    of_type!(kind, T => T::store_array(db, rec, at(body), slot, values))
}

/// Whether whoever processes a record through a link is not told that its write failed.
pub(crate) fn hides_failed_write(kind: Kind) -> bool {
    of_type!(kind, T => T::HIDES_FAILED_WRITE)
}

/// What records of a type may ask General Time for.
pub(crate) fn general_times(kind: Kind) -> &'static [&'static str] {
    of_type!(kind, T => T::GENERAL_TIMES)
}

impl Records {
    /// A record's type and its place among those of the type.
    #[inline]
    fn type_and_body(&self, rec: RecId) -> (Kind, u32) {
        let common = &self[rec];
        (common.kind(), common.body)
    }

    /// Whether a field holds a text longer than EPICS' strings (lsi, lso, printf).
    #[inline]
    pub(crate) fn is_long_text(&self, rec: RecId, field: u16) -> bool {
        match self.def(rec, field) {
            FieldDef { kind: None, at: At::Body(slot), .. } => {
                of_type!(self[rec].kind(), T => T::LONG_TEXTS.contains(slot))
            }
            _ => false,
        }
    }

    /// What a record says of a field.
    pub(crate) fn properties(&self, rec: RecId, field: u16) -> Properties {
        let ((kind, body), def) = (self.type_and_body(rec), self.def(rec, field));
        let slot = if let At::Body(slot) = def.at { slot } else { properties::COMMON };
        of_type!(kind, T => self[at::<T>(body)].properties(slot, def.kind))
    }

    /// Whether clients may write a field whose definition says nothing of it.
    pub(crate) fn is_writable(&self, rec: RecId, field: u16) -> bool {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return true };
        of_type!(kind, T => self[at::<T>(body)].is_writable(slot))
    }

    /// Whether a field says how many elements an array has memory for.
    pub(crate) fn counts_elements(&self, rec: RecId, field: u16) -> bool {
        let At::Body(slot) = self.def(rec, field).at else { return false };
        of_type!(self[rec].kind(), T => T::counts_elements(slot))
    }

    /// How many elements an array field can hold (bytes, for a long text), and their type.
    pub(crate) fn shape(&self, rec: RecId, field: u16) -> (u32, FieldType) {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return (0, FieldType::F64) };
        of_type!(kind, T => self[at::<T>(body)].shape(slot))
    }

    /// What is seen of the array in VAL.
    pub(crate) fn seen(&self, rec: RecId) -> Seen {
        let common = &self[rec];
        of_type!(common.kind(), T => self[at::<T>(common.body)].seen(common))
    }

    /// What a link that asks for one element reads where that is not what clients read.
    pub(crate) fn in_memory(&self, rec: RecId, field: u16) -> Option<Scalar> {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return None };
        of_type!(kind, T => self[at::<T>(body)].in_memory(slot))
    }

    /// The names of a record's states, and whether its type ignores what follows a number.
    fn states_of(&self, rec: RecId) -> (States<'_>, bool) {
        let (kind, body) = self.type_and_body(rec);
        of_type!(kind, T => (self[at::<T>(body)].states(), T::LOOSE_STATES))
    }
}

/// What a record says of itself.
macro_rules! asked {
    ([$this:ty] $($(#[$about:meta])* $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        impl Records {
            $($(#[$about])*
            pub(crate) fn $name(self: $this, rec: RecId, $($arg: $type),*) $(-> $out)? {
                let (kind, body) = self.type_and_body(rec);
                of_type!(kind, T => self[at::<T>(body)].$name($($arg),*))
            })*
        }
    };
}
asked! {
    [&Self]
    /// VAL, where it is a double that links read without detours.
    #[inline]
    double_val() -> Option<f64>;
    /// Whether VAL, an enumeration by its type, is a plain number.
    is_plain_number() -> bool;
    /// Whether a put that asked for completion and has processed the record does not complete yet.
    holds_puts() -> bool;
    /// Whether a new value of a link over a channel processes the record where its SCAN is `I/O Intr`.
    processes_for(link: u32) -> bool;
}
asked! {
    [&mut Self]
    /// The whole number that an output's device has goes into RVAL and RBV.
    read_back(raw: i32);
    /// After a client wrote the long text in VAL.
    long_text_written();
    /// The function call of a record that is to end later.
    waiting() -> Option<&mut u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ai_record_is_small() {
        // With its name (about 30 bytes and a place in the table) and short texts it stays below 500 bytes.
        let bytes = size_of::<Common>() + Bodies::size(Kind::Ai);
        assert!(bytes <= 500, "{bytes} bytes: {} common, {} of its own", size_of::<Common>(), Bodies::size(Kind::Ai));
    }

    #[test]
    fn each_line_of_the_table_has_its_fields_in_its_file() {
        let schema = builtin();
        let names: Vec<&str> = schema.types.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>());
    }
}
