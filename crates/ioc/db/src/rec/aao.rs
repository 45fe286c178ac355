//! aao record.

use super::arrays::{array_memory, array_monitor, array_properties, hash_of, kind_of, mask, set};
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{Body, Mode, Properties, RecId, RecordType, Sim, init_sim, mode, no_device, simulation, stamp_output};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use base::{Array, FieldType, Value};

record! {
    /// Fields of an aao record.
    Aao {
        val: Array [VAL],
        prec: i16 [PREC],
        out: Link [OUT],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        nelm: u32 [NELM],
        ftvl: u16 [FTVL],
        nord: u32 [NORD],
        mpst: u16 [MPST],
        apst: u16 [APST],
        hash: u32 [HASH],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Aao {
    simulation!();

    /// Start: allocates the array and loads a constant DOL in closed loop.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        let kind = array_memory!(db, rec, body, nelm);
        let r = &mut db.records[body];
        // Soft Channel of C reads OUT before links are resolved and treats it as a constant.
        if r.nelm == 1 && device == Device::External {
            r.val = Array::zeros(kind, 1);
        }
        r.nord = r.val.len() as u32;
        init_sim(db, rec, body);
        let r = &mut db.records[body];
        if r.omsl == 1
            && let Some(values) = r.dol.elements(kind, r.nelm as usize)
        {
            r.nord = values.len() as u32;
            set(&mut r.val, values);
            db.records[rec].udf = 0;
        }
    }

    /// Fetches DOL, writes the output, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed {
            db.records[rec].udf = 0;
            let r = &db.records[body];
            if r.omsl == 1 && !r.dol.is_constant() {
                let (dol, kind, nelm) = (r.dol.brief(), kind_of(r.ftvl), r.nelm);
                match db.get_link_array(rec, dol, kind, nelm as usize) {
                    Ok(Some(values)) => {
                        let r = &mut db.records[body];
                        r.nord = values.len() as u32;
                        let spare = set(&mut r.val, values);
                        db.recycle_array(spare);
                    }
                    Ok(None) => {}
                    Err(_) => return ProcessResult::GivenUp,
                }
            }
            stamp_output(db, rec, body);
        }
        let link = match mode(db, rec, body, resumed, false) {
            Mode::Real => Some(db.records[body].out.brief()),
            Mode::Simulated(_) => Some(db.records[body].sim.siol.brief()),
            Mode::Delayed => return ProcessResult::Pending,
            Mode::Bad => None,
        };
        let failed = link.is_none();
        let r = &db.records[body];
        if link == Some(r.out.brief()) && db.device(rec) == Device::External {
            let output = Output { value: Value::Array(r.val.clone()), raw: 0, name: None, converted: false };
            if db.device_write(rec, resumed, output) {
                return ProcessResult::Pending;
            }
        } else if let Some(link) = link.filter(|link| link.kind != crate::model::link::LinkKind::Constant) {
            // The values are copied before the write, because the link may process other records, including this one.
            let mut values = db.lend_array(db.records[body].val.kind());
            crate::model::values::convert_into(&db.records[body].val, usize::MAX, 0, &mut values);
            // A failed write raises the alarm itself.
            let _ = db.put_link_array(rec, link, &values);
            db.recycle_array(values);
        }
        if resumed {
            stamp_output(db, rec, body);
        }
        monitor(db, rec, body);
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }

    array_properties!(NORD: |r: &Self, of: Properties| of.within(0.0, r.nelm.into()));

    array_memory!(nelm NELM u32);
}

array_monitor!(Aao);
