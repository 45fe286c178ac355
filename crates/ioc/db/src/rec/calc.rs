//! calc record.

use crate::calc::{self, INPUTS, Program};
use crate::model::deadband::{self, Limits};
use crate::model::link::Link;
use crate::model::slot::{Inline, Text, record};
use crate::rec::check_limits_filtered;
use crate::rec::{Body, RecId, RecordType};
use crate::run::engine::{Db, Outcome};
use crate::text::error::PutError;
use base::{EventMask, Status};

record! {
    /// The fields of a calc record.
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

impl RecordType for Calc {
    /// At start: constants and the expression.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        for index in 0..INPUTS {
            if let Some(value) = r.inp[index].number() {
                r.a[index] = value;
            }
        }
        if let Err(error) = compile(db, body) {
            db.notice(format!("{}.CALC: {error}", db.records.name(rec)));
        }
    }

    /// Reads the inputs, computes, checks, tells.
    #[inline]
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> Outcome {
        let mut fetched = true;
        let mut live = db.records[body].live;
        while live != 0 {
            let index = live.trailing_zeros() as usize;
            live &= live - 1;
            let link = db.records[body].inp[index].brief();
            match db.get_link::<f64>(rec, link) {
                Ok(Some(value)) => db.records[body].a[index] = value,
                Ok(None) => {}
                Err(_) => fetched = false,
            }
        }
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
        let mask = deadband::check(&mut r.mlst, r.val, r.mdel, EventMask::VALUE)
            | deadband::check(&mut r.alst, r.val, r.adel, EventMask::LOG);
        let stays = common.alarm_stays();
        if stays && common.monitors == 0 {
            // Inputs that nobody watches are only remembered.
            r.la = r.a;
        } else {
            monitor(db, rec, body, mask, stays);
        }
        Outcome::Done
    }

    /// A new expression.
    fn special(db: &mut Db, _: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !(after && field == Self::CALC) {
            return Ok(());
        }
        compile(db, body).map_err(|what| PutError::BadValue { what })
    }

    /// Notes which links are to be read.
    fn links_changed(db: &mut Db, body: Body<Self>) {
        let r = &mut db.records[body];
        r.live = live_links(&r.inp);
    }

    #[inline]
    fn double_val(&self) -> Option<f64> {
        Some(self.val)
    }
}

/// Names of the inputs, for events.
pub(crate) const INPUT_NAMES: [&str; INPUTS] =
    ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U"];

/// Which of some links are to be read: one bit each.
pub(crate) fn live_links(links: &[Link]) -> u32 {
    links.iter().enumerate().filter(|(_, link)| !link.is_constant()).fold(0, |bits, (index, _)| bits | 1 << index)
}

fn compile(db: &mut Db, body: Body<Calc>) -> Result<(), String> {
    let r = &mut db.records[body];
    match calc::compile(r.calc.bytes()) {
        Ok(program) => {
            r.program = program;
            Ok(())
        }
        Err(error) => {
            r.program = Program::default();
            Err(format!("{} in expression \"{}\"", error.text(), r.calc.bytes().escape_ascii()))
        }
    }
}

/// Tells about what left its deadband, about inputs that changed, and about the alarm where that has changed.
fn monitor(db: &mut Db, rec: RecId, body: Body<Calc>, mut mask: EventMask, alarm_stays: bool) {
    if !alarm_stays {
        mask |= db.alarm_changed(rec);
    }
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    post_inputs(db, rec, mask, |db| {
        let r = &mut db.records[body];
        let changed = changed_inputs(&r.a, &r.la);
        r.la = r.a;
        changed
    });
}

/// Which values differ from last time: one bit each.
pub(crate) fn changed_inputs(now: &[f64], last: &[f64]) -> u32 {
    now.iter().zip(last).enumerate().fold(0, |bits, (index, (now, last))| bits | u32::from(now != last) << index)
}

/// Tells about inputs that changed; about all when the alarm did.
pub(crate) fn post_inputs(db: &mut Db, rec: RecId, mask: EventMask, changed: impl FnOnce(&mut Db) -> u32) {
    let mut bits = changed(db);
    if mask.meets(EventMask::ALARM) {
        bits = (1 << INPUTS) - 1;
    }
    while bits != 0 {
        let index = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        db.post_named(rec, INPUT_NAMES[index], mask | EventMask::VALUE | EventMask::LOG);
    }
}
