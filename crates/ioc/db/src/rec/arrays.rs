//! Common code of the array record types.

use crate::model::id::RecId;
use crate::run::engine::Db;
use base::{Array, EventMask, FieldType};

/// Element type for a choice of menuFtype; bytes for an invalid choice, as in EPICS.
pub(crate) const fn kind_of(ftvl: u16) -> FieldType {
    match ftvl {
        0 => FieldType::String,
        1 => FieldType::I8,
        3 => FieldType::I16,
        4 => FieldType::U16,
        5 => FieldType::I32,
        6 => FieldType::U32,
        7 => FieldType::I64,
        8 => FieldType::U64,
        9 => FieldType::F32,
        10 => FieldType::F64,
        11 => FieldType::Enum,
        _ => FieldType::U8,
    }
}

/// Allocates an array with room for `count` elements, none of them valid. Returns it and its capacity, which is 1 if the
/// allocation failed.
pub(crate) fn room(db: &mut Db, rec: RecId, kind: FieldType, count: u32) -> (Array, u32) {
    let count = count.clamp(1, ELEMENTS_LIMIT as u32);
    if let Some(array) = Array::with_room(kind, count as usize) {
        return (array, count);
    }
    let name = db.records.name(rec).to_owned();
    db.notice(format!("{name}: there is no memory for {count} elements, it has room for one; ask for fewer"));
    (Array::zeros(kind, 0), 1)
}

/// Maximum number of elements of an array.
pub(crate) const ELEMENTS_LIMIT: usize = 100_000_000;

/// Hash of a block of bytes, identical to EPICS (HASH).
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    let mut hash = 0u32;
    for (at, byte) in bytes.enumerate() {
        let byte = byte as i8 as i32 as u32;
        hash ^= if at % 2 == 0 { !((hash << 11) ^ byte ^ (hash >> 5)) } else { (hash << 7) ^ byte ^ (hash >> 3) };
    }
    hash
}

/// HASH of an array.
pub(crate) fn hash_of(array: &Array) -> u32 {
    macro_rules! of {
        ($values:expr) => {
            hash($values.iter().flat_map(|value| value.to_ne_bytes()))
        };
    }
    match array {
        Array::String(texts) => hash(texts.iter().flat_map(|text| *text.padded())),
        Array::I8(values) => of!(values),
        Array::U8(values) => of!(values),
        Array::I16(values) => of!(values),
        Array::U16(values) | Array::Enum(values) => of!(values),
        Array::I32(values) => of!(values),
        Array::U32(values) => of!(values),
        Array::I64(values) => of!(values),
        Array::U64(values) => of!(values),
        Array::F32(values) => of!(values),
        Array::F64(values) => of!(values),
    }
}

/// Events of an array record. MPST and APST select Always (0) or On Change (1).
pub(crate) fn mask(
    db: &mut Db,
    rec: RecId,
    mpst: u16,
    apst: u16,
    hash: impl FnOnce(&mut Db) -> Option<u32>,
) -> EventMask {
    let mut mask = db.reset_alarms(rec);
    if mpst == 0 {
        mask |= EventMask::VALUE;
    }
    if apst == 0 {
        mask |= EventMask::LOG;
    }
    if (mpst == 1 || apst == 1) && hash(db).is_some() {
        if mpst == 1 {
            mask |= EventMask::VALUE;
        }
        if apst == 1 {
            mask |= EventMask::LOG;
        }
        db.post_named(rec, "HASH", EventMask::VALUE);
    }
    mask
}

/// Storage methods of an array record with elements of type FTVL, capacity `$room` and `$nord` valid elements.
macro_rules! array_memory {
    ($room:ident $ROOM:ident $nord:ty) => {
        fn shape(&self, _: u16) -> (u32, FieldType) {
            (self.$room, kind_of(self.ftvl))
        }

        fn counts_elements(field: u16) -> bool {
            field == Self::$ROOM
        }

        fn store_array(
            db: &mut Db,
            rec: RecId,
            body: Body<Self>,
            _: u16,
            values: Array,
        ) -> Result<(), $crate::text::error::PutError> {
            let r = &mut db.records[body];
            let before = std::mem::replace(&mut r.nord, values.len() as $nord);
            let changed = r.nord != before;
            let spare = set(&mut r.val, values);
            db.recycle_array(spare);
            if changed {
                db.post_named(rec, "NORD", base::EventMask::VALUE | base::EventMask::LOG);
            }
            Ok(())
        }
    };
    // Start: replaces an invalid FTVL and allocates the array. Returns the element type.
    ($db:ident, $rec:ident, $body:ident, $room:ident) => {{
        let r = &mut $db.records[$body];
        if r.ftvl > 11 {
            r.ftvl = 2;
        }
        let (kind, count) = (kind_of(r.ftvl), r.$room);
        let (val, count) = $crate::rec::arrays::room($db, $rec, kind, count);
        let r = &mut $db.records[$body];
        (r.val, r.$room) = (val, count);
        kind
    }};
}
pub(crate) use array_memory;

