//! lso record.

use super::lsi::{get_link_long, long_text_monitor, text, with_nul};
use super::stringin::ALWAYS;
use crate::model::link::Link;
use crate::model::slot::{Rarely, Text, record};
use crate::rec::{Body, RecId, RecordType};
use crate::rec::{Mode, Sim, drive_output, init_sim, mode, no_device, stamp_output};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, Outcome};
use base::FieldType;
use base::Scalar;
use base::Str40;
use base::{Array, EventMask, Status, Value};

record! {
    /// The fields of a lso record.
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
        sim: Rarely<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Lso {
    const LONG_TEXTS: &'static [u16] = &[Self::VAL, Self::OVAL];

    fn sim(&mut self) -> Option<&mut Rarely<Sim>> {
        Some(&mut self.sim)
    }

    /// At start: memory, a constant DOL.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        let r = &mut db.records[body];
        r.sizv = r.sizv.clamp(16, 0x7fff);
        r.val = Array::U8(Vec::with_capacity(usize::from(r.sizv)));
        r.oval = Array::U8(Vec::with_capacity(usize::from(r.sizv)));
        init_sim(db, rec, body);
        let r = &mut db.records[body];
        if device != Device::Missing
            && let Some(text) = r.dol.long_text()
        {
            r.val = with_nul(text.as_bytes(), r.sizv);
            r.len = r.val.len() as u32;
            r.oval.clone_from(&r.val);
            r.olen = r.len;
            db.records[rec].udf = 0;
        }
    }

    /// Fetches, writes, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> Outcome {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed && db.records[body].omsl == 1 {
            let (dol, size) = (db.records[body].dol.brief(), db.records[body].sizv);
            if let Ok(found) = get_link_long(db, rec, dol, size) {
                if let Some(val) = found {
                    let r = &mut db.records[body];
                    r.len = val.len() as u32;
                    let spare = super::arrays::set(&mut r.val, val, 0);
                    db.recycle_array(spare);
                }
                db.records[rec].udf = 0;
            }
        }
        if db.records[rec].udf != 0 {
            db.records[rec].raise(Status::Udf, 3);
        }
        let ivoa = db.records[body].ivoa;
        let ivov = |db: &mut Db| {
            let r = &mut db.records[body];
            r.val = with_nul(r.ivov.bytes(), r.sizv);
            r.len = r.val.len() as u32;
        };
        if drive_output(db, rec, resumed, ivoa, ivov, |db| write(db, rec, body, resumed)) {
            return Outcome::Pending;
        }
        let failed = db.pass.failed;
        stamp_output(db, rec, body);
        monitor(db, rec, body);
        if failed { Outcome::Failed } else { Outcome::Done }
    }

    fn shape(&self, _: u16) -> (u32, FieldType) {
        (u32::from(self.sizv), FieldType::F64)
    }

    /// C's links see that of a text that was never written, too.
    fn in_memory(&self, field: u16) -> Option<Scalar> {
        let text = match field {
            Self::VAL => &self.val,
            Self::OVAL => &self.oval,
            _ => return None,
        };
        let Array::U8(bytes) = text else { return None };
        Some(Scalar::String(Str40::new(bytes)))
    }

    fn long_text_written(&mut self) {
        self.len = self.val.len() as u32;
    }
}

fn write(db: &mut Db, rec: RecId, body: Body<Lso>, resumed: bool) -> bool {
    let simulated = match mode(db, rec, body, resumed, false) {
        Mode::Real => false,
        Mode::Simulated(_) => true,
        Mode::Delayed => return true,
        Mode::Bad => return false,
    };
    let r = &db.records[body];
    if !simulated && db.device(rec) == Device::Stdio {
        let bytes = match &r.val {
            Array::U8(bytes) => text(bytes),
            _ => b"",
        };
        let (stream, text) = (super::stringout::stream(r.out.text()), String::from_utf8_lossy(bytes).into_owned());
        db.outbox.output.push((stream, text));
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

long_text_monitor!(Lso);
