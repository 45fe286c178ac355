//! Code shared by the synApps types scalcout, transform, sseq and acalcout: states of links, and values that are texts or
//! numbers as their target needs.

use super::inputs::name_of;
use super::{Body, RecordType};
use crate::calc::synapps::escaped;
use crate::model::id::RecId;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::model::slot::Slot;
use crate::run::engine::Db;
use crate::run::link::{LinkError, LinkResult};
use base::{Array, EventMask, FieldType, Scalar, Str40, Value};

/// Longest text of the types, with its NUL.
const TEXT: usize = 40;

/// Value of a field that displays the state of a link.
pub(crate) fn state_of(db: &Db, link: ResolvedLink) -> u16 {
    const NOT_CONNECTED: u16 = 0;
    const ELSEWHERE: u16 = 1;
    const LOCAL: u16 = 2;
    const CONSTANT: u16 = 3;
    match link.kind {
        LinkKind::Constant => CONSTANT,
        LinkKind::Remote if !db.is_connected(link) => NOT_CONNECTED,
        LinkKind::Remote if db.links.remotes.source(link.target).is_none() => ELSEWHERE,
        _ => LOCAL,
    }
}

/// Updates the states of a row of links, and posts those that changed. `links` and `states` are the first fields of the rows.
pub(crate) fn post_states<T: RecordType>(
    db: &mut Db,
    rec: RecId,
    body: Body<T>,
    (links, states): (u16, u16),
    count: usize,
) {
    for index in 0..count {
        let Slot::Link(link) = db.records[body].slot(usize::from(links) + index) else { continue };
        let link = link.brief();
        let state = state_of(db, link);
        let Slot::U16(place) = db.records[body].slot(usize::from(states) + index) else { continue };
        if *place != state {
            *place = state;
            db.post_named(rec, name_of::<T>(states, index), EventMask::VALUE);
        }
    }
}

/// Kind of value that the target of a link accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Texts: also states and menu choices by name, and links.
    Text,
    /// An array of characters, of this size.
    Characters(usize),
    Number,
    /// Its type is not known.
    Unknown,
}

/// Kind of value that the target of a link accepts, or that its source has.
pub(crate) fn takes(db: &mut Db, link: ResolvedLink) -> Takes {
    match db.link_type(link) {
        None => Takes::Unknown,
        Some(FieldType::String | FieldType::Enum | FieldType::Menu | FieldType::Device | FieldType::Link) => {
            Takes::Text
        }
        Some(FieldType::I8 | FieldType::U8) => match elements(db, link) {
            count @ 2.. => Takes::Characters(count.min(TEXT)),
            _ => Takes::Number,
        },
        Some(_) => Takes::Number,
    }
}

/// Number of elements that the target of a link has; 1 if it is not known.
pub(crate) fn elements(db: &Db, link: ResolvedLink) -> usize {
    match link.kind {
        LinkKind::Db => db.element_count(link.record(), link.field),
        LinkKind::Remote => match db.links.remotes.source(link.target) {
            Some(source) => db.info(source).elements_max as usize,
            None => db.channel_elements(link.target).unwrap_or(1),
        },
        LinkKind::Through => {
            db.links.modified.get(link.target).map_or(1, |channel| db.info(channel).elements_max as usize)
        }
        LinkKind::Constant | LinkKind::Json | LinkKind::Hardware => 1,
    }
}

/// Reads the text at the start of an array of characters.
pub(crate) fn get_characters(db: &mut Db, rec: RecId, link: ResolvedLink, max: usize) -> LinkResult<Str40> {
    Ok(db.get_link_array(rec, link, FieldType::U8, max)?.map(|array| match array {
        Array::U8(bytes) => Str40::new(crate::model::values::text(&bytes)),
        _ => Str40::EMPTY,
    }))
}

/// Reads a text. Characters that do not print become escapes.
pub(crate) fn get_text(db: &mut Db, rec: RecId, link: ResolvedLink) -> LinkResult<Str40> {
    match takes(db, link) {
        Takes::Characters(max) => {
            Ok(get_characters(db, rec, link, max.min(TEXT - 1))?.map(|text| escaped(text.bytes())))
        }
        _ => db.get_link_text(rec, link),
    }
}

