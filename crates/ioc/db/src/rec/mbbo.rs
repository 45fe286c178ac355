//! mbbo record.

use super::bits::{bits_output, fetch_bits};
use crate::model::link::Link;
use crate::model::slot::{Lazy, Text, record};
use crate::rec::common::Common;
use crate::rec::message::Message;
use crate::rec::{
    Body, RecId, RecordType, STATES, Sim, States, any_state, changed, device_mask, drive_stamped, init_sim, mask_of,
    no_device, output_mode, post_raw, stamp_output, state_written,
};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{Scalar, Status, Str40, Value};

record! {
    /// Fields of an mbbo record.
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
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

bits_output!(
    Mbbo, |_, _, _| false, |_: &Self, failed| if failed { ProcessResult::Failed } else { ProcessResult::Done };

    const LOOSE_STATES: bool = true;

    const HIDES_FAILED_WRITE: bool = true;

    /// Start: loads a constant DOL, sets the mask, the raw value and the last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.sdef = any_state(&r.values, &r.names);
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        init_sim(db, rec, body);
        let (common, r) = db.records.both(rec, body);
        if let Some(val) = r.dol.number() {
            r.val = val;
            common.udf = 0;
        }
        r.mask = device_mask(device, mask_of(r.mask, r.nobt), r.nobt == 0, r.shft);
        convert(db, rec, body);
        let r = &mut db.records[body];
        r.mlst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
        r.orbv = r.rbv;
    }

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

    /// Sets the other fields after VAL was set to the device's value.
    fn begin(db: &mut Db, rec: RecId, body: Body<Self>) {
        if usize::from(db.records[body].val) < STATES {
            convert(db, rec, body);
        }
        let r = &mut db.records[body];
        r.mlst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
    }

    /// State for a raw device value; 65535 if there is none.
    fn from_device(db: &mut Db, _: RecId, body: Body<Self>, fed: &DeviceSample) -> Option<Scalar> {
        let raw = fed.raw()? as u32;
        let r = &db.records[body];
        let raw = r.masked(raw).wrapping_shr(u32::from(r.shft));
        let state = if r.has_values() { None } else { Some(raw as u16) };
        let known = || r.values.iter().position(|value| *value == raw).map(|state| state as u16);
        Some(Scalar::Enum(state.or_else(known).unwrap_or(u16::MAX)))
    }

    fn states(&self) -> States<'_> {
        States::Many(&self.names)
    }

    fn is_plain_number(&self) -> bool {
        self.sdef == 0
    }
);

impl Mbbo {
    /// Whether any state has a value other than 0. If none has, devices use state numbers.
    fn has_values(&self) -> bool {
        self.sdef != 0 && self.values.iter().any(|value| *value != 0)
    }

    fn value(&self, raw: bool, real: bool) -> Scalar {
        match (raw, real) {
            (true, true) => Scalar::U32(self.rval & self.mask),
            (true, false) => Scalar::U32(self.rval),
            (false, _) => Scalar::U16(self.val),
        }
    }

    /// Values for the device: RVAL if states have values, otherwise the state number; and the state name.
    fn for_device(&self) -> (u32, Option<Str40>) {
        let own = u32::from(self.val).wrapping_shl(u32::from(self.shft));
        let raw = if self.has_values() { self.rval } else { own };
        let name = self.names.get(usize::from(self.val)).map(|name| Str40::new(name.bytes()));
        (self.masked(raw), name)
    }
}

/// Computes the raw value from VAL.
fn convert(db: &mut Db, rec: RecId, body: Body<Mbbo>) {
    let r = &mut db.records[body];
    if r.sdef != 0 {
        let Some(raw) = r.values.get(usize::from(r.val)) else {
            db.records[rec].raise(Status::Soft, 3);
            return;
        };
        r.rval = *raw;
    } else {
        r.rval = u32::from(r.val);
    }
    if r.shft > 0 {
        r.rval = r.rval.wrapping_shl(u32::from(r.shft));
    }
}

/// Fetches the desired value. Returns whether there is one.
fn fetch(db: &mut Db, rec: RecId, body: Body<Mbbo>) -> bool {
    let r = &db.records[body];
    let dol = (r.omsl == 1 && !r.dol.is_constant()).then(|| r.dol.brief());
    fetch_bits(db, rec, dol, Message::NONE, |bodies, val: u16| bodies[body].val = val)
}

fn written(_: &mut Db, _: RecId, _: Body<Mbbo>) {}

fn check_alarms(common: &mut Common, r: &mut Mbbo) {
    common.raise(Status::State, r.severities.get(usize::from(r.val)).copied().unwrap_or(r.unsv));
    if r.val == r.lalm || common.raise(Status::Cos, r.cosv) {
        return;
    }
    r.lalm = r.val;
}

fn monitor(db: &mut Db, rec: RecId, body: Body<Mbbo>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let moved = [changed(&mut r.mlst, r.val), changed(&mut r.oraw, r.rval), changed(&mut r.orbv, r.rbv)];
    post_raw(db, rec, alarm, moved);
}
