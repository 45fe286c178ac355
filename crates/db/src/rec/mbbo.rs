//! mbbo record.

use crate::dev::Device;
use crate::engine::{Db, Outcome};
use crate::error::PutError;
use crate::link::Link;
use crate::rec::{Drive, Mode, Sim, drive, init_sim, mode, no_device};
use crate::record::Bodies;
use crate::slot::{Rarely, Text, record};
use crate::support::Output;
use base::{EventMask, Scalar, Status, Str40, Value};

record! {
    /// The fields of a mbbo record.
    Mbbo {
        val: u16 [VAL],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        nobt: u16 [NOBT],
        out: Link [OUT],
        values: [u32; 16] [ZRVL ONVL TWVL THVL FRVL FVVL SXVL SVVL EIVL NIVL TEVL ELVL TVVL TTVL FTVL FFVL],
        names: [Text<26>; 16] [ZRST ONST TWST THST FRST FVST SXST SVST EIST NIST TEST ELST TVST TTST FTST FFST],
        severities: [u16; 16] [ZRSV ONSV TWSV THSV FRSV FVSV SXSV SVSV EISV NISV TESV ELSV TVSV TTSV FTSV FFSV],
        unsv: u16 [UNSV],
        cosv: u16 [COSV],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        rbv: u32 [RBV],
        orbv: u32 [ORBV],
        mask: u32 [MASK],
        mlst: u16 [MLST],
        lalm: u16 [LALM],
        sdef: i16 [SDEF],
        shft: u16 [SHFT],
        ivoa: u16 [IVOA],
        ivov: u16 [IVOV],
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

fn sim(bodies: &mut Bodies, body: usize) -> &mut Rarely<Sim> {
    &mut bodies.mbbo[body].sim
}

impl Mbbo {
    /// Notes whether any state is defined (SDEF).
    fn look_for_states(&mut self) {
        let defined =
            self.values.iter().any(|value| *value != 0) || self.names.iter().any(|name| !name.bytes().is_empty());
        self.sdef = i16::from(defined);
    }

    /// The mask that NOBT means where MASK is not given.
    fn complete_mask(&mut self) {
        if self.mask == 0 && self.nobt <= 32 {
            self.mask = ((1u64 << self.nobt) - 1) as u32;
        }
    }

    /// Whether a state has a value other than 0; where none has, devices deal in the states' numbers.
    fn has_values(&self) -> bool {
        self.sdef != 0 && self.values.iter().any(|value| *value != 0)
    }

    /// What a device gets: RVAL where states have values, else the state's number.
    fn device_value(&self) -> u32 {
        let own = u32::from(self.val).checked_shl(u32::from(self.shft)).unwrap_or(0);
        let raw = if self.has_values() { self.rval } else { own };
        if self.mask == 0 { raw } else { raw & self.mask }
    }

    /// The raw device supports shift the mask; without NOBT all bits count.
    fn raw_mask(&mut self) {
        if self.nobt == 0 {
            self.mask = u32::MAX;
        }
        self.mask = self.mask.checked_shl(u32::from(self.shft)).unwrap_or(0);
    }
}

/// After a state's value or name was written.
pub(crate) fn special(db: &mut Db, rec: u32, body: usize, name: &str) -> Result<(), PutError> {
    db.bodies.mbbo[body].look_for_states();
    let own = super::mbbi::STATE_NAMES.iter().position(|state| name.strip_suffix("ST") == Some(*state));
    if let Some(state) = own {
        let mut mask = EventMask::PROPERTY;
        if usize::from(db.bodies.mbbo[body].val) == state {
            mask |= EventMask::VALUE | EventMask::LOG;
        }
        db.post_value(rec, mask);
    }
    Ok(())
}

/// At start: a constant DOL, the mask, the raw value, last values.
pub(crate) fn init(db: &mut Db, rec: u32, body: usize) {
    db.bodies.mbbo[body].look_for_states();
    let device = db.device(rec);
    if device == Device::Missing {
        return;
    }
    init_sim(db, rec, body, sim);
    let r = &mut db.bodies.mbbo[body];
    if let Some(val) = Db::constant(&r.dol) {
        r.val = val;
        db.common[rec as usize].udf = 0;
    }
    r.complete_mask();
    if device == Device::SoftRaw {
        r.raw_mask();
    } else if device == Device::External {
        r.mask = r.mask.checked_shl(u32::from(r.shft)).unwrap_or(0);
    }
    convert(db, rec, body);
    let r = &mut db.bodies.mbbo[body];
    r.mlst = r.val;
    r.lalm = r.val;
    r.oraw = r.rval;
    r.orbv = r.rbv;
}

/// The state that a raw value of the device is; 65535 where it is none.
pub(crate) fn from_raw(db: &Db, body: usize, raw: u32) -> Scalar {
    let r = &db.bodies.mbbo[body];
    let raw = if r.mask == 0 { raw } else { raw & r.mask };
    let raw = raw.checked_shr(u32::from(r.shft)).unwrap_or(0);
    let state = if r.has_values() { None } else { Some(raw as u16) };
    let known = || r.values.iter().position(|value| *value == raw).map(|state| state as u16);
    Scalar::Enum(state.or_else(known).unwrap_or(u16::MAX))
}

/// VAL is what the device has.
pub(crate) fn begin(db: &mut Db, rec: u32, body: usize) {
    if usize::from(db.bodies.mbbo[body].val) < super::mbbi::STATE_NAMES.len() {
        convert(db, rec, body);
    }
    let r = &mut db.bodies.mbbo[body];
    r.mlst = r.val;
    r.lalm = r.val;
    r.oraw = r.rval;
}

/// The raw value of VAL.
fn convert(db: &mut Db, rec: u32, body: usize) {
    let r = &mut db.bodies.mbbo[body];
    if r.sdef != 0 {
        let Some(raw) = r.values.get(usize::from(r.val)) else {
            db.common[rec as usize].raise(Status::Soft, 3);
            return;
        };
        r.rval = *raw;
    } else {
        r.rval = u32::from(r.val);
    }
    if r.shft > 0 {
        r.rval = r.rval.checked_shl(u32::from(r.shft)).unwrap_or(0);
    }
}

/// Fetches, checks, writes, tells.
pub(crate) fn process(db: &mut Db, rec: u32, body: usize, resumed: bool) -> Outcome {
    if db.device(rec) == Device::Missing {
        return no_device(db, rec);
    }
    if !resumed && fetch(db, rec, body) {
        db.common[rec as usize].udf = 0;
        convert(db, rec, body);
        let simm = db.bodies.mbbo[body].sim.simm;
        db.stamp_simulated(rec, simm, None);
    }
    check_alarms(db, rec, body);
    let ivoa = db.bodies.mbbo[body].ivoa;
    let pending = match drive(db, rec, ivoa) {
        Drive::Normally => write(db, rec, body, resumed),
        Drive::Not => false,
        Drive::Ivov => {
            if !resumed {
                let r = &mut db.bodies.mbbo[body];
                r.val = r.ivov;
                convert(db, rec, body);
            }
            write(db, rec, body, resumed)
        }
    };
    if pending {
        return Outcome::Pending;
    }
    if resumed {
        let simm = db.bodies.mbbo[body].sim.simm;
        db.stamp_simulated(rec, simm, None);
    }
    let failed = db.failed;
    monitor(db, rec, body);
    if failed { Outcome::Failed } else { Outcome::Done }
}

/// The wanted value; whether there is one.
fn fetch(db: &mut Db, rec: u32, body: usize) -> bool {
    let r = &db.bodies.mbbo[body];
    if r.omsl == 1 && !r.dol.is_constant() {
        let dol = r.dol.brief();
        let Ok(Some(val)) = db.get_link::<u16>(rec, dol) else {
            db.common[rec as usize].raise(Status::Link, 3);
            return false;
        };
        db.bodies.mbbo[body].val = val;
    } else if db.common[rec as usize].udf != 0 {
        let udfs = db.common[rec as usize].udfs;
        db.common[rec as usize].raise(Status::Udf, udfs);
        return false;
    }
    true
}

fn write(db: &mut Db, rec: u32, body: usize, resumed: bool) -> bool {
    let simm = match mode(db, rec, body, resumed, true, sim) {
        Mode::Real => 0,
        Mode::Simulated(simm) => simm,
        Mode::Delayed => return true,
        Mode::Bad => return false,
    };
    let device = db.device(rec);
    let r = &db.bodies.mbbo[body];
    let link = if simm == 0 { r.out.brief() } else { r.sim.siol.brief() };
    let value = match simm {
        0 if device == Device::SoftRaw => Scalar::U32(r.rval & r.mask),
        0 | 1 => Scalar::U16(r.val),
        _ => Scalar::U32(r.rval),
    };
    if simm == 0 && db.device(rec) == Device::External {
        let r = &db.bodies.mbbo[body];
        let name = r.names.get(usize::from(r.val)).map(|name| Str40::new(name.bytes()));
        let output = Output { value: Value::Scalar(value), raw: i64::from(r.device_value()), name };
        return db.device_write(rec, resumed, output);
    }
    db.write_out(rec, link, value, simm == 0, resumed)
}

fn check_alarms(db: &mut Db, rec: u32, body: usize) {
    let common = &mut db.common[rec as usize];
    let r = &mut db.bodies.mbbo[body];
    common.raise(Status::State, r.severities.get(usize::from(r.val)).copied().unwrap_or(r.unsv));
    if r.val == r.lalm || common.raise(Status::Cos, r.cosv) {
        return;
    }
    r.lalm = r.val;
}

fn monitor(db: &mut Db, rec: u32, body: usize) {
    let mut mask = db.reset_alarms(rec);
    let r = &mut db.bodies.mbbo[body];
    if r.mlst != r.val {
        mask |= EventMask::VALUE | EventMask::LOG;
        r.mlst = r.val;
    }
    let (raw, readback) = (r.oraw != r.rval, r.orbv != r.rbv);
    r.oraw = r.rval;
    r.orbv = r.rbv;
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    let all = mask | EventMask::VALUE | EventMask::LOG;
    if raw {
        db.post_named(rec, "RVAL", all);
    }
    if readback {
        db.post_named(rec, "RBV", all);
    }
}
