//! mbboDirect record.

use super::bits::{bits_output, fetch_bits};
use super::mbbi_direct::{post_bits, refresh};
use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::common::Common;
use crate::rec::message::Message;
use crate::rec::{
    Body, Properties, RecId, RecordType, Sim, device_mask, drive_stamped, init_sim, mask_of, no_device, output_mode,
    stamp_output,
};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{EventMask, FieldType, Scalar, Str40, Value};

record! {
    /// Fields of an mbboDirect record.
    MbboDirect {
        val: i32 [VAL],
        omsl: u16 [OMSL],
        nobt: i16 [NOBT],
        dol: Link [DOL],
        out: Link [OUT],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        rbv: u32 [RBV],
        orbv: u32 [ORBV],
        mask: u32 [MASK],
        mlst: i32 [MLST],
        obit: i32 [OBIT],
        shft: u16 [SHFT],
        ivoa: u16 [IVOA],
        ivov: i32 [IVOV],
        b: [u8; 32] [B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 BA BB BC BD BE BF B10 B11 B12 B13 B14 B15 B16 B17 B18 B19 B1A B1B B1C B1D B1E B1F],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

bits_output!(
    MbboDirect, |_, _, _| false, |_: &Self, failed| if failed { ProcessResult::Failed } else { ProcessResult::Done };

    const HIDES_FAILED_WRITE: bool = true;

    /// Start: loads a constant DOL, sets the mask, the bits and the last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        init_sim(db, rec, body);
        let (common, r) = db.records.both(rec, body);
        if let Some(val) = r.dol.number::<u32>() {
            r.val = val as i32;
            common.udf = 0;
        }
        r.mask = device_mask(device, mask_of(r.mask, r.nobt), r.nobt == 0, r.shft);
        if common.udf == 0 {
            refresh(&mut r.b, r.val);
        } else {
            let val = r.b.iter().enumerate().fold(0u32, |val, (index, bit)| val | u32::from(*bit != 0) << index);
            if val != 0 {
                r.val = val as i32;
                common.udf = 0;
            }
        }
        r.mlst = r.val;
        r.oraw = r.rval;
        r.orbv = r.rbv;
    }

    /// Handles a write to a bit field: rejects it in closed loop, otherwise updates VAL.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        let index = usize::from(field.wrapping_sub(Self::B0));
        let r = &mut db.records[body];
        let Some(bit) = r.b.get(index) else { return Ok(()) };
        if !after {
            return if r.omsl == 1 { Err(PutError::NoModify) } else { Ok(()) };
        }
        let mask = 1 << index;
        if *bit != 0 {
            r.val |= mask;
            r.obit |= mask;
        } else {
            r.val &= !mask;
            r.obit &= !mask;
        }
        r.convert();
        db.records[rec].udf = 0;
        Ok(())
    }

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        let is_val = field == Self::VAL;
        Properties { precision: is_val.then_some(self.nobt), bounded: !is_val, ..Properties::NONE }
    }

    /// Sets the other fields after VAL was set to the device's value.
    fn begin(db: &mut Db, rec: RecId, body: Body<Self>) {
        convert(db, rec, body);
        let r = &mut db.records[body];
        r.mlst = r.val;
        r.oraw = r.rval;
    }

    /// Value of VAL for a raw device value.
    fn from_device(db: &mut Db, _: RecId, body: Body<Self>, fed: &DeviceSample) -> Option<Scalar> {
        let raw = fed.raw()? as u32;
        let r = &db.records[body];
        Some(Scalar::I32(r.masked(raw).wrapping_shr(u32::from(r.shft)) as i32))
    }
);

impl MbboDirect {
    fn convert(&mut self) {
        self.rval = (self.val as u32).wrapping_shl(u32::from(self.shft));
    }

    fn value(&self, raw: bool, real: bool) -> Scalar {
        Scalar::U32(match (raw, real) {
            (true, true) => self.rval & self.mask,
            (true, false) => self.rval,
            (false, _) => self.val as u32,
        })
    }

    fn for_device(&self) -> (u32, Option<Str40>) {
        (self.masked(self.rval), None)
    }
}

/// Computes the bit fields and the raw value from VAL.
fn convert(db: &mut Db, _: RecId, body: Body<MbboDirect>) {
    let r = &mut db.records[body];
    refresh(&mut r.b, r.val);
    r.convert();
}

/// Fetches the desired value. Returns whether there is one.
fn fetch(db: &mut Db, rec: RecId, body: Body<MbboDirect>) -> bool {
    let r = &db.records[body];
    let dol = (r.omsl == 1 && !r.dol.is_constant()).then(|| r.dol.brief());
    fetch_bits(db, rec, dol, Message::UDFS, |bodies, val: u32| bodies[body].val = val as i32)
}

fn written(db: &mut Db, _: RecId, body: Body<MbboDirect>) {
    let r = &mut db.records[body];
    refresh(&mut r.b, r.val);
}

fn check_alarms(_: &mut Common, _: &mut MbboDirect) {}

fn monitor(db: &mut Db, rec: RecId, body: Body<MbboDirect>) {
    let mut mask = db.reset_alarms(rec);
    let alarm = !mask.is_empty();
    let r = &mut db.records[body];
    if r.mlst != r.val {
        mask |= EventMask::VALUE | EventMask::LOG;
        r.mlst = r.val;
    }
    let bits = if alarm { u32::MAX } else { (r.obit ^ r.val) as u32 };
    r.obit = r.val;
    let (raw, readback) = (r.oraw != r.rval, r.orbv != r.rbv);
    r.oraw = r.rval;
    r.orbv = r.rbv;
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    let all = mask | EventMask::VALUE | EventMask::LOG;
    post_bits(db, rec, bits, all);
    if raw {
        db.post_named(rec, "RVAL", all);
    }
    if readback {
        db.post_named(rec, "RBV", all);
    }
}
