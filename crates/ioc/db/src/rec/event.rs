//! event record.

use crate::model::link::Link;
use crate::model::slot::{Rarely, record};
use crate::rec::table::Bodies;
use crate::rec::{Mode, Sim, init_sim, mode, take_stamp};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use base::{EventMask, Str40};

record! {
    /// The fields of a event record.
    Event {
        val: Str40 [VAL],
        inp: Link [INP],
        sval: Str40 [SVAL],
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

fn sim(bodies: &mut Bodies, body: usize) -> &mut Rarely<Sim> {
    &mut bodies.event[body].sim
}

/// At start: constants.
pub(crate) fn init(db: &mut Db, rec: u32, body: usize) {
    init_sim(db, rec, body, sim);
    let device = db.device(rec);
    let r = &mut db.bodies.event[body];
    if let Some(sval) = r.sim.siol.short_text() {
        r.sval = sval;
    }
    if device == Device::Soft
        && let Some(val) = r.inp.short_text()
    {
        r.val = val;
        db.common[rec as usize].udf = 0;
    }
}

/// Reads the name of the event and posts it.
pub(crate) fn process(db: &mut Db, rec: u32, body: usize, resumed: bool) -> Outcome {
    let mut failed = false;
    match mode(db, rec, body, resumed, false, sim) {
        Mode::Real => {
            let link = db.bodies.event[body].inp.brief();
            if db.device(rec) == Device::Soft {
                let read = db.get_link_text(rec, link);
                failed = read.is_err();
                if let Ok(Some(name)) = read {
                    db.bodies.event[body].val = name;
                    db.common[rec as usize].udf = 0;
                    take_stamp(db, rec, link);
                }
            }
        }
        Mode::Simulated(_) => {
            let link = db.bodies.event[body].sim.siol.brief();
            let read = db.get_link_text(rec, link);
            failed = read.is_err();
            if let Ok(name) = read {
                let r = &mut db.bodies.event[body];
                if let Some(name) = name {
                    r.sval = name;
                }
                r.val = r.sval;
                db.common[rec as usize].udf = 0;
            }
        }
        Mode::Delayed => return Outcome::Pending,
        Mode::Bad => failed = true,
    }
    let name = db.bodies.event[body].val;
    db.post_event_bytes(name.bytes());
    let (simm, siol) = (db.bodies.event[body].sim.simm, db.bodies.event[body].sim.siol.brief());
    db.stamp_simulated(rec, simm, Some(siol));
    let mask = db.reset_alarms(rec);
    db.post_value(rec, mask | EventMask::VALUE);
    if failed { Outcome::Failed } else { Outcome::Done }
}
