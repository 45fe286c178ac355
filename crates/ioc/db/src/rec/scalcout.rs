//! scalcout record (synApps): a calcout with texts, whose output can wait for completion.

use super::calcout::is_due;
use super::inputs::{constants, live_links, name_of, nth, ones, written_constant};
use super::synapps::{get_text, post_states, put};
use crate::calc::synapps::{Dialect, Frame, Item, Program, compile, number_text};
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
use base::{EventMask, FieldType, Scalar, Status, Str40};

record! {
    /// Fields of a scalcout record.
    SCalcOut {
        vers: f64 [VERS],
        val: f64 [VAL],
        sval: Str40 [SVAL],
        pval: f64 [PVAL],
        psvl: Str40 [PSVL],
        calc: Text<80> [CALC],
        clcv: i32 [CLCV],
        inp: [Link; 12] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL],
        text_inp: [Link; 12] [INAA INBB INCC INDD INEE INFF INGG INHH INII INJJ INKK INLL],
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
        texts: [Str40; 12] [AA BB CC DD EE FF GG HH II JJ KK LL],
        last_texts: [Str40; 12] [PAA PBB PCC PDD PEE PFF PGG PHH PII PJJ PKK PLL],
        oval: f64 [OVAL],
        osv: Str40 [OSV],
        posv: Str40 [POSV],
        la: [f64; 12] [PA PB PC PD PE PF PG PH PI PJ PK PL],
        povl: f64 [POVL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
    } private {
        program: Program,
        output: Program,
        live: u32,
        live_texts: u32,
    }
}

/// Inputs of each row.
const INPUTS: usize = 12;

impl RecordType for SCalcOut {
    /// Start: loads constants, checks the links, compiles the expressions.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        if db.device(rec) == Device::Missing {
            return;
        }
        let r = &mut db.records[body];
        constants(&r.inp, &mut r.a);
        post_links(db, rec, body);
        compile_field(db, rec, body, Self::CALC);
        compile_field(db, rec, body, Self::OCAL);
    }

    /// Reads the inputs, computes, checks alarm limits, writes the output if OOPT requires it, posts monitors. With WAIT it
    /// waits for completion of the output.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed {
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

    /// Compiles a new expression.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if after && matches!(field, Self::CALC | Self::OCAL) {
            compile_field(db, rec, body, field);
            db.post_named(rec, if field == Self::CALC { "CLCV" } else { "OCLV" }, EventMask::VALUE);
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
        (r.live, r.live_texts) = (live_links(&r.inp), live_links(&r.text_inp));
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let of = number_properties!(self, field, kind).digits(self.prec, field == Self::VAL);
        let is_input = [Self::A, Self::PA].into_iter().any(|first| nth(field, first, INPUTS).is_some());
        if is_input { of.within(self.lopr, self.hopr) } else { of }
    }
}

/// Updates the states of all links.
fn post_links(db: &mut Db, rec: RecId, body: Body<SCalcOut>) {
    // The states are in the order of the links.
    post_states(db, rec, body, (SCalcOut::INPA, SCalcOut::INAV), 2 * INPUTS + 1);
}

