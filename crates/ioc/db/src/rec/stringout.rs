//! stringout record.

use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::{
    Body, RecId, RecordType, Sim, changed, drive_output, init_sim, no_device, output_mode, post_text, simulation,
    stamp_output,
};
use crate::run::device::support::Output;
use crate::run::device::{Device, Stream};
use crate::run::engine::{Db, ProcessResult};
use base::{Scalar, Str40, Value};

record! {
    /// The fields of a stringout record.
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

    /// At start: a constant DOL.
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

    /// Fetches, writes, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        let r = &db.records[body];
        if !resumed && r.omsl == 1 && !r.dol.is_constant() {
            let dol = r.dol.brief();
            // A failed read has raised its alarm.
            if let Ok(Some(val)) = db.get_link_text(rec, dol) {
                db.records[body].val = val;
                db.records[rec].udf = 0;
            }
        }
        let common = &mut db.records[rec];
        if common.udf == 1 {
            common.raise_undefined();
        }
        stamp_output(db, rec, body);
        let ivoa = db.records[body].ivoa;
        let ivov = |db: &mut Db| {
            let r = &mut db.records[body];
            r.val = r.ivov;
        };
        if drive_output(db, rec, resumed, ivoa, ivov, |db| write(db, rec, body, resumed)) {
            return ProcessResult::Pending;
        }
        let failed = db.pass.failed;
        monitor(db, rec, body);
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }
}

fn write(db: &mut Db, rec: RecId, body: Body<StringOut>, resumed: bool) -> bool {
    let simulated = match output_mode(db, rec, body, resumed, false) {
        Ok(simm) => simm != 0,
        Err(pending) => return pending,
    };
    let r = &db.records[body];
    if !simulated && db.device(rec) == Device::Stdio {
        let (stream, text) = (stream(r.out.text()), r.val.to_str().to_owned());
        db.outbox.output.push((stream, text));
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

/// The stream that `@stdout`, `@stderr` or `@errlog` names.
pub(crate) fn stream(address: &str) -> Stream {
    match address.trim_start_matches('@').trim() {
        "stderr" => Stream::Err,
        "errlog" => Stream::Log,
        _ => Stream::Out,
    }
}

fn monitor(db: &mut Db, rec: RecId, body: Body<StringOut>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let (moved, always) = (changed(&mut r.oval, r.val), [r.mpst, r.apst]);
    post_text(db, rec, alarm, moved, always);
}
