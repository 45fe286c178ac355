//! lsi record.

use super::texts::{TextInput, get_link_long, long_text, process_input, with_nul};
use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::model::values::text;
use crate::rec::{
    Body, ReadOutcome, RecId, RecordType, Sim, cannot_read, environment, init_sim, read_simulated, simulation,
    take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::link::LinkError;
use crate::run::notify::ReadResult;
use base::Str40;
use base::{Array, EventMask, FieldType, Scalar};

record! {
    /// Fields of an lsi record.
    Lsi {
        val: Array [VAL],
        oval: Array [OVAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        olen: u32 [OLEN],
        inp: Link [INP],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Lsi {
    simulation!();

    /// Start: allocates the texts and loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        db.records[body].reserve();
        init_sim(db, rec, body);
        let r = &mut db.records[body];
        if device == Device::Soft
            && let Some(text) = r.inp.long_text()
        {
            r.begin_with(&text);
            db.records[rec].udf = 0;
        }
    }

    /// Reads the input, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        process_input(db, rec, body, resumed)
    }

    long_text!();
}

impl TextInput for Lsi {
    fn read(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ReadOutcome {
        let size = db.records[body].sizv;
        let read = match db.device(rec) {
            Device::Soft => {
                let link = db.records[body].inp.brief();
                let read = get_link_long(db, rec, link, size);
                if read.is_ok() {
                    take_stamp(db, rec, link);
                }
                read
            }
            Device::Getenv => {
                let (common, r) = db.records.both(rec, body);
                let value = environment(&db.environment, common, r.inp.text());
                Ok(Some(with_nul(value.as_bytes(), size)))
            }
            Device::External => match db.device_read(rec, resumed) {
                ReadResult::Pending => return ReadOutcome::Pending,
                ReadResult::Value(fed) => fed.bytes().map(|bytes| Some(with_nul(text(&bytes), size))).ok_or(LinkError),
                ReadResult::Constant | ReadResult::Failed => Err(LinkError),
            },
            _ => return cannot_read(db, rec),
        };
        let Ok(read) = read else { return ReadOutcome::Failed };
        take(db, body, read)
    }

    fn simulated(db: &mut Db, rec: RecId, body: Body<Self>) -> ReadOutcome {
        let size = db.records[body].sizv;
        let get = |db: &mut Db, rec, link| get_link_long(db, rec, link, size);
        read_simulated(db, rec, body, get, |db, val| take(db, body, val))
    }

    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>) {
        monitor(db, rec, body);
    }
}

fn take(db: &mut Db, body: Body<Lsi>, val: Option<Array>) -> ReadOutcome {
    if let Some(val) = val {
        set(db, body, val);
    }
    ReadOutcome::Value
}

long_text!(Lsi);