/// Field properties of an array record. `$own` overrides the common ones for some fields.
macro_rules! array_properties {
    ($($field:ident: $own:expr),* $(,)?) => {
        fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
            let is_number = !matches!(kind_of(self.ftvl), FieldType::String | FieldType::Enum);
            let mut of = Properties::BOUNDED.digits(self.prec, field == Self::VAL);
            if matches!(field, Self::HOPR | Self::LOPR) || (field == Self::VAL && is_number) {
                of.units = base::Str40::new(self.egu.bytes());
            }
            match field {
                Self::VAL => of.within(self.lopr, self.hopr),
                $(Self::$field => $own(self, of),)*
                _ => of,
            }
        }
    };
}
pub(crate) use array_properties;

/// Start and processing of waveform and aai. `$start_empty` is called if INP has no constant.
macro_rules! array_input {
    ($T:ident, $start_empty:expr; $($more:tt)*) => {
        impl RecordType for $T {
            crate::rec::simulation!();

        /// Start: allocates the array and loads constants.
        fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
            let device = db.device(rec);
            let kind = crate::rec::arrays::array_memory!(db, rec, body, nelm);
            let r = &mut db.records[body];
            r.nord = u32::from(r.nelm == 1);
            if r.nelm == 1 {
                r.val = Array::zeros(kind, 1);
            }
            init_sim(db, rec, body);
            if device == Device::Missing {
                return;
            }
            let r = &mut db.records[body];
            match r.inp.elements(kind, r.nelm as usize) {
                Some(values) => {
                    r.nord = values.len() as u32;
                    set(&mut r.val, values);
                    db.records[rec].udf = 0;
                }
                None => $start_empty(r),
            }
        }

        /// Reads the input, posts monitors.
        fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
            let device = db.device(rec);
            if device != Device::Soft && device != Device::External {
                return no_device(db, rec);
            }
            let before = db.records[body].nord;
            let mode = mode(db, rec, body, resumed, false);
            let simulated = matches!(mode, Mode::Simulated(_));
            let link = match mode {
                Mode::Real => Some(db.records[body].inp.brief()),
                Mode::Simulated(_) => Some(db.records[body].sim.siol.brief()),
                Mode::Delayed => return ProcessResult::Pending,
                Mode::Bad => None,
            };
            let mut failed = link.is_none();
            if let Some(link) = link {
                let r = &db.records[body];
                let (kind, nelm) = (kind_of(r.ftvl), r.nelm);
                let real = device == Device::External && link == r.inp.brief();
                let values = if real && db.writes_input(rec) {
                    let value = if resumed { Array::U8(Vec::new()) } else { r.val.clone() };
                    match db.device_write_array(rec, resumed, value) {
                        ReadResult::Pending => return ProcessResult::Pending,
                        ReadResult::Failed => Err(LinkError),
                        ReadResult::Constant | ReadResult::Value(()) => Ok(None),
                    }
                } else if real {
                    match db.device_read(rec, resumed) {
                        ReadResult::Pending => return ProcessResult::Pending,
                        ReadResult::Value(fed) => fed.array(kind, nelm as usize).map(Some).ok_or(LinkError),
                        ReadResult::Constant | ReadResult::Failed => Err(LinkError),
                    }
                } else {
                    db.get_link_array(rec, link, kind, nelm as usize)
                };
                match values {
                    Ok(Some(values)) => {
                        let r = &mut db.records[body];
                        r.nord = values.len() as u32;
                        let spare = set(&mut r.val, values);
                        db.recycle_array(spare);
                        if stamp_by_device(db, rec) {
                            take_stamp(db, rec, link);
                        }
                    }
                    Ok(None) if simulated && <$T>::EMPTY_WHEN_SIMULATED_BY_NOTHING => {
                        let r = &mut db.records[body];
                        r.nord = 0;
                        r.val.truncate(0);
                    }
                    Ok(None) => {}
                    Err(_) => failed = true,
                }
            }
            db.records[rec].udf = 0;
            crate::rec::stamp_input(db, rec, body);
            if db.records[body].nord != before {
                db.post_named(rec, "NORD", EventMask::VALUE | EventMask::LOG);
            }
            monitor(db, rec, body);
            if failed { ProcessResult::Failed } else { ProcessResult::Done }
        }

            crate::rec::arrays::array_memory!(nelm NELM u32);

            $($more)*
        }

        array_monitor!($T);
    };
}
pub(crate) use array_input;

/// Events of waveform, aai and aao.
macro_rules! array_monitor {
    ($T:ident) => {
        fn monitor(db: &mut Db, rec: RecId, body: Body<$T>) {
            let r = &db.records[body];
            let (mpst, apst) = (r.mpst, r.apst);
            let mask = mask(db, rec, mpst, apst, |db| {
                let r = &mut db.records[body];
                let hash = hash_of(&r.val);
                (hash != std::mem::replace(&mut r.hash, hash)).then_some(hash)
            });
            if !mask.is_empty() {
                db.post_value(rec, mask);
            }
        }
    };
}
pub(crate) use array_monitor;

/// Copies new elements into the record's array and returns the array that they came in.
pub(crate) fn set(place: &mut Array, values: Array) -> Array {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match (place, values) {
                $((Array::$variant(place), Array::$variant(values)) => {
                    place.clear();
                    place.extend_from_slice(&values);
                    Array::$variant(values)
                })*
                (place, values) => std::mem::replace(place, values),
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum)
}
