//! bi record.

use super::bits::bits_input;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Lazy, Text, record};
use crate::rec::common::Common;
use crate::rec::{
    Body, ReadOutcome, RecId, RecordType, Sim, States, cannot_read, changed, device_state, init_sim, no_state,
    post_raw, read_input, read_soft, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use base::{Stamp, Status};

record! {
    /// Fields of a bi record.
    Bi {
        inp: Link [INP],
        val: u16 [VAL],
        zsv: u16 [ZSV],
        osv: u16 [OSV],
        cosv: u16 [COSV],
        znam: Text<26> [ZNAM],
        onam: Text<26> [ONAM],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        mask: u32 [MASK],
        lalm: u16 [LALM],
        mlst: u16 [MLST],
        sval: u32 [SVAL],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

bits_input!(
    Bi, u16, u32, u16, true, read_state;

    fn states(&self) -> States<'_> {
        States::Pair(&self.znam, &self.onam)
    }
);

impl Bi {
    /// Result of a failed raw read through a link.
    const RAW_FAILED: ReadOutcome = ReadOutcome::Failed;

    fn set_mask(&mut self, _: Device) {}

    fn started(&mut self) {
        self.lalm = self.val;
    }

    fn convert(&mut self) {
        self.val = u16::from(self.rval != 0);
    }

    fn mask_raw(&mut self) {
        if self.mask != 0 {
            self.rval &= self.mask;
        }
    }

    fn simulated_raw(&self) -> u32 {
        u32::from(self.sval as u16)
    }
}

/// Takes a device value: whole numbers are raw, texts name a state, other values are state numbers.
fn device_value(db: &mut Db, rec: RecId, body: Body<Bi>, fed: &DeviceSample) -> ReadOutcome {
    let state = device_state(db, rec, fed);
    let r = &mut db.records[body];
    match (fed.raw(), state) {
        (Some(raw), _) => {
            r.rval = raw as u32;
            r.mask_raw();
            ReadOutcome::Raw
        }
        (None, Some(state)) => {
            r.val = state;
            ReadOutcome::Value
        }
        (None, None) => no_state(db, rec),
    }
}

/// Reads a database state (device support `Db State`).
fn read_state(db: &mut Db, rec: RecId, body: Body<Bi>) -> ReadOutcome {
    let (common, r) = db.records.both(rec, body);
    if common.device != Device::DbState || r.inp.brief().kind != LinkKind::Hardware {
        return cannot_read(db, rec);
    }
    let name = r.inp.text().trim_start_matches('@').to_owned();
    r.val = u16::from(*db.states.entry(name).or_insert(false));
    common.udf = 0;
    ReadOutcome::Value
}

fn check_alarms(common: &mut Common, r: &mut Bi, _: Stamp) {
    if common.udf == 1 {
        common.raise_undefined();
        return;
    }
    match r.val {
        0 => common.raise(Status::State, r.zsv),
        1 => common.raise(Status::State, r.osv),
        _ => return,
    };
    if r.val != r.lalm {
        common.raise(Status::Cos, r.cosv);
        r.lalm = r.val;
    }
}

fn monitor(db: &mut Db, rec: RecId, body: Body<Bi>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let moved = [changed(&mut r.mlst, r.val), changed(&mut r.oraw, r.rval), false];
    post_raw(db, rec, alarm, moved);
}