/// Compiles CALC or OCAL. An empty expression is valid, but has no value.
fn compile_field(db: &mut Db, rec: RecId, body: Body<SCalcOut>, field: u16) {
    let is_main = field == SCalcOut::CALC;
    let r = &mut db.records[body];
    let text = if is_main { r.calc.bytes() } else { r.ocal.bytes() };
    let compiled = if text.is_empty() { Ok(Program::default()) } else { compile(text, Dialect::Texts) };
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

/// Reads the inputs and computes VAL and SVAL.
fn compute(db: &mut Db, rec: RecId, body: Body<SCalcOut>) {
    let r = &mut db.records[body];
    (r.la, r.last_texts) = (r.a, r.texts);
    if !fetch(db, rec, body) {
        return;
    }
    let (common, r) = db.records.both(rec, body);
    if evaluate(r, true, &mut db.seed) {
        common.udf = 0;
    } else {
        common.raise(Status::Calc, 3);
    }
}

/// Computes VAL and SVAL, or OVAL and OSV. Returns whether the expression has a finite value.
fn evaluate(r: &mut SCalcOut, is_main: bool, seed: &mut u16) -> bool {
    let program = if is_main { &r.program } else { &r.output };
    let (value, text) = if is_main { (r.val, r.sval) } else { (r.oval, r.osv) };
    let mut frame = Frame {
        numbers: &mut r.a,
        texts: &mut r.texts,
        arrays: &mut [],
        size: 0,
        value,
        text,
        array: &[],
        seed,
        stored: 0,
    };
    let result = program.run(&mut frame);
    // An expression of numbers has the digits of PREC.
    let precision = if program.has_texts { 8 } else { u16::try_from(r.prec).unwrap_or(0) };
    let found = result.ok().map(|item| match item {
        Item::Number(value) => (value, number_text(value, precision)),
        other => (other.number(), other.text()),
    });
    let found = found.filter(|(value, _)| value.is_finite());
    let (value, text) = found.unwrap_or((-1.0, Str40::new(b"***ERROR***")));
    if is_main {
        (r.val, r.sval) = (value, text);
    } else {
        (r.oval, r.osv) = (value, text);
    }
    found.is_some()
}

/// Reads the inputs. As in C, the first number that cannot be read ends the reading and the computing. A text that cannot be
/// read is replaced by a message.
fn fetch(db: &mut Db, rec: RecId, body: Body<SCalcOut>) -> bool {
    for index in ones(db.records[body].live) {
        let link = db.records[body].inp[index].brief();
        match db.get_link::<f64>(rec, link) {
            Ok(Some(value)) => db.records[body].a[index] = value,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    for index in ones(db.records[body].live_texts) {
        let link = db.records[body].text_inp[index].brief();
        let text = match get_text(db, rec, link) {
            Ok(text) => text,
            Err(_) => {
                let field = name_of::<SCalcOut>(SCalcOut::AA, index);
                Some(Str40::new(format!("{}:fetch({field}) failed", db.records.name(rec)).as_bytes()))
            }
        };
        if let Some(text) = text {
            db.records[body].texts[index] = text;
        }
    }
    true
}

/// Computes and writes the output, and posts the event. Returns whether completion must be awaited.
fn execute(db: &mut Db, rec: RecId, body: Body<SCalcOut>) -> bool {
    let (common, r) = db.records.both(rec, body);
    if r.dopt == 0 {
        (r.oval, r.osv) = (r.val, r.sval);
    } else if !evaluate(r, false, &mut db.seed) {
        common.raise(Status::Calc, 3);
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
    let r = &db.records[body];
    let (out, value, waits, event) = (r.out.brief(), (r.oval, r.osv), r.wait != 0, r.oevt);
    // A failed write raises the alarm itself.
    let pending = out.kind != LinkKind::Constant && put(db, rec, out, value, waits).unwrap_or(false);
    if event > 0 {
        db.post_event_bytes(base::text::scalar(Scalar::U16(event), 0).bytes());
    }
    pending
}

fn monitor(db: &mut Db, rec: RecId, body: Body<SCalcOut>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let mask = alarm | deadbands!(r);
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    let all = mask | EventMask::VALUE | EventMask::LOG;
    let r = &mut db.records[body];
    let (sval, osv, oval) = (changed(&mut r.psvl, r.sval), changed(&mut r.posv, r.osv), changed(&mut r.povl, r.oval));
    for (moved, name) in [(sval, "SVAL"), (osv, "OSV"), (oval, "OVAL")] {
        if moved {
            db.post_named(rec, name, all);
        }
    }
    for index in 0..INPUTS {
        let r = &db.records[body];
        let text = r.texts[index] != r.last_texts[index];
        if r.a[index] != r.la[index] || mask.meets(EventMask::ALARM) {
            db.post_named(rec, name_of::<SCalcOut>(SCalcOut::A, index), all);
        }
        if text {
            db.post_named(rec, name_of::<SCalcOut>(SCalcOut::AA, index), all);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rec::test_kit::{number, put, started, text, wait};

    #[test]
    fn it_computes_texts_and_writes_them_as_the_target_takes_them() {
        let mut db = started(
            "record(scalcout, \"s\") { field(CALC, \"PRINTF('MOVE %d', A) + BB[0,1]\") field(INPA, \"a\") field(OUT, \"t\") }
             record(scalcout, \"n\") { field(CALC, \"DBL(AA)*2\") field(INAA, \"t\") field(OUT, \"d PP\") field(PREC, \"2\") }
             record(scalcout, \"c\") { field(CALC, \"AA+'!'\") field(INAA, \"w\") field(OUT, \"w\") }
             record(ao, \"a\") { field(VAL, \"12\") } record(stringout, \"t\") {} record(ao, \"d\") {}
             record(waveform, \"w\") { field(FTVL, \"CHAR\") field(NELM, \"20\") }",
        );
        put(&mut db, "s.BB", "xyz");
        put(&mut db, "s.PROC", 1);
        assert_eq!((text(&mut db, "s.SVAL"), text(&mut db, "t")), ("MOVE 12xy".into(), "MOVE 12xy".into()));
        put(&mut db, "n.PROC", 1);
        assert_eq!((number(&mut db, "d"), text(&mut db, "n.SVAL")), (24.0, "24.00000000".into()));
        put(&mut db, "c.PROC", 1);
        put(&mut db, "c.PROC", 1);
        assert_eq!((text(&mut db, "c.AA"), text(&mut db, "c.OSV")), ("!".into(), "!!".into()));
        assert_eq!(text(&mut db, "w.NORD"), "20");
    }

    #[test]
    fn with_wait_its_forward_link_follows_when_the_output_has_completed() {
        let mut db = started(
            "record(scalcout, \"s\") { field(CALC, \"A\") field(OUT, \"slow.A CA\") field(WAIT, \"Wait\") field(FLNK, \"n\") }
             record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") } record(calc, \"n\") { field(CALC, \"VAL+1\") }",
        );
        put(&mut db, "s.A", 5.0);
        assert_eq!((number(&mut db, "slow.A"), number(&mut db, "s.PACT"), number(&mut db, "n")), (5.0, 1.0, 0.0));
        wait(&mut db, 1.0);
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "n")), (0.0, 1.0));
        // The documentation of WAIT: a link that is not over a channel does not wait.
        put(&mut db, "s.OUT", "slow.A PP");
        put(&mut db, "s.A", 6.0);
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "n")), (0.0, 2.0));
    }

    #[test]
    fn ocal_is_computed_after_the_delay() {
        let mut db = started(
            "record(scalcout, \"s\") { field(CALC, \"A\") field(OCAL, \"A+10\") field(DOPT, \"Use OCAL\") field(ODLY, \"2\") field(OUT, \"o\") }
             record(ao, \"o\") {}",
        );
        put(&mut db, "s.A", 1.0);
        assert_eq!((number(&mut db, "s.DLYA"), number(&mut db, "s.OVAL")), (1.0, 0.0));
        wait(&mut db, 2.0);
        assert_eq!((number(&mut db, "s.DLYA"), number(&mut db, "s.OVAL"), number(&mut db, "o")), (0.0, 11.0, 11.0));
    }

    #[test]
    fn an_expression_without_a_value_raises_calc_and_is_marked() {
        let mut db = started(
            "record(scalcout, \"s\") { field(CALC, \"1/A\") field(IVOA, \"Don't drive outputs\") field(OUT, \"o\") } record(ao, \"o\") { field(VAL, \"3\") }",
        );
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "s"), text(&mut db, "s.SVAL")), (-1.0, "***ERROR***".into()));
        assert_eq!(
            (text(&mut db, "s.STAT"), text(&mut db, "s.SEVR"), number(&mut db, "o")),
            ("CALC".into(), "INVALID".into(), 3.0)
        );
        put(&mut db, "s.A", 4.0);
        assert_eq!(
            (number(&mut db, "s"), text(&mut db, "s.SEVR"), number(&mut db, "o")),
            (0.25, "NO_ALARM".into(), 0.25)
        );
        put(&mut db, "s.CALC", "1+");
        assert_eq!(number(&mut db, "s.CLCV"), -1.0);
    }

    #[test]
    fn failed_inputs_are_named_and_links_have_states() {
        let mut db = started(
            "record(scalcout, \"s\") { field(CALC, \"AA\") field(INAA, \"elsewhere\") field(INPB, \"a\") field(INPC, \"3\") field(OUT, \"a CA\") }
             record(ao, \"a\") {}",
        );
        let states = |db: &mut crate::Db| ["IAAV", "INBV", "INCV", "OUTV"].map(|name| text(db, &format!("s.{name}")));
        assert_eq!(states(&mut db), ["Ext PV NC", "Local PV", "Constant", "Local PV"]);
        put(&mut db, "s.PROC", 1);
        assert_eq!(text(&mut db, "s.AA"), "s:fetch(AA) failed");
        put(&mut db, "s.INPB", "7");
        assert_eq!((number(&mut db, "s.B"), text(&mut db, "s.INBV")), (7.0, "Constant".into()));
    }
}
