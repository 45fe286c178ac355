//! calc record.

use super::inputs::{constants, input_of, inputs, live_links, post_inputs, read_live};
use crate::calc::{self, BadExpression, Program};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, check_limits_filtered, deadbands, number_properties};
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Status};

record! {
    /// Fields of a calc record.
    Calc {
        val: f64 [VAL],
        calc: Text<160> [CALC],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        aftc: f64 [AFTC],
        afvl: f64 [AFVL],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        la: [f64; 21] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP LQ LR LS LT LU],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    } private {
        program: Program,
        live: u32,
    }
}

inputs!(Calc);

impl RecordType for Calc {
    /// Start: loads constants, compiles the expression.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        constants(&r.inp, &mut r.a);
        if let Err(error) = compile(db, body) {
            db.notice(format!("{}.CALC: {error}", db.records.name(rec)));
        }
    }

    /// Reads the inputs, computes, checks alarm limits, posts monitors.
    #[inline]
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        let live = db.records[body].live;
        let fetched = read_live(db, rec, body, live);
        let (mut common, mut r) = db.records.both(rec, body);
        if fetched {
            match r.program.run(&mut r.a, &mut r.val, &mut db.seed) {
                Ok(()) => common.udf = u8::from(r.val.is_nan()),
                Err(()) => {
                    common.raise(Status::Calc, 3);
                }
            }
        }
        let before = common.time;
        if !common.stamp(&db.time) {
            db.stamp_specially(rec, 0, None);
            (common, r) = db.records.both(rec, body);
        }
        check_limits_filtered!(*common, r, before);
        let mask = deadbands!(r);
        let stays = common.alarm_stays();
        if stays && common.monitors == 0 {
            // Inputs without subscribers need no events, only their last values.
            r.la = r.a;
        } else {
            monitor(db, rec, body, mask, stays);
        }
        ProcessResult::Done
    }

    /// Compiles a new expression.
    fn special(db: &mut Db, _: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !(after && field == Self::CALC) {
            return Ok(());
        }
        compile(db, body).map_err(|error| PutError::BadValue { what: error.to_string() })
    }

    /// Records which links must be read.
    fn links_changed(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.live = live_links(&r.inp);
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        match input_of(field, [Self::A, Self::LA]) {
            Some(input) => Properties::of_link(&self.inp[input]).digits(self.prec, true),
            None => number_properties!(self, field, kind).digits(self.prec, field == Self::VAL),
        }
    }

    #[inline]
    fn double_val(&self) -> Option<f64> {
        Some(self.val)
    }
}

fn compile(db: &mut Db, body: Body<Calc>) -> Result<(), BadExpression> {
    let r = &mut db.records[body];
    match calc::compile(r.calc.bytes()) {
        Ok(program) => {
            r.program = program;
            Ok(())
        }
        Err(error) => {
            r.program = Program::default();
            Err(BadExpression { error, expression: r.calc.bytes().to_owned() })
        }
    }
}

/// Posts VAL if it left a deadband, inputs that changed, and the alarm if it changed.
fn monitor(db: &mut Db, rec: RecId, body: Body<Calc>, mut mask: EventMask, alarm_stays: bool) {
    if !alarm_stays {
        mask |= db.alarm_changed(rec);
    }
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    post_inputs(db, rec, body, mask, mask.meets(EventMask::ALARM));
}
