//! lso record.

use super::common::Common;
use super::texts::{TextOutput, get_link_long, long_text, printed, process_output, with_nul};
use crate::model::link::Link;
use crate::model::slot::{Lazy, Text, record};
use crate::model::values::text;
use crate::rec::{Body, RecId, RecordType, Sim, init_sim, output_mode, simulation};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use base::Str40;
use base::{Array, EventMask, FieldType, Scalar, Status, Value};

record! {
    /// Fields of an lso record.
    Lso {
        val: Array [VAL],
        oval: Array [OVAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        olen: u32 [OLEN],
        dol: Link [DOL],
        ivoa: u16 [IVOA],
        ivov: Text<40> [IVOV],
        omsl: u16 [OMSL],
        out: Link [OUT],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Lso {
    simulation!();

    /// Start: allocates the texts and loads a constant DOL.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        db.records[body].reserve();
        init_sim(db, rec, body);
        let r = &mut db.records[body];
        if device != Device::Missing
            && let Some(text) = r.dol.long_text()
        {
            r.begin_with(&text);
            db.records[rec].udf = 0;
        }
    }

    /// Fetches DOL, writes the output, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        process_output(db, rec, body, resumed)
    }

    long_text!();
}

impl TextOutput for Lso {
    fn fetch(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &db.records[body];
        if r.omsl != 1 {
            return;
        }
        let (dol, size) = (r.dol.brief(), r.sizv);
        if let Ok(found) = get_link_long(db, rec, dol, size) {
            if let Some(val) = found {
                set(db, body, val);
            }
            db.records[rec].udf = 0;
        }
    }

    fn check_alarms(common: &mut Common) {
        if common.udf != 0 {
            common.raise(Status::Udf, 3);
        }
    }

    fn ivoa(&self) -> u16 {
        self.ivoa
    }

    fn set_ivov(&mut self) {
        self.val = with_nul(self.ivov.bytes(), self.sizv);
        self.len = self.val.len() as u32;
    }

    fn write(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> bool {
        write(db, rec, body, resumed)
    }

    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>) {
        monitor(db, rec, body);
    }
}

fn write(db: &mut Db, rec: RecId, body: Body<Lso>, resumed: bool) -> bool {
    let simulated = match output_mode(db, rec, body, resumed, false) {
        Ok(simm) => simm != 0,
        Err(pending) => return pending,
    };
    let r = &db.records[body];
    if !simulated && db.device(rec) == Device::Stdio {
        let bytes = match &r.val {
            Array::U8(bytes) => text(bytes),
            _ => b"",
        };
        let line = printed(r.out.text(), bytes);
        db.outbox.output.push(line);
        return false;
    }
    if !simulated && db.device(rec) == Device::External {
        let output = Output { value: Value::Array(r.val.clone()), raw: 0, name: None, converted: false };
        return db.device_write(rec, resumed, output);
    }
    let link = if simulated { r.sim.siol.brief() } else { r.out.brief() };
    if db.out_has_ended(rec, link, !simulated, resumed) {
        return false;
    }
    let mut value = db.lend_array(FieldType::U8);
    crate::model::values::convert_into(&db.records[body].val, usize::MAX, 0, &mut value);
    db.pass.failed = db.put_link_long(rec, link, &value).is_err();
    db.recycle_array(value);
    db.out_is_pending(rec, link, !simulated)
}

long_text!(Lso);
