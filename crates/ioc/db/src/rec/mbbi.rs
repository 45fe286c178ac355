//! mbbi record.

use crate::model::deadband;
use crate::model::link::Link;
use crate::model::slot::{Rarely, Text, record};
use crate::rec::States;
use crate::rec::{Body, RecId, RecordType};
use crate::rec::{
    Read, Sim, any_state, changed, device_mask, device_state, init_sim, mask_of, no_state, post_raw, read_input,
    read_soft, state_written, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use crate::run::notify::Got;
use crate::run::scan::Fed;
use crate::text::error::PutError;
use base::Status;

record! {
    /// The fields of a mbbi record.
    Mbbi {
        val: u16 [VAL],
        nobt: u16 [NOBT],
        inp: Link [INP],
        values: [u32; 16] [ZRVL ONVL TWVL THVL FRVL FVVL SXVL SVVL EIVL NIVL TEVL ELVL TVVL TTVL FTVL FFVL],
        names: [Text<26>; 16] [ZRST ONST TWST THST FRST FVST SXST SVST EIST NIST TEST ELST TVST TTST FTST FFST],
        severities: [u16; 16] [ZRSV ONSV TWSV THSV FRSV FVSV SXSV SVSV EISV NISV TESV ELSV TVSV TTSV FTSV FFSV],
        aftc: f64 [AFTC],
        afvl: f64 [AFVL],
        unsv: u16 [UNSV],
        cosv: u16 [COSV],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        mask: u32 [MASK],
        mlst: u16 [MLST],
        lalm: u16 [LALM],
        sdef: i16 [SDEF],
        shft: u16 [SHFT],
        sval: u32 [SVAL],
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Mbbi {
    fn sim(&mut self) -> Option<&mut Rarely<Sim>> {
        Some(&mut self.sim)
    }

    /// At start: constants, the mask, last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        init_sim(db, rec, body);
        let (common, r) = db.records.both(rec, body);
        if let Some(sval) = r.sim.siol.number::<u16>() {
            r.sval = u32::from(sval);
        }
        r.mask = device_mask(device, mask_of(r.mask, r.nobt), r.nobt == 0, r.shft);
        if device == Device::SoftRaw {
            if let Some(rval) = r.inp.number() {
                r.rval = rval;
            }
        } else if device != Device::External
            && let Some(val) = r.inp.number()
        {
            r.val = val;
            common.udf = 0;
        }
        r.sdef = any_state(&r.values, &r.names);
        r.mlst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
    }

    /// Reads, converts, checks, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> Outcome {
        let before = db.records[rec].time;
        let read = |db: &mut Db| read(db, rec, body, resumed);
        let simulated = |db: &mut Db, simm| simulated(db, rec, body, simm);
        let read = match read_input(db, rec, body, resumed, true, read, simulated) {
            Ok(read) => read,
            Err(outcome) => return outcome,
        };
        if read == Read::Raw {
            let r = &mut db.records[body];
            r.val = r.state_of(r.rval);
            db.records[rec].udf = 0;
        }
        check_alarms(db, rec, body, before);
        monitor(db, rec, body);
        read.outcome()
    }

    /// After a state's value or name was written.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if after {
            let r = &mut db.records[body];
            r.sdef = any_state(&r.values, &r.names);
            let (state, val) = (field.wrapping_sub(Self::ZRST), r.val);
            state_written(db, rec, state, val);
        }
        Ok(())
    }

    fn states(&self) -> States<'_> {
        States::Many(&self.names)
    }
}

impl Mbbi {
    /// The state of a raw value.
    fn state_of(&self, raw: u32) -> u16 {
        let raw = if self.shft > 0 { raw.checked_shr(u32::from(self.shft)).unwrap_or(0) } else { raw };
        if self.sdef == 0 {
            return raw as u16;
        }
        self.values.iter().position(|value| *value == raw).map_or(u16::MAX, |state| state as u16)
    }
}

/// What a device said: whole numbers are raw, texts name a state, others are the state's number.
fn device_value(db: &mut Db, rec: RecId, body: Body<Mbbi>, fed: &Fed) -> Read {
    let state = device_state(db, rec, fed);
    let r = &mut db.records[body];
    match (fed.raw(), state) {
        // Where states have names but no values, the number is the state.
        (Some(raw), _) if r.sdef != 0 && r.values.iter().all(|value| *value == 0) => {
            let raw = if r.mask == 0 { raw as u32 } else { raw as u32 & r.mask };
            r.val = raw.checked_shr(u32::from(r.shft)).unwrap_or(0) as u16;
            Read::Value
        }
        (Some(raw), _) => {
            // Without NOBT there is no mask, and all bits count.
            r.rval = if r.mask == 0 { raw as u32 } else { raw as u32 & r.mask };
            Read::Raw
        }
        (None, Some(state)) => {
            r.val = state;
            Read::Value
        }
        (None, None) => no_state(db, rec),
    }
}

fn read(db: &mut Db, rec: RecId, body: Body<Mbbi>, resumed: bool) -> Read {
    let link = db.records[body].inp.brief();
    match db.device(rec) {
        Device::Soft | Device::SoftAsync => {
            read_soft(db, rec, link, resumed, |bodies, value: u16| bodies[body].val = value)
        }
        Device::SoftRaw => match db.get_link::<i32>(rec, link) {
            Ok(value) => {
                let r = &mut db.records[body];
                if let Some(value) = value {
                    r.rval = value as u32;
                }
                r.rval &= r.mask;
                take_stamp(db, rec, link);
                Read::Raw
            }
            Err(_) => Read::Failed,
        },
        Device::External => match db.device_read(rec, resumed) {
            Got::Pending => Read::Pending,
            Got::Value(fed) => device_value(db, rec, body, &fed),
            Got::Constant | Got::Failed => Read::Failed,
        },
        _ => {
            db.records[rec].broken = true;
            Read::Failed
        }
    }
}

fn simulated(db: &mut Db, rec: RecId, body: Body<Mbbi>, simm: u16) -> Read {
    let link = db.records[body].sim.siol.brief();
    let Ok(value) = db.get_link::<u32>(rec, link) else { return Read::Failed };
    let (common, r) = db.records.both(rec, body);
    if let Some(value) = value {
        r.sval = value;
    }
    common.udf = 0;
    if simm == 1 {
        r.val = r.sval as u16;
        return Read::Value;
    }
    r.rval = r.sval;
    Read::Raw
}

fn check_alarms(db: &mut Db, rec: RecId, body: Body<Mbbi>, before: base::Stamp) {
    let (common, r) = db.records.both(rec, body);
    if common.udf != 0 {
        let udfs = common.udfs;
        common.raise(Status::Udf, udfs);
        r.afvl = 0.0;
        return;
    }
    let mut severity = r.severities.get(usize::from(r.val)).copied().unwrap_or(r.unsv);
    if r.aftc > 0.0 {
        severity = deadband::filter_level(severity, r.aftc, &mut r.afvl, common.time, before);
    } else {
        r.afvl = 0.0;
    }
    common.raise(Status::State, severity);
    if r.val == r.lalm || common.raise(Status::Cos, r.cosv) {
        return;
    }
    r.lalm = r.val;
}

fn monitor(db: &mut Db, rec: RecId, body: Body<Mbbi>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let moved = [changed(&mut r.mlst, r.val), changed(&mut r.oraw, r.rval), false];
    post_raw(db, rec, alarm, moved);
}
