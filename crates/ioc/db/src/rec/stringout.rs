//! stringout record.

use super::common::Common;
use super::texts::{TextOutput, printed, process_output};
use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::{Body, RecId, RecordType, Sim, changed, init_sim, output_mode, post_text, simulation};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use base::{Scalar, Str40, Value};

record! {
    /// Fields of a stringout record.
    StringOut {
        val: Str40 [VAL],
        oval: Str40 [OVAL],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        out: Link [OUT],
        mpst: u16 [MPST],
        apst: u16 [APST],
        ivoa: u16 [IVOA],
        ivov: Str40 [IVOV],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for StringOut {
    simulation!();

    /// Start: loads a constant DOL.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        if db.device(rec) == Device::Missing {
            return;
        }
        let (common, r) = db.records.both(rec, body);
        if let Some(val) = r.dol.short_text() {
            r.val = val;
            common.udf = 0;
        }
        r.oval = r.val;
    }

    /// Fetches DOL, writes the output, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        process_output(db, rec, body, resumed)
    }
}

impl TextOutput for StringOut {
    const STAMPED_FIRST: bool = true;

    fn fetch(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &db.records[body];
        if r.omsl == 1 && !r.dol.is_constant() {
            let dol = r.dol.brief();
            // A failed read raises the alarm itself.
            if let Ok(Some(val)) = db.get_link_text(rec, dol) {
                db.records[body].val = val;
                db.records[rec].udf = 0;
            }
        }
    }

    fn check_alarms(common: &mut Common) {
        if common.udf == 1 {
            common.raise_undefined();
        }
    }

    fn ivoa(&self) -> u16 {
        self.ivoa
    }

    fn set_ivov(&mut self) {
        self.val = self.ivov;
    }

    fn write(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> bool {
        write(db, rec, body, resumed)
    }

    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>) {
        monitor(db, rec, body);
    }
}

fn write(db: &mut Db, rec: RecId, body: Body<StringOut>, resumed: bool) -> bool {
    let simulated = match output_mode(db, rec, body, resumed, false) {
        Ok(simm) => simm != 0,
        Err(pending) => return pending,
    };
    let r = &db.records[body];
    if !simulated && db.device(rec) == Device::Stdio {
        let line = printed(r.out.text(), r.val.to_str().as_bytes());
        db.outbox.output.push(line);
        return false;
    }
    let link = if simulated { r.sim.siol.brief() } else { r.out.brief() };
    let value = Scalar::String(r.val);
    if !simulated && db.device(rec) == Device::External {
        let output = Output { value: Value::Scalar(value), raw: 0, name: None, converted: false };
        return db.device_write(rec, resumed, output);
    }
    db.write_out(rec, link, value, !simulated, resumed)
}

fn monitor(db: &mut Db, rec: RecId, body: Body<StringOut>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let (moved, always) = (changed(&mut r.oval, r.val), [r.mpst, r.apst]);
    post_text(db, rec, alarm, moved, always);
}
