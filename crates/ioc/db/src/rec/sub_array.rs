//! subArray record.

use super::arrays::{kind_of, room};
use crate::model::link::Link;
use crate::model::slot::{Inline, record};
use crate::rec::{no_device, take_stamp};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use base::{Array, EventMask, Status};

record! {
    /// The fields of a subArray record.
    SubArray {
        val: Array [VAL],
        prec: i16 [PREC],
        ftvl: u16 [FTVL],
        inp: Link [INP],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        malm: u32 [MALM],
        nelm: u32 [NELM],
        indx: u32 [INDX],
        busy: i16 [BUSY],
        nord: i32 [NORD],
    }
}

/// At start: memory, constants.
pub(crate) fn init(db: &mut Db, rec: u32, body: usize) {
    let device = db.device(rec);
    let r = &mut db.bodies.sub_array[body];
    if r.ftvl > 11 {
        r.ftvl = 2;
    }
    let (kind, malm) = (kind_of(r.ftvl), r.malm);
    let room = room(db, rec, kind, malm);
    let r = &mut db.bodies.sub_array[body];
    (r.val, r.malm) = room;
    r.nord = 0;
    r.nelm = r.nelm.min(r.malm);
    if device == Device::Missing {
        return;
    }
    if let Some(values) = r.inp.elements(kind_of(r.ftvl), wanted(r)) {
        take_part(db, rec, body, values);
    }
}

/// How many elements must be read.
fn wanted(r: &SubArray) -> usize {
    r.indx.saturating_add(r.nelm).min(r.malm) as usize
}

/// Keeps NELM elements from INDX on.
fn take_part(db: &mut Db, rec: u32, body: usize, values: Array) {
    let r = &mut db.bodies.sub_array[body];
    let (first, room) = (r.indx as usize, r.malm);
    let count = values.len().saturating_sub(first).min(r.nelm as usize);
    let (from, to) = (first.min(values.len()), (first + count).min(values.len()));
    crate::model::values::copy_into(&values, from, 1, to, room as usize, &mut r.val);
    r.nord = count as i32;
    db.recycle_array(values);
    db.common[rec as usize].udf = 0;
}

/// Reads, cuts, tells.
pub(crate) fn process(db: &mut Db, rec: u32, body: usize, _: bool) -> Outcome {
    if db.device(rec) != Device::Soft {
        return no_device(db, rec);
    }
    let r = &mut db.bodies.sub_array[body];
    r.nelm = r.nelm.min(r.malm);
    r.indx = r.indx.min(r.malm - 1);
    let before = r.nord;
    let (link, kind, count) = (r.inp.brief(), kind_of(r.ftvl), wanted(r));
    let read = if r.inp.is_constant() {
        match r.inp.elements(kind, count) {
            Some(values) => Some(values),
            // An empty link: what is there is cut again.
            None => {
                let mut again = db.lend_array(kind);
                crate::model::values::convert_into(&db.bodies.sub_array[body].val, usize::MAX, 0, &mut again);
                Some(again)
            }
        }
    } else {
        let got = db.get_link_array(rec, link, kind, count).ok().flatten();
        if got.is_some() {
            take_stamp(db, rec, link);
        }
        got
    };
    let mut failed = read.is_none();
    if let Some(values) = read {
        take_part(db, rec, body, values);
        if db.bodies.sub_array[body].nord != before {
            db.post_named(rec, "NORD", EventMask::VALUE | EventMask::LOG);
        }
    }
    failed |= db.bodies.sub_array[body].nord <= 0;
    db.stamp_now(rec);
    let common = &mut db.common[rec as usize];
    common.udf = u8::from(failed);
    if failed {
        let udfs = common.udfs;
        common.raise(Status::Udf, udfs);
    }
    let mask = db.reset_alarms(rec) | EventMask::VALUE | EventMask::LOG;
    db.post_value(rec, mask);
    Outcome::Done
}
