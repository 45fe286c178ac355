//! acalcout record (synApps): a calcout with arrays, whose output can wait for completion.

use super::arrays::ELEMENTS_LIMIT;
use super::calcout::is_due;
use super::inputs::{constants, live_links, name_of, nth, ones, written_constant};
use super::synapps::{elements, post_states};
use crate::calc::synapps::{Dialect, Frame, Item, Program, compile};
use crate::model::deadband::Limits;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Inline, Text, record};
use crate::rec::{
    Body, Drive, Properties, RecId, RecordType, changed, check_limits, deadbands, drive, no_device, number_properties,
};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Scalar, Status, Str40, Value};

record! {
    /// Fields of an acalcout record.
    ACalcOut {
        vers: f64 [VERS],
        val: f64 [VAL],
        aval: Array [AVAL],
        nelm: u32 [NELM],
        nuse: u32 [NUSE],
        pval: f64 [PVAL],
        calc: Text<80> [CALC],
        clcv: i32 [CLCV],
        inp: [Link; 12] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL],
        array_inp: [Link; 12] [INAA INBB INCC INDD INEE INFF INGG INHH INII INJJ INKK INLL],
        out: Link [OUT],
        inv: [u16; 24] [INAV INBV INCV INDV INEV INFV INGV INHV INIV INJV INKV INLV
            IAAV IBBV ICCV IDDV IEEV IFFV IGGV IHHV IIIV IJJV IKKV ILLV],
        outv: u16 [OUTV],
        oopt: u16 [OOPT],
        odly: f64 [ODLY],
        wait: u16 [WAIT],
        dlya: u16 [DLYA],
        dopt: u16 [DOPT],
        ocal: Text<80> [OCAL],
        oclv: i32 [OCLV],
        oevt: u16 [OEVT],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 12] [A B C D E F G H I J K L],
        arrays: [Array; 12] [AA BB CC DD EE FF GG HH II JJ KK LL],
        newm: u32 [NEWM],
        oval: f64 [OVAL],
        oav: Array [OAV],
        la: [f64; 12] [PA PB PC PD PE PF PG PH PI PJ PK PL],
        povl: f64 [POVL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        cact: u8 [CACT],
        cstat: i32 [CSTAT],
        amask: u32 [AMASK],
        size: u16 [SIZE],
        amem: i32 [AMEM],
    } private {
        program: Program,
        output: Program,
        live: u32,
        live_arrays: u32,
        last_aval: Vec<f64>,
        last_oav: Vec<f64>,
    }
}

/// Inputs of each row.
const INPUTS: usize = 12;
/// Arrays of a record: the inputs, AVAL and OAV, and the last two as posted.
const ARRAYS: u32 = 16;

