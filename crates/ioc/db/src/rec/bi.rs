//! bi record.

use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Rarely, Text, record};
use crate::rec::States;
use crate::rec::{Body, RecId, RecordType};
use crate::rec::{Read, Sim, changed, device_state, init_sim, no_state, post_raw, read_input, read_soft, take_stamp};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use crate::run::notify::Got;
use crate::run::scan::Fed;
use base::Status;

record! {
    /// The fields of a bi record.
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
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Bi {
    fn sim(&mut self) -> Option<&mut Rarely<Sim>> {
        Some(&mut self.sim)
    }

    /// At start: constants and last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        let device = db.device(rec);
        let (common, r) = db.records.both(rec, body);
        if let Some(sval) = r.sim.siol.number::<u16>() {
            r.sval = u32::from(sval);
        }
        match device {
            Device::Missing => return,
            Device::SoftRaw => {
                if let Some(rval) = r.inp.number() {
                    r.rval = rval;
                }
            }
            Device::Soft | Device::SoftAsync => {
                if let Some(val) = r.inp.number() {
                    r.val = val;
                    common.udf = 0;
                }
            }
            _ => {}
        }
        r.mlst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
    }

    /// Reads, checks, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> Outcome {
        let read = |db: &mut Db| read(db, rec, body, resumed);
        let simulated = |db: &mut Db, simm| simulated(db, rec, body, simm);
        let read = match read_input(db, rec, body, resumed, true, read, simulated) {
            Ok(read) => read,
            Err(outcome) => return outcome,
        };
        let r = &mut db.records[body];
        if read == Read::Raw {
            r.val = u16::from(r.rval != 0);
            db.records[rec].udf = 0;
        }
        check_alarms(db, rec, body);
        monitor(db, rec, body);
        read.outcome()
    }

    fn states(&self) -> States<'_> {
        States::Pair(&self.znam, &self.onam)
    }
}

/// What a device said: whole numbers are raw, texts name a state, others are the state's number.
fn device_value(db: &mut Db, rec: RecId, body: Body<Bi>, fed: &Fed) -> Read {
    let state = device_state(db, rec, fed);
    let r = &mut db.records[body];
    match (fed.raw(), state) {
        (Some(raw), _) => {
            r.rval = raw as u32;
            if r.mask != 0 {
                r.rval &= r.mask;
            }
            Read::Raw
        }
        (None, Some(state)) => {
            r.val = state;
            Read::Value
        }
        (None, None) => no_state(db, rec),
    }
}

fn read(db: &mut Db, rec: RecId, body: Body<Bi>, resumed: bool) -> Read {
    let link = db.records[body].inp.brief();
    match db.device(rec) {
        Device::Soft | Device::SoftAsync => {
            read_soft(db, rec, link, resumed, |bodies, value: u16| bodies[body].val = value)
        }
        Device::SoftRaw => match db.get_link::<u32>(rec, link) {
            Ok(value) => {
                let r = &mut db.records[body];
                if let Some(value) = value {
                    r.rval = value;
                }
                if r.mask != 0 {
                    r.rval &= r.mask;
                }
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
        Device::DbState if link.kind == LinkKind::Hardware => {
            let name = db.records[body].inp.text().trim_start_matches('@').to_owned();
            let on = *db.states.entry(name).or_insert(false);
            db.records[body].val = u16::from(on);
            db.records[rec].udf = 0;
            Read::Value
        }
        _ => {
            db.records[rec].broken = true;
            Read::Failed
        }
    }
}

fn simulated(db: &mut Db, rec: RecId, body: Body<Bi>, simm: u16) -> Read {
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
    r.rval = u32::from(r.sval as u16);
    Read::Raw
}

fn check_alarms(db: &mut Db, rec: RecId, body: Body<Bi>) {
    let (common, r) = db.records.both(rec, body);
    if common.udf == 1 {
        let udfs = common.udfs;
        common.raise(Status::Udf, udfs);
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
