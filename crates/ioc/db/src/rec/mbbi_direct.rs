//! mbbiDirect record.

use crate::model::link::Link;
use crate::model::slot::{Rarely, record};
use crate::rec::{Body, RecId, RecordType};
use crate::rec::{Read, Sim, device_mask, init_sim, mask_of, read_input, read_soft, take_stamp};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use crate::run::notify::Got;
use base::{EventMask, Status};

record! {
    /// The fields of a mbbiDirect record.
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
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for MbbiDirect {
    fn sim(&mut self) -> Option<&mut Rarely<Sim>> {
        Some(&mut self.sim)
    }

    /// At start: constants, the mask, the bits, last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        init_sim(db, rec, body);
        let (common, r) = db.records.both(rec, body);
        if let Some(sval) = r.sim.siol.number::<u32>() {
            r.sval = sval as i32;
        }
        r.mask = device_mask(device, mask_of(r.mask, r.nobt), r.nobt == 0, r.shft);
        if device == Device::SoftRaw {
            if let Some(rval) = r.inp.number() {
                r.rval = rval;
            }
        } else if device != Device::External
            && let Some(val) = r.inp.number::<u32>()
        {
            r.val = val as i32;
            common.udf = 0;
        }
        refresh(&mut r.b, r.val);
        r.mlst = r.val;
        r.oraw = r.rval;
    }

    /// Reads, converts, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> Outcome {
        let read = |db: &mut Db| read(db, rec, body, resumed);
        let simulated = |db: &mut Db, simm| simulated(db, rec, body, simm);
        let read = match read_input(db, rec, body, resumed, true, read, simulated) {
            Ok(read) => read,
            Err(outcome) => return outcome,
        };
        let (common, r) = db.records.both(rec, body);
        if read == Read::Raw {
            r.val = r.rval.checked_shr(u32::from(r.shft)).unwrap_or(0) as i32;
            common.udf = 0;
        }
        if common.udf != 0 {
            let udfs = common.udfs;
            common.raise(Status::Udf, udfs);
        }
        monitor(db, rec, body);
        read.outcome()
    }
}

/// Names of the bits, for events.
pub(crate) const BIT_NAMES: [&str; 32] = [
    "B0", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "BA", "BB", "BC", "BD", "BE", "BF", "B10", "B11",
    "B12", "B13", "B14", "B15", "B16", "B17", "B18", "B19", "B1A", "B1B", "B1C", "B1D", "B1E", "B1F",
];

/// Brings the bits up to VAL; which ones changed.
pub(crate) fn refresh(bits: &mut [u8; 32], val: i32) -> u32 {
    let mut changed = 0;
    for (index, bit) in bits.iter_mut().enumerate() {
        let now = (val as u32 >> index & 1) as u8;
        changed |= u32::from(*bit != now) << index;
        *bit = now;
    }
    changed
}

/// Tells about some of the bits.
pub(crate) fn post_bits(db: &mut Db, rec: RecId, bits: u32, mask: EventMask) {
    let mut bits = bits;
    while bits != 0 {
        let index = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        db.post_named(rec, BIT_NAMES[index], mask);
    }
}

fn read(db: &mut Db, rec: RecId, body: Body<MbbiDirect>, resumed: bool) -> Read {
    let link = db.records[body].inp.brief();
    match db.device(rec) {
        Device::Soft | Device::SoftAsync => {
            read_soft(db, rec, link, resumed, |bodies, value: u32| bodies[body].val = value as i32)
        }
        Device::SoftRaw => {
            if let Ok(value) = db.get_link::<u32>(rec, link) {
                let r = &mut db.records[body];
                if let Some(value) = value {
                    r.rval = value;
                }
                r.rval &= r.mask;
                take_stamp(db, rec, link);
            }
            Read::Raw
        }
        Device::External => match db.device_read(rec, resumed) {
            Got::Pending => Read::Pending,
            Got::Value(fed) => {
                let Some(raw) = fed.scalar().and_then(crate::text::conv::number::<u32>) else { return Read::Failed };
                let r = &mut db.records[body];
                // Without NOBT there is no mask, and all bits count.
                r.rval = if r.mask == 0 { raw } else { raw & r.mask };
                Read::Raw
            }
            Got::Constant | Got::Failed => Read::Failed,
        },
        _ => {
            db.records[rec].broken = true;
            Read::Failed
        }
    }
}

fn simulated(db: &mut Db, rec: RecId, body: Body<MbbiDirect>, simm: u16) -> Read {
    let link = db.records[body].sim.siol.brief();
    let Ok(value) = db.get_link::<u32>(rec, link) else { return Read::Failed };
    let (common, r) = db.records.both(rec, body);
    if let Some(value) = value {
        r.sval = value as i32;
    }
    common.udf = 0;
    if simm == 1 {
        r.val = r.sval;
        return Read::Value;
    }
    r.rval = r.sval as u32;
    Read::Raw
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
