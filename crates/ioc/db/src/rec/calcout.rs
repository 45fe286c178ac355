//! calcout record.

use super::inputs::{
    constants, input_of, inputs, live_links, name_of, ones, post_inputs, post_val, read_live, written_constant,
};
use crate::calc::{self, INPUTS, Program};
use crate::model::deadband::Limits;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Inline, Text, record};
use crate::rec::{
    Body, Drive, Properties, RecId, RecordType, changed, check_limits, drive, no_device, number_properties,
};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Range, Scalar, Status, Value};

record! {
    /// Fields of a calcout record.
    CalcOut {
        val: f64 [VAL],
        pval: f64 [PVAL],
        calc: Text<160> [CALC],
        clcv: i32 [CLCV],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        out: Link [OUT],
        inv: [u16; 21] [INAV INBV INCV INDV INEV INFV INGV INHV INIV INJV INKV INLV INMV INNV INOV INPV INQV INRV INSV INTV INUV],
        outv: u16 [OUTV],
        oopt: u16 [OOPT],
        odly: f64 [ODLY],
        dlya: u16 [DLYA],
        dopt: u16 [DOPT],
        ocal: Text<160> [OCAL],
        oclv: i32 [OCLV],
        oevt: Text<40> [OEVT],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        oval: f64 [OVAL],
        la: [f64; 21] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP LQ LR LS LT LU],
        povl: f64 [POVL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    } private {
        program: Program,
        output: Program,
        live: u32,
    }
}

inputs!(CalcOut);

impl RecordType for CalcOut {
    /// Start: loads constants, checks the links, compiles the expressions, sets the last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        if db.device(rec) == Device::Missing {
            return;
        }
        let r = &mut db.records[body];
        constants(&r.inp, &mut r.a);
        look_at_links(db, body);
        compile(db, rec, body, true, true);
        let r = &mut db.records[body];
        r.pval = r.val;
        r.mlst = r.val;
        r.alst = r.val;
        r.lalm = r.val;
        r.povl = r.oval;
    }

    /// Reads the inputs, computes, checks alarm limits, writes the output if OOPT requires it, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if resumed {
            db.stamp_now(rec);
            if db.records[body].dlya != 0 {
                db.records[body].dlya = 0;
                db.post_named(rec, "DLYA", EventMask::VALUE);
                if execute(db, rec, body) {
                    return ProcessResult::Pending;
                }
            } else if db.device(rec) == Device::External {
                // Handles the reply of the device.
                write(db, rec, body, true);
            }
        } else {
            compute(db, rec, body);
            let (common, r) = db.records.both(rec, body);
            check_limits!(*common, r);
            db.stamp_now(rec);
            let r = &mut db.records[body];
            let due = is_due(r.oopt, r.pval, r.val, r.mdel);
            r.pval = r.val;
            if due {
                if r.odly > 0.0 {
                    r.dlya = 1;
                    let delay = r.odly;
                    db.post_named(rec, "DLYA", EventMask::VALUE);
                    db.call_back_after(rec, Callback::Resume, delay);
                    return ProcessResult::Pending;
                }
                if execute(db, rec, body) {
                    return ProcessResult::Pending;
                }
            }
        }
        monitor(db, rec, body);
        ProcessResult::Done
    }

    /// Compiles a new expression.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        match field {
            Self::CALC if after => {
                compile(db, rec, body, true, false);
                db.post_named(rec, "CLCV", EventMask::VALUE);
            }
            Self::OCAL if after => {
                compile(db, rec, body, false, true);
                db.post_named(rec, "OCLV", EventMask::VALUE);
            }
            _ => {}
        }
        Ok(())
    }

    /// Called after a client wrote a link. A constant is loaded into its input immediately.
    fn link_put(db: &mut Db, rec: RecId, body: Body<Self>, field: u16) {
        let r = &mut db.records[body];
        if let Some(index) = written_constant(field, Self::INPA, &r.inp, &mut r.a) {
            db.post_named(rec, name_of::<Self>(Self::A, index), EventMask::VALUE);
        }
        post_links(db, rec, body);
    }

    fn connection_changed(db: &mut Db, rec: RecId, body: Body<Self>) {
        post_links(db, rec, body);
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        match input_of(field, [Self::A, Self::LA]) {
            Some(input) => Properties::of_link(&self.inp[input]).digits(self.prec, true),
            None if field == Self::ODLY => Properties::of_delay(Range { low: 0.0, high: 1e300 }),
            None => number_properties!(self, field, kind).digits(self.prec, field == Self::VAL),
        }
    }

    /// Records which links must be read.
    fn links_changed(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.live = live_links(&r.inp);
    }
}

/// Whether OOPT requires an output, given the previous and the new result.
pub(crate) fn is_due(oopt: u16, before: f64, now: f64, deadband: f64) -> bool {
    match oopt {
        0 => true,
        1 => (before - now).abs() > deadband || (before - now).is_nan(),
        2 => now == 0.0,
        3 => now != 0.0,
        4 => before != 0.0 && now == 0.0,
        5 => before == 0.0 && now != 0.0,
        _ => false,
    }
}

