//! aSub record.

use super::arrays::{ELEMENTS_LIMIT, kind_of};
use super::inputs::{input_of, name_of, nth};
use crate::model::link::Link;
use crate::model::slot::{Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, Records};
use crate::run::engine::{Db, ProcessResult};
use crate::run::function::{ARGUMENTS, ASubCall, Call, Function, RecordFields, Turn};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Status};

record! {
    /// Fields of an aSub record.
    ASub {
        val: i32 [VAL],
        oval: i32 [OVAL],
        inam: Text<41> [INAM],
        lflg: u16 [LFLG],
        subl: Link [SUBL],
        snam: Text<41> [SNAM],
        onam: Text<41> [ONAM],
        brsv: u16 [BRSV],
        prec: i16 [PREC],
        eflg: u16 [EFLG],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        a: [Array; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        ft: [u16; 21] [FTA FTB FTC FTD FTE FTF FTG FTH FTI FTJ FTK FTL FTM FTN FTO FTP FTQ FTR FTS FTT FTU],
        no: [u32; 21] [NOA NOB NOC NOD NOE NOF NOG NOH NOI NOJ NOK NOL NOM NON NOO NOP NOQ NOR NOS NOT NOU],
        ne: [u32; 21] [NEA NEB NEC NED NEE NEF NEG NEH NEI NEJ NEK NEL NEM NEN NEO NEP NEQ NER NES NET NEU],
        out: [Link; 21] [OUTA OUTB OUTC OUTD OUTE OUTF OUTG OUTH OUTI OUTJ OUTK OUTL OUTM OUTN OUTO OUTP OUTQ OUTR OUTS OUTT OUTU],
        vala: [Array; 21] [VALA VALB VALC VALD VALE VALF VALG VALH VALI VALJ VALK VALL VALM VALN VALO VALP VALQ VALR VALS VALT VALU],
        ovla: [Array; 21] [OVLA OVLB OVLC OVLD OVLE OVLF OVLG OVLH OVLI OVLJ OVLK OVLL OVLM OVLN OVLO OVLP OVLQ OVLR OVLS OVLT OVLU],
        ftv: [u16; 21] [FTVA FTVB FTVC FTVD FTVE FTVF FTVG FTVH FTVI FTVJ FTVK FTVL FTVM FTVN FTVO FTVP FTVQ FTVR FTVS FTVT FTVU],
        nov: [u32; 21] [NOVA NOVB NOVC NOVD NOVE NOVF NOVG NOVH NOVI NOVJ NOVK NOVL NOVM NOVN NOVO NOVP NOVQ NOVR NOVS NOVT NOVU],
        nev: [u32; 21] [NEVA NEVB NEVC NEVD NEVE NEVF NEVG NEVH NEVI NEVJ NEVK NEVL NEVM NEVN NEVO NEVP NEVQ NEVR NEVS NEVT NEVU],
        onv: [u32; 21] [ONVA ONVB ONVC ONVD ONVE ONVF ONVG ONVH ONVI ONVJ ONVK ONVL ONVM ONVN ONVO ONVP ONVQ ONVR ONVS ONVT ONVU],
    } private {
        function: u32,
        user: u64,
        // Serial number of the call that ends later; 0 if there is none.
        waiting: u64,
    }
}

impl RecordType for ASub {
    /// Start: allocates arrays, loads constants, finds the functions.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        let zeros = |kind: u16, count: u32| Array::zeros(kind_of(kind), count as usize);
        for at in 0..ARGUMENTS {
            for (kind, count) in [(&mut r.ft[at], &mut r.no[at]), (&mut r.ftv[at], &mut r.nov[at])] {
                if *kind > 11 {
                    *kind = 1;
                }
                *count = (*count).clamp(1, ELEMENTS_LIMIT as u32);
            }
            r.a[at] = zeros(r.ft[at], r.no[at]);
            r.vala[at] = zeros(r.ftv[at], r.nov[at]);
            r.ovla[at] = r.vala[at].clone();
            r.ne[at] = r.no[at];
            (r.nev[at], r.onv[at]) = (r.nov[at], r.nov[at]);
        }
        if let Some(name) = r.subl.short_text() {
            r.snam.set(name.bytes());
        }
        for at in 0..ARGUMENTS {
            if let Some(values) =
                r.inp[at].elements(kind_of(r.ft[at]), r.no[at] as usize).filter(|values| !values.is_empty())
            {
                r.ne[at] = values.len() as u32;
                r.a[at] = values;
            }
        }
        if !r.inam.bytes().is_empty() {
            let number = db.functions.a_sub(r.inam.bytes());
            if number == 0 {
                let (inam, snam) = (r.inam.bytes().to_vec(), r.snam.bytes().to_vec());
                db.no_function(rec, "INAM", &inam);
                // As in C, the record gets no function. Both names are reported, so that one plug-in can have both.
                if !snam.is_empty() && db.functions.a_sub(&snam) == 0 {
                    db.no_function(rec, "SNAM", &snam);
                }
                return;
            }
            call(db, rec, body, number, Turn::Initial);
            db.records[body].waiting = 0;
        }
        if db.records[body].lflg == 0 && find(db, rec, body).is_err() {
            return;
        }
        let r = &mut db.records[body];
        r.onam.clone_from(&r.snam);
        r.oval = r.val;
        r.onv = r.nev;
        r.ovla.clone_from(&r.vala);
    }

