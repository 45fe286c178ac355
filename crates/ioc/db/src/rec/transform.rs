//! transform record (synApps): sixteen values, each with an input, an expression and an output.
//!
//! A field without an input is computed if it was not changed since the last processing, so that writing a field and
//! processing computes the other ones from it.

use super::inputs::{constants, live_links, name_of, nth, ones, written_constant};
use super::synapps::post_states;
use crate::calc::synapps::{Dialect, Frame, Program, compile};
use crate::model::link::Link;
use crate::model::slot::{Inline, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType};
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Scalar, Status, Str40};

record! {
    /// Fields of a transform record.
    Transform {
        vers: f32 [VERS],
        ivla: u16 [IVLA],
        copt: u16 [COPT],
        val: f64 [VAL],
        clc: [Text<120>; 16] [CLCA CLCB CLCC CLCD CLCE CLCF CLCG CLCH CLCI CLCJ CLCK CLCL CLCM CLCN CLCO CLCP],
        invalid: [i32; 16] [CAV CBV CCV CDV CEV CFV CGV CHV CIV CJV CKV CLV CMV CNV COV CPV],
        inp: [Link; 16] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP],
        out: [Link; 16] [OUTA OUTB OUTC OUTD OUTE OUTF OUTG OUTH OUTI OUTJ OUTK OUTL OUTM OUTN OUTO OUTP],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        a: [f64; 16] [A B C D E F G H I J K L M N O P],
        la: [f64; 16] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP],
        cmt: [Text<39>; 16] [CMTA CMTB CMTC CMTD CMTE CMTF CMTG CMTH CMTI CMTJ CMTK CMTL CMTM CMTN CMTO CMTP],
        map: i16 [MAP],
        iav: [u16; 16] [IAV IBV ICV IDV IEV IFV IGV IHV IIV IJV IKV ILV IMV INV IOV IPV],
        oav: [u16; 16] [OAV OBV OCV ODV OEV OFV OGV OHV OIV OJV OKV OLV OMV ONV OOV OPV],
    } private {
        programs: Vec<Option<Program>>,
        live: u32,
        outputs: u32,
        // Whether all values were posted once.
        posted: bool,
    }
}

/// Number of values.
const FIELDS: usize = 16;

impl RecordType for Transform {
    /// Start: loads constants, checks the links, compiles the expressions.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        constants(&r.inp, &mut r.a);
        (r.val, r.map, r.la) = (0.0, 0, r.a);
        r.programs = vec![None; FIELDS];
        (0..FIELDS).for_each(|index| compile_field(db, rec, body, index));
        post_links(db, rec, body);
    }

    /// Reads the inputs, computes the fields in order, writes the outputs.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        db.records[rec].udf = 0;
        for index in ones(db.records[body].live) {
            let link = db.records[body].inp[index].brief();
            match db.get_link::<f64>(rec, link) {
                Ok(Some(value)) => db.records[body].a[index] = value,
                Ok(None) => {}
                Err(_) => db.records[body].a[index] = 0.0,
            }
        }
        if db.records[rec].nsev >= 3 && db.records[body].ivla == 1 {
            db.stamp_now(rec);
            db.reset_alarms(rec);
            // C leaves a put that waits for the record waiting forever.
            db.notify_completion(rec);
            return ProcessResult::NoForward;
        }
        compute(db, rec, body);
        for index in ones(db.records[body].outputs) {
            let r = &db.records[body];
            let (link, value) = (r.out[index].brief(), Scalar::F64(r.a[index]));
            // A failed write raises the alarm itself.
            let _ = db.put_link(rec, link, value);
        }
        db.stamp_now(rec);
        if db.records[rec].udf != 0 {
            db.records[rec].raise_undefined();
        }
        db.reset_alarms(rec);
        let first = !std::mem::replace(&mut db.records[body].posted, true);
        for index in 0..FIELDS {
            let r = &mut db.records[body];
            if r.a[index] != r.la[index] || first {
                r.la[index] = r.a[index];
                db.post_named(rec, name_of::<Self>(Self::A, index), EventMask::VALUE | EventMask::LOG);
            }
        }
        ProcessResult::Done
    }

    /// A field with an input cannot be written. A written field is not computed by the next processing.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if let Some(index) = nth(field, Self::A, FIELDS) {
            let idle = db.records[rec].pact == 0;
            let r = &mut db.records[body];
            if !after && !r.inp[index].is_constant() {
                return Err(PutError::NoModify);
            }
            if after && idle {
                r.map |= (1u16 << index) as i16;
            }
        }
        if let Some(index) = nth(field, Self::CLCA, FIELDS).filter(|_| after) {
            compile_field(db, rec, body, index);
            db.post_named(rec, name_of::<Self>(Self::CAV, index), EventMask::VALUE | EventMask::LOG);
        }
        Ok(())
    }

    /// Called after a client wrote a link. A constant is loaded into its field immediately.
    fn link_put(db: &mut Db, rec: RecId, body: Body<Self>, field: u16) {
        let r = &mut db.records[body];
        if let Some(index) = written_constant(field, Self::INPA, &r.inp, &mut r.a) {
            db.post_named(rec, name_of::<Self>(Self::A, index), EventMask::VALUE | EventMask::LOG);
        }
        post_links(db, rec, body);
    }

    fn connection_changed(db: &mut Db, rec: RecId, body: Body<Self>) {
        post_links(db, rec, body);
    }

    /// Records which links must be read and written.
    fn links_changed(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        (r.live, r.outputs) = (live_links(&r.inp), live_links(&r.out));
    }

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        Properties::NONE.digits(if field == Self::VERS { 2 } else { self.prec }, true)
    }
}

