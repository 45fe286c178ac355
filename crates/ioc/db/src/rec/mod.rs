//! The record types, one file each, and what is asked of each.

pub(crate) mod a_sub;
pub(crate) mod aai;
pub(crate) mod aao;
pub(crate) mod ai;
pub(crate) mod ao;
pub(crate) mod arrays;
pub(crate) mod bi;
pub(crate) mod bo;
mod breaks;
pub(crate) mod calc;
pub(crate) mod calcout;
pub(crate) mod common;
pub(crate) mod compress;
pub(crate) mod dfanout;
pub(crate) mod event;
pub(crate) mod fanout;
pub(crate) mod histogram;
pub(crate) mod int64in;
pub(crate) mod int64out;
pub(crate) mod longin;
pub(crate) mod longout;
pub(crate) mod lsi;
pub(crate) mod lso;
pub(crate) mod mbbi;
pub(crate) mod mbbi_direct;
pub(crate) mod mbbo;
pub(crate) mod mbbo_direct;
pub(crate) mod message;
pub(crate) mod permissive;
pub(crate) mod printf;
pub(crate) mod sel;
pub(crate) mod seq;
mod sim;
pub(crate) mod state;
mod states;
pub(crate) mod stringin;
pub(crate) mod stringout;
pub(crate) mod sub;
pub(crate) mod sub_array;
pub(crate) mod table;
pub(crate) mod waveform;
mod whole;

pub(crate) use sim::{Mode, Sim, SimOf, check_simm, init_sim, mode, stamp_output};
pub(crate) use states::{
    STATE_NAMES, any_state, device_mask, is_plain_number, mask_of, state_number, state_text, state_written, states,
};

use crate::model::link::Brief;
use crate::rec::table::{Bodies, Kind};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use crate::run::notify::Got;
use crate::run::scan::Fed;
use crate::text::conv::Number;
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Scalar, Status};
use sim::sim_of;

/// What reading a device came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A raw value: convert it.
    Raw,
    /// The value itself.
    Value,
    /// Nothing: the alarm is raised.
    Failed,
    /// A callback will bring it.
    Pending,
}

impl Read {
    /// How the processing ends that read this.
    #[inline]
    pub(crate) fn outcome(self) -> Outcome {
        if self == Self::Failed { Outcome::Failed } else { Outcome::Done }
    }
}

/// How an input record's processing begins: it reads its device or its simulation, and is stamped. `Err` where the
/// processing ends here. `raw`: whether raw values can be simulated too.
#[inline]
pub(crate) fn read_input(
    db: &mut Db,
    rec: u32,
    body: usize,
    resumed: bool,
    (raw, sim): (bool, SimOf),
    read: impl FnOnce(&mut Db) -> Read,
    simulated: impl FnOnce(&mut Db, u16) -> Read,
) -> Result<Read, Outcome> {
    let read = match mode(db, rec, body, resumed, raw, sim) {
        Mode::Real => read(db),
        Mode::Simulated(simm) => simulated(db, simm),
        Mode::Delayed => Read::Pending,
        Mode::Bad => Read::Failed,
    };
    if read == Read::Pending {
        return Err(Outcome::Pending);
    }
    if db.common[rec as usize].broken {
        return Err(no_device(db, rec));
    }
    let sim = sim(&mut db.bodies, body);
    let (simm, siol) = (sim.simm, sim.siol.brief());
    db.stamp_simulated(rec, simm, Some(siol));
    Ok(read)
}

/// Reads an input's value by the link of Soft Channel or Async Soft Channel.
pub(crate) fn read_soft<T: Number>(
    db: &mut Db,
    rec: u32,
    link: Brief,
    resumed: bool,
    set: impl Fn(&mut Bodies, T),
) -> Read {
    let value = if db.device(rec) == Device::SoftAsync {
        match db.async_get::<T>(rec, link, resumed) {
            Got::Constant | Got::Failed => return Read::Value,
            Got::Pending => return Read::Pending,
            Got::Value(value) => Some(value),
        }
    } else {
        match db.get_link::<T>(rec, link) {
            Ok(value) => value,
            Err(_) => return Read::Failed,
        }
    };
    if let Some(value) = value {
        set(&mut db.bodies, value);
    }
    db.common[rec as usize].udf = 0;
    take_stamp(db, rec, link);
    Read::Value
}

/// A record whose device support is missing: it stays active, as EPICS leaves it.
#[cold]
pub(crate) fn no_device(db: &mut Db, rec: u32) -> Outcome {
    db.common[rec as usize].broken = true;
    Outcome::Broken
}

