//! mbbiDirect record.

use super::bits::bits_input;
use super::inputs::{name_of, ones};
use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::common::Common;
use crate::rec::{
    Body, Properties, ReadOutcome, RecId, RecordType, Sim, cannot_read, device_mask, init_sim, mask_of, read_input,
    read_soft, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use base::{EventMask, FieldType, Stamp};

record! {
    /// Fields of an mbbiDirect record.
    MbbiDirect {
        val: i32 [VAL],
        nobt: i16 [NOBT],
        inp: Link [INP],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        mask: u32 [MASK],
        mlst: i32 [MLST],
        shft: u16 [SHFT],
        sval: i32 [SVAL],
        b: [u8; 32] [B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 BA BB BC BD BE BF B10 B11 B12 B13 B14 B15 B16 B17 B18 B19 B1A B1B B1C B1D B1E B1F],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

bits_input!(
    MbbiDirect, u32, u32, u32, false, |db, rec, _| cannot_read(db, rec);

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        let is_val = field == Self::VAL;
        Properties { precision: is_val.then_some(self.nobt), bounded: !is_val, ..Properties::NONE }
    }
);

impl MbbiDirect {
    /// Result of a failed raw read through a link. As in C, the previous raw value is converted.
    const RAW_FAILED: ReadOutcome = ReadOutcome::Raw;

    fn set_mask(&mut self, device: Device) {
        self.mask = device_mask(device, mask_of(self.mask, self.nobt), self.nobt == 0, self.shft);
    }

    fn started(&mut self) {
        refresh(&mut self.b, self.val);
    }

    fn convert(&mut self) {
        self.val = self.rval.wrapping_shr(u32::from(self.shft)) as i32;
    }

    fn mask_raw(&mut self) {
        self.rval &= self.mask;
    }

    const fn simulated_raw(&self) -> u32 {
        self.sval as u32
    }
}

/// Sets the bit fields from VAL. Returns a mask of the changed ones.
pub(crate) fn refresh(bits: &mut [u8; 32], val: i32) -> u32 {
    let mut changed = 0;
    for (index, bit) in bits.iter_mut().enumerate() {
        let now = (val as u32 >> index & 1) as u8;
        changed |= u32::from(*bit != now) << index;
        *bit = now;
    }
    changed
}

/// Posts the given bit fields.
pub(crate) fn post_bits(db: &mut Db, rec: RecId, bits: u32, mask: EventMask) {
    ones(bits).for_each(|index| db.post_named(rec, name_of::<MbbiDirect>(MbbiDirect::B0, index), mask));
}

/// Takes a device value, which is the raw value.
fn device_value(db: &mut Db, _: RecId, body: Body<MbbiDirect>, fed: &DeviceSample) -> ReadOutcome {
    let Some(raw) = fed.scalar().and_then(crate::text::conv::number::<u32>) else { return ReadOutcome::Failed };
    let r = &mut db.records[body];
    // Without NOBT there is no mask, and all bits are used.
    r.rval = if r.mask == 0 { raw } else { raw & r.mask };
    ReadOutcome::Raw
}

fn check_alarms(common: &mut Common, _: &mut MbbiDirect, _: Stamp) {
    if common.udf != 0 {
        common.raise_undefined();
    }
}

fn monitor(db: &mut Db, rec: RecId, body: Body<MbbiDirect>) {
    let mask = db.reset_alarms(rec);
    let all = mask | EventMask::VALUE | EventMask::LOG;
    let r = &mut db.records[body];
    let moved = r.mlst != r.val;
    r.mlst = r.val;
    let bits = refresh(&mut r.b, r.val);
    let raw = r.oraw != r.rval;
    r.oraw = r.rval;
    if moved || !mask.is_empty() {
        db.post_value(rec, if moved { all } else { mask });
    }
    post_bits(db, rec, bits, all);
    if raw {
        db.post_named(rec, "RVAL", all);
    }
}
