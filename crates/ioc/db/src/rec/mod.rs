//! Record types: one file each, with its fields in the `.dbd` file of the same name, and one line in the list below.
//!
//! [`common`] has the fields of all records. Code shared by several types is in [`steps`], [`sim`], [`mod@states`],
//! [`arrays`], [`binary`], [`bits`], [`inputs`], [`texts`] and [`whole`]. [`properties`] has the field properties for
//! displays.

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
mod synapps;
mod table;
#[cfg(test)]
pub(crate) mod test_kit;
mod texts;
mod whole;

pub(crate) use properties::{Properties, number_properties};
pub(crate) use records::Records;
pub(crate) use sim::{Mode, Sim, init_sim, mode, output_mode, read_simulated, simulation, stamp_input, stamp_output};
pub(crate) use states::{STATES, States, any_state, device_mask, mask_of, state_written};
pub(crate) use steps::{
    Drive, ReadOutcome, cannot_read, changed, check_limits, check_limits_filtered, deadbands, device_state, drive,
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
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::sync::{Arc, OnceLock};

// Sorted by name. EPICS orders its types by name too, and PINI follows that order.
table::record_types! {
    ($)
    a_sub ASub "aSub";
    aai Aai "aai";
    aao Aao "aao";
    acalcout ACalcOut "acalcout";
    ai Ai "ai";
    ao Ao "ao";
    asyn Asyn "asyn";
    bi Bi "bi";
    bo Bo "bo";
    busy Busy "busy";
    calc Calc "calc";
    calcout CalcOut "calcout";
    compress Compress "compress";
    dfanout DFanout "dfanout";
    epid Epid "epid";
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
    motor Motor "motor";
    permissive Permissive "permissive";
    printf Printf "printf";
    scalcout SCalcOut "scalcout";
    scaler Scaler "scaler";
    sel Sel "sel";
    seq Seq "seq";
    sscan SScan "sscan";
    sseq SSeq "sseq";
    state State "state";
    stringin StringIn "stringin";
    stringout StringOut "stringout";
    sub Sub "sub";
    sub_array SubArray "subArray";
    swait Swait "swait";
    optics_table Table "table";
    transform Transform "transform";
    waveform Waveform "waveform";
}

/// A record type: initialization, processing and other behaviour. The defaults suit most types.
///
/// Fields are numbered as `record!` declares them, such as `Ai::SMOO`.
pub(crate) trait RecordType: Layout + Stored {
    /// Fields with texts longer than an EPICS string (39 bytes).
    const LONG_TEXTS: &'static [u16] = &[];
    /// Values that records of the type can request from General Time.
    const GENERAL_TIMES: &'static [&'static str] = &["BESTTCP", "TOPTCP", "BESTTEP"];
    /// Whether a failed write is hidden from the link that processed the record. Some soft channel supports of C hide it,
    /// others report it.
    const HIDES_FAILED_WRITE: bool = false;
    /// Whether text after a state number is ignored.
    const LOOSE_STATES: bool = false;

    /// Fields of simulation mode, if the type has it.
    fn sim(&mut self) -> Option<&mut Lazy<Sim>> {
        None
    }

    /// Called at start, after all links are resolved.
    fn init(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Processes the record: reads, computes, checks alarms, posts monitors, writes. `resumed` is set if a callback continues
    /// it.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult;

    /// Called before (`after` false) and after a write to a field with `special`.
    fn special(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16, _after: bool) -> Result<(), PutError> {
        Ok(())
    }

    /// A type-specific callback, by number.
    fn own_callback(_: &mut Db, _rec: RecId, _body: Body<Self>, _number: u8) {}

    /// Called when a write with completion has ended while the record is not active.
    fn link_written(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Called after a client wrote a link.
    fn link_put(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16) {}

    /// Called after a link was set.
    fn links_changed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Called after a link over a channel connected or disconnected.
    fn connection_changed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Whether a new value of a link over a channel, given by number, processes the record if its SCAN is `I/O Intr`.
    fn processes_for(&self, _link: u32) -> bool {
        false
    }

    /// Called when the record is removed. Releases its resources other than link fields.
    fn removed(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Initial value of an output, given its device's value; `None` if they are the same.
    fn from_device(_: &mut Db, _rec: RecId, _body: Body<Self>, _: &DeviceSample) -> Option<Scalar> {
        None
    }

    /// Stores the device's raw number in RVAL and RBV of an output.
    fn read_back(&mut self, _raw: i32) {}

    /// Sets the other fields after VAL was set to the device's value.
    fn begin(_: &mut Db, _rec: RecId, _body: Body<Self>) {}

    /// Capacity of an array field in elements (bytes for a long text), and the element type.
    fn shape(&self, _field: u16) -> (u32, FieldType) {
        (0, FieldType::F64)
    }

    /// Units, precision and limits of a field whose definition has type `_kind`. [`properties::COMMON`] represents all
    /// common fields.
    fn properties(&self, _field: u16, _kind: Option<FieldType>) -> Properties {
        Properties::NONE
    }

    /// Whether clients may write a field, provided that its definition allows it.
    fn is_writable(&self, _field: u16) -> bool {
        true
    }

    /// Whether a field sets the capacity of an array.
    fn counts_elements(_field: u16) -> bool {
        false
    }

    /// Stores an array that has the field's element type.
    fn store_array(_: &mut Db, _rec: RecId, _body: Body<Self>, _field: u16, _: Array) -> Result<(), PutError> {
        Err(PutError::NoModify)
    }

    /// Called after a client wrote the long text in VAL. LEN includes its NUL.
    fn long_text_written(&mut self) {}

    /// Visible part of the array in VAL.
    fn seen(&self, _: &Common) -> ArrayView {
        ArrayView::Stored
    }

    /// Value of a link that reads one element, if it differs from what clients read: links in C read the field's memory
    /// directly.
    fn in_memory(&self, _field: u16) -> Option<Scalar> {
        None
    }

    /// VAL, if it is a double that links can read directly.
    #[inline]
    fn double_val(&self) -> Option<f64> {
        None
    }

    /// Names of the states.
    fn states(&self) -> States<'_> {
        States::None
    }

    /// Whether VAL has enum type but is a plain number.
    fn is_plain_number(&self) -> bool {
        false
    }

    /// Whether a put callback must wait although the record was processed.
    fn holds_puts(&self) -> bool {
        false
    }

    /// Serial number of the function call that ends later; 0 if there is none.
    fn waiting(&mut self) -> Option<&mut u64> {
        None
    }
}

/// Visible part of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayView {
    /// All elements as stored.
    Stored,
    /// No element.
    Nothing,
    /// `used` elements from `first` on, wrapping at the end of the memory.
    Ring { first: usize, used: usize },
}

/// Index of a record's body in the block of its type.
pub(crate) struct Body<T>(u32, PhantomData<T>);

impl<T> Clone for Body<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Body<T> {}

/// A type that has a block in [`Bodies`].
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
    /// A field of a record's body.
    pub(crate) fn slot(&mut self, kind: Kind, body: u32, slot: u16) -> Slot<'_> {
        of_type!(kind, T => self[at::<T>(body)].slot(usize::from(slot)))
    }

    /// Whether a field of a record's body is unallocated, at its initial value.
    pub(crate) fn rests(&self, kind: Kind, body: u32, slot: u16) -> bool {
        of_type!(kind, T => self[at::<T>(body)].rests(usize::from(slot)))
    }

    /// Appends a copy of the type's prototype and returns its index.
    pub(crate) fn push_like_first(&mut self, kind: Kind) -> u32 {
        of_type!(kind, T => {
            let block = T::block_mut(self);
            block.push(block.first().cloned().unwrap_or_default());
            block.len() as u32 - 1
        })
    }

    /// Swaps a record's body with one of the same type in another database.
    pub(crate) fn swap(&mut self, kind: Kind, body: u32, other: &mut Self, there: u32) {
        of_type!(kind, T => std::mem::swap(&mut self[at::<T>(body)], &mut other[at::<T>(there)]));
    }

    /// Copies a record's body from another database.
    pub(crate) fn copy(&mut self, kind: Kind, body: u32, from: &Self, there: u32) {
        of_type!(kind, T => self[at::<T>(body)] = from[at::<T>(there)].clone());
    }

    /// Size of a record's body in bytes.
    #[cfg(test)]
    pub(crate) const fn size(kind: Kind) -> usize {
        of_type!(kind, T => size_of::<T>())
    }
}

