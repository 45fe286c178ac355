//! mbbi record.

use super::bits::bits_input;
use crate::model::deadband;
use crate::model::link::Link;
use crate::model::slot::{Lazy, Text, record};
use crate::rec::common::Common;
use crate::rec::{
    Body, ReadOutcome, RecId, RecordType, Sim, States, any_state, cannot_read, changed, device_mask, device_state,
    init_sim, mask_of, no_state, post_raw, read_input, read_soft, state_written, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{Stamp, Status};

record! {
    /// Fields of an mbbi record.
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
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

bits_input!(
    Mbbi, u16, i32, u16, false, |db, rec, _| cannot_read(db, rec);

    /// Called after a write to a state's value or name.
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
);

impl Mbbi {
    /// Result of a failed raw read through a link.
    const RAW_FAILED: ReadOutcome = ReadOutcome::Failed;

    fn set_mask(&mut self, device: Device) {
        self.mask = device_mask(device, mask_of(self.mask, self.nobt), self.nobt == 0, self.shft);
    }

    fn started(&mut self) {
        self.sdef = any_state(&self.values, &self.names);
        self.lalm = self.val;
    }

    fn convert(&mut self) {
        self.val = self.state_of(self.rval);
    }

    fn mask_raw(&mut self) {
        self.rval &= self.mask;
    }

    const fn simulated_raw(&self) -> u32 {
        self.sval
    }

    /// State for a raw value.
    fn state_of(&self, raw: u32) -> u16 {
        let raw = if self.shft > 0 { raw.wrapping_shr(u32::from(self.shft)) } else { raw };
        if self.sdef == 0 {
            return raw as u16;
        }
        self.values.iter().position(|value| *value == raw).map_or(u16::MAX, |state| state as u16)
    }
}

/// Takes a device value: whole numbers are raw, texts name a state, other values are state numbers.
fn device_value(db: &mut Db, rec: RecId, body: Body<Mbbi>, fed: &DeviceSample) -> ReadOutcome {
    let state = device_state(db, rec, fed);
    let r = &mut db.records[body];
    match (fed.raw(), state) {
        // If states have names but no values, the number is the state.
        (Some(raw), _) if r.sdef != 0 && r.values.iter().all(|value| *value == 0) => {
            let raw = if r.mask == 0 { raw as u32 } else { raw as u32 & r.mask };
            r.val = raw.wrapping_shr(u32::from(r.shft)) as u16;
            ReadOutcome::Value
        }
        (Some(raw), _) => {
            // Without NOBT there is no mask, and all bits are used.
            r.rval = if r.mask == 0 { raw as u32 } else { raw as u32 & r.mask };
            ReadOutcome::Raw
        }
        (None, Some(state)) => {
            r.val = state;
            ReadOutcome::Value
        }
        (None, None) => no_state(db, rec),
    }
}

fn check_alarms(common: &mut Common, r: &mut Mbbi, before: Stamp) {
    if common.udf != 0 {
        common.raise_undefined();
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