    /// Reads the inputs, calls the function, writes the outputs, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let mut ended_well = resumed || fetch(db, rec, body).is_ok();
        if ended_well {
            let r = &db.records[body];
            let result = if r.snam.bytes().is_empty() {
                0
            } else if r.function == 0 {
                db.records[rec].raise(Status::BadSub, 3);
                BAD_SUB
            } else {
                let number = r.function;
                let Some(result) = call(db, rec, body, number, Turn::of(resumed)) else {
                    return ProcessResult::Pending;
                };
                let (common, r) = db.records.both(rec, body);
                if result < 0 {
                    common.raise(Status::Soft, r.brsv);
                } else {
                    common.udf = 0;
                }
                result
            };
            db.records[body].val = result;
            ended_well = result == 0;
        }
        db.stamp_now(rec);
        if ended_well {
            for at in 0..ARGUMENTS {
                let link = db.records[body].out[at].brief();
                if link.kind != crate::model::link::LinkKind::Constant {
                    let values = db.records[body].vala[at].clone();
                    // A failed write raises the alarm itself.
                    let _ = db.put_link_array(rec, link, &values);
                }
            }
        }
        monitor(db, rec, body);
        ProcessResult::Done
    }

    /// Called after a write to SNAM.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, _: u16, after: bool) -> Result<(), PutError> {
        if after && db.records[body].lflg == 0 { find(db, rec, body) } else { Ok(()) }
    }

    fn waiting(&mut self) -> Option<&mut u64> {
        Some(&mut self.waiting)
    }

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        match input_of(field, [Self::A, Self::VALA]) {
            Some(at) if field >= Self::VALA => Properties::of_link(&self.out[at]).digits(self.prec, true),
            Some(at) => Properties::of_link(&self.inp[at]).digits(self.prec, true),
            None => Properties { control: None, ..Properties::NONE }.digits(self.prec, false),
        }
    }

    fn shape(&self, field: u16) -> (u32, FieldType) {
        match place(field) {
            Some((true, at)) => (self.nov[at], kind_of(self.ftv[at])),
            Some((false, at)) => (self.no[at], kind_of(self.ft[at])),
            None => (0, FieldType::F64),
        }
    }

    fn counts_elements(field: u16) -> bool {
        (Self::NOA..=Self::NOU).contains(&field) || (Self::NOVA..=Self::NOVU).contains(&field)
    }

    fn store_array(db: &mut Db, _: RecId, body: Body<Self>, field: u16, values: Array) -> Result<(), PutError> {
        let r = &mut db.records[body];
        let (count, array) = match place(field) {
            Some((true, at)) => (&mut r.nev[at], &mut r.vala[at]),
            Some((false, at)) => (&mut r.ne[at], &mut r.a[at]),
            None => return Ok(()),
        };
        *count = values.len() as u32;
        *array = values;
        Ok(())
    }
}

/// VAL of the C record if no function is registered (S_db_BadSub).
const BAD_SUB: i32 = 511 << 16 | 35;

/// Whether an array field is an output, and its index.
fn place(field: u16) -> Option<(bool, usize)> {
    let arrays = [(false, ASub::A), (true, ASub::VALA), (true, ASub::OVLA)];
    arrays.into_iter().find_map(|(output, first)| Some((output, nth(field, first, ARGUMENTS)?)))
}

