//! subArray record.

use super::arrays::{array_memory, array_properties, kind_of, set};
use crate::model::link::Link;
use crate::model::slot::{Inline, record};
use crate::rec::common::Common;
use crate::rec::{ArrayView, Body, Properties, RecId, RecordType, no_device, take_stamp};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use base::{Array, EventMask, FieldType};

record! {
    /// Fields of a subArray record.
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

impl RecordType for SubArray {
    /// Start: allocates the array and loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        array_memory!(db, rec, body, malm);
        let r = &mut db.records[body];
        r.nord = 0;
        r.nelm = r.nelm.min(r.malm);
        if device == Device::Missing {
            return;
        }
        if let Some(values) = r.inp.elements(kind_of(r.ftvl), wanted(r)) {
            take_part(db, rec, body, values);
        }
    }

    /// Reads the input, extracts the elements, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        if db.device(rec) != Device::Soft {
            return no_device(db, rec);
        }
        let r = &mut db.records[body];
        r.nelm = r.nelm.min(r.malm);
        r.indx = r.indx.min(r.malm - 1);
        let before = r.nord;
        let (link, kind, count) = (r.inp.brief(), kind_of(r.ftvl), wanted(r));
        let read = if r.inp.is_constant() {
            match r.inp.elements(kind, count) {
                Some(values) => Some(values),
                // An empty link: the elements are extracted from the present array again.
                None => {
                    let mut again = db.lend_array(kind);
                    crate::model::values::convert_into(&db.records[body].val, usize::MAX, 0, &mut again);
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
            if db.records[body].nord != before {
                db.post_named(rec, "NORD", EventMask::VALUE | EventMask::LOG);
            }
        }
        failed |= db.records[body].nord <= 0;
        db.stamp_now(rec);
        let common = &mut db.records[rec];
        common.udf = u8::from(failed);
        if failed {
            common.raise_undefined();
        }
        let mask = db.reset_alarms(rec) | EventMask::VALUE | EventMask::LOG;
        db.post_value(rec, mask);
        ProcessResult::Done
    }

    array_properties!(
        INDX: |r: &Self, of: Properties| of.within(0.0, f64::from(r.malm) - 1.0),
        NELM: |r: &Self, of: Properties| {
            let display = of.within(0.0, r.malm.into()).display;
            Properties { display, ..of.within(1.0, r.malm.into()) }
        },
        NORD: |r: &Self, of: Properties| of.within(0.0, r.malm.into()),
        BUSY: |_, of: Properties| of.within(0.0, 1.0),
    );

    array_memory!(malm MALM i32);

    /// As in C, an undefined record has no visible elements.
    fn seen(&self, common: &Common) -> ArrayView {
        if common.udf != 0 { ArrayView::Nothing } else { ArrayView::Stored }
    }
}

/// Number of elements to read.
fn wanted(r: &SubArray) -> usize {
    r.indx.saturating_add(r.nelm).min(r.malm) as usize
}

/// Keeps NELM elements from INDX on.
fn take_part(db: &mut Db, rec: RecId, body: Body<SubArray>, values: Array) {
    let r = &mut db.records[body];
    let (first, room) = (r.indx as usize, r.malm);
    let count = values.len().saturating_sub(first).min(r.nelm as usize);
    let (from, to) = (first.min(values.len()), (first + count).min(values.len()));
    crate::model::values::copy_into(&values, from, 1, to, room as usize, &mut r.val);
    r.nord = count as i32;
    db.recycle_array(values);
    db.records[rec].udf = 0;
}