/// The state that a device named, or its number.
pub(crate) fn device_state(db: &Db, rec: u32, fed: &Fed) -> Option<u16> {
    match fed.scalar()? {
        Scalar::Enum(state) => Some(state),
        Scalar::String(text) => state_number(db, rec, text.to_str()),
        number => crate::text::conv::number(number),
    }
}

/// A device named a state that the record does not have.
pub(crate) fn no_state(db: &mut Db, rec: u32) -> Read {
    db.common[rec as usize].raise(Status::Read, 3);
    Read::Failed
}

/// Whether a device support gives the time stamp (TSE −2 and no TSEL).
#[inline]
pub(crate) fn stamp_by_device(db: &Db, rec: u32) -> bool {
    let common = &db.common[rec as usize];
    common.tse == -2 && common.rare.tsel.is_constant()
}

/// The stamp of a soft input's source, where the record wants it.
#[inline]
pub(crate) fn take_stamp(db: &mut Db, rec: u32, link: Brief) {
    if db.common[rec as usize].tse == -2 {
        take_stamp_of(db, rec, link);
    }
}

#[cold]
fn take_stamp_of(db: &mut Db, rec: u32, link: Brief) {
    if stamp_by_device(db, rec)
        && let Some(stamp) = db.link_stamp(link)
    {
        db.common[rec as usize].time = stamp;
    }
}

/// IVOA: what an output does while its alarm is INVALID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// Write.
    Normally,
    /// Do not write.
    Not,
    /// Set IVOV, then write.
    Ivov,
}

/// What IVOA says for the alarm that a record has raised.
#[inline]
pub(crate) fn drive(db: &mut Db, rec: u32, ivoa: u16) -> Drive {
    db.failed = false;
    if db.common[rec as usize].nsev < 3 {
        return Drive::Normally;
    }
    match ivoa {
        0 => Drive::Normally,
        2 => Drive::Ivov,
        _ => Drive::Not,
    }
}

/// Writes an output as IVOA says; `ivov` sets IVOV. Whether a callback will end it.
#[inline]
pub(crate) fn drive_output(
    db: &mut Db,
    rec: u32,
    resumed: bool,
    ivoa: u16,
    ivov: impl FnOnce(&mut Db),
    write: impl FnOnce(&mut Db) -> bool,
) -> bool {
    match drive(db, rec, ivoa) {
        Drive::Normally => write(db),
        Drive::Not => false,
        Drive::Ivov => {
            if !resumed {
                ivov(db);
            }
            write(db)
        }
    }
}

/// Notes a value as the one that was told last; whether it is another one than before.
#[inline]
pub(crate) fn changed<T: PartialEq>(last: &mut T, now: T) -> bool {
    let differs = *last != now;
    *last = now;
    differs
}

/// Tells about VAL where it or the alarm has changed, and about the raw value and its reading back.
pub(crate) fn post_raw(db: &mut Db, rec: u32, alarm: EventMask, [value, raw, readback]: [bool; 3]) {
    let all = alarm | EventMask::VALUE | EventMask::LOG;
    let mask = if value { all } else { alarm };
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    if raw {
        db.post_named(rec, "RVAL", all);
    }
    if readback {
        db.post_named(rec, "RBV", all);
    }
}

/// An analog record's alarm: UDF first, then its limits with hysteresis.
macro_rules! check_limits {
    ($common:expr, $r:ident) => {{
        let common = &mut $common;
        if common.udf != 0 {
            let udfs = common.udfs;
            common.raise(base::Status::Udf, udfs);
        } else {
            let (zone, severity, limit) = $r.limits.zone($r.val, $r.lalm);
            if severity == 0 {
                $r.lalm = $r.val;
            } else if common.raise(crate::model::deadband::status_of(zone), severity) {
                $r.lalm = limit;
            }
        }
    }};
}
pub(crate) use check_limits;

/// As [`check_limits`], with the alarm filter AFTC; `$before` is the stamp of the processing before.
macro_rules! check_limits_filtered {
    ($common:expr, $r:ident, $before:ident) => {{
        let common = &mut $common;
        if common.udf != 0 {
            let udfs = common.udfs;
            common.raise(base::Status::Udf, udfs);
            $r.afvl = 0.0;
        } else {
            let mut found = $r.limits.zone($r.val, $r.lalm);
            if $r.aftc > 0.0 {
                found = $r.limits.filtered(found, $r.aftc, &mut $r.afvl, common.time, $before);
            } else {
                $r.afvl = 0.0;
            }
            let (zone, severity, limit) = found;
            if severity == 0 {
                $r.lalm = $r.val;
            } else if common.raise(crate::model::deadband::status_of(zone), severity) {
                $r.lalm = limit;
            }
        }
    }};
}
pub(crate) use check_limits_filtered;

