//! swait record (synApps): a calcout that waits for the completion of its output before it follows its forward link.
//!
//! Text fields name its inputs, its output and the source of DOLD (DOLN). They can be written at run time. All links use
//! channels, so that reading an input does not process its record. With SCAN `I/O Intr` the record processes when an input
//! changes whose INxP is `Yes`.
//!
//! INAV to INLV, DOLV and OUTV are not 0 for names that cannot be resolved, as the documentation of the record describes it.
//! The record's screens display such a name as "INVALID".

use super::calcout::is_due;
use super::inputs::{constants, inputs, live_links, name_of, nth, post_inputs, post_val, read_live};
use crate::calc::{self, BadExpression, Program};
use crate::model::link::{BadLink, CA, Link, LinkField, LinkKind, LinkText, read};
use crate::model::slot::{Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Scalar, Status};

record! {
    /// Fields of a swait record.
    Swait {
        val: f64 [VAL],
        oval: f64 [OVAL],
        calc: Text<40> [CALC],
        clcv: i32 [CLCV],
        names: [Text<40>; 14] [INAN INBN INCN INDN INEN INFN INGN INHN ININ INJN INKN INLN DOLN OUTN],
        flags: [i32; 14] [INAV INBV INCV INDV INEV INFV INGV INHV INIV INJV INKV INLV DOLV OUTV],
        on_change: [u16; 12] [INAP INBP INCP INDP INEP INFP INGP INHP INIP INJP INKP INLP],
        dold: f64 [DOLD],
        oopt: u16 [OOPT],
        dopt: u16 [DOPT],
        odly: f32 [ODLY],
        oevt: u16 [OEVT],
        prec: i16 [PREC],
        hopr: f32 [HOPR],
        lopr: f32 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 12] [A B C D E F G H I J K L],
        la: [f64; 12] [LA LB LC LD LE LF LG LH LI LJ LK LL],
        alst: f64 [ALST],
        mlst: f64 [MLST],
    } private {
        program: Program,
        inp: [Link; 12],
        dol: Link,
        out: Link,
        // The ODLY delay is running.
        delayed: bool,
    }
}

inputs!(Swait);

/// Index of DOLN and OUTN in the list of names.
const DOLN: usize = 12;
const OUTN: usize = 13;

impl RecordType for Swait {
    /// Start: compiles the expression and connects the links.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        // The record waits for the completion of its output.
        db.records[rec].device = Device::SoftAsync;
        let source = db.source(&format!("inputs of {}", db.records.name(rec)));
        db.listen(rec, Some(source));
        if let Err(what) = compile(db, body) {
            db.notice(format!("{}.CALC: {what}", db.records.name(rec)));
        }
        for place in 0..=OUTN {
            if let Err(what) = connect(db, rec, body, place) {
                db.notice(format!("{}: {what}", db.records.name(rec)));
            }
        }
        let r = &mut db.records[body];
        (r.oval, r.mlst, r.alst) = (r.val, r.val, r.val);
    }

    /// Reads the inputs, computes, writes the output if OOPT requires it, waits for its completion, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let r = &mut db.records[body];
        let due = if resumed { std::mem::take(&mut r.delayed) } else { compute(db, rec, body) };
        let r = &mut db.records[body];
        if due && !resumed && r.odly > 0.0 {
            r.delayed = true;
            let delay = r.odly.into();
            db.call_back_after(rec, Callback::Resume, delay);
            return ProcessResult::Pending;
        }
        if due && write(db, rec, body) {
            return ProcessResult::Pending;
        }
        let failed = db.pass.failed;
        let mask = post_val(db, rec, body);
        post_inputs(db, rec, body, mask, mask.meets(EventMask::ALARM));
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }

    /// Handles a new expression or a new name.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        if field == Self::CALC {
            let compiled = compile(db, body);
            db.post_named(rec, "CLCV", EventMask::VALUE);
            return compiled.map_err(|error| PutError::BadValue { what: error.to_string() });
        }
        let place = nth(field, Self::INAN, OUTN + 1);
        place
            .map_or(Ok(()), |place| connect(db, rec, body, place))
            .map_err(|error| PutError::BadLink { what: error.to_string() })
    }

    fn removed(db: &mut Db, _: RecId, body: Body<Self>) {
        for place in 0..=OUTN {
            let old = std::mem::replace(db.records[body].link(place), Link::EMPTY).brief();
            db.release_link(old);
        }
    }

    fn connection_changed(db: &mut Db, rec: RecId, body: Body<Self>) {
        (0..=OUTN).for_each(|place| look_at_name(db, rec, body, place));
    }

    fn processes_for(&self, link: u32) -> bool {
        let mut inputs = self.inp.iter().map(Link::brief).zip(self.on_change);
        inputs.any(|(brief, on)| on == 1 && brief.kind == LinkKind::Remote && brief.target == link)
    }

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        let of = Properties::BOUNDED.digits(self.prec, field == Self::VAL);
        let ranged = matches!(field, Self::VAL | Self::ALST | Self::MLST);
        if ranged { of.within(self.lopr.into(), self.hopr.into()) } else { of }
    }

    #[inline]
    fn double_val(&self) -> Option<f64> {
        Some(self.val)
    }
}