/// Sets the storage location of each field of a type.
fn place(kind: Kind, fields: &mut [FieldDef]) {
    let own = of_type!(kind, T => <T as Layout>::NAMES).iter().zip(0..).map(|(name, slot)| (*name, At::Body(slot)));
    let common = Common::NAMES.iter().zip(0..).map(|(name, slot)| (*name, At::Common(slot)));
    let places: HashMap<&str, At> = own.chain(common).collect();
    for field in fields {
        field.at = places.get(field.name.as_str()).copied().unwrap_or(At::Nowhere);
    }
}

/// Record types, menus and breakpoint tables of EPICS 7, parsed once per process.
pub(crate) fn builtin() -> Arc<Schema> {
    static BUILTIN: OnceLock<Arc<Schema>> = OnceLock::new();
    let read = || {
        let menus: &[(&str, &str)] =
            &[("menus.dbd", include_str!("menus.dbd")), ("dbCommon.dbd", include_str!("common.dbd"))];
        let text = |wanted: &str| menus.iter().chain(TEXTS).find(|(name, _)| *name == wanted);
        let mut include = |wanted: &str| text(wanted).map(|(_, text)| (*text).to_owned());
        let names = menus[..1].iter().chain(TEXTS);
        let all: String = names.map(|(name, _)| format!("include \"{name}\"\n")).collect();
        // The texts are compiled in, and a test parses them.
        let read = Schema::from_dbd(&all, "built-in record types", &mut include);
        let mut schema = read.unwrap_or_else(|error| unreachable!("{error}"));
        for (kind, definition) in Kind::ALL.iter().zip(&mut schema.types) {
            place(*kind, &mut definition.fields);
        }
        Arc::new(schema)
    };
    BUILTIN.get_or_init(read).clone()
}