/// At start, after all links are resolved.
pub(crate) fn init(db: &mut Db, rec: u32) {
    let body = db.common[rec as usize].body as usize;
    match db.common[rec as usize].kind() {
        Kind::Ai => ai::init(db, rec, body),
        Kind::Ao => ao::init(db, rec, body),
        Kind::Bi => bi::init(db, rec, body),
        Kind::Bo => bo::init(db, rec, body),
        Kind::Calc => calc::init(db, rec, body),
        Kind::Fanout => fanout::init(db, rec, body),
        Kind::Int64In => int64in::init(db, rec, body),
        Kind::Int64Out => int64out::init(db, rec, body),
        Kind::LongIn => longin::init(db, rec, body),
        Kind::LongOut => longout::init(db, rec, body),
        Kind::Aai => aai::init(db, rec, body),
        Kind::Aao => aao::init(db, rec, body),
        Kind::Compress => compress::init(db, rec, body),
        Kind::Histogram => histogram::init(db, rec, body),
        Kind::Lsi => lsi::init(db, rec, body),
        Kind::Lso => lso::init(db, rec, body),
        Kind::SubArray => sub_array::init(db, rec, body),
        Kind::Waveform => waveform::init(db, rec, body),
        Kind::CalcOut => calcout::init(db, rec, body),
        Kind::DFanout => dfanout::init(db, rec, body),
        Kind::Event => event::init(db, rec, body),
        Kind::Mbbi => mbbi::init(db, rec, body),
        Kind::MbbiDirect => mbbi_direct::init(db, rec, body),
        Kind::Mbbo => mbbo::init(db, rec, body),
        Kind::MbboDirect => mbbo_direct::init(db, rec, body),
        Kind::Sel => sel::init(db, rec, body),
        Kind::Seq => seq::init(db, rec, body),
        Kind::StringIn => stringin::init(db, rec, body),
        Kind::StringOut => stringout::init(db, rec, body),
        Kind::ASub => a_sub::init(db, rec, body),
        Kind::Printf => printf::init(db, body),
        Kind::Sub => sub::init(db, rec, body),
        Kind::Permissive | Kind::State => {}
    }
}

/// After a link of the record was set.
pub(crate) fn links_changed(db: &mut Db, rec: u32) {
    let body = db.common[rec as usize].body as usize;
    match db.common[rec as usize].kind() {
        Kind::Calc => calc::links_changed(db, body),
        Kind::CalcOut => calcout::links_changed(db, body),
        _ => {}
    }
}

/// After a link of the record over a channel was connected or lost.
pub(crate) fn connection_changed(db: &mut Db, rec: u32) {
    let body = db.common[rec as usize].body as usize;
    if db.common[rec as usize].kind() == Kind::CalcOut {
        calcout::post_links(db, rec, body);
    }
}

/// After a client wrote a link of the record.
pub(crate) fn link_put(db: &mut Db, rec: u32, field: u16) {
    let body = db.common[rec as usize].body as usize;
    let name = db.def(rec, field).name.clone();
    match (db.common[rec as usize].kind(), name.as_str()) {
        (Kind::LongOut, "OUT") => longout::out_changed(db, body),
        (Kind::CalcOut, _) => calcout::link_put(db, rec, body, &name),
        _ => {}
    }
}

/// A callback of the record type's own.
pub(crate) fn own_callback(db: &mut Db, rec: u32, _: u8) {
    let body = db.common[rec as usize].body as usize;
    match db.common[rec as usize].kind() {
        Kind::Bo => bo::own_callback(db, rec, body),
        Kind::Histogram => histogram::own_callback(db, rec, body),
        Kind::Seq => seq::own_callback(db, rec, body),
        _ => {}
    }
}