/// Finds the function named by SNAM.
fn find(db: &mut Db, rec: RecId, body: Body<ASub>) -> Result<(), PutError> {
    let r = &mut db.records[body];
    r.function = db.functions.a_sub(r.snam.bytes());
    if r.function == 0 && !r.snam.bytes().is_empty() {
        let name = r.snam.bytes().to_vec();
        db.no_function(rec, "SNAM", &name);
        return Err(PutError::BadValue { what: format!("no function \"{}\" is registered", name.escape_ascii()) });
    }
    Ok(())
}

/// Calls a function of the record. Returns its result, or `None` if the call ends later. Converts the outputs to the record's
/// types and truncates them to its array sizes.
fn call(db: &mut Db, rec: RecId, body: Body<ASub>, number: u32, turn: Turn) -> Option<i32> {
    let token = db.next_call(rec);
    let Records { names, common, bodies, .. } = &mut db.records;
    let (name, r) = (names.text(common[rec].name), &mut bodies[body]);
    let Some(Function::ASub(function)) = db.functions.get(number) else { return Some(-1) };
    let fields = RecordFields::of(&common[rec], r.val, r.brsv, r.prec);
    let call = Call::new(name, fields, &mut r.user, turn, token);
    let mut sub = ASubCall { call, inputs: &mut r.a, outputs: &mut r.vala, capacity: &r.no, room: &r.nov };
    let result = function(&mut sub);
    let end = sub.call.end();
    (r.waiting, r.brsv, r.prec) = (end.waiting, end.fields.bad_return, end.fields.precision);
    let mut fits = true;
    for at in 0..ARGUMENTS {
        let (kind, max) = (kind_of(r.ftv[at]), r.nov[at] as usize);
        let values = &mut r.vala[at];
        if values.kind() != kind {
            let converted = crate::model::values::convert_array(values, kind, max, 6);
            fits &= converted.is_some();
            *values = converted.unwrap_or_else(|| Array::zeros(kind, 0));
        }
        values.truncate(max);
        r.nev[at] = values.len() as u32;
        let (kind, max) = (kind_of(r.ft[at]), r.no[at] as usize);
        if r.a[at].kind() != kind {
            fits = false;
            r.a[at] = Array::zeros(kind, 0);
        }
        r.a[at].truncate(max);
        r.ne[at] = r.a[at].len() as u32;
    }
    if end.waiting != 0 {
        return None;
    }
    end.store(&mut db.records[rec]);
    Some(if fits { result } else { result.min(-1) })
}

/// Reads the inputs up to the first failure.
fn fetch(db: &mut Db, rec: RecId, body: Body<ASub>) -> Result<(), ()> {
    if db.records[body].lflg == 1 {
        let link = db.records[body].subl.brief();
        if let Some(name) = db.get_link_text(rec, link).map_err(drop)? {
            db.records[body].snam.set(name.bytes());
        }
        let r = &mut db.records[body];
        if !r.snam.bytes().is_empty() && r.snam != r.onam {
            let number = db.functions.a_sub(r.snam.bytes());
            if number == 0 {
                return Err(());
            }
            r.function = number;
            r.onam.clone_from(&r.snam);
        }
    }
    for at in 0..ARGUMENTS {
        let r = &db.records[body];
        let (link, kind, max) = (r.inp[at].brief(), kind_of(r.ft[at]), r.no[at] as usize);
        if let Some(values) = db.get_link_array(rec, link, kind, max).map_err(drop)? {
            let r = &mut db.records[body];
            r.ne[at] = values.len() as u32;
            super::arrays::set(&mut r.a[at], values);
        }
    }
    Ok(())
}

/// Posts monitors as EFLG selects: never, on change, always.
fn monitor(db: &mut Db, rec: RecId, body: Body<ASub>) {
    let mask = db.reset_alarms(rec) | EventMask::VALUE | EventMask::LOG;
    let r = &mut db.records[body];
    if r.val != r.oval {
        r.oval = r.val;
        db.post_value(rec, mask);
    }
    for at in 0..ARGUMENTS {
        let r = &mut db.records[body];
        let (value, count) = match r.eflg {
            0 => return,
            1 => {
                let count = r.nev[at] != r.onv[at];
                let value = count || r.vala[at] != r.ovla[at];
                if value {
                    r.ovla[at].clone_from(&r.vala[at]);
                    r.onv[at] = r.nev[at];
                }
                (value, count)
            }
            _ => (true, true),
        };
        if value {
            db.post_named(rec, name_of::<ASub>(ASub::VALA, at), mask);
        }
        if count {
            db.post_named(rec, name_of::<ASub>(ASub::NEVA, at), mask);
        }
    }
}
