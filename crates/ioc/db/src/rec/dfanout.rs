//! dfanout record.

use super::inputs::ones;
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, record};
use crate::rec::{Body, Drive, Properties, RecId, RecordType, check_limits, deadbands, drive, number_properties};
use crate::run::engine::{Db, ProcessResult};
use base::{FieldType, Scalar, Status};

record! {
    /// Fields of a dfanout record.
    DFanout {
        val: f64 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        out: [Link; 16] [OUTA OUTB OUTC OUTD OUTE OUTF OUTG OUTH OUTI OUTJ OUTK OUTL OUTM OUTN OUTO OUTP],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    }
}

impl RecordType for DFanout {
    /// Start: loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        if let Some(seln) = r.sell.number() {
            r.seln = seln;
        }
        if let Some(val) = r.dol.number::<f64>() {
            r.val = val;
            db.records[rec].udf = u8::from(val.is_nan());
        }
    }

    /// Fetches DOL, checks alarm limits, writes the outputs, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        let r = &db.records[body];
        if r.omsl == 1 && !r.dol.is_constant() {
            let dol = r.dol.brief();
            // A failed read raises the alarm itself.
            if let Ok(Some(val)) = db.get_link::<f64>(rec, dol) {
                db.records[body].val = val;
                db.records[rec].udf = u8::from(val.is_nan());
            }
        }
        db.stamp_now(rec);
        let sell = db.records[body].sell.brief();
        if let Ok(Some(seln)) = db.get_link::<u16>(rec, sell) {
            db.records[body].seln = seln;
        }
        let (common, r) = db.records.both(rec, body);
        check_limits!(*common, r);
        let ivoa = r.ivoa;
        match drive(db, rec, ivoa) {
            Drive::Normally => push(db, rec, body),
            Drive::Not => {}
            Drive::Ivov => {
                let r = &mut db.records[body];
                r.val = r.ivov;
                push(db, rec, body);
            }
        }
        let alarm = db.reset_alarms(rec);
        let r = &mut db.records[body];
        let mask = alarm | deadbands!(r);
        if !mask.is_empty() {
            db.post_value(rec, mask);
        }
        ProcessResult::Done
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let of = number_properties!(self, field, kind).digits(self.prec, field == Self::VAL);
        let is_limit = matches!(field, Self::HIHI | Self::HIGH | Self::LOW | Self::LOLO);
        Properties { control: of.control.filter(|_| !is_limit), ..of }
    }
}

const LINKS: usize = 16;

/// Writes VAL to the selected outputs.
fn push(db: &mut Db, rec: RecId, body: Body<DFanout>) {
    let r = &db.records[body];
    let bits: u32 = match r.selm {
        0 => u32::from(u16::MAX),
        1 if usize::from(r.seln) > LINKS => {
            db.records[rec].raise(Status::Soft, 3);
            0
        }
        1 => 1u32.checked_shl(u32::from(r.seln)).unwrap_or(0) >> 1,
        2 => u32::from(r.seln),
        _ => {
            db.records[rec].raise(Status::Soft, 3);
            0
        }
    };
    let value = Scalar::F64(db.records[body].val);
    for index in ones(bits) {
        let link = db.records[body].out[index].brief();
        if db.put_link(rec, link, value).is_err() {
            db.records[rec].raise(Status::Link, 2);
        }
    }
}