/// Updates the states of all links.
fn post_links(db: &mut Db, rec: RecId, body: Body<Transform>) {
    post_states(db, rec, body, (Transform::INPA, Transform::IAV), FIELDS);
    post_states(db, rec, body, (Transform::OUTA, Transform::OAV), FIELDS);
}

/// Compiles the expression of a field. An empty one is valid.
fn compile_field(db: &mut Db, rec: RecId, body: Body<Transform>, index: usize) {
    let r = &mut db.records[body];
    let text = r.clc[index].bytes();
    let compiled = if text.is_empty() { Ok(None) } else { compile(&expanded(r, text), Dialect::Texts).map(Some) };
    let wrong = compiled.as_ref().err().copied();
    r.invalid[index] = if wrong.is_some() { -1 } else { 0 };
    if let Some(place) = r.programs.get_mut(index) {
        *place = compiled.unwrap_or_default();
    }
    if let Some(wrong) = wrong {
        let field = name_of::<Transform>(Transform::CLCA, index);
        db.notice(format!("{}.{field}: {wrong}", db.records.name(rec)));
    }
}

/// An expression in which the names from the comments (`$name …`) are replaced by their variables. The longest name wins.
/// Abbreviations of functions (`$P(`) are not names.
fn expanded(r: &Transform, text: &[u8]) -> Vec<u8> {
    let name = |comment: &[u8]| {
        let len = comment.iter().position(u8::is_ascii_whitespace).unwrap_or(comment.len());
        comment[..len].to_vec()
    };
    let names = r.cmt.iter().map(|comment| name(comment.bytes())).zip(b'A'..).filter(|(name, _)| name.len() > 1);
    let mut names: Vec<(Vec<u8>, u8)> = names.filter(|(name, _)| name.first() == Some(&b'$')).collect();
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let is_function =
            matches!(rest.get(1).map(u8::to_ascii_uppercase), Some(b'P' | b'T' | b'W' | b'S' | b'R' | b'E'))
                && rest.get(2) == Some(&b'(');
        let fits = |name: &[u8]| rest.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
        let found = names.iter().find(|(name, _)| fits(name)).filter(|_| *byte == b'$' && !is_function);
        let (replaced, len) = found.map_or((*byte, 1), |(name, letter)| (*letter, name.len()));
        out.push(replaced);
        rest = &rest[len..];
    }
    out
}