/// Writes a number or its text, as the target takes it. With `waits`, a link over a channel reports completion by resuming the
/// record; returns whether it will.
pub(crate) fn put(
    db: &mut Db,
    rec: RecId,
    link: ResolvedLink,
    (number, text): (f64, Str40),
    waits: bool,
) -> Result<bool, LinkError> {
    let is_number = || base::text::parse_double(text.bytes()).is_some_and(|(_, len)| len == text.bytes().len());
    let value = match takes(db, link) {
        Takes::Text => Value::Scalar(Scalar::String(text)),
        // The server of the target converts the text.
        Takes::Unknown if !text.bytes().is_empty() && !is_number() => Value::Scalar(Scalar::String(text)),
        Takes::Characters(count) => Value::Array(Array::U8(text.padded()[..count].to_vec())),
        Takes::Number | Takes::Unknown => Value::Scalar(Scalar::F64(number)),
    };
    if waits && link.kind == LinkKind::Remote {
        return db.put_and_wait(rec, link, value);
    }
    match value {
        Value::Scalar(scalar) => db.put_link(rec, link, scalar)?,
        Value::Array(array) => db.put_link_array(rec, link, &array)?,
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::rec::test_kit::{put, started, unposted, wait};
    use base::Value;

    /// Values that records keep for their next processing. C does not post them.
    #[rustfmt::skip]
    const KEPT: &[&str] = &[
        "UDF", "LALM", "ALST", "MLST",
        "LVAL", "LDVL", "LRVL",
        "PCPT", "P1LV", "R1LV", "R2LV", "R3LV", "R4LV", "D01LV",
        "CVLP", "OVLP", "FBOP", "PP", "IP", "ERRP",
        "LA", "LB", "LC",
        "PVAL", "PSVL", "PA", "PAA", "POSV",
    ];

    #[derive(Clone, Copy)]
    enum Do {
        Put(&'static str, f64),
        Text(&'static str, &'static str),
        Wait(f64),
    }
    use Do::{Put, Text, Wait};

    fn all_posted(records: &str, acts: &[Do]) -> Vec<String> {
        let mut db = started(records);
        let fields = unposted(&mut db, "r", |db: &mut Db| {
            for act in acts {
                match act {
                    Put(field, value) => put(db, field, Value::from(*value)),
                    Text(field, value) => put(db, field, *value),
                    Wait(seconds) => wait(db, *seconds),
                }
            }
        });
        fields.into_iter().filter(|field| !KEPT.contains(&field.as_str())).collect()
    }

    #[test]
    fn fields_that_a_record_changes_itself_are_posted() {
        let motors: String = ["0X", "0Y", "1Y", "2X", "2Y", "2Z"]
            .iter()
            .map(|motor| format!("record(motor, \"m{motor}\") {{ field(DTYP, \"Simulated Motor\") field(MRES, \"0.000001\") field(VELO, \"2\") field(DHLM, \"20\") field(DLLM, \"-20\") }} "))
            .collect();
        let links: String = ["0X", "0Y", "1Y", "2X", "2Y", "2Z"]
            .iter()
            .map(|m| format!("field(M{m}L, \"m{m}.VAL PP MS\") field(R{m}I, \"m{m}.VAL\") field(E{m}I, \"m{m}.RBV\") field(V{m}L, \"m{m}.VELO\") field(V{m}I, \"m{m}.VELO\") field(H{m}L, \"m{m}.HLM\") field(L{m}L, \"m{m}.LLM\") "))
            .collect();
        let table = format!(
            "{motors} record(table, \"r\") {{ field(LX, \"1000\") field(LZ, \"2000\") field(RX, \"500\") field(RZ, \"1000\") {links} }}"
        );
        let scan =
            "record(sscan, \"r\") { field(P1PV, \"p.VAL\") field(NPTS, \"5\") field(P1SP, \"0\") field(P1EP, \"4\")
             field(T1PV, \"t.PROC\") field(D01PV, \"d.VAL\") }
         record(ao, \"p\") { field(DRVH, \"100\") field(DRVL, \"-100\") field(EGU, \"mm\") field(PREC, \"2\") }
         record(calcout, \"t\") { field(ODLY, \"0.1\") field(OUT, \"d.PROC PP\") field(CALC, \"1\") }
         record(calc, \"d\") { field(INPA, \"p\") field(CALC, \"A*A\") field(EGU, \"cps\") field(HOPR, \"9\") }";
        let motor = "record(motor, \"r\") { field(DTYP, \"Simulated Motor\") field(OUT, \"@-1000 1000 0\") field(MRES, \"0.1\") field(VELO, \"10\") field(DHLM, \"50\") field(DLLM, \"-50\") }";
        let scaler = "record(scaler, \"r\") { field(OUT, \"@8 500 20\") field(FREQ, \"1e6\") field(TP, \"2\") }";
        let epid = "record(epid, \"r\") { field(INP, \"in\") field(OUTL, \"out\") field(KP, \"2\") field(KI, \"1\") field(KD, \"0.1\") field(DRVH, \"10\") field(DRVL, \"-10\") } record(ao, \"in\") { field(VAL, \"1\") } record(ao, \"out\") {}";
        let transform = "record(transform, \"r\") { field(CLCB, \"A*2\") field(CLCC, \"B+1\") field(OUTC, \"o\") } record(ao, \"o\") {}";
        let scalcout = "record(scalcout, \"r\") { field(CALC, \"A+1\") field(OCAL, \"AA+'x'\") field(DOPT, \"Use OCAL\") field(ODLY, \"0.5\") field(OUT, \"o\") field(INPB, \"o\") field(INAA, \"o.NAME\") } record(ao, \"o\") {}";
        let acalcout = "record(acalcout, \"r\") { field(NELM, \"4\") field(CALC, \"AA+A\") field(ODLY, \"0.5\") field(OUT, \"o\") } record(ao, \"o\") {}";
        let sseq = "record(sseq, \"r\") { field(DO1, \"3\") field(LNK1, \"o CA\") field(DLY1, \"0.2\") field(DOL2, \"o\") field(LNK2, \"o.DESC\") field(WAIT1, \"Wait\") } record(ao, \"o\") {}";
        let swait = "record(swait, \"r\") { field(INAN, \"o.VAL\") field(CALC, \"A+1\") field(ODLY, \"0.2\") field(OUTN, \"p.VAL\") field(DOLN, \"o.VAL\") } record(ao, \"o\") {} record(ao, \"p\") {}";
        let busy = "record(busy, \"r\") { field(ZNAM, \"Done\") field(ONAM, \"Busy\") field(HIGH, \"1\") }";
        let cases: [(&str, &str, &[Do]); 18] = [
            ("table move", &table, &[Put("r.Y", 4.0), Wait(3.0), Put("r.READ", 1.0)]),
            (
                "table yang",
                &table,
                &[Put("r.Y", 4.0), Wait(3.0), Put("r.ZERO", 1.0), Put("r.YANG", 10.0), Put("r.READ", 1.0)],
            ),
            (
                "table set",
                &table,
                &[
                    Put("r.SET", 1.0),
                    Put("r.AX", 0.1),
                    Put("r.SUSE", 1.0),
                    Text("r.AUNIT", "ur"),
                    Put("r.UHAX", 4.0),
                    Put("r.INIT", 1.0),
                ],
            ),
            (
                "table limits",
                &table,
                &[Put("r.Y", 400.0), Put("r.LX", 900.0), Text("r.GEOM", "PNC"), Put("r.SYNC", 1.0)],
            ),
            ("sscan", scan, &[Put("r.EXSC", 1.0), Wait(2.0)]),
            (
                "sscan pause",
                scan,
                &[
                    Put("r.EXSC", 1.0),
                    Put("r.PAUS", 1.0),
                    Wait(0.3),
                    Put("r.WAIT", 1.0),
                    Put("r.PAUS", 0.0),
                    Wait(0.3),
                    Put("r.EXSC", 0.0),
                    Put("r.WAIT", 0.0),
                    Wait(2.0),
                ],
            ),
            (
                "sscan fields",
                scan,
                &[
                    Text("r.P1SM", "TABLE"),
                    Text("r.P1SM", "LINEAR"),
                    Put("r.P1WD", 3.0),
                    Put("r.NPTS", 500.0),
                    Put("r.REFD", 90.0),
                    Put("r.CMND", 2.0),
                    Put("r.FFO", 1.0),
                    Put("r.CMND", 3.0),
                ],
            ),
            (
                "motor move",
                motor,
                &[
                    Put("r", 20.0),
                    Wait(5.0),
                    Put("r.TWV", 2.0),
                    Put("r.TWF", 1.0),
                    Wait(5.0),
                    Put("r.RLV", -1.0),
                    Wait(3.0),
                ],
            ),
            (
                "motor jog",
                motor,
                &[
                    Put("r.JVEL", 5.0),
                    Put("r.JOGF", 1.0),
                    Wait(1.0),
                    Put("r.STOP", 1.0),
                    Wait(2.0),
                    Put("r.HOMF", 1.0),
                    Wait(10.0),
                    Put("r.SPMG", 0.0),
                    Put("r.SPMG", 3.0),
                ],
            ),
            (
                "motor set",
                motor,
                &[
                    Put("r.SET", 1.0),
                    Put("r", 5.0),
                    Put("r.SET", 0.0),
                    Put("r.OFF", 2.0),
                    Put("r.DIR", 1.0),
                    Put("r.HLM", 30.0),
                    Put("r.MRES", 0.2),
                    Put("r.S", 2.0),
                    Put("r.UREV", 4.0),
                    Put("r.ACCS", 3.0),
                    Put("r", 500.0),
                ],
            ),
            (
                "scaler",
                scaler,
                &[
                    Put("r.CNT", 1.0),
                    Wait(3.0),
                    Put("r.TP", 1.0),
                    Put("r.PR2", 100.0),
                    Put("r.G3", 1.0),
                    Put("r.CONT", 1.0),
                    Wait(15.0),
                    Put("r.CONT", 0.0),
                    Wait(3.0),
                ],
            ),
            (
                "epid",
                epid,
                &[Put("r.FBON", 1.0), Put("r", 3.0), Wait(1.0), Put("r.PROC", 1.0), Put("in", 2.0), Put("r.PROC", 1.0)],
            ),
            ("transform", transform, &[Put("r.A", 3.0), Put("r.C", 3.0)]),
            (
                "scalcout",
                scalcout,
                &[Put("r.A", 3.0), Put("o", 4.0), Put("r.A", 5.0), Wait(1.0), Text("r.CALC", "B+1"), Wait(1.0)],
            ),
            ("acalcout", acalcout, &[Put("r.A", 3.0), Wait(1.0), Put("r.NUSE", 2.0), Put("r.A", 5.0), Wait(1.0)]),
            (
                "sseq",
                sseq,
                &[
                    Put("r.PROC", 1.0),
                    Wait(2.0),
                    Put("r.STR1", 5.0),
                    Put("r.DO1", 7.0),
                    Put("r.PROC", 1.0),
                    Put("r.ABORT", 1.0),
                    Wait(1.0),
                ],
            ),
            ("swait", swait, &[Put("o", 3.0), Put("r.PROC", 1.0), Wait(1.0), Text("r.CALC", "B+1"), Wait(1.0)]),
            ("busy", busy, &[Put("r", 1.0), Wait(3.0)]),
        ];
        let mut found = Vec::new();
        for (name, records, acts) in cases {
            let mut fields = all_posted(records, acts);
            // The previous value of this type, which is the output of others.
            fields.retain(|field| name != "swait" || field != "OVAL");
            if !fields.is_empty() {
                found.push(format!("{name}: {}", fields.join(" ")));
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