/// Before (`after` false) and after a field with `special` was written.
pub(crate) fn special(db: &mut Db, rec: u32, field: u16, after: bool) -> Result<(), PutError> {
    let body = db.common[rec as usize].body as usize;
    let kind = db.common[rec as usize].kind();
    let def = db.def(rec, field);
    let (special, name) = (def.special, def.name.clone());
    if name == "SIMM"
        && let Some(sim_of) = sim_of(kind)
    {
        if after {
            check_simm(db, rec, body, sim_of);
        } else {
            let sim = sim_of(&mut db.bodies, body);
            if sim.sscn != u16::MAX {
                sim.oldsimm = sim.simm;
            }
        }
        return Ok(());
    }
    if kind == Kind::MbboDirect {
        return mbbo_direct::special(db, rec, body, &name, after);
    }
    if kind == Kind::Sub {
        return sub::special(db, rec, body, after);
    }
    if !after {
        return Ok(());
    }
    match kind {
        Kind::ASub => return a_sub::special(db, rec, body),
        Kind::Ai => ai::special(db, rec, body, special),
        Kind::Ao => ao::special(db, rec, body, special),
        Kind::Calc => return calc::special(db, body),
        Kind::CalcOut => calcout::special(db, rec, body, &name),
        Kind::Compress => compress::special(db, body),
        Kind::Histogram => histogram::special(db, rec, body, special, &name),
        Kind::Mbbi => return mbbi::special(db, rec, body, &name),
        Kind::Mbbo => return mbbo::special(db, rec, body, &name),
        _ => {}
    }
    Ok(())
}

/// How many elements an array field can hold; bytes, for a long text.
pub(crate) fn capacity(db: &Db, rec: u32, field: u16) -> u32 {
    let common = &db.common[rec as usize];
    let body = common.body as usize;
    match common.kind() {
        Kind::ASub => db.bodies.a_sub[body].shape(&db.def(rec, field).name).0,
        Kind::Printf => u32::from(db.bodies.printf[body].sizv),
        Kind::Aai => db.bodies.aai[body].nelm,
        Kind::Aao => db.bodies.aao[body].nelm,
        Kind::Compress => db.bodies.compress[body].nsam,
        Kind::Histogram => u32::from(db.bodies.histogram[body].nelm),
        Kind::Lsi => u32::from(db.bodies.lsi[body].sizv),
        Kind::Lso => u32::from(db.bodies.lso[body].sizv),
        Kind::SubArray => db.bodies.sub_array[body].malm,
        Kind::Waveform => db.bodies.waveform[body].nelm,
        _ => 0,
    }
}

/// Type of an array field's elements.
pub(crate) fn element_type(db: &Db, rec: u32, field: u16) -> FieldType {
    let common = &db.common[rec as usize];
    let body = common.body as usize;
    match common.kind() {
        Kind::ASub => db.bodies.a_sub[body].shape(&db.def(rec, field).name).1,
        Kind::Aai => arrays::kind_of(db.bodies.aai[body].ftvl),
        Kind::Aao => arrays::kind_of(db.bodies.aao[body].ftvl),
        Kind::Histogram => FieldType::U32,
        Kind::SubArray => arrays::kind_of(db.bodies.sub_array[body].ftvl),
        Kind::Waveform => arrays::kind_of(db.bodies.waveform[body].ftvl),
        _ => FieldType::F64,
    }
}

/// Stores an array that is converted already.
pub(crate) fn store_array(db: &mut Db, rec: u32, field: u16, values: Array) -> Result<(), PutError> {
    let body = db.common[rec as usize].body as usize;
    let len = values.len() as u32;
    macro_rules! store {
        ($block:ident, $room:ident, $nord:ty) => {{
            let r = &mut db.bodies.$block[body];
            let room = r.$room;
            let spare = arrays::set(&mut r.val, values, room);
            let changed = r.nord != len as $nord;
            r.nord = len as $nord;
            db.recycle_array(spare);
            changed
        }};
    }
    let changed = match db.common[rec as usize].kind() {
        Kind::Aai => store!(aai, nelm, u32),
        Kind::Aao => store!(aao, nelm, u32),
        Kind::Waveform => store!(waveform, nelm, u32),
        Kind::SubArray => store!(sub_array, malm, i32),
        Kind::ASub => {
            let name = db.def(rec, field).name.clone();
            db.bodies.a_sub[body].store(&name, values);
            false
        }
        Kind::Compress => {
            if db.bodies.compress[body].balg == 1 {
                return Err(PutError::NoModify);
            }
            compress::store(db, rec, &values);
            false
        }
        Kind::Histogram => {
            let r = &mut db.bodies.histogram[body];
            if let (Array::U32(bins), Array::U32(values)) = (&mut r.val, values) {
                let count = bins.len().min(values.len());
                bins[..count].copy_from_slice(&values[..count]);
            }
            false
        }
        _ => return Err(PutError::NoModify),
    };
    if changed {
        db.post_named(rec, "NORD", EventMask::VALUE | EventMask::LOG);
    }
    Ok(())
}