/// Computes the fields in order. Each sees the results of those before it.
fn compute(db: &mut Db, rec: RecId, body: Body<Transform>) {
    let (common, r) = db.records.both(rec, body);
    let written = std::mem::take(&mut r.map) as u16;
    for index in 0..FIELDS {
        let same = r.a[index].to_bits() == r.la[index].to_bits() || (r.a[index] == 0.0 && r.la[index] == 0.0);
        let untouched = r.inp[index].is_constant() && same && written >> index & 1 == 0;
        let Some(Some(program)) = r.programs.get(index).filter(|_| untouched || r.copt == 1) else { continue };
        let (value, text, seed) = (r.a[index], Str40::EMPTY, &mut db.seed);
        let mut frame = Frame {
            numbers: &mut r.a,
            texts: &mut [],
            arrays: &mut [],
            size: 0,
            value,
            text,
            array: &[],
            seed,
            stored: 0,
        };
        let result = program.run(&mut frame).map(|item| item.number());
        // Without a value the field keeps its own; an infinite value and NaN stay visible.
        if let Ok(value) = result {
            r.a[index] = value;
        }
        if !result.is_ok_and(f64::is_finite) {
            common.raise(Status::Calc, 3);
            common.udf = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rec::test_kit::{number, put, started, text};

    #[test]
    fn a_written_field_is_kept_and_the_others_are_computed_from_it() {
        // The example of its documentation: an invertible transform.
        let mut db = started(
            "record(transform, \"t\") { field(CLCA, \"B/2\") field(CLCB, \"A*2\") field(CMTC, \"$gap of the slit\")
                 field(CLCD, \"$GAP+1\") field(OUTB, \"o\") field(OUTD, \"d PP\") }
             record(ao, \"o\") {} record(ao, \"d\") {}",
        );
        put(&mut db, "t.A", 3.0);
        assert_eq!(["A", "B"].map(|name| number(&mut db, &format!("t.{name}"))), [3.0, 6.0]);
        put(&mut db, "t.B", 10.0);
        assert_eq!(["A", "B"].map(|name| number(&mut db, &format!("t.{name}"))), [5.0, 10.0]);
        put(&mut db, "t.C", 4.0);
        assert_eq!((number(&mut db, "t.D"), number(&mut db, "d"), number(&mut db, "o")), (5.0, 5.0, 10.0));
    }

    #[test]
    fn inputs_win_over_expressions_unless_copt_is_always() {
        let mut db = started(
            "record(transform, \"t\") { field(INPA, \"a\") field(CLCA, \"A+100\") } record(ao, \"a\") { field(VAL, \"2\") }",
        );
        put(&mut db, "t.PROC", 1);
        assert_eq!(
            (number(&mut db, "t.A"), text(&mut db, "t.IAV"), text(&mut db, "t.OAV")),
            (2.0, "Local PV".into(), "Constant".into())
        );
        put(&mut db, "t.COPT", "Always");
        put(&mut db, "t.PROC", 1);
        assert_eq!(number(&mut db, "t.A"), 102.0);
        let channel = db.find("t.A").unwrap();
        assert!(db.put(&channel, &base::Value::from(1.0), crate::Now::default()).is_err(), "the input decides about A");
    }

    #[test]
    fn errors_raise_calc_and_keep_the_value() {
        let mut db = started("record(transform, \"t\") { field(CLCB, \"1/A\") }");
        put(&mut db, "t.A", 2.0);
        assert_eq!(number(&mut db, "t.B"), 0.5);
        put(&mut db, "t.A", 0.0);
        assert_eq!(
            (number(&mut db, "t.B"), text(&mut db, "t.STAT"), number(&mut db, "t.UDF")),
            (0.5, "CALC".into(), 1.0)
        );
        put(&mut db, "t.CLCB", "A+");
        assert_eq!(number(&mut db, "t.CBV"), -1.0);
    }

    #[test]
    fn with_do_nothing_an_invalid_input_stops_outputs_and_forward_link() {
        let mut db = started(
            "record(transform, \"t\") { field(INPA, \"elsewhere\") field(IVLA, \"Do Nothing\") field(OUTA, \"o\") field(FLNK, \"n\") }
             record(ao, \"o\") { field(VAL, \"3\") } record(calc, \"n\") { field(CALC, \"VAL+1\") }",
        );
        put(&mut db, "t.PROC", 1);
        assert_eq!((number(&mut db, "o"), number(&mut db, "n"), text(&mut db, "t.STAT")), (3.0, 0.0, "LINK".into()));
        put(&mut db, "t.IVLA", "Ignore error");
        put(&mut db, "t.PROC", 1);
        assert_eq!((number(&mut db, "o"), number(&mut db, "n")), (0.0, 1.0));
    }
}