/// Values of INAV to INUV and OUTV: connection state of a link.
const NOT_CONNECTED: u16 = 0;
const ELSEWHERE: u16 = 1;
const LOCAL: u16 = 2;
const CONSTANT: u16 = 3;

/// Updates the connection states of the links. Returns a bit mask of the changed ones, OUT last.
fn look_at_links(db: &mut Db, body: Body<CalcOut>) -> u32 {
    let mut changed = 0;
    for index in 0..=INPUTS {
        let r = &db.records[body];
        let link = if index < INPUTS { r.inp[index].brief() } else { r.out.brief() };
        let state = match link.kind {
            LinkKind::Constant => CONSTANT,
            LinkKind::Remote if db.is_connected(link) => ELSEWHERE,
            LinkKind::Remote => NOT_CONNECTED,
            // As in C, a calc link counts as external, although it cannot lose its connection here.
            LinkKind::Json if db.links.json.get(link.target).is_some_and(|json| json.calc().is_some()) => ELSEWHERE,
            _ => LOCAL,
        };
        let r = &mut db.records[body];
        let place = if index < INPUTS { &mut r.inv[index] } else { &mut r.outv };
        if *place != state {
            *place = state;
            changed |= 1 << index;
        }
    }
    changed
}

/// Compiles CALC, OCAL, or both.
fn compile(db: &mut Db, rec: RecId, body: Body<CalcOut>, main: bool, output: bool) {
    let r = &mut db.records[body];
    let mut text = None;
    if main {
        let compiled = calc::compile(r.calc.bytes());
        r.clcv = if compiled.is_ok() { 0 } else { -1 };
        text = compiled.as_ref().err().map(|error| ("CALC", *error));
        r.program = compiled.unwrap_or_default();
    }
    if output {
        let compiled = calc::compile(r.ocal.bytes());
        r.oclv = if compiled.is_ok() { 0 } else { -1 };
        if r.dopt == 1 {
            text = text.or(compiled.as_ref().err().map(|error| ("OCAL", *error)));
        }
        r.output = compiled.unwrap_or_default();
    }
    if let Some((field, what)) = text {
        db.notice(format!("{}.{field}: {what}", db.records.name(rec)));
    }
}

/// Updates the connection states of the links and posts the changed ones.
pub(crate) fn post_links(db: &mut Db, rec: RecId, body: Body<CalcOut>) {
    for index in ones(look_at_links(db, body)) {
        let name = if index < INPUTS { name_of::<CalcOut>(CalcOut::INAV, index) } else { "OUTV" };
        db.post_named(rec, name, EventMask::VALUE);
    }
}

fn compute(db: &mut Db, rec: RecId, body: Body<CalcOut>) {
    let live = db.records[body].live;
    if read_live(db, rec, body, live) {
        let (common, r) = db.records.both(rec, body);
        match r.program.run(&mut r.a, &mut r.val, &mut db.seed) {
            Ok(()) => common.udf = u8::from(r.val.is_nan()),
            Err(()) => {
                common.raise_with(Status::Calc, 3, crate::rec::message::Message::CALC);
            }
        }
    }
}

/// Writes the output and posts the event. Returns whether a callback is pending.
fn execute(db: &mut Db, rec: RecId, body: Body<CalcOut>) -> bool {
    let (common, r) = db.records.both(rec, body);
    if r.dopt == 0 {
        r.oval = r.val;
    } else {
        match r.output.run(&mut r.a, &mut r.oval, &mut db.seed) {
            Ok(()) => common.udf = u8::from(r.oval.is_nan()),
            Err(()) => {
                common.raise_with(Status::Calc, 3, crate::rec::message::Message::OCAL);
            }
        }
    }
    if common.udf != 0 {
        common.raise_undefined();
    }
    let ivoa = r.ivoa;
    match drive(db, rec, ivoa) {
        Drive::Normally => {}
        Drive::Not => return false,
        Drive::Ivov => {
            let r = &mut db.records[body];
            r.oval = r.ivov;
        }
    }
    let pending = write(db, rec, body, false);
    if !db.records[body].oevt.bytes().is_empty() {
        let name = base::Str40::new(db.records[body].oevt.bytes());
        db.post_event_bytes(name.bytes());
    }
    pending
}

/// Writes OVAL to the device or link. Returns whether a callback is pending. A failed write raises the alarm itself.
fn write(db: &mut Db, rec: RecId, body: Body<CalcOut>, resumed: bool) -> bool {
    let r = &db.records[body];
    let (out, value) = (r.out.brief(), r.oval);
    if db.device(rec) == Device::External {
        let output =
            Output { value: Value::Scalar(Scalar::F64(value)), raw: value as i64, name: None, converted: false };
        return db.device_write(rec, resumed, output);
    }
    let _ = db.put_link(rec, out, Scalar::F64(value));
    false
}

fn monitor(db: &mut Db, rec: RecId, body: Body<CalcOut>) {
    let mask = post_val(db, rec, body);
    post_inputs(db, rec, body, mask, mask.meets(EventMask::ALARM));
    let r = &mut db.records[body];
    if changed(&mut r.povl, r.oval) {
        db.post_named(rec, "OVAL", mask | EventMask::VALUE | EventMask::LOG);
    }
}