/// Engine functions dispatched to the record type.
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
    /// Processes a record, or resumes its processing.
    #[inline]
    process(resumed: bool) -> ProcessResult;
    /// Initializes a record after all links are resolved.
    init();
    /// Called after a link of the record was set.
    links_changed();
    /// Called after a link of the record over a channel connected or disconnected.
    connection_changed();
    /// Called when the record is removed. Releases its resources other than link fields.
    removed();
    /// Runs a type-specific callback.
    own_callback(number: u8);
    /// Called when a write with completion has ended while the record is not active.
    link_written();
    /// Initial value of an output, given its device's value; `None` if they are the same.
    from_device(sample: &DeviceSample) -> Option<Scalar>;
    /// Sets the other fields after VAL was set to the device's value.
    begin();
}

/// Called after a client wrote a link of the record.
pub(crate) fn link_put(db: &mut Db, rec: RecId, field: u16) {
    let (kind, body) = db.records.type_and_body(rec);
    if let At::Body(slot) = db.records.def(rec, field).at {
        of_type!(kind, T => T::link_put(db, rec, at(body), slot));
    }
}

/// Called before (`after` false) and after a write to a field with `special`.
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

/// Stores an array that has the field's element type.
pub(crate) fn store_array(db: &mut Db, rec: RecId, field: u16, values: Array) -> Result<(), PutError> {
    let (kind, body) = db.records.type_and_body(rec);
    let At::Body(slot) = db.records.def(rec, field).at else { return Err(PutError::NoModify) };
    of_type!(kind, T => T::store_array(db, rec, at(body), slot, values))
}

/// Whether a failed write is hidden from the link that processed the record.
pub(crate) fn hides_failed_write(kind: Kind) -> bool {
    of_type!(kind, T => T::HIDES_FAILED_WRITE)
}

/// Values that records of a type can request from General Time.
pub(crate) fn general_times(kind: Kind) -> &'static [&'static str] {
    of_type!(kind, T => T::GENERAL_TIMES)
}

