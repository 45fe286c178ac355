//! sel record.

use super::inputs::{inputs, post_inputs, post_val, read_one};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed, check_limits, number_properties};
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, FieldType, Status};

record! {
    /// Fields of a sel record.
    Sel {
        val: f64 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        prec: i16 [PREC],
        nvl: Link [NVL],
        inp: [Link; 12] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 12] [A B C D E F G H I J K L],
        la: [f64; 12] [LA LB LC LD LE LF LG LH LI LJ LK LL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        nlst: u16 [NLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    }
}

inputs!(Sel);

impl RecordType for Sel {
    /// Start: loads constants; the other inputs become NaN.
    fn init(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        if let Some(seln) = r.nvl.number() {
            r.seln = seln;
        }
        for index in 0..INPUTS {
            r.a[index] = r.inp[index].number().unwrap_or(f64::NAN);
        }
    }

    /// Fetches the inputs, selects, checks alarm limits, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        if fetch(db, rec, body) {
            select(db, rec, body);
        }
        db.stamp_now(rec);
        let (common, r) = db.records.both(rec, body);
        check_limits!(*common, r);
        monitor(db, rec, body);
        ProcessResult::Done
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let of = number_properties!(self, field, kind, Self::A..=Self::L | Self::LA..=Self::LL);
        of.digits(self.prec, field == Self::VAL)
    }
}

const INPUTS: usize = 12;

/// Reads the inputs needed by the selection. Returns whether the last read succeeded.
fn fetch(db: &mut Db, rec: RecId, body: Body<Sel>) -> bool {
    let r = &db.records[body];
    if r.selm == 0 {
        let nvl = r.nvl.brief();
        match db.get_link::<u16>(rec, nvl) {
            Ok(Some(seln)) => db.records[body].seln = seln,
            Ok(None) => {}
            Err(_) => return false,
        }
        let index = usize::from(db.records[body].seln);
        return index >= INPUTS || read_one(db, rec, body, index).is_ok();
    }
    let mut done = true;
    for index in 0..INPUTS {
        done = read_one(db, rec, body, index).is_ok();
    }
    done
}

fn select(db: &mut Db, rec: RecId, body: Body<Sel>) {
    let (common, r) = db.records.both(rec, body);
    let better = |best: f64, better: fn(f64, f64) -> bool| {
        let (mut val, mut seln) = (best, r.seln);
        for (index, value) in r.a.iter().enumerate() {
            if !value.is_nan() && better(*value, val) {
                (val, seln) = (*value, index as u16);
            }
        }
        (val, seln)
    };
    (r.val, r.seln) = match r.selm {
        0 => match r.a.get(usize::from(r.seln)) {
            Some(value) => (*value, r.seln),
            None => {
                common.raise(Status::Soft, 3);
                return;
            }
        },
        1 => better(f64::NEG_INFINITY, |value, best| best < value),
        2 => better(f64::INFINITY, |value, best| best > value),
        3 => {
            let mut order = [f64::NAN; INPUTS];
            let mut count = 0;
            for value in r.a.iter().filter(|value| !value.is_nan()) {
                order[count] = *value;
                count += 1;
            }
            order[..count].sort_by(f64::total_cmp);
            (order[(count / 2).min(INPUTS - 1)], count as u16)
        }
        _ => {
            common.raise(Status::Calc, 3);
            return;
        }
    };
    common.udf = u8::from(r.val.is_nan());
}

fn monitor(db: &mut Db, rec: RecId, body: Body<Sel>) {
    let mask = post_val(db, rec, body);
    let r = &mut db.records[body];
    if changed(&mut r.nlst, r.seln) {
        db.post_named(rec, "SELN", mask | EventMask::VALUE | EventMask::LOG);
    }
    post_inputs(db, rec, body, mask, false);
}