impl Swait {
    /// The link at an index of the list of names.
    const fn link(&mut self, place: usize) -> &mut Link {
        match place {
            DOLN => &mut self.dol,
            OUTN => &mut self.out,
            input => &mut self.inp[input],
        }
    }
}

fn compile(db: &mut Db, body: Body<Swait>) -> Result<(), BadExpression> {
    let r = &mut db.records[body];
    let compiled = calc::compile(r.calc.bytes());
    r.clcv = if compiled.is_ok() { 0 } else { -1 };
    let wrong = compiled.as_ref().err().copied();
    r.program = compiled.unwrap_or_default();
    wrong.map_or(Ok(()), |error| Err(BadExpression { error, expression: r.calc.bytes().to_owned() }))
}

/// Connects a link to the target of its name. A constant is loaded into its input or DOLD.
fn connect(db: &mut Db, rec: RecId, body: Body<Swait>, place: usize) -> Result<(), BadLink> {
    let name = String::from_utf8_lossy(db.records[body].names[place].bytes()).into_owned();
    let (link, wrong) = match read(&name, LinkField::In) {
        Ok(LinkText::Constant(text)) => (Link::of_constant(text), None),
        Ok(LinkText::Pv(name, _)) => (db.link_over_channel(rec, name, place != OUTN, CA), None),
        Ok(LinkText::Hardware(_) | LinkText::Json(..) | LinkText::Pva(..)) => {
            (Link::EMPTY, Some(BadLink::NoName(name.clone())))
        }
        Err(error) => (Link::EMPTY, Some(error)),
    };
    let r = &mut db.records[body];
    match place {
        DOLN => r.dold = link.number().unwrap_or(r.dold),
        OUTN => {}
        input => constants(std::slice::from_ref(&link), &mut r.a[input..=input]),
    }
    let old = std::mem::replace(r.link(place), link).brief();
    db.release_link(old);
    look_at_name(db, rec, body, place);
    wrong.map_or(Ok(()), Err)
}

/// Updates whether a name is invalid, and posts a change. Inputs may be constants. Inputs and OUTN may be empty. DOLV is set
/// if DOLD is not fetched.
fn look_at_name(db: &mut Db, rec: RecId, body: Body<Swait>, place: usize) {
    let r = &mut db.records[body];
    let is_named = !r.names[place].bytes().is_empty();
    let (brief, is_constant) = (r.link(place).brief(), r.link(place).number::<f64>().is_some());
    let invalid = match (brief.kind, place) {
        (LinkKind::Remote, _) => !db.is_connected(brief),
        (_, DOLN) => true,
        (_, OUTN) => is_named,
        _ => is_named && !is_constant,
    };
    if changed(&mut db.records[body].flags[place], invalid.into()) {
        db.post_named(rec, name_of::<Swait>(Swait::INAV, place), EventMask::VALUE);
    }
}