impl RecordType for ACalcOut {
    /// Start: allocates the arrays, loads constants, checks the links, compiles the expressions.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        if db.device(rec) == Device::Missing {
            return;
        }
        let r = &mut db.records[body];
        r.nelm = r.nelm.clamp(1, ELEMENTS_LIMIT as u32);
        r.nuse = r.nuse.min(r.nelm);
        r.amem = i32::try_from(r.nelm.saturating_mul(8 * ARRAYS)).unwrap_or(i32::MAX);
        r.resize();
        constants(&r.inp, &mut r.a);
        post_links(db, rec, body);
        compile_field(db, rec, body, Self::CALC);
        compile_field(db, rec, body, Self::OCAL);
    }

    /// Reads the inputs, computes CALC and OCAL, checks alarm limits, writes the output if OOPT requires it, posts monitors.
    /// With WAIT it waits for completion of the output.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed {
            let r = &mut db.records[body];
            r.la = r.a;
            // As in C, a failed read ends the processing without an output.
            if fetch(db, rec, body) {
                compute(db, rec, body);
                let (common, r) = db.records.both(rec, body);
                check_limits!(*common, r);
                let due = is_due(r.oopt, r.pval, r.val, r.mdel);
                r.pval = r.val;
                if due && r.odly > 0.0 {
                    r.dlya = 1;
                    let delay = r.odly;
                    db.post_named(rec, "DLYA", EventMask::VALUE);
                    db.call_back_after(rec, Callback::Resume, delay);
                    return ProcessResult::Pending;
                }
                if due && execute(db, rec, body) {
                    return ProcessResult::Pending;
                }
            }
        } else if std::mem::take(&mut db.records[body].dlya) != 0 {
            db.post_named(rec, "DLYA", EventMask::VALUE);
            if execute(db, rec, body) {
                return ProcessResult::Pending;
            }
        }
        db.stamp_now(rec);
        monitor(db, rec, body);
        ProcessResult::Done
    }

    /// Handles a new expression or a new number of elements.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        if matches!(field, Self::CALC | Self::OCAL) {
            compile_field(db, rec, body, field);
            db.post_named(rec, if field == Self::CALC { "CLCV" } else { "OCLV" }, EventMask::VALUE);
        }
        if field == Self::NUSE {
            let r = &mut db.records[body];
            let (given, max) = (r.nuse, r.nelm);
            r.nuse = given.min(max);
            r.resize();
            if given > max {
                db.post_named(rec, "NUSE", EventMask::VALUE);
                let what = format!("found {given} elements, expected at most NELM, {max}");
                return Err(PutError::BadValue { what });
            }
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

    /// Records which links must be read.
    fn links_changed(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        (r.live, r.live_arrays) = (live_links(&r.inp), live_links(&r.array_inp));
    }

    fn shape(&self, _: u16) -> (u32, FieldType) {
        (if self.size == 0 { self.nelm } else { self.used() as u32 }, FieldType::F64)
    }

    fn counts_elements(field: u16) -> bool {
        field == Self::NELM
    }

    /// A shorter array is filled with zeros.
    fn store_array(db: &mut Db, _: RecId, body: Body<Self>, field: u16, values: Array) -> Result<(), PutError> {
        let Array::F64(mut values) = values else { return Err(PutError::NoModify) };
        let r = &mut db.records[body];
        values.resize(r.used(), 0.0);
        *r.array(field).ok_or(PutError::NoModify)? = Array::F64(values);
        Ok(())
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let of = number_properties!(self, field, kind).digits(self.prec, field == Self::VAL);
        let is_input = [Self::A, Self::PA].into_iter().any(|first| nth(field, first, INPUTS).is_some());
        if is_input { of.within(self.lopr, self.hopr) } else { of }
    }
}

impl ACalcOut {
    /// Number of elements in use.
    const fn used(&self) -> usize {
        (if self.nuse == 0 || self.nuse > self.nelm { self.nelm } else { self.nuse }) as usize
    }

    fn array(&mut self, field: u16) -> Option<&mut Array> {
        match field {
            Self::AVAL => Some(&mut self.aval),
            Self::OAV => Some(&mut self.oav),
            _ => nth(field, Self::AA, INPUTS).map(|index| &mut self.arrays[index]),
        }
    }

    /// Gives all arrays the number of elements in use.
    fn resize(&mut self) {
        let used = self.used();
        for array in self.arrays.iter_mut().chain([&mut self.aval, &mut self.oav]) {
            array.resize(used);
        }
        self.last_aval.resize(used, 0.0);
        self.last_oav.resize(used, 0.0);
    }
}

/// Updates the states of all links.
fn post_links(db: &mut Db, rec: RecId, body: Body<ACalcOut>) {
    // The states are in the order of the links.
    post_states(db, rec, body, (ACalcOut::INPA, ACalcOut::INAV), 2 * INPUTS + 1);
}

/// Compiles CALC or OCAL. An empty expression is valid, but has no value.
fn compile_field(db: &mut Db, rec: RecId, body: Body<ACalcOut>, field: u16) {
    let is_main = field == ACalcOut::CALC;
    let r = &mut db.records[body];
    let text = if is_main { r.calc.bytes() } else { r.ocal.bytes() };
    let compiled = if text.is_empty() { Ok(Program::default()) } else { compile(text, Dialect::Arrays) };
    let wrong = compiled.as_ref().err().copied();
    let valid = if wrong.is_some() { -1 } else { 0 };
    if is_main {
        (r.clcv, r.program) = (valid, compiled.unwrap_or_default());
    } else {
        (r.oclv, r.output) = (valid, compiled.unwrap_or_default());
    }
    if let Some(wrong) = wrong {
        let field = if is_main { "CALC" } else { "OCAL" };
        db.notice(format!("{}.{field}: {wrong}", db.records.name(rec)));
    }
}

