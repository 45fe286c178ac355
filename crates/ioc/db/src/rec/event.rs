//! event record.

use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::{
    Body, Mode, ReadOutcome, RecId, RecordType, Sim, init_sim, mode, read_simulated, simulation, stamp_input,
    take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, Str40};

record! {
    /// Fields of an event record.
    Event {
        val: Str40 [VAL],
        inp: Link [INP],
        sval: Str40 [SVAL],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Event {
    simulation!();

    /// Start: loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        let device = db.device(rec);
        let r = &mut db.records[body];
        if let Some(sval) = r.sim.siol.short_text() {
            r.sval = sval;
        }
        if device == Device::Soft
            && let Some(val) = r.inp.short_text()
        {
            r.val = val;
            db.records[rec].udf = 0;
        }
    }

    /// Reads the name of the event and posts it.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let mut failed = false;
        match mode(db, rec, body, resumed, false) {
            Mode::Real => {
                let link = db.records[body].inp.brief();
                if db.device(rec) == Device::Soft {
                    let read = db.get_link_text(rec, link);
                    failed = read.is_err();
                    if let Ok(Some(name)) = read {
                        db.records[body].val = name;
                        db.records[rec].udf = 0;
                        take_stamp(db, rec, link);
                    }
                }
            }
            Mode::Simulated(_) => {
                let read = read_simulated(db, rec, body, Db::get_link_text, |db, name| {
                    let r = &mut db.records[body];
                    r.sval = name.unwrap_or(r.sval);
                    r.val = r.sval;
                    ReadOutcome::Value
                });
                failed = read == ReadOutcome::Failed;
            }
            Mode::Delayed => return ProcessResult::Pending,
            Mode::Bad => failed = true,
        }
        let name = db.records[body].val;
        db.post_event_bytes(name.bytes());
        stamp_input(db, rec, body);
        let mask = db.reset_alarms(rec);
        db.post_value(rec, mask | EventMask::VALUE);
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }
}
