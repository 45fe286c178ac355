//! mbbo record.

use crate::model::link::Link;
use crate::model::slot::{Rarely, Text, record};
use crate::rec::table::Bodies;
use crate::rec::{
    Mode, STATE_NAMES, Sim, any_state, changed, device_mask, drive_output, init_sim, mask_of, mode, no_device,
    post_raw, stamp_output, state_written,
};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, Outcome};
use crate::text::error::PutError;
use base::{Scalar, Status, Str40, Value};

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
}

/// After a state's value or name was written.
pub(crate) fn special(db: &mut Db, rec: u32, body: usize, name: &str) -> Result<(), PutError> {
    let r = &mut db.bodies.mbbo[body];
    r.sdef = any_state(&r.values, &r.names);
    let val = r.val;
    state_written(db, rec, name, val);
    Ok(())
}

/// At start: a constant DOL, the mask, the raw value, last values.
pub(crate) fn init(db: &mut Db, rec: u32, body: usize) {
    let r = &mut db.bodies.mbbo[body];
    r.sdef = any_state(&r.values, &r.names);
    let device = db.device(rec);
    if device == Device::Missing {
        return;
    }
    init_sim(db, rec, body, sim);
    let r = &mut db.bodies.mbbo[body];
    if let Some(val) = r.dol.number() {
        r.val = val;
        db.common[rec as usize].udf = 0;
    }
    r.mask = device_mask(device, mask_of(r.mask, r.nobt), r.nobt == 0, r.shft);
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
    if usize::from(db.bodies.mbbo[body].val) < STATE_NAMES.len() {
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
        stamp_output(db, rec, body, sim);
    }
    check_alarms(db, rec, body);
    let ivoa = db.bodies.mbbo[body].ivoa;
    let ivov = |db: &mut Db| {
        let r = &mut db.bodies.mbbo[body];
        r.val = r.ivov;
        convert(db, rec, body);
    };
    if drive_output(db, rec, resumed, ivoa, ivov, |db| write(db, rec, body, resumed)) {
        return Outcome::Pending;
    }
    if resumed {
        stamp_output(db, rec, body, sim);
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
        let output = Output { value: Value::Scalar(value), raw: i64::from(r.device_value()), name, converted: false };
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
    let alarm = db.reset_alarms(rec);
    let r = &mut db.bodies.mbbo[body];
    let moved = [changed(&mut r.mlst, r.val), changed(&mut r.oraw, r.rval), changed(&mut r.orbv, r.rbv)];
    post_raw(db, rec, alarm, moved);
}