/// Reads the inputs and computes. Returns whether OOPT requires an output.
fn compute(db: &mut Db, rec: RecId, body: Body<Swait>) -> bool {
    let live = live_links(&db.records[body].inp);
    let fetched = read_live(db, rec, body, live);
    let (common, r) = db.records.both(rec, body);
    if fetched {
        match r.program.run(&mut r.a, &mut r.val, &mut db.seed) {
            Ok(()) => common.udf = u8::from(r.val.is_nan()),
            Err(()) => drop(common.raise(Status::Calc, 3)),
        }
    }
    if common.udf != 0 {
        common.raise_undefined();
    }
    db.stamp_now(rec);
    let r = &mut db.records[body];
    let due = is_due(r.oopt, r.oval, r.val, 0.0);
    r.oval = r.val;
    due
}

/// Writes VAL or DOLD and posts the event. Returns whether a callback is pending. A failed write raises the alarm itself.
fn write(db: &mut Db, rec: RecId, body: Body<Swait>) -> bool {
    let r = &db.records[body];
    let (from_dol, dol, out) = (r.dopt == 1, r.dol.brief(), r.out.brief());
    if from_dol
        && r.flags[DOLN] == 0
        && let Ok(Some(value)) = db.get_link::<f64>(rec, dol)
        && std::mem::replace(&mut db.records[body].dold, value) != value
    {
        db.post_named(rec, "DOLD", EventMask::VALUE | EventMask::LOG);
    }
    let r = &db.records[body];
    let (value, event) = (if from_dol { r.dold } else { r.val }, r.oevt);
    let pending = db.write_out(rec, out, Scalar::F64(value), true, false);
    if event > 0 {
        db.post_event_bytes(base::text::scalar(Scalar::U16(event), 0).bytes());
    }
    pending
}

#[cfg(test)]
mod tests {
    use crate::{Db, Macros, Now};
    use base::{DurNs, Scalar, Value};

    fn started(text: &str) -> Db {
        let mut db = Db::new();
        db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap();
        db.init(Now::default());
        db.advance(Now::default(), 100);
        db
    }

    fn put(db: &mut Db, name: &str, value: impl Into<Value>) {
        let channel = db.find(name).unwrap();
        db.put(&channel, &value.into(), Now::default()).unwrap();
        db.advance(Now::default(), 100);
    }

