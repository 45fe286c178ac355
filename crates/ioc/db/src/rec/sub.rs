//! sub record.

use super::inputs::{constants, input_of, inputs, post_inputs, post_val, read_one};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{AnyText, Inline, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, Records, check_limits, number_properties};
use crate::run::engine::{Db, ProcessResult};
use crate::run::function::{ARGUMENTS, Call, Function, RecordFields, SubCall, Turn};
use crate::text::error::PutError;
use base::{FieldType, Status, Str40};

record! {
    /// Fields of a sub record.
    Sub {
        val: f64 [VAL],
        inam: Text<40> [INAM],
        snam: Text<40> [SNAM],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        prec: i16 [PREC],
        brsv: u16 [BRSV],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        la: [f64; 21] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP LQ LR LS LT LU],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    } private {
        function: u32,
        user: u64,
        // Serial number of the call that ends later; 0 if there is none.
        waiting: u64,
    }
}

inputs!(Sub);

impl RecordType for Sub {
    /// Start: loads constants, finds the functions.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        constants(&r.inp, &mut r.a);
        if !r.inam.bytes().is_empty() {
            let number = db.functions.sub(r.inam.bytes());
            if number == 0 {
                let (inam, snam) = (r.inam.bytes().to_vec(), r.snam.bytes().to_vec());
                db.no_function(rec, "INAM", &inam);
                // As in C, the record gets no function. Both names are reported, so that one plug-in can have both.
                if !snam.is_empty() && db.functions.sub(&snam) == 0 {
                    db.no_function(rec, "SNAM", &snam);
                }
                return;
            }
            call(db, rec, body, number, Turn::Initial);
            db.records[body].waiting = 0;
        }
        if find(db, rec, body).is_err() || db.records[rec].pact != 0 {
            return;
        }
        let r = &mut db.records[body];
        (r.mlst, r.alst, r.lalm) = (r.val, r.val, r.val);
    }

    /// Reads the inputs, calls the function, checks alarm limits, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let mut failed = !resumed && (0..ARGUMENTS).any(|index| read_one(db, rec, body, index).is_err());
        if !failed {
            let number = db.records[body].function;
            if number == 0 {
                db.records[rec].raise(Status::BadSub, 3);
            } else {
                let Some(result) = call(db, rec, body, number, Turn::of(resumed)) else {
                    return ProcessResult::Pending;
                };
                failed = result < 0;
                let (common, r) = db.records.both(rec, body);
                if failed {
                    common.raise(Status::Soft, r.brsv);
                } else {
                    common.udf = u8::from(r.val.is_nan());
                }
            }
        }
        db.stamp_now(rec);
        let (common, r) = db.records.both(rec, body);
        check_limits!(*common, r);
        let mask = post_val(db, rec, body);
        post_inputs(db, rec, body, mask, false);
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }

    /// Called before and after a write to SNAM.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, _: u16, after: bool) -> Result<(), PutError> {
        if after {
            return find(db, rec, body);
        }
        if db.records[body].snam.bytes().is_empty() {
            let common = &mut db.records[rec];
            common.pact = 0;
            common.rpro = 0;
        }
        Ok(())
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        match input_of(field, [Self::A, Self::LA]) {
            Some(input) => Properties::of_link(&self.inp[input]).digits(self.prec, true),
            None => number_properties!(self, field, kind).digits(self.prec, field == Self::VAL),
        }
    }

    fn waiting(&mut self) -> Option<&mut u64> {
        Some(&mut self.waiting)
    }
}

/// Finds the function named by SNAM. A record without a name stays active.
fn find(db: &mut Db, rec: RecId, body: Body<Sub>) -> Result<(), PutError> {
    let r = &mut db.records[body];
    r.function = db.functions.sub(r.snam.bytes());
    if r.snam.bytes().is_empty() {
        db.records[rec].pact = 1;
        db.notice(format!("{}.SNAM is empty", db.records.name(rec)));
        return Ok(());
    }
    if r.function == 0 {
        let name = r.snam.bytes().to_vec();
        db.no_function(rec, "SNAM", &name);
        return Err(PutError::BadValue { what: format!("no function \"{}\" is registered", name.escape_ascii()) });
    }
    Ok(())
}

/// Calls a function of the record. Returns its result, or `None` if the call ends later.
fn call(db: &mut Db, rec: RecId, body: Body<Sub>, number: u32, turn: Turn) -> Option<i32> {
    let token = db.next_call(rec);
    let Records { names, common, bodies, .. } = &mut db.records;
    let (name, r) = (names.text(common[rec].name), &mut bodies[body]);
    let Some(Function::Sub(function)) = db.functions.get(number) else { return Some(-1) };
    let units = Str40::new(r.egu.bytes());
    let fields = RecordFields { units, ..RecordFields::of(&common[rec], 0, r.brsv, r.prec) };
    let call = Call::new(name, fields, &mut r.user, turn, token);
    let mut sub = SubCall { call, inputs: &mut r.a, val: &mut r.val };
    let result = function(&mut sub);
    let end = sub.call.end();
    (r.waiting, r.brsv, r.prec) = (end.waiting, end.fields.bad_return, end.fields.precision);
    if end.fields.units != units {
        r.egu.set(end.fields.units.bytes());
    }
    if end.waiting != 0 {
        return None;
    }
    end.store(&mut db.records[rec]);
    Some(result)
}