impl Records {
    /// Type of a record and index of its body.
    #[inline]
    fn type_and_body(&self, rec: RecId) -> (Kind, u32) {
        let common = &self[rec];
        (common.kind(), common.body)
    }

    /// Whether a field holds a text longer than an EPICS string (lsi, lso, printf).
    #[inline]
    pub(crate) fn is_long_text(&self, rec: RecId, field: u16) -> bool {
        match self.def(rec, field) {
            FieldDef { kind: None, at: At::Body(slot), .. } => {
                of_type!(self[rec].kind(), T => T::LONG_TEXTS.contains(slot))
            }
            _ => false,
        }
    }

    /// Properties of a field.
    pub(crate) fn properties(&self, rec: RecId, field: u16) -> Properties {
        let ((kind, body), def) = (self.type_and_body(rec), self.def(rec, field));
        let slot = if let At::Body(slot) = def.at { slot } else { properties::COMMON };
        of_type!(kind, T => self[at::<T>(body)].properties(slot, def.kind))
    }

    /// Whether clients may write a field, provided that its definition allows it.
    pub(crate) fn is_writable(&self, rec: RecId, field: u16) -> bool {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return true };
        of_type!(kind, T => self[at::<T>(body)].is_writable(slot))
    }

    /// Whether a field sets the capacity of an array.
    pub(crate) fn counts_elements(&self, rec: RecId, field: u16) -> bool {
        let At::Body(slot) = self.def(rec, field).at else { return false };
        of_type!(self[rec].kind(), T => T::counts_elements(slot))
    }

    /// Capacity of an array field in elements (bytes for a long text), and the element type.
    pub(crate) fn shape(&self, rec: RecId, field: u16) -> (u32, FieldType) {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return (0, FieldType::F64) };
        of_type!(kind, T => self[at::<T>(body)].shape(slot))
    }

    /// Visible part of the array in VAL.
    pub(crate) fn seen(&self, rec: RecId) -> ArrayView {
        let common = &self[rec];
        of_type!(common.kind(), T => self[at::<T>(common.body)].seen(common))
    }

    /// Value of a link that reads one element, if it differs from what clients read.
    pub(crate) fn in_memory(&self, rec: RecId, field: u16) -> Option<Scalar> {
        let (kind, body) = self.type_and_body(rec);
        let At::Body(slot) = self.def(rec, field).at else { return None };
        of_type!(kind, T => self[at::<T>(body)].in_memory(slot))
    }

    /// Names of a record's states, and whether its type ignores text after a state number.
    fn states_of(&self, rec: RecId) -> (States<'_>, bool) {
        let (kind, body) = self.type_and_body(rec);
        of_type!(kind, T => (self[at::<T>(body)].states(), T::LOOSE_STATES))
    }
}

/// Queries dispatched to the record type.
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
    /// VAL, if it is a double that links can read directly.
    #[inline]
    double_val() -> Option<f64>;
    /// Whether VAL has enum type but is a plain number.
    is_plain_number() -> bool;
    /// Whether a put callback must wait although the record was processed.
    holds_puts() -> bool;
    /// Whether a new value of a link over a channel processes the record if its SCAN is `I/O Intr`.
    processes_for(link: u32) -> bool;
}
asked! {
    [&mut Self]
    /// Stores the device's raw number in RVAL and RBV of an output.
    read_back(raw: i32);
    /// Called after a client wrote the long text in VAL.
    long_text_written();
    /// Serial number of the record's function call that ends later.
    waiting() -> Option<&mut u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ai_record_is_small() {
        // Including its name (about 30 bytes plus a table entry) and short texts, a record stays below 500 bytes.
        let bytes = size_of::<Common>() + Bodies::size(Kind::Ai);
        assert!(bytes <= 500, "{bytes} bytes: {} common, {} of the type", size_of::<Common>(), Bodies::size(Kind::Ai));
    }

    #[test]
    fn each_line_of_the_table_has_its_fields_in_its_file() {
        let schema = builtin();
        let names: Vec<&str> = schema.types.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>());
    }
}