    fn number(db: &mut Db, name: &str) -> f64 {
        let channel = db.find(name).unwrap();
        match db.get_as(&channel, base::FieldType::F64).and_then(|array| array.get(0)) {
            Some(Scalar::F64(number)) => number,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn the_forward_link_waits_for_the_processing_that_the_output_starts() {
        let mut db = started(
            "record(swait, \"s\") { field(CALC, \"A*2\") field(OUTN, \"slow.A\") field(FLNK, \"n\") field(OEVT, \"7\") }
             record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") }
             record(calc, \"n\") { field(CALC, \"VAL+1\") }
             record(calc, \"e\") { field(CALC, \"VAL+1\") field(SCAN, \"Event\") field(EVNT, \"7\") }",
        );
        put(&mut db, "s.A", 3.0);
        // The record wrote its output and posted its event. The processing that it started continues.
        assert_eq!((number(&mut db, "slow.A"), number(&mut db, "e")), (6.0, 1.0));
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "n")), (1.0, 0.0));
        let later = Now { mono: Now::default().mono + DurNs::from_secs(1), ..Now::default() };
        db.advance(later, 100);
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "n")), (0.0, 1.0));
        assert_eq!(number(&mut db, "s.STAT"), 0.0);
    }

    #[test]
    fn the_record_writes_its_output_after_its_delay() {
        let mut db = started(
            "record(swait, \"s\") { field(CALC, \"A\") field(OUTN, \"o\") field(ODLY, \"0.5\") } record(ao, \"o\") {}",
        );
        put(&mut db, "s.A", 4.0);
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "o")), (1.0, 0.0));
        db.advance(Now { mono: Now::default().mono + DurNs::from_ms(500), ..Now::default() }, 100);
        assert_eq!((number(&mut db, "s.PACT"), number(&mut db, "o")), (0.0, 4.0));
    }

    #[test]
    fn with_io_intr_a_change_of_a_selected_input_processes_the_record() {
        let mut db = started(
            "record(swait, \"s\") { field(SCAN, \"I/O Intr\") field(CALC, \"A+B\")
                 field(INAN, \"a\") field(INAP, \"Yes\") field(INBN, \"b\") }
             record(ao, \"a\") {} record(ao, \"b\") {}",
        );
        put(&mut db, "b", 10.0);
        assert_eq!(number(&mut db, "s"), 0.0);
        put(&mut db, "a", 1.0);
        assert_eq!(number(&mut db, "s"), 11.0);
        put(&mut db, "s.INBP", "Yes");
        put(&mut db, "b", 20.0);
        assert_eq!(number(&mut db, "s"), 21.0);
        put(&mut db, "s.SCAN", "Passive");
        put(&mut db, "a", 2.0);
        assert_eq!(number(&mut db, "s"), 21.0);
    }

    #[test]
    fn names_can_be_changed_at_run_time_and_constants_take_effect_at_once() {
        let mut db = started(
            "record(swait, \"s\") { field(CALC, \"A\") field(INAN, \"5\") field(DOPT, \"Use DOL\") field(OUTN, \"o\") }
             record(ao, \"a\") { field(VAL, \"8\") } record(ao, \"o\") {} record(ao, \"p\") {}",
        );
        put(&mut db, "s.DOLD", 3.0);
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "s"), number(&mut db, "o"), number(&mut db, "s.DOLV")), (5.0, 3.0, 1.0));
        put(&mut db, "s.INAN", "a");
        put(&mut db, "s.DOLN", "a");
        put(&mut db, "s.OUTN", "p");
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "s"), number(&mut db, "o"), number(&mut db, "p")), (8.0, 3.0, 8.0));
        assert_eq!(number(&mut db, "s.DOLV"), 0.0);
        put(&mut db, "s.OOPT", "Never");
        put(&mut db, "a", 9.0);
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "s"), number(&mut db, "p")), (9.0, 8.0));
        let channel = db.find("s.INAN").unwrap();
        assert!(db.put(&channel, &Value::from("@device"), Now::default()).is_err());
    }

    #[test]
    fn names_without_a_record_are_flagged() {
        let mut db = started(
            "record(swait, \"s\") { field(INAN, \"a\") field(INBN, \"2.5\") field(INCN, \"nobody\") field(OUTN, \"a\") field(DOLN, \"nobody\") }
             record(ao, \"a\") {}",
        );
        let flags =
            |db: &mut Db| ["INAV", "INBV", "INCV", "INDV", "DOLV", "OUTV"].map(|name| number(db, &format!("s.{name}")));
        assert_eq!(flags(&mut db), [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        for (name, leads_to) in [("s.INCN", "a.DESC"), ("s.INDN", "else"), ("s.DOLN", "a"), ("s.OUTN", "nobody")] {
            put(&mut db, name, leads_to);
        }
        assert_eq!(flags(&mut db), [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        put(&mut db, "s.INDN", "");
        put(&mut db, "s.OUTN", "");
        put(&mut db, "s.DOLN", "");
        assert_eq!(flags(&mut db), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let channel = db.find("s.INAN").unwrap();
        assert!(db.put(&channel, &Value::from("@device"), Now::default()).is_err());
        assert_eq!(flags(&mut db)[0], 1.0);
    }

    #[test]
    fn a_malformed_expression_is_refused_and_raises_a_calc_alarm() {
        let mut db = started("record(swait, \"s\") { field(OEVT, \"1\") }");
        let channel = db.find("s.CALC").unwrap();
        assert!(db.put(&channel, &Value::from("A+"), Now::default()).is_err());
        assert_ne!(number(&mut db, "s.CLCV"), 0.0);
        put(&mut db, "s.PROC", 1);
        assert_eq!(db.alarm(channel.record).status, base::Status::Calc);
        db.remove_record(channel.record);
    }
}