/// Reads the inputs up to the first failure. A short array is filled with zeros.
fn fetch(db: &mut Db, rec: RecId, body: Body<ACalcOut>) -> bool {
    for index in ones(db.records[body].live) {
        let link = db.records[body].inp[index].brief();
        match db.get_link::<f64>(rec, link) {
            Ok(Some(value)) => db.records[body].a[index] = value,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    for index in ones(db.records[body].live_arrays) {
        let r = &db.records[body];
        let (link, used) = (r.array_inp[index].brief(), r.used());
        match db.get_link_array(rec, link, FieldType::F64, used) {
            Ok(Some(mut values)) => {
                values.resize(used);
                let r = &mut db.records[body];
                r.newm |= u32::from(values != r.arrays[index]) << index;
                super::arrays::set(&mut r.arrays[index], values);
            }
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Computes CALC, and OCAL if DOPT selects it, and posts the arrays that they wrote.
fn compute(db: &mut Db, rec: RecId, body: Body<ACalcOut>) {
    let (common, r) = db.records.both(rec, body);
    r.amask = 0;
    let mut valid = evaluate(r, true, &mut db.seed);
    if r.dopt == 1 {
        valid &= evaluate(r, false, &mut db.seed);
    }
    r.cstat = if valid { 0 } else { -1 };
    if valid {
        common.udf = 0;
    } else {
        common.raise(Status::Calc, 3);
    }
    for index in ones(db.records[body].amask) {
        db.post_named(rec, name_of::<ACalcOut>(ACalcOut::AA, index), EventMask::VALUE | EventMask::LOG);
    }
}

/// Computes VAL and AVAL, or OVAL and OAV. Returns whether the expression has a finite value.
fn evaluate(r: &mut ACalcOut, is_main: bool, seed: &mut u16) -> bool {
    let size = r.used();
    let mut arrays = r.arrays.each_mut().map(|array| match array {
        Array::F64(values) => std::mem::take(values),
        _ => Vec::new(),
    });
    let (program, value, array) = if is_main { (&r.program, r.val, &r.aval) } else { (&r.output, r.oval, &r.oav) };
    let array = if let Array::F64(values) = array { values.as_slice() } else { &[] };
    let (text, texts) = (Str40::EMPTY, &mut []);
    let mut frame = Frame { numbers: &mut r.a, texts, arrays: &mut arrays, size, value, text, array, seed, stored: 0 };
    let result = program.run(&mut frame);
    r.amask |= frame.stored;
    r.arrays = arrays.map(Array::F64);
    let Ok(item) = result else { return false };
    let value = item.number();
    let array = Array::F64(match item {
        Item::Array(lanes) => lanes.values,
        _ => vec![if value.is_nan() { 0.0 } else { value }; size],
    });
    if is_main {
        (r.val, r.aval) = (value, array);
    } else {
        (r.oval, r.oav) = (value, array);
    }
    value.is_finite()
}

/// Writes the output and posts the event. Returns whether completion must be awaited.
fn execute(db: &mut Db, rec: RecId, body: Body<ACalcOut>) -> bool {
    let ivoa = db.records[body].ivoa;
    match drive(db, rec, ivoa) {
        Drive::Normally => {}
        Drive::Not => return false,
        Drive::Ivov => {
            let r = &mut db.records[body];
            r.oval = r.ivov;
        }
    }
    let r = &db.records[body];
    let (out, waits, event) = (r.out.brief(), r.wait != 0, r.oevt);
    let count = elements(db, out).min(r.used());
    let (number, array) = if r.dopt == 0 { (r.val, &r.aval) } else { (r.oval, &r.oav) };
    let value = if count <= 1 {
        Value::Scalar(Scalar::F64(number))
    } else {
        let mut array = array.clone();
        array.truncate(count);
        Value::Array(array)
    };
    // A failed write raises the alarm itself.
    let pending = match (out.kind, value) {
        (LinkKind::Constant, _) => false,
        (LinkKind::Remote, value) if waits => db.put_and_wait(rec, out, value).unwrap_or(false),
        (_, Value::Scalar(scalar)) => {
            let _ = db.put_link(rec, out, scalar);
            false
        }
        (_, Value::Array(array)) => {
            let _ = db.put_link_array(rec, out, &array);
            false
        }
    };
    if event > 0 {
        db.post_event_bytes(base::text::scalar(Scalar::U16(event), 0).bytes());
    }
    pending
}

/// Events for which an array left the deadbands around the one posted last.
fn left(last: &mut Vec<f64>, now: &Array, deadbands: [f64; 2]) -> EventMask {
    let Array::F64(now) = now else { return EventMask::NONE };
    let moved = |deadband: f64| last.iter().zip(now).any(|(last, now)| (last - now).abs() > deadband);
    let [value, log] = deadbands.map(moved);
    if value || log {
        last.clone_from(now);
    }
    let mask = |yes: bool, mask| if yes { mask } else { EventMask::NONE };
    mask(value, EventMask::VALUE) | mask(log, EventMask::LOG)
}

fn monitor(db: &mut Db, rec: RecId, body: Body<ACalcOut>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let mask = alarm | deadbands!(r);
    let deadbands = [r.mdel, r.adel];
    let arrays = [left(&mut r.last_aval, &r.aval, deadbands), left(&mut r.last_oav, &r.oav, deadbands)];
    let (oval, new) = (changed(&mut r.povl, r.oval), std::mem::take(&mut r.newm));
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    for (moved, name) in arrays.into_iter().zip(["AVAL", "OAV"]) {
        if !moved.is_empty() {
            db.post_named(rec, name, mask | moved);
        }
    }
    let all = mask | EventMask::VALUE | EventMask::LOG;
    for index in 0..INPUTS {
        let r = &mut db.records[body];
        if r.a[index] != r.la[index] || mask.meets(EventMask::ALARM) {
            r.la[index] = r.a[index];
            db.post_named(rec, name_of::<ACalcOut>(ACalcOut::A, index), all);
        }
        if new >> index & 1 == 1 {
            db.post_named(rec, name_of::<ACalcOut>(ACalcOut::AA, index), all);
        }
    }
    if oval {
        db.post_named(rec, "OVAL", all);
    }
}

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::rec::test_kit::{number, put, started, text, wait};
    use base::{Array, Value};

    fn array(db: &mut Db, name: &str) -> Vec<f64> {
        let channel = db.find(name).unwrap();
        match db.get(&channel, usize::MAX) {
            Value::Array(Array::F64(values)) => values,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn it_computes_arrays_and_writes_them() {
        let mut db = started(
            "record(acalcout, \"c\") { field(NELM, \"4\") field(CALC, \"AA*2+A\") field(INAA, \"w\") field(OUT, \"o PP\") }
             record(waveform, \"w\") { field(FTVL, \"DOUBLE\") field(NELM, \"3\") }
             record(waveform, \"o\") { field(FTVL, \"DOUBLE\") field(NELM, \"9\") } ",
        );
        put(&mut db, "w", vec![1.0, 2.0, 3.0]);
        put(&mut db, "c.A", 1.0);
        assert_eq!(array(&mut db, "c.AVAL"), [3.0, 5.0, 7.0, 1.0]);
        assert_eq!((array(&mut db, "o"), number(&mut db, "c")), (vec![3.0, 5.0, 7.0, 1.0], 3.0));
        put(&mut db, "c.NUSE", 2);
        assert_eq!((array(&mut db, "c.AVAL"), array(&mut db, "o")), (vec![3.0, 5.0], vec![3.0, 5.0]));
        let channel = db.find("c.NUSE").unwrap();
        assert!(db.put(&channel, &Value::from(5), crate::Now::default()).is_err());
    }

    #[test]
    fn a_short_array_is_filled_with_zeros_and_expressions_store_arrays() {
        let mut db = started("record(acalcout, \"c\") { field(NELM, \"3\") field(CALC, \"BB:=AA+1;SUM(BB)\") }");
        put(&mut db, "c.AA", vec![5.0]);
        assert_eq!((array(&mut db, "c.AA"), array(&mut db, "c.BB")), (vec![5.0, 0.0, 0.0], vec![6.0, 1.0, 1.0]));
        assert_eq!((number(&mut db, "c"), array(&mut db, "c.AVAL")), (8.0, vec![8.0; 3]));
        put(&mut db, "c.CALC", "DERIV(AA)");
        assert_eq!((text(&mut db, "c.STAT"), number(&mut db, "c.CSTAT")), ("CALC".into(), -1.0));
    }

    #[test]
    fn with_wait_its_forward_link_follows_when_the_output_has_completed() {
        let mut db = started(
            "record(acalcout, \"c\") { field(CALC, \"A\") field(OCAL, \"A+1\") field(DOPT, \"Use OCAL\") field(OUT, \"slow.A CA\")
                 field(WAIT, \"Wait\") field(FLNK, \"n\") }
             record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") } record(calc, \"n\") { field(CALC, \"VAL+1\") }",
        );
        put(&mut db, "c.A", 5.0);
        assert_eq!((number(&mut db, "slow.A"), number(&mut db, "n")), (6.0, 0.0));
        wait(&mut db, 1.0);
        assert_eq!((number(&mut db, "c.PACT"), number(&mut db, "n")), (0.0, 1.0));
    }
}
