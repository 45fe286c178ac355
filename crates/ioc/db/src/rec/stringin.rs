//! stringin record.

use super::texts::{TextInput, process_input};
use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::{
    Body, ReadOutcome, RecId, RecordType, Sim, cannot_read, changed, environment, init_sim, post_text, read_simulated,
    simulation, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use base::{Status, Str40};

record! {
    /// Fields of a stringin record.
    StringIn {
        val: Str40 [VAL],
        oval: Str40 [OVAL],
        inp: Link [INP],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sval: Str40 [SVAL],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for StringIn {
    simulation!();

    /// Start: loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        let device = db.device(rec);
        let (common, r) = db.records.both(rec, body);
        if let Some(sval) = r.sim.siol.short_text() {
            r.sval = sval;
        }
        if device == Device::Missing {
            return;
        }
        if matches!(device, Device::Soft | Device::SoftAsync)
            && let Some(val) = r.inp.short_text()
        {
            r.val = val;
            common.udf = 0;
        }
        r.oval = r.val;
    }

    /// Reads the input, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        process_input(db, rec, body, resumed)
    }
}

impl TextInput for StringIn {
    fn read(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ReadOutcome {
        read(db, rec, body, resumed)
    }

    fn simulated(db: &mut Db, rec: RecId, body: Body<Self>) -> ReadOutcome {
        read_simulated(db, rec, body, Db::get_link_text, |db, value| {
            let r = &mut db.records[body];
            r.sval = value.unwrap_or(r.sval);
            r.val = r.sval;
            ReadOutcome::Value
        })
    }

    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>) {
        let alarm = db.reset_alarms(rec);
        let r = &mut db.records[body];
        let (moved, always) = (changed(&mut r.oval, r.val), [r.mpst, r.apst]);
        post_text(db, rec, alarm, moved, always);
    }
}

fn read(db: &mut Db, rec: RecId, body: Body<StringIn>, resumed: bool) -> ReadOutcome {
    let link = db.records[body].inp.brief();
    match db.device(rec) {
        Device::Soft => match db.get_link_text(rec, link) {
            Ok(value) => {
                if let Some(value) = value {
                    db.records[body].val = value;
                    db.records[rec].udf = 0;
                }
                take_stamp(db, rec, link);
                ReadOutcome::Value
            }
            Err(_) => ReadOutcome::Failed,
        },
        Device::SoftAsync => match db.async_get_text(rec, link, resumed) {
            ReadResult::Constant | ReadResult::Failed => ReadOutcome::Value,
            ReadResult::Pending => ReadOutcome::Pending,
            ReadResult::Value(value) => {
                db.records[body].val = value;
                db.records[rec].udf = 0;
                take_stamp(db, rec, link);
                ReadOutcome::Value
            }
        },
        Device::External => match db.device_read(rec, resumed) {
            ReadResult::Pending => ReadOutcome::Pending,
            ReadResult::Value(fed) => match fed.text() {
                Some(text) => {
                    db.records[body].val = text;
                    ReadOutcome::Value
                }
                None => ReadOutcome::Failed,
            },
            ReadResult::Constant | ReadResult::Failed => ReadOutcome::Failed,
        },
        Device::SoftTimestamp => {
            db.stamp_now(rec);
            let mut text = [0; 39];
            let format = db.records[body].inp.text().trim_start_matches('@');
            // As in C, an empty format writes nothing.
            if !format.is_empty() {
                let length = crate::text::local::write(db.records[rec].time, format, &mut text, db.time.local);
                db.records[body].val = Str40::new(&text[..length]);
            }
            db.records[rec].udf = 0;
            ReadOutcome::Value
        }
        Device::GeneralTime => {
            // Names of the best time and event providers. There are no event providers. The provider with the highest
            // priority is the best one.
            let known = !db.records[body].inp.text().contains("BESTTEP");
            db.records[body].val = Str40::from(if known { "OS Clock" } else { "No working providers" });
            db.records[rec].udf = 0;
            if !known {
                db.records[rec].raise(Status::Read, 2);
            }
            ReadOutcome::Value
        }
        Device::Getenv => {
            let (common, r) = db.records.both(rec, body);
            r.val = Str40::from(environment(&db.environment, common, r.inp.text()));
            ReadOutcome::Value
        }
        _ => cannot_read(db, rec),
    }
}
